//! Files of figures below `tests/counts`: a name and a number on each line, which a command writes
//! and a check compares with what it finds.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str;

use crate::failure::XtaskFailure;
use crate::files;
use crate::place::Checkout;

/// Figures by name.
pub(crate) type Figures = BTreeMap<String, u64>;

/// A file of figures.
pub(crate) struct FigureFile {
    pub(crate) path: &'static str,
    /// The first line, without its mark.
    pub(crate) title: &'static str,
    /// What the names stand for, and what the figures count, as heads of a table.
    pub(crate) heads: [&'static str; 2],
    /// The difference from a recorded figure, in percent, that is no change.
    pub(crate) tolerance: u64,
    /// Whether fewer are a change too.
    pub(crate) is_two_sided: bool,
    /// How to find the cause, and how to record it.
    pub(crate) remedy: &'static str,
}

impl FigureFile {
    pub(crate) fn read(&self, place: &Checkout) -> Result<Figures, XtaskFailure> {
        Ok(parsed(&place.read(self.path)?))
    }

    /// Prints figures beside those recorded. Then records them, or fails if they differ.
    pub(crate) fn record_or_compare(
        &self,
        place: &Checkout,
        figures: Figures,
        is_recording: bool,
    ) -> Result<(), XtaskFailure> {
        let recorded = match self.read(place) {
            Ok(recorded) => recorded,
            Err(_) if is_recording => Figures::new(),
            Err(failure) => return Err(failure),
        };
        print!("{}", self.table(&figures, &recorded));
        if !is_recording {
            return self.compare(&figures, &recorded);
        }
        let file = place.root.join(self.path);
        files::write(&file, self.written(&self.recorded_anew(figures, recorded)))
    }

    /// What is recorded with these figures. Where less is no fault, a row that could not be counted
    /// this time stays.
    fn recorded_anew(&self, figures: Figures, recorded: Figures) -> Figures {
        let mut all = if self.is_two_sided { Figures::new() } else { recorded };
        all.extend(figures);
        all
    }

    fn written(&self, figures: &Figures) -> String {
        let mut text = format!("# {}\n", self.title);
        for (name, figure) in figures {
            let _ = writeln!(text, "{name:<24}{:>14}", spelled(*figure));
        }
        text
    }

    fn table(&self, figures: &Figures, recorded: &Figures) -> String {
        let [name, figure] = self.heads;
        let mut text = format!("{name:<24}{figure:>14}{:>14}\n", "recorded");
        for (name, figure) in figures {
            let before = recorded.get(name).map_or("–".to_owned(), |figure| spelled(*figure));
            let _ = writeln!(text, "{name:<24}{:>14}{before:>14}", spelled(*figure));
        }
        text
    }

    /// Fails for each figure that differs from the recorded one by more than the tolerance.
    pub(crate) fn compare(
        &self,
        figures: &Figures,
        recorded: &Figures,
    ) -> Result<(), XtaskFailure> {
        let mut problems = String::new();
        for (name, figure) in figures {
            let Some(before) = recorded.get(name) else {
                let _ = writeln!(problems, "    {name} is not recorded");
                continue;
            };
            let is_more = figure > before;
            let difference = figure.abs_diff(*before);
            if (is_more || self.is_two_sided) && difference * 100 > before * self.tolerance {
                let sign = if is_more { "more" } else { "fewer" };
                let percent = difference * 100 / before.max(&1);
                let (figure, before) = (spelled(*figure), spelled(*before));
                let _ = writeln!(
                    problems,
                    "    {name} is {figure}, {percent} % {sign} than the {before} recorded"
                );
            }
        }
        for name in recorded.keys().filter(|name| self.is_two_sided && !figures.contains_key(*name))
        {
            let _ = writeln!(problems, "    {name} is recorded, and is not counted any more");
        }
        XtaskFailure::unless_empty(&problems, self.remedy)
    }
}

/// The rows of a file of figures.
pub(crate) fn parsed(text: &str) -> Figures {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.filter_map(|line| {
        let (name, figure) = line.split_once(' ')?;
        Some((name.to_owned(), figure.trim().replace('_', "").parse().ok()?))
    });
    rows.collect()
}

/// A number with `_` between thousands.
fn spelled(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<&str> = groups.map(|group| str::from_utf8(group).unwrap_or_default()).collect();
    groups.join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FigureFile = FigureFile {
        path: "counts.txt",
        title: "Instructions.",
        heads: ["path", "instructions"],
        tolerance: 5,
        is_two_sided: true,
        remedy: "Look.",
    };

    fn figures(pairs: &[(&str, u64)]) -> Figures {
        pairs.iter().map(|(name, figure)| ((*name).to_owned(), *figure)).collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let all = figures(&[("a-path", 1_234_567), ("b", 12), ("c", 999), ("d", 1_000)]);
        assert!(FILE.written(&all).contains("1_234_567"), "{}", FILE.written(&all));
        assert_eq!(parsed(&FILE.written(&all)), all);
    }

    #[test]
    fn a_step_of_more_than_five_percent_fails_in_both_directions() {
        let recorded = figures(&[("step", 1_000), ("gone", 1)]);
        let refused = |figure| {
            let all = figures(&[("step", figure), ("gone", 1)]);
            FILE.compare(&all, &recorded).err().map(|failure| failure.text)
        };
        assert_eq!((refused(1_050), refused(950)), (None, None));
        assert!(refused(1_100).unwrap().contains("step is 1_100, 10 % more than the 1_000"));
        assert!(refused(900).unwrap().contains("10 % fewer"));
        let other = FILE.compare(&figures(&[("step", 1_000), ("new", 5)]), &recorded);
        let text = other.unwrap_err().text;
        assert!(
            text.contains("new is not recorded") && text.contains("gone is recorded"),
            "{text}"
        );
    }

    #[test]
    fn rows_that_were_not_counted_stay_recorded_where_less_is_no_fault() {
        let recorded = || figures(&[("program", 1_000), ("files", 2_000)]);
        let anew = |file: &FigureFile| file.recorded_anew(figures(&[("program", 5)]), recorded());
        let one_sided = FigureFile { is_two_sided: false, ..FILE };
        assert_eq!(anew(&one_sided), figures(&[("program", 5), ("files", 2_000)]));
        assert_eq!(anew(&FILE), figures(&[("program", 5)]));
        let table = one_sided.table(&figures(&[("program", 5)]), &recorded());
        assert!(!table.contains("files"), "it was not counted: {table}");
    }

    #[test]
    fn only_growth_fails_where_less_is_no_fault() {
        let file = FigureFile { is_two_sided: false, ..FILE };
        let recorded = figures(&[("program", 1_000), ("files", 2_000)]);
        let refused = |figure| {
            let all = figures(&[("program", figure)]);
            file.compare(&all, &recorded).err().map(|failure| failure.text)
        };
        assert_eq!((refused(1_050), refused(10)), (None, None));
        assert!(refused(1_060).unwrap().contains("program is 1_060, 6 % more"));
        assert!(file.compare(&figures(&[("other", 1)]), &recorded).is_err());
    }
}

//! The results of a benchmark, as a table for readers and as JSON for programs.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::BenchError;
use crate::measure::Times;

/// One line of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) what: &'static str,
    /// `None` for a figure without a comparison.
    pub(crate) baseline: Option<Side>,
    pub(crate) subject: Side,
    pub(crate) reach: Reach,
}

/// The description and the times of one side.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) does: &'static str,
    #[serde(flatten)]
    pub(crate) times: Times,
    #[serde(flatten)]
    size: Option<Size>,
}

/// A size that belongs to a side, in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Size {
    /// The component's file.
    Component(u64),
    /// The peak memory of one call or process.
    Memory(u64),
}

impl Side {
    pub(crate) fn new(does: &'static str, times: Times) -> Self {
        Self { does, times, size: None }
    }

    pub(crate) fn with(self, size: Size) -> Self {
        Self { size: Some(size), ..self }
    }

    fn label(&self) -> String {
        match self.size {
            Some(Size::Component(bytes) | Size::Memory(bytes)) => {
                format!("{}, {} MB", self.does, rounded(bytes as f64 / 1e6))
            }
            None => self.does.to_owned(),
        }
    }
}

/// The rows that were measured and those that were not, in order.
#[derive(Default)]
pub(crate) struct Rows {
    measured: Vec<Row>,
    skipped: Vec<Skipped>,
}

/// What was not measured, with the reason.
#[derive(Debug, Serialize)]
struct Skipped {
    what: &'static str,
    why: String,
}

impl Rows {
    pub(crate) fn keep(&mut self, row: Row) {
        eprintln!("measured: {}", row.what);
        self.measured.push(row);
    }

    pub(crate) fn skip(&mut self, what: &'static str, why: String) {
        self.skipped.push(Skipped { what, why });
    }
}

/// The target for the medians.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reach {
    /// The subject takes at most so many times as long as the baseline.
    AtMost(f64),
    /// The subject's 99th percentile is at most so many times the baseline's.
    P99AtMost(f64),
    /// The subject is at least so many times as fast.
    Faster(f64),
    /// The subject takes at most so many microseconds, on two cores of a rented machine.
    AtMostMicros(f64),
    /// About so many microseconds, on two cores of a rented machine. Informative only.
    AboutMicros(f64),
    /// At least so many per second, by the subject's median.
    PerSecond(f64),
    /// The subject takes at most so many times as long as the baseline, and each task uses at most
    /// so many KiB of the process. No sandbox is held.
    Waiting {
        most: f64,
        kib: f64,
        measured_kib: f64,
        instances: u64,
    },
    Nothing,
}

/// All rows of one run, with the facts needed to compare it with another run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) quick: bool,
    pub(crate) processors: usize,
    pub(crate) system: String,
    pub(crate) rows: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<Skipped>,
}

impl Report {
    pub(crate) fn new(quick: bool, rows: Rows) -> Self {
        let processors = std::thread::available_parallelism().map_or(0, usize::from);
        Self {
            quick,
            processors,
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            rows: rows.measured,
            skipped: rows.skipped,
        }
    }

    /// Writes the report as JSON. Creates the folder if it is missing.
    pub(crate) fn write_json(&self, path: &Path) -> Result<(), BenchError> {
        let failed = |cause| BenchError::Write { path: path.to_owned(), cause };
        let mut text = serde_json::to_string_pretty(self).expect("a report is plain data");
        text.push('\n');
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(path, text).map_err(failed)
    }
}

impl Row {
    /// Returns the ratio of subject to baseline.
    fn ratio(&self) -> Option<f64> {
        let baseline = self.baseline.as_ref()?;
        let compared = |times: Times| {
            if matches!(self.reach, Reach::P99AtMost(_)) { times.p99_ns } else { times.median_ns }
        };
        Some(compared(self.subject.times) as f64 / compared(baseline.times).max(1) as f64)
    }

    fn cells(&self) -> [String; 9] {
        let none = || ["–".to_owned(), String::new(), String::new()];
        let side =
            |side: &Side| [side.label(), spelled(side.times.median_ns), spelled(side.times.p99_ns)];
        let [base, base_median, base_p99] = self.baseline.as_ref().map_or_else(none, side);
        let [subject, median, p99] = side(&self.subject);
        let (ratio, reach, verdict) = self.judged();
        [
            self.what.to_owned(),
            base,
            base_median,
            base_p99,
            subject,
            median,
            p99,
            ratio,
            format!("{reach}{verdict}"),
        ]
    }

    fn judged(&self) -> (String, String, &'static str) {
        let times = |ratio: Option<f64>| {
            ratio.map_or_else(String::new, |ratio| format!("{} ×", rounded(ratio)))
        };
        let verdict = |met: bool| if met { "" } else { "  missed" };
        match (self.reach, self.ratio()) {
            (Reach::AtMost(most), ratio) => (
                times(ratio),
                format!("≤ {} ×", rounded(most)),
                verdict(ratio.is_some_and(|ratio| ratio <= most)),
            ),
            (Reach::P99AtMost(most), ratio) => (
                times(ratio),
                format!("p99 ≤ {} ×", rounded(most)),
                verdict(ratio.is_some_and(|ratio| ratio <= most)),
            ),
            (Reach::Faster(least), ratio) => {
                let faster = ratio.map(|ratio| 1.0 / ratio.max(f64::MIN_POSITIVE));
                let met = faster.is_some_and(|faster| faster >= least);
                (
                    format!("{} faster", times(faster)),
                    format!("≥ {} × faster", rounded(least)),
                    verdict(met),
                )
            }
            (Reach::AtMostMicros(most), ratio) => {
                let met = self.subject.times.median_ns as f64 <= most * 1e3;
                (times(ratio), format!("≤ {}", of_micros(most)), verdict(met))
            }
            (Reach::AboutMicros(micros), ratio) => {
                (times(ratio), format!("about {}", of_micros(micros)), "")
            }
            (Reach::PerSecond(least), _) => {
                let each = 1e9 / self.subject.times.median_ns.max(1) as f64;
                (format!("{each:.0}/s"), format!("≥ {least:.0}/s"), verdict(each >= least))
            }
            (Reach::Waiting { most, kib, measured_kib, instances }, ratio) => {
                let met = ratio.is_some_and(|ratio| ratio <= most)
                    && measured_kib <= kib
                    && instances == 0;
                let measured =
                    format!("{}, {measured_kib:.1} KiB each, {instances} sandboxes", times(ratio));
                (measured, format!("≤ {} ×, ≤ {kib:.0} KiB, none", rounded(most)), verdict(met))
            }
            (Reach::Nothing, ratio) => (times(ratio), String::new(), ""),
        }
    }
}

impl Display for Report {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let head =
            ["what", "baseline", "median", "p99", "subject", "median", "p99", "ratio", "reach"]
                .map(str::to_owned);
        let lines: Vec<[String; 9]> =
            std::iter::once(head).chain(self.rows.iter().map(Row::cells)).collect();
        let widths: [usize; 9] = std::array::from_fn(|column| {
            lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
        });
        for line in &lines {
            let mut text = String::new();
            for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
                let space = " ".repeat(width - cell.chars().count());
                // Aligns words to the left and numbers to the right.
                text += &if matches!(column, 0 | 1 | 4 | 8) {
                    format!("{cell}{space}  ")
                } else {
                    format!("{space}{cell}  ")
                };
            }
            writeln!(out, "{}", text.trim_end())?;
        }
        for Skipped { what, why } in &self.skipped {
            writeln!(out, "skipped: {what}: {why}")?;
        }
        let quick = if self.quick { "; --quick: figures are rough" } else { "" };
        writeln!(
            out,
            "\n{} processors, {}{quick}. Compare ratios, not times, between machines.",
            self.processors, self.system
        )
    }
}

/// Returns the time with three digits and a unit.
pub(crate) fn spelled(nanos: u64) -> String {
    let nanos = nanos as f64;
    match nanos {
        _ if nanos < 1e3 => format!("{nanos} ns"),
        _ if nanos < 1e6 => format!("{} µs", rounded(nanos / 1e3)),
        _ if nanos < 1e9 => format!("{} ms", rounded(nanos / 1e6)),
        _ => format!("{} s", rounded(nanos / 1e9)),
    }
}

fn of_micros(micros: f64) -> String {
    match micros {
        _ if micros >= 1e6 => format!("{} s", rounded(micros / 1e6)),
        _ if micros >= 1e3 => format!("{} ms", rounded(micros / 1e3)),
        _ => format!("{} µs", rounded(micros)),
    }
}

fn rounded(number: f64) -> String {
    match number {
        _ if number.fract() == 0.0 || number >= 100.0 => format!("{number:.0}"),
        _ if number >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(does: &'static str, median_ns: u64) -> Side {
        let p99_ns = 2 * median_ns;
        Side::new(does, Times { samples: 1, min_ns: median_ns, median_ns, p99_ns })
    }

    fn table(rows: Vec<Row>) -> String {
        Report {
            quick: false,
            processors: 2,
            system: "linux x86_64".to_owned(),
            rows,
            skipped: Vec::new(),
        }
        .to_string()
    }

    #[test]
    fn a_skipped_row_is_named_with_its_reason() {
        let mut rows = Rows::default();
        rows.skip("a tool in Python", "pip is not there".to_owned());
        let report = Report::new(true, rows);
        assert!(report.to_string().contains("skipped: a tool in Python: pip is not there\n"));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["skipped"][0]["why"], "pip is not there");
    }

    #[test]
    fn a_size_stands_beside_the_name_of_its_side() {
        let row = Row {
            what: "call",
            baseline: Some(side("Rust", 100).with(Size::Memory(1_100_000))),
            subject: side("Python", 900).with(Size::Memory(14_000_000)),
            reach: Reach::AtMostMicros(0.5),
        };
        let json = serde_json::to_value(&row.subject).unwrap();
        assert_eq!(json["memory"], 14_000_000);
        let text = table(vec![row]);
        for part in ["Rust, 1.10 MB", "Python, 14 MB", "9 ×", "≤ 0.50 µs  missed"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn columns_are_aligned() {
        let text = table(vec![
            Row {
                what: "tool call",
                baseline: Some(side("bare", 14_800)),
                subject: side("conclave", 20_000),
                reach: Reach::AtMost(1.5),
            },
            Row {
                what: "load",
                baseline: Some(side("compile", 45_000_000)),
                subject: side("cache", 130_000),
                reach: Reach::Faster(50.0),
            },
            Row {
                what: "alone",
                baseline: None,
                subject: side("bare", 900),
                reach: Reach::Nothing,
            },
        ]);
        let lines: Vec<&str> = text.lines().take(4).collect();
        assert_eq!(
            lines,
            [
                "what       baseline   median      p99  subject   median      p99         ratio  reach",
                "tool call  bare      14.8 µs  29.6 µs  conclave   20 µs    40 µs        1.35 ×  ≤ 1.50 ×",
                "load       compile     45 ms    90 ms  cache     130 µs   260 µs  346 × faster  ≥ 50 × faster",
                "alone      –                           bare      900 ns  1.80 µs",
            ]
        );
    }

    #[test]
    fn a_missed_target_says_so() {
        let row = |subject| Row {
            what: "w",
            baseline: Some(side("b", 100)),
            subject: side("s", subject),
            reach: Reach::AtMost(1.5),
        };
        assert!(table(vec![row(151)]).contains("missed"));
        assert!(!table(vec![row(150)]).contains("missed"));
    }
}

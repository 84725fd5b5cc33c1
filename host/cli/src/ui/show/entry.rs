//! One entry of a trace in rows: the program's own words first, then plugins' text behind a mark.
//! This module knows nothing of the events.

use anstyle::Style;

use crate::ui::show::columns::{StyledText, wrap};
use crate::ui::show::foreign::{self, MARK, MARK_COLUMNS};
use crate::ui::show::{FAINT, paint};

/// Rows of a foreign text, at most, unless it is cut to one row.
const ROWS_MAX: usize = 12;

/// The text of an entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryText {
    /// The program's own words.
    words: Vec<StyledText>,
    foreign: Option<StyledText>,
    form: ForeignForm,
    /// The program's own words behind the foreign text.
    tail: String,
}

/// The form of a foreign text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ForeignForm {
    /// In one row, with blanks collapsed.
    #[default]
    Cut,
    /// In one row, with the blanks of its lines.
    Exact,
    /// In full, in several rows.
    Whole,
}

impl EntryText {
    /// Creates an entry that begins with these words.
    pub(crate) fn new(style: Style, words: impl Into<String>) -> Self {
        Self { words: vec![StyledText::new(style, words)], ..Self::default() }
    }

    pub(crate) fn plain(words: impl Into<String>) -> Self {
        Self::new(Style::new(), words)
    }

    /// Appends more of the program's own words.
    pub(crate) fn words(mut self, style: Style, words: impl Into<String>) -> Self {
        self.words.push(StyledText::new(style, words));
        self
    }

    /// Sets a plugin's text, which is cut to one row.
    pub(crate) fn cut(self, style: Style, text: &str) -> Self {
        Self { foreign: Some(StyledText::new(style, text)), form: ForeignForm::Cut, ..self }
    }

    /// Sets a plugin's text like [`EntryText::cut`], but keeps its blanks: the lines of a traceback
    /// are one text each, and point at the line above them.
    pub(crate) fn exact(self, style: Style, text: &str) -> Self {
        Self { form: ForeignForm::Exact, ..self.cut(style, text) }
    }

    /// Sets a plugin's text, which is shown in full up to [`ROWS_MAX`] rows.
    pub(crate) fn in_full(self, style: Style, text: &str) -> Self {
        Self { form: ForeignForm::Whole, ..self.cut(style, text) }
    }

    /// Sets the words at the end.
    pub(crate) fn tail(self, words: impl Into<String>) -> Self {
        Self { tail: words.into(), ..self }
    }

    /// The rows of at most `most` columns. No row begins with a plugin's text.
    pub(crate) fn rows(&self, most: usize) -> Vec<String> {
        let words: Vec<&str> = self.words.iter().map(|part| part.text.as_str()).collect();
        let mut rows: Vec<String> = match foreign::width(&words.join(" ")) {
            fits if fits <= most => {
                vec![
                    self.words
                        .iter()
                        .map(|part| paint(part.style, &part.text))
                        .collect::<Vec<_>>()
                        .join(" "),
                ]
            }
            _ => wrap(&words.join(" "), most),
        };
        let mut used = rows
            .last()
            .map_or(0, |row| foreign::width(&anstream::adapter::strip_str(row).to_string()));
        if let Some(foreign) = &self.foreign {
            used = self.append(&mut rows, used, foreign, most);
        }
        match (self.tail.is_empty(), rows.last_mut()) {
            (true, _) => {}
            (false, Some(last)) if used + 2 + foreign::width(&self.tail) <= most => {
                *last = format!("{last}  {}", paint(FAINT, &self.tail));
            }
            (false, _) => rows.push(paint(FAINT, &self.tail)),
        }
        rows
    }

    /// Appends the foreign text behind a mark. Returns the columns of the last row.
    fn append(&self, rows: &mut Vec<String>, used: usize, text: &StyledText, most: usize) -> usize {
        let mark = paint(FAINT, MARK.trim_end());
        let tail = if self.tail.is_empty() { 0 } else { foreign::width(&self.tail) + 2 };
        let blank = usize::from(used > 0);
        let room = most.saturating_sub(used + blank + MARK_COLUMNS);
        let (row, is_all) = match self.form {
            ForeignForm::Exact => foreign::exact_row(&text.text, room.saturating_sub(tail)),
            _ => foreign::one_row(&text.text, room.saturating_sub(tail)),
        };
        let behind = |row: &str| {
            if row.is_empty() { String::new() } else { format!(" {}", paint(text.style, row)) }
        };
        let fits_behind = is_all && !text.text.trim().contains('\n');
        if self.form != ForeignForm::Whole || fits_behind {
            let at_end = rows.pop().unwrap_or_default();
            rows.push(format!("{at_end}{}{mark}{}", " ".repeat(blank), behind(&row)));
            return used + blank + MARK_COLUMNS + foreign::width(&row);
        }
        let below = foreign::reading_rows(&text.text, most.saturating_sub(MARK_COLUMNS));
        let (rows_left, rows_shown) =
            (below.len().saturating_sub(ROWS_MAX), below.into_iter().take(ROWS_MAX));
        // Without words of the program, the text begins in the first row.
        rows.retain(|row| !row.is_empty());
        let from = rows.len();
        rows.extend(
            rows_shown
                .filter(|row| !row.trim().is_empty())
                .map(|row| format!("{mark}{}", behind(row.trim_end()))),
        );
        if rows_left > 0 {
            rows.push(paint(FAINT, format_args!("… {rows_left} more rows")));
        }
        if rows.len() == from { used } else { most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(entry: &EntryText, most: usize) -> Vec<String> {
        entry.rows(most).iter().map(|row| anstream::adapter::strip_str(row).to_string()).collect()
    }

    #[test]
    fn a_plugins_text_stands_behind_a_mark_on_every_row() {
        let none = Style::new();
        let entry =
            EntryText::plain("calls #1 search.find").cut(none, "{\"query\":\"lighthouses\"}");
        assert_eq!(plain(&entry, 60), ["calls #1 search.find │ {\"query\":\"lighthouses\"}"]);
        assert_eq!(plain(&entry, 32), ["calls #1 search.find │ {\"query…"]);
        let entry =
            EntryText::plain("#1 search.find").cut(none, "3 matches\nin 2 files").tail("2 ms");
        assert_eq!(plain(&entry, 60), ["#1 search.find │ 3 matches ↵ in 2 files  2 ms"]);
        let entry = EntryText::plain("failed").in_full(none, "one two three\nfour");
        assert_eq!(plain(&entry, 40), ["failed", "│ one two three", "│ four"]);
        let entry = EntryText::plain("failed").in_full(none, "one two three");
        assert_eq!(plain(&entry, 40), ["failed │ one two three"]);
        assert_eq!(plain(&entry, 14), ["failed", "│ one two", "│ three"]);
        let entry = EntryText::default().in_full(none, "one two three");
        assert_eq!(plain(&entry, 12), ["│ one two", "│ three"], "no empty row in front");
        let entry = EntryText::plain("log").exact(none, "    ~~^^ ");
        assert_eq!(plain(&entry, 40), ["log │     ~~^^"]);
        let long = "line\n".repeat(40);
        assert_eq!(
            plain(&EntryText::plain("x").in_full(none, &long), 40).last().map(String::as_str),
            Some("… 28 more rows")
        );
    }

    #[test]
    fn no_row_is_wider_than_it_may_be() {
        let texts =
            ["word ".repeat(60), "漢字".repeat(70), "x\u{a0}".repeat(90), "é\u{301}".repeat(99)];
        for text in &texts {
            for most in [24, 40, 60, 97] {
                let entry =
                    EntryText::plain("hands the conversation to billing:").words(BAD, "blocked");
                for entry in [
                    entry.clone().cut(BAD, text).tail("1.2 ms · 3.4 MiB"),
                    entry.in_full(BAD, text).tail("12 ms"),
                ] {
                    let rows = plain(&entry, most);
                    assert!(
                        rows.iter()
                            .all(|row| unicode_width::UnicodeWidthStr::width(row.as_str()) <= most),
                        "{most}: {rows:#?}"
                    );
                }
            }
        }
    }

    const BAD: Style = crate::ui::show::BAD;
}

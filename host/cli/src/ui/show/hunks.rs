//! A difference of two texts in rows: as `conclave diff` shows it, and the question about a call
//! that writes a file.

use anstyle::Style;
use conclave_runtime::overlay::diff::{LineSign, TextChange};

use super::{BAD, FAINT, GOOD, NAME, foreign, paint};

/// The hunks in rows of at most `width` columns. Each row of a line begins with its sign, so that
/// no row can be taken for the program's own.
pub(crate) fn hunk_rows(change: &TextChange, width: usize) -> Vec<String> {
    let mut rows = Vec::new();
    for hunk in &change.hunks {
        rows.push(paint(NAME, &hunk.header));
        for line in &hunk.lines {
            let style = match line.sign {
                LineSign::Context => Style::new(),
                LineSign::Removed => BAD,
                LineSign::Added => GOOD,
            };
            let wrapped = foreign::line_rows(&line.text, width.saturating_sub(1));
            rows.extend(
                wrapped
                    .iter()
                    .map(|row| paint(style, format_args!("{}{row}", line.sign.as_char()))),
            );
            if line.unterminated {
                rows.push(paint(FAINT, "\\ No newline at end of file"));
            }
        }
    }
    rows
}

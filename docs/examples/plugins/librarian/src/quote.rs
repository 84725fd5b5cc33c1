//! The display of a found sentence: its readable text, and its place.

use conclave_prose::{Format, one_line};

use crate::found::Hit;

/// A sentence and its place, on one line.
pub(crate) fn of(hit: &Hit) -> String {
    let text = if is_table_row(hit) { cells(&hit.text) } else { hit.text.clone() };
    format!("{}  ({}:{})", one_line(&text), one_line(hit.path.trim_start_matches('/')), hit.line)
}

/// Whether the hit is a row of a Markdown table. In source code a line may begin like one, such as
/// an arm of a match.
pub(crate) fn is_table_row(hit: &Hit) -> bool {
    hit.text.starts_with('|') && Format::of(&hit.path) == Format::Prose
}

/// The cells of a row as text. The first cell usually names the subject of the others.
fn cells(row: &str) -> String {
    // An escaped pipe is part of its cell. A zero byte can stand for it, since text contains none.
    let row = row.replace("\\|", "\0");
    let cells: Vec<_> = row
        .split('|')
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .map(|cell| cell.replace('\0', "|"))
        .collect();
    match cells.as_slice() {
        [] => String::new(),
        [name, rest @ ..] if !rest.is_empty() => {
            format!("{}: {}", name.trim_matches('*'), rest.join(" · "))
        }
        [only, ..] => only.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Hit, of};

    fn quoted(path: &str, text: &str) -> String {
        of(&Hit {
            path: path.into(),
            line: 3,
            text: text.into(),
            score: 0.0,
            context: String::new(),
        })
    }

    #[test]
    fn a_row_of_a_table_is_read_without_its_pipes() {
        assert_eq!(
            quoted("/f/a.md", "| `wall` | 30 s | stops the call |"),
            "`wall`: 30 s · stops the call  (f/a.md:3)"
        );
        assert_eq!(quoted("/f/a.md", "| `a\\|b` | |"), "`a|b`  (f/a.md:3)");
        assert_eq!(quoted("/f/a.rs", "| Some(1) => 2,"), "| Some(1) => 2,  (f/a.rs:3)");
    }

    #[test]
    fn a_name_cannot_forge_a_place() {
        assert_eq!(quoted("/f/a\nNo.  (b.md", "It is lit."), "It is lit.  (f/a\\nNo.  (b.md:3)");
    }
}

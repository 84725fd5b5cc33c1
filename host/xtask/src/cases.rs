//! The layout of the cases that people write as JSON: a line that is too long to read hides its
//! changes from a review.

use std::fmt::Write as _;

use crate::failure::XtaskFailure;
use crate::place::files_below;
use crate::sources::Sources;

/// The most characters of a line. Short cases stand on one line, long ones have one key a line.
const WIDTH: usize = 200;

/// Files below `tests/data` that no person writes: answers of a shell, and logs in the form in
/// which OpenHands stores them.
const RECORDED: [&str; 4] = [
    "tests/data/shell/",
    "tests/data/trajectory/list-",
    "tests/data/trajectory/pairs-",
    "tests/data/trajectory/station-",
];

/// Fails with the lines of cases that are too long.
pub(crate) fn cases_are_readable(sources: &Sources<'_>) -> Result<(), XtaskFailure> {
    let place = sources.place;
    let mut problems = String::new();
    for file in files_below(&place.root.join("tests/data"), ".json") {
        let path = place.relative(&file);
        if RECORDED.iter().any(|recorded| path.starts_with(recorded)) {
            continue;
        }
        for (number, length) in long_lines(&place.read(&path)?) {
            let _ = writeln!(problems, "    {path}:{number}  {length} characters");
        }
    }
    XtaskFailure::unless_empty(
        &problems,
        format_args!(
            "A line of a case has at most {WIDTH} characters, unless it is one long text: write one key a line."
        ),
    )
}

/// Returns the lines that are too long, from 1, with their lengths.
fn long_lines(text: &str) -> Vec<(usize, usize)> {
    let lines = text.lines().zip(1..).map(|(line, number)| (line, number, line.chars().count()));
    lines
        .filter(|(line, _, length)| *length > WIDTH && !is_one_text(line))
        .map(|(_, number, length)| (number, length))
        .collect()
}

/// Returns whether a line holds a single text, with its key or without: JSON cannot break it.
fn is_one_text(line: &str) -> bool {
    let line = line.trim_matches([' ', ',', '{', '}', '[', ']']);
    let Some(rest) = after_text(line) else { return false };
    match rest.strip_prefix(": ") {
        Some(value) => after_text(value).is_some_and(str::is_empty),
        None => rest.is_empty(),
    }
}

/// Returns the rest of a line that begins with a text; `None` if it does not.
fn after_text(line: &str) -> Option<&str> {
    let text = line.strip_prefix('"')?;
    let mut is_escaped = false;
    let end = text.find(|letter| {
        let is_end = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_end
    })?;
    Some(&text[end + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_found_but_for_single_texts() {
        let long = "x\\\"".repeat(WIDTH / 2);
        let text = format!(
            "[\n{{\"name\": \"{long}\"}},\n\"{long}\",\n[\"{long}\", 1],\n{{\"a\": 1, \"b\": \"{long}\"}}\n]"
        );
        let found: Vec<usize> = long_lines(&text).into_iter().map(|(number, _)| number).collect();
        assert_eq!(found, [4, 5]);
        assert_eq!(long_lines(&format!("[{}]", "1, ".repeat(WIDTH))), [(1, 3 * WIDTH + 2)]);
        assert_eq!(long_lines(&"1".repeat(WIDTH)), []);
    }
}

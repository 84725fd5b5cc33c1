//! Reads and writes lines like `read` and `write` of 2024-07, including their edge cases (O-136,
//! O-137).

/// The lines from `start` (from 0, inclusive) to `end` (exclusive, −1 for the end). Values out of
/// range are clamped.
///
/// With an `end`, at least one line is returned. A `start` after the second last line is moved back
/// to it.
pub fn read_lines(text: &str, start: i64, end: i64) -> String {
    let lines = split(text);
    let count = lines.len() as i64;
    let start = start.clamp(0, count);
    if end == -1 {
        return lines[start as usize..].concat();
    }
    let end = end.clamp(0, count);
    let begin = start.min(count - 2).max(0);
    let end = end.max(begin + 1).min(count);
    lines.get(begin as usize..end as usize).unwrap_or_default().concat()
}

/// The text with the lines from `start` to `end` (exclusive, −1 for the end) replaced by `content`.
///
/// The content is split at newlines and each piece gets one, so content with a final newline gains
/// an empty line. A new file takes the content regardless of the range. Negative values other than
/// −1 count from the end.
pub fn write_lines(existing: Option<&str>, content: &str, start: i64, end: i64) -> String {
    let written: String = content.split('\n').flat_map(|piece| [piece, "\n"]).collect();
    let Some(existing) = existing else { return written };
    let lines = split(existing);
    let before = if start == 0 { &[] } else { &lines[..place(start, lines.len())] };
    let after = if end == -1 { &[] } else { &lines[place(end, lines.len())..] };
    [before.concat(), written, after.concat()].concat()
}

/// The lines, each with its newline if it has one.
fn split(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// The position of an index in a list of this length. A negative index counts from the end; one out
/// of range is clamped.
fn place(index: i64, len: usize) -> usize {
    let len = len as i64;
    let place = if index < 0 { len.saturating_add(index) } else { index };
    place.clamp(0, len) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_moves_ranges_into_the_text() {
        for (text, start, end, expected) in [
            ("", 0, -1, ""),
            ("", 0, 5, ""),
            ("a", 0, 0, "a"),
            ("a\nb", 1, 1, "a\n"),
            ("a\nb\nc", 2, 3, "b\nc"),
            ("a\nb\nc", i64::MAX, i64::MAX, "b\nc"),
            ("a\nb\nc", i64::MIN, i64::MIN, "a\n"),
            ("a\nb\nc", 1, -1, "b\nc"),
            ("a\nb\nc", 1, -2, "b\n"),
        ] {
            assert_eq!(read_lines(text, start, end), expected, "{text:?} {start} {end}");
        }
    }

    #[test]
    fn writing_takes_ranges_as_slices() {
        for (existing, content, start, end, expected) in [
            (Some("a\nb\n"), "X", 0, -1, "X\n"),
            (Some("a\nb\n"), "X", 9, 9, "a\nb\nX\n"),
            (Some("a\nb\nc\n"), "X", -1, -2, "a\nb\nX\nb\nc\n"),
            (Some("a"), "b", 1, -1, "ab\n"),
            (Some(""), "x", 0, 0, "x\n"),
            (Some("a\n"), "x", i64::MIN, i64::MAX, "x\n"),
            (None, "x", 3, 4, "x\n"),
        ] {
            assert_eq!(
                write_lines(existing, content, start, end),
                expected,
                "{existing:?} {start} {end}"
            );
        }
    }
}

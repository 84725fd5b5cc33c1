//! Comments behind values stand in a column; a value that grew or shrank must not move its comment
//! out of it.

use super::scan::comment_starts;

/// Blanks between a value and its comment at least.
const GAP: usize = 2;

/// The text of now, with the comments of lines that changed moved back to where they stood, as far
/// as there is room.
pub(super) fn align(before: &str, after: &str) -> String {
    let (old, new) = (lines(before), lines(after));
    if old.len() != new.len() {
        return after.to_owned();
    }
    old.into_iter()
        .zip(new)
        .map(|(old, new)| aligned(old, new).unwrap_or_else(|| [new.0, new.1].concat()))
        .collect()
}

fn aligned(
    (old_value, old_comment): (&str, &str),
    (value, comment): (&str, &str),
) -> Option<String> {
    let has_none = |value: &str, comment: &str| comment.is_empty() || value.trim().is_empty();
    if has_none(old_value, old_comment) || has_none(value, comment) {
        return None;
    }
    let column = width(old_value) + blanks(old_value);
    let is_same = (old_value, old_comment) == (value, comment)
        || old_comment != comment
        || blanks(old_value) < GAP;
    let gap = column.saturating_sub(width(value)).max(GAP);
    (!is_same).then(|| format!("{}{}{comment}", value.trim_end(), " ".repeat(gap)))
}

/// Each line as what stands before its comment, and the comment with the line's end. Comments are
/// found in the text as a whole: a line by itself does not say that it began inside a string.
fn lines(text: &str) -> Vec<(&str, &str)> {
    let mut comments = comment_starts(text).into_iter().peekable();
    let mut start = 0;
    let mut split = |line: &'_ str| {
        let end = start + line.len();
        let at = comments.next_if(|comment| *comment < end).unwrap_or(end);
        let middle = at - start;
        start = end;
        middle
    };
    text.split_inclusive('\n').map(|line| line.split_at(split(line))).collect()
}

fn width(value: &str) -> usize {
    value.trim_end().chars().count()
}

fn blanks(value: &str) -> usize {
    value.len() - value.trim_end().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_stays_in_its_column() {
        let cases = [
            ("a = [1]       # x\n", "a = [1, 2]       # x\n", "a = [1, 2]    # x\n"),
            ("a = [1, 2]    # x\r\n", "a = [1]    # x\r\n", "a = [1]       # x\r\n"),
            ("a = [1]  # x", "a = [1, 2]  # x", "a = [1, 2]  # x"),
            ("a = [1] # x", "a = [1, 2] # x", "a = [1, 2] # x"),
            ("a = \"#\"   # x", "a = \"##\"   # x", "a = \"##\"  # x"),
            ("a = 1   # x\n", "a = 1   # x\nb = 2\n", "a = 1   # x\nb = 2\n"),
            ("# x", "# x", "# x"),
            (
                "a = '''\nv      # w\n''' # x",
                "a = '''\nvv     # w\n''' # x",
                "a = '''\nvv     # w\n''' # x",
            ),
            ("a = '''\nv'''   # x", "a = '''\nvv'''   # x", "a = '''\nvv'''  # x"),
        ];
        for (before, after, expected) in cases {
            assert_eq!(align(before, after), expected, "{before:?}");
        }
    }
}

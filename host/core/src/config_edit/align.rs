//! Comments behind values stand in a column; a value that grew or shrank must not move its comment out of it.

use super::scan::comments;

/// Blanks between a value and its comment at least.
const GAP: usize = 2;

/// The text of now, with the comments of lines that changed moved back to where they stood, as far as there is room.
pub(super) fn align(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    if old.len() != new.len() {
        return after.to_owned();
    }
    old.into_iter().zip(new).map(|(old, new)| aligned(old, new).unwrap_or_else(|| new.to_owned())).collect()
}

fn aligned(old: &str, new: &str) -> Option<String> {
    let ((old_value, old_comment), (value, comment)) = (split(old)?, split(new)?);
    let column = width(old_value) + blanks(old_value);
    let is_same = old == new || old_comment != comment || blanks(old_value) < GAP;
    let gap = column.saturating_sub(width(value)).max(GAP);
    (!is_same).then(|| format!("{}{}{comment}", value.trim_end(), " ".repeat(gap)))
}

/// What stands before the last comment of a line, and the comment with the line's end.
fn split(line: &str) -> Option<(&str, &str)> {
    let comment = *comments(line).last()?;
    let at = line.rfind(comment)?;
    (!line[..at].trim().is_empty()).then(|| line.split_at(at))
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
        ];
        for (before, after, expected) in cases {
            assert_eq!(align(before, after), expected, "{before:?}");
        }
    }
}

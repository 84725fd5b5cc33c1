//! Entries of a list or of a table on one line: one more, one less, and all that stands between
//! them as it was. Knows only where the entries stand.

use std::ops::Range;

use super::scan::{
    Splice, apply, comma, comments, indent, is_blank, line_end, line_start, newline,
};

/// A list or a table with brackets.
#[derive(Clone, Debug)]
pub(super) struct TomlSequence {
    /// With its brackets.
    pub(super) span: Range<usize>,
    /// In order.
    pub(super) entries: Vec<Range<usize>>,
}

impl TomlSequence {
    fn close(&self) -> usize {
        self.span.end - 1
    }

    /// What adds an entry at the end: on a line of its own where the others have one.
    pub(super) fn add(&self, text: &str, entry: &str) -> Vec<Splice> {
        self.add_all(text, &[entry])
    }

    /// What adds entries at the end, at least one.
    pub(super) fn add_all(&self, text: &str, new: &[&str]) -> Vec<Splice> {
        let entry = new.join(", ");
        let Some(last) = self.entries.last() else {
            let blank = if text[self.span.clone()].starts_with('{') { " " } else { "" };
            return vec![Splice::insert(self.span.start + 1, format!("{blank}{entry}{blank}"))];
        };
        let line = line_start(text, self.close());
        if line <= last.end || !is_blank(&text[line..self.close()]) {
            return vec![Splice::insert(last.end, format!(", {entry}"))];
        }
        let first = line_start(text, last.start);
        let indent = if is_blank(&text[first..last.start]) {
            indent(text, first).to_owned()
        } else {
            format!("{}  ", indent(text, line))
        };
        let newline = newline(text);
        let entry = new.join(&format!(",{newline}{indent}"));
        match self.comma_after(text, self.entries.len() - 1) {
            Some(_) => vec![Splice::insert(line, format!("{indent}{entry},{newline}"))],
            None => vec![
                Splice::insert(last.end, ","),
                Splice::insert(line, format!("{indent}{entry}{newline}")),
            ],
        }
    }

    /// What takes an entry away. Comments stay.
    pub(super) fn remove(&self, text: &str, index: usize) -> Vec<Splice> {
        let entry = self.entries[index].clone();
        match self.own_lines(text, index) {
            Some(lines) => self.remove_lines(text, index, lines),
            None => self.remove_inline(text, index, entry),
        }
    }

    /// The text without the entries at these places, which are in order.
    pub(super) fn without(mut self, text: &str, indexes: &[usize]) -> String {
        let mut text = text.to_owned();
        // From the last one on: what stands before an entry is where it was.
        for index in indexes.iter().rev() {
            let edited = apply(&text, self.remove(&text, *index));
            let moved = |at: usize| at + edited.len() - text.len();
            self.entries.remove(*index);
            for entry in &mut self.entries[*index..] {
                *entry = moved(entry.start)..moved(entry.end);
            }
            self.span.end = moved(self.span.end);
            text = edited;
        }
        text
    }

    fn comma_after(&self, text: &str, index: usize) -> Option<usize> {
        let end = self.entries[index].end;
        let until = self.entries.get(index + 1).map_or(self.close(), |next| next.start);
        comma(&text[end..until]).map(|at| end + at)
    }

    /// The lines of an entry that shares them with no other, and not with the brackets.
    fn own_lines(&self, text: &str, index: usize) -> Option<Range<usize>> {
        let entry = &self.entries[index];
        let start = line_start(text, entry.start);
        let end = line_end(text, entry.end);
        let after_comma = self.comma_after(text, index).map_or(entry.end, |at| at + 1);
        let apart = start > self.span.start && end <= self.close() && after_comma <= end;
        let alone = || {
            is_blank(&text[start..entry.start])
                && (is_blank(&text[after_comma..end]) || comment_only(&text[after_comma..end]))
        };
        (apart && alone()).then_some(start..end)
    }

    fn remove_lines(&self, text: &str, index: usize, lines: Range<usize>) -> Vec<Splice> {
        let kept: String = comments(&text[lines.clone()])
            .iter()
            .map(|comment| keep(text, lines.start, comment))
            .collect();
        let mut splices = vec![Splice::replace(lines, kept)];
        // Without a comma at the end before, there is none after.
        if index > 0 && index + 1 == self.entries.len() && self.comma_after(text, index).is_none() {
            splices.extend(self.comma_after(text, index - 1).map(|at| Splice::remove(at..at + 1)));
        }
        splices
    }

    fn remove_inline(&self, text: &str, index: usize, entry: Range<usize>) -> Vec<Splice> {
        let before = index.checked_sub(1).map(|before| self.entries[before].end..entry.start);
        let after = self.entries.get(index + 1).map(|next| entry.end..next.start);
        let free = |gap: &Range<usize>| comments(&text[gap.clone()]).is_empty();
        match (before, after) {
            (Some(gap), None) if free(&gap) && comments(&text[entry.clone()]).is_empty() => {
                vec![Splice::remove(gap.start..entry.end)]
            }
            (_, Some(gap)) if free(&gap) && comments(&text[entry.clone()]).is_empty() => {
                vec![Splice::remove(entry.start..gap.end)]
            }
            (before, _) => {
                let commas = self
                    .comma_after(text, index)
                    .or_else(|| before.and_then(|_| self.comma_after(text, index - 1)));
                // Comments inside the entry end their lines, so what follows needs a new one.
                let kept: String = comments(&text[entry.clone()])
                    .iter()
                    .map(|comment| keep(text, entry.start, comment))
                    .collect();
                let mut splices = vec![Splice::replace(entry, kept)];
                splices.extend(commas.map(|at| Splice::remove(at..at + 1)));
                splices
            }
        }
    }
}

fn comment_only(text: &str) -> bool {
    text.trim_start().starts_with('#')
}

/// A comment on a line of its own, indented as the line was where it stood.
fn keep(text: &str, at: usize, comment: &str) -> String {
    format!("{}{comment}{}", indent(text, line_start(text, at)), newline(text))
}

#[cfg(test)]
mod tests {
    use toml_edit::Document;

    use super::*;

    fn list(text: &str) -> TomlSequence {
        let document = Document::parse(text).expect("it is TOML");
        let array = document.as_table()["a"].as_array().expect("it is a list");
        let entries = array.iter().map(|entry| entry.span().expect("it was parsed")).collect();
        TomlSequence { span: array.span().expect("it was parsed"), entries }
    }

    fn added(text: &str) -> String {
        apply(text, list(text).add(text, "9"))
    }

    fn removed(text: &str, index: usize) -> String {
        apply(text, list(text).remove(text, index))
    }

    #[test]
    fn an_entry_is_added_as_the_others_stand() {
        let cases = [
            ("a = []", "a = [9]"),
            ("a = [1]", "a = [1, 9]"),
            ("a = [ 1, 2, ] # x", "a = [ 1, 2, 9, ] # x"),
            ("a = [\n  1, # one\n  2 # two\n]", "a = [\n  1, # one\n  2, # two\n  9\n]"),
            ("a = [\n\t1,\n\t# end\n]", "a = [\n\t1,\n\t# end\n\t9,\n]"),
            ("a = [1,\r\n  2\r\n]", "a = [1,\r\n  2,\r\n  9\r\n]"),
            ("a = [\n  1, 2]", "a = [\n  1, 2, 9]"),
        ];
        for (text, expected) in cases {
            assert_eq!(added(text), expected, "{text:?}");
        }
    }

    #[test]
    fn entries_are_added_and_removed_together_as_one_by_one() {
        for text in [
            "a = [1]",
            "a = [ 1, 2 ]",
            "a = [\n  1, # one\n]",
            "a = [\n  1 # one\n]",
            "a = [1, # one\n  2]",
            "a = [\n 1, 2\n]",
        ] {
            let together = apply(text, list(text).add_all(text, &["8", "9"]));
            let one = apply(text, list(text).add(text, "8"));
            assert_eq!(together, added(&one), "{text:?}");
            let count = list(&together).entries.len();
            for (first, second) in [(0, 1), (count - 2, count - 1), (0, count - 1)] {
                let apart = removed(&removed(&together, second), first);
                assert_eq!(
                    list(&together).without(&together, &[first, second]),
                    apart,
                    "{together:?}"
                );
            }
        }
    }

    #[test]
    fn removing_what_was_added_gives_the_text_of_before() {
        for text in [
            "a = [1]",
            "a = [ 1, 2 ]",
            "a = [ 1, ]",
            "a = [\n  1 # one\n]",
            "a = [\n  1,\n  # end\n]",
            "a = [\n 1, 2]",
            "a = [1,\n2\n]",
        ] {
            let with = added(text);
            let last = list(&with).entries.len() - 1;
            assert_eq!(removed(&with, last), text);
        }
    }

    #[test]
    fn comments_stay_when_their_entry_goes() {
        let cases = [
            ("a = [\n  1, # one\n  2, # two\n]", 0, "a = [\n  # one\n  2, # two\n]"),
            ("a = [\n  1, # one\n  2 # two\n]", 1, "a = [\n  1 # one\n  # two\n]"),
            ("a = [1, # one\n  2]", 1, "a = [1 # one\n  ]"),
            ("a = [1, # one\n  2]", 0, "a = [ # one\n  2]"),
            ("a = [1, 2, 3]", 1, "a = [1, 3]"),
            ("a = [1, 2, 3]", 0, "a = [2, 3]"),
        ];
        for (text, index, expected) in cases {
            assert_eq!(removed(text, index), expected, "{text:?}");
            Document::parse(expected).expect("it is TOML still");
        }
    }
}

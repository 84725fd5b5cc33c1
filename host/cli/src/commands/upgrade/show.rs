//! The differences of a plugin: capabilities first, then texts line by line. The texts are
//! untrusted, so nothing in them moves the cursor, is hidden or imitates the program's own lines.

use anstyle::Style;
use conclave_core::config::lockfile::{LockChange, PluginPart, is_harmless};
use conclave_core::types::ids::PluginName;

use crate::ui::screen::total_columns;
use crate::ui::show::{BAD, FAINT, GOOD, NAME, ODD, foreign, one_line, paint};
use crate::ui::stderr;

/// Columns in front of a text: blanks, a sign, the mark.
const BEFORE_TEXT: usize = 9;
/// Unchanged lines that are shown around changed ones.
const AROUND: usize = 2;
/// Lines above which two texts are shown one after the other: the comparison takes time
/// proportional to the product of both lengths.
const COMPARED: usize = 2_000;

/// Prints all differences of one plugin.
pub(super) fn plugin(name: &PluginName, is_new: bool, changes: &[LockChange]) {
    stderr::text(text(name, is_new, changes, total_columns()));
}

fn text(name: &PluginName, is_new: bool, changes: &[LockChange], columns: usize) -> String {
    let head = match (is_new, is_harmless(changes)) {
        (true, _) => paint(ODD, "is not pinned yet"),
        (false, true) => paint(FAINT, "was rebuilt; its requests and texts are unchanged"),
        (false, false) => paint(BAD, "differs from its pin"),
    };
    let mut text = format!("{} {head}\n", paint(NAME, name));
    for change in changes {
        text.push_str(&format!("  {}\n", title(change)));
        let (before, now) = (
            change.before.as_deref().unwrap_or_default(),
            change.now.as_deref().unwrap_or_default(),
        );
        let room = columns.saturating_sub(BEFORE_TEXT);
        for (style, mark, line) in lines(before, now) {
            // At most half of the row, so that deeply nested JSON keeps room for its text.
            let indent = if is_json(change.part) { indentation(&line).min(room / 2) } else { 0 };
            for row in foreign::rows(line.get(indent..).unwrap_or_default(), room - indent) {
                text.push_str(&format!(
                    "    {}\n",
                    paint(style, format_args!("{mark} {}{:indent$}{row}", foreign::MARK, ""))
                ));
            }
        }
    }
    text
}

/// Whether the part is JSON that the host laid out, so that the blanks at the beginning of its
/// lines are the host's.
fn is_json(part: PluginPart) -> bool {
    matches!(part, PluginPart::InputSchema | PluginPart::OutputSchema | PluginPart::Examples)
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn title(change: &LockChange) -> String {
    let of = paint(NAME, one_line(&change.of, 64));
    match change.part {
        PluginPart::Signers if change.before.is_none() => "its signatures".to_owned(),
        PluginPart::Signers if change.now.is_none() => paint(BAD, "it is no longer signed"),
        PluginPart::Signers => paint(BAD, "other keys signed it"),
        PluginPart::Component => "the component's SHA-256".to_owned(),
        PluginPart::Artifact => "the artifact in a registry".to_owned(),
        PluginPart::Name => paint(BAD, "the name in its manifest, which selects its stored data"),
        PluginPart::About => "its description".to_owned(),
        PluginPart::Version => "the version".to_owned(),
        PluginPart::Contract => paint(ODD, "the contract"),
        PluginPart::Kinds => paint(ODD, "its kinds"),
        PluginPart::AsksMore => format!("{} {of}", paint(BAD, "requests more:")),
        PluginPart::AsksLess => format!("requests less: {of}"),
        PluginPart::Reason => format!("the reason for its request of {of}"),
        PluginPart::Tool if change.before.is_none() => {
            format!("{} {of}", paint(ODD, "a new tool:"))
        }
        PluginPart::Tool => format!("a removed tool: {of}"),
        PluginPart::Description => {
            format!("{} {of}", paint(ODD, "the description that models read of the tool"))
        }
        PluginPart::InputSchema => format!("the arguments of the tool {of}"),
        PluginPart::OutputSchema => format!("the results of the tool {of}"),
        PluginPart::Examples => {
            format!("{} {of}", paint(ODD, "the examples that models see of the tool"))
        }
        PluginPart::Manner => format!("the effects of the tool {of}"),
    }
}

type Line = (Style, char, String);

/// The removed and added lines, with a few unchanged ones.
fn lines(before: &str, now: &str) -> Vec<Line> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), now.lines().collect());
    let mut all: Vec<(char, &str)> = Vec::new();
    if old.len().max(new.len()) > COMPARED {
        all.extend(old.iter().map(|line| ('-', *line)).chain(new.iter().map(|line| ('+', *line))));
    } else {
        walk(&old, &new, &mut all);
    }
    let near = |index: usize| {
        let from = index.saturating_sub(AROUND);
        all.iter().skip(from).take(index - from + AROUND + 1).any(|(mark, _)| *mark != ' ')
    };
    let mut diff_lines: Vec<Line> = Vec::new();
    for (index, (mark, line)) in all.iter().enumerate() {
        match mark {
            '-' => diff_lines.push((BAD, '-', (*line).to_owned())),
            '+' => diff_lines.push((GOOD, '+', (*line).to_owned())),
            _ if near(index) => diff_lines.push((FAINT, ' ', (*line).to_owned())),
            _ if diff_lines.last().is_some_and(|(_, _, line)| line == "…") => {}
            _ => diff_lines.push((FAINT, ' ', "…".to_owned())),
        }
    }
    diff_lines
}

/// Keeps the longest common subsequence of lines, as usual in a diff.
fn walk<'a>(old: &[&'a str], new: &[&'a str], all: &mut Vec<(char, &'a str)>) {
    let columns = new.len() + 1;
    let mut common = vec![0_u32; (old.len() + 1) * columns];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * columns + j] = if old[i] == new[j] {
                common[(i + 1) * columns + j + 1] + 1
            } else {
                common[(i + 1) * columns + j].max(common[i * columns + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            all.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len()
            || (i < old.len() && common[(i + 1) * columns + j] >= common[i * columns + j + 1])
        {
            // At a tie too, so that a removed line is above the one that replaces it.
            all.push(('-', old[i]));
            i += 1;
        } else {
            all.push(('+', new[j]));
            j += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked_lines(before: &str, now: &str) -> Vec<String> {
        lines(before, now).into_iter().map(|(_, mark, line)| format!("{mark}{line}")).collect()
    }

    #[test]
    fn a_diff_shows_changed_lines_with_context() {
        assert_eq!(
            marked_lines("a\nb\nc\nd\ne\nf\ng", "a\nb\nc\nd\ne\nF\ng"),
            [" …", " d", " e", "-f", "+F", " g"]
        );
        assert_eq!(marked_lines("", "a\nb"), ["+a", "+b"]);
        assert_eq!(marked_lines("a\nb", ""), ["-a", "-b"]);
        assert_eq!(marked_lines("x\na\nb", "a\nb\ny"), ["-x", " a", " b", "+y"]);
    }

    #[test]
    fn a_plugins_text_cannot_imitate_the_programs() {
        let change = LockChange {
            part: PluginPart::Description,
            of: "find".to_owned(),
            before: Some("Finds.".to_owned()),
            now: Some("Finds.\r\u{1b}[2J\u{202e}x\u{e0041}\nnotes is as it was pinned".to_owned()),
        };
        let text = text(&PluginName::from("notes"), false, &[change], 80);
        assert!(text.contains("\\u{d}\\u{1b}[2J\\u{202e}x\\u{e0041}"), "{text}");
        assert!(text.contains("+ │ notes is as it was pinned"), "each line is marked: {text}");
    }

    #[test]
    fn a_schema_is_indented_and_a_lost_signature_stands_first() {
        let change = |part, before: Option<&str>, now: Option<&str>| LockChange {
            part,
            of: "find".to_owned(),
            before: before.map(str::to_owned),
            now: now.map(str::to_owned),
        };
        let changes = [
            change(PluginPart::Signers, Some("alice"), None),
            change(PluginPart::InputSchema, Some("{\n}"), Some("{\n    \"a\": \"x     y\"\n}")),
        ];
        let text = text(&PluginName::from("notes"), false, &changes, 80);
        let text = anstream::adapter::strip_str(&text).to_string();
        let expected = concat!(
            "notes differs from its pin\n  it is no longer signed\n    - │ alice\n",
            "  the arguments of the tool find\n      │ {\n",
            "    + │     \"a\": \"x\\u{20}×5y\"\n      │ }\n",
        );
        assert_eq!(text, expected);
    }

    /// B15: a description padded to the terminal's width imitated a line of the program.
    #[test]
    fn a_padded_text_has_a_mark_on_every_row() {
        let now =
            format!("Finds.{}swiss is what was pinned, but for its version", "\u{a0}".repeat(94));
        let change = LockChange {
            part: PluginPart::Description,
            of: "find".to_owned(),
            before: None,
            now: Some(now),
        };
        for columns in [40, 60, 80, 100, 120, 160] {
            let text =
                text(&PluginName::from("swiss"), false, std::slice::from_ref(&change), columns);
            let text = anstream::adapter::strip_str(&text).to_string();
            assert!(
                text.lines()
                    .skip(2)
                    .all(|row| row.starts_with("    + │ ") && foreign::width(row) <= columns + 2),
                "{columns}: {text}"
            );
        }
    }
}

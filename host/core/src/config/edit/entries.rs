//! The entries of a list or of a table between braces, as `toml_edit` values: one is added where
//! the others stand, one is removed, and comments stay.

use toml_edit::{InlineTable, KeyMut, RawString, Value};

/// An entry with the blanks and comments around it.
struct ContainerEntry<'a> {
    /// Of a table: the keys between the braces, several if they are dotted.
    path: Vec<String>,
    key: Option<KeyMut<'a>>,
    value: &'a mut Value,
}

impl ContainerEntry<'_> {
    fn before(&self) -> String {
        raw(match &self.key {
            Some(key) => key.leaf_decor().prefix(),
            None => self.value.decor().prefix(),
        })
    }

    fn set_before(&mut self, blanks: String) {
        match &mut self.key {
            Some(key) => key.leaf_decor_mut().set_prefix(blanks),
            None => self.value.decor_mut().set_prefix(blanks),
        }
    }

    fn after(&self) -> String {
        raw(self.value.decor().suffix())
    }

    fn set_after(&mut self, blanks: String) {
        self.value.decor_mut().set_suffix(blanks);
    }
}

/// The text of blanks and comments; empty for a default.
pub(super) fn raw(text: Option<&RawString>) -> String {
    text.and_then(RawString::as_str).unwrap_or_default().to_owned()
}

/// The comments in a text of blanks and comments.
pub(super) fn comments_of(blanks: &str) -> impl Iterator<Item = String> {
    blanks.lines().filter_map(|line| Some(line[line.find('#')?..].trim_end().to_owned()))
}

/// The comments inside a value.
pub(super) fn comments(value: &mut Value) -> Vec<String> {
    let end = trailing(value);
    let mut comments = Vec::new();
    for entry in entries(value) {
        comments.extend(comments_of(&entry.before()));
        let after = entry.after();
        comments.extend(self::comments(entry.value));
        comments.extend(comments_of(&after));
    }
    comments.extend(comments_of(&end));
    comments
}

/// Replaces a value; the blanks and comments around it stay.
pub(super) fn replace(old: &mut Value, mut new: Value) -> Option<()> {
    *new.decor_mut() = old.decor().clone();
    *old = new;
    Some(())
}

/// Adds an entry to a list, on a line of its own where the others have one. `None` if it is no
/// list.
pub(super) fn push(list: &mut Value, entry: Value) -> Option<()> {
    add(list, Vec::new(), |list| {
        list.as_array_mut()?.push_formatted(entry);
        Some(())
    })
}

/// Adds an entry to a table between braces. `None` if it is none, or has no place for the path.
pub(super) fn insert(table: &mut Value, path: &[&str], entry: Value) -> Option<()> {
    let keys = path.iter().map(|key| (*key).to_owned()).collect();
    add(table, keys, |table| {
        let (key, above) = path.split_last()?;
        let mut table = table.as_inline_table_mut()?;
        for key in above {
            let mut dotted = InlineTable::new();
            dotted.set_dotted(true);
            table = table.get_or_insert(*key, dotted).as_inline_table_mut()?;
        }
        table.insert(*key, entry);
        Some(())
    })
}

fn add(
    container: &mut Value,
    path: Vec<String>,
    insert: impl FnOnce(&mut Value) -> Option<()>,
) -> Option<()> {
    let end = trailing(container);
    let old = entries(container);
    let first = old.first().map(ContainerEntry::before);
    let last = old.last().map(ContainerEntry::after).unwrap_or_default();
    insert(container)?;
    let mut now = entries(container);
    let index = now.iter().rposition(|entry| entry.path == path)?;
    let is_last = index + 1 == now.len();
    let gap = format!("{last}{end}");
    let (before, after, end) = match (first, gap.rsplit_once('\n')) {
        (None, _) => {
            let blank = if now[index].key.is_some() { " " } else { "" };
            let end = if end.trim().is_empty() { String::new() } else { end };
            (blank.to_owned(), blank.to_owned(), end)
        }
        (Some(_), _) if !is_last => (" ".to_owned(), String::new(), end),
        (Some(first), Some((comments, closing))) => {
            let indent = first
                .rsplit_once('\n')
                .map_or_else(|| format!("{closing}  "), |(_, indent)| indent.to_owned());
            (format!("{comments}\n{indent}"), String::new(), format!("\n{closing}"))
        }
        (Some(_), None) => (" ".to_owned(), last, end),
    };
    now[index].set_before(before);
    now[index].set_after(after);
    if is_last && index > 0 {
        now[index - 1].set_after(String::new());
    }
    set_trailing(container, end);
    Some(())
}

/// Removes entries of a list; comments stay. The indexes are in order.
pub(super) fn remove_all(list: &mut Value, indexes: &[usize]) -> Option<()> {
    indexes.iter().rev().try_for_each(|index| {
        close_up(list, *index)?;
        list.as_array_mut()?.remove(*index);
        Some(())
    })
}

/// Removes a key of a table between braces, with all below it; comments stay.
pub(super) fn remove_key(table: &mut Value, path: &[&str]) -> Option<()> {
    let is_below = |entry: &ContainerEntry<'_>| {
        entry.path.len() >= path.len()
            && path.iter().zip(&entry.path).all(|(key, part)| key == part)
    };
    while let Some(index) = entries(table).iter().position(is_below) {
        let keys = close_up(table, index)?;
        let (key, above) = keys.split_last()?;
        let braces = table.as_inline_table_mut()?;
        let owner =
            above.iter().try_fold(braces, |table, key| table.get_mut(key)?.as_inline_table_mut());
        owner?.remove(key);
    }
    if entries(table).is_empty() {
        // Dotted tables with nothing in them would keep the comma at the end.
        table.as_inline_table_mut()?.clear();
    }
    Some(())
}

/// Gives the blanks and comments of an entry that is to be removed to what follows it. Returns the
/// entry's keys.
fn close_up(container: &mut Value, index: usize) -> Option<Vec<String>> {
    let end = trailing(container);
    let mut entries = entries(container);
    let is_last = index + 1 == entries.len();
    let entry = entries.get_mut(index)?;
    let (path, before, after) = (entry.path.clone(), entry.before(), entry.after());
    let inside = comments(entry.value);
    let rest = after + &entries.get(index + 1).map_or(end, ContainerEntry::before);
    let gap = joined(&before, &inside, &rest, is_last);
    match entries.get_mut(index + 1) {
        Some(next) => next.set_before(gap),
        None => set_trailing(container, gap),
    }
    Some(path)
}

/// The blanks and comments between two entries, of which the one between them was removed.
fn joined(before: &str, inside: &[String], rest: &str, is_last: bool) -> String {
    let ahead = rest.trim_start_matches([' ', '\t']);
    let line = before.rsplit_once('\n');
    if !inside.is_empty() {
        let indent = line.map_or("", |(_, indent)| indent);
        let comments = inside.join(&format!("\n{indent}"));
        // A comment ends its line, so what follows needs a new one.
        let next = if ahead.starts_with('\n') { String::new() } else { format!("\n{indent}") };
        return format!("{before}{comments}{next}{ahead}");
    }
    match line {
        Some((above, _)) if ahead.starts_with('\n') => format!("{above}{ahead}"),
        None if is_last || ahead.starts_with('\n') => rest.to_owned(),
        _ => format!("{before}{ahead}"),
    }
}

fn entries(container: &mut Value) -> Vec<ContainerEntry<'_>> {
    let mut entries = Vec::new();
    match container {
        Value::Array(list) => {
            let entry = |value| ContainerEntry { path: Vec::new(), key: None, value };
            entries.extend(list.iter_mut().map(entry));
        }
        Value::InlineTable(table) => collect(table, &[], &mut entries),
        _ => {}
    }
    entries
}

fn collect<'a>(
    table: &'a mut InlineTable,
    above: &[String],
    entries: &mut Vec<ContainerEntry<'a>>,
) {
    for (key, value) in table.iter_mut() {
        let path = [above, &[key.get().to_owned()]].concat();
        if !value.as_inline_table().is_some_and(InlineTable::is_dotted) {
            entries.push(ContainerEntry { path, key: Some(key), value });
        } else if let Some(dotted) = value.as_inline_table_mut() {
            collect(dotted, &path, entries);
        }
    }
}

fn trailing(container: &Value) -> String {
    raw(match container {
        Value::Array(list) => Some(list.trailing()),
        Value::InlineTable(table) => Some(table.trailing()),
        _ => None,
    })
}

fn set_trailing(container: &mut Value, blanks: String) {
    match container {
        Value::Array(list) => list.set_trailing(blanks),
        Value::InlineTable(table) => table.set_trailing(blanks),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        text.parse().expect("it is a value")
    }

    fn added(text: &str) -> String {
        let mut list = value(text);
        push(&mut list, value("9")).expect("it is a list");
        list.to_string()
    }

    fn removed(text: &str, index: usize) -> String {
        let mut list = value(text);
        remove_all(&mut list, &[index]).expect("it is a list");
        list.to_string()
    }

    #[test]
    fn an_entry_is_added_as_the_others_stand() {
        let cases = [
            ("[]", "[9]"),
            ("[1]", "[1, 9]"),
            ("[ 1, 2, ]", "[ 1, 2, 9, ]"),
            ("[\n  1, # one\n  2 # two\n]", "[\n  1, # one\n  2, # two\n  9\n]"),
            ("[\n\t1,\n\t# end\n]", "[\n\t1,\n\t# end\n\t9,\n]"),
            ("[1,\n  2\n]", "[1,\n  2,\n  9\n]"),
            ("[\n  1, 2]", "[\n  1, 2, 9]"),
        ];
        for (text, expected) in cases {
            assert_eq!(added(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_key_is_added_and_removed_between_braces() {
        let cases = [
            ("{}", "{ b.c = 9 }"),
            ("{ a = 1 }", "{ a = 1, b.c = 9 }"),
            ("{ a = 1, }", "{ a = 1, b.c = 9, }"),
            ("{ b.a = 1, c = 2 }", "{ b.a = 1, b.c = 9, c = 2 }"),
            ("{\n  a = 1, # one\n}", "{\n  a = 1, # one\n  b.c = 9,\n}"),
        ];
        for (text, expected) in cases {
            let mut table = value(text);
            insert(&mut table, &["b", "c"], value("9")).expect("it is a table");
            assert_eq!(table.to_string(), expected, "{text:?}");
            let mut table = value(expected);
            remove_key(&mut table, &["b", "c"]).expect("it is a table");
            assert_eq!(table.to_string().replace("{ }", "{}"), text, "{expected:?}");
        }
        let mut table = value("{ a.b = [ # one\n 1], a.d = { e = 3 }, c = 2 }");
        remove_key(&mut table, &["a"]).expect("it is a table");
        assert_eq!(table.to_string(), "{ # one\nc = 2 }");
        let mut table = value("{ a.b = 1, }");
        remove_key(&mut table, &["a", "b"]).expect("it is a table");
        assert_eq!(table.to_string(), "{ }");
    }

    #[test]
    fn removing_what_was_added_gives_the_text_of_before() {
        for text in [
            "[1]",
            "[ 1, 2 ]",
            "[ 1, ]",
            "[\n  1 # one\n]",
            "[\n  1,\n  # end\n]",
            "[\n 1, 2]",
            "[1,\n2\n]",
        ] {
            let with = added(text);
            let last = entries(&mut value(&with)).len() - 1;
            assert_eq!(removed(&with, last), text);
        }
    }

    #[test]
    fn comments_stay_when_their_entry_is_removed() {
        let cases = [
            ("[\n  1, # one\n  2, # two\n]", 0, "[\n  # one\n  2, # two\n]"),
            ("[\n  1, # one\n  2 # two\n]", 1, "[\n  1 # one\n  # two\n]"),
            ("[1, # one\n  2]", 1, "[1 # one\n  ]"),
            ("[1, # one\n  2]", 0, "[# one\n  2]"),
            ("[\n  [ # in\n  1], 2 # two\n]", 0, "[\n  # in\n  2 # two\n]"),
            ("[1, 2, 3]", 1, "[1, 3]"),
            ("[1, 2, 3]", 0, "[2, 3]"),
        ];
        for (text, index, expected) in cases {
            assert_eq!(removed(text, index), expected, "{text:?}");
            value(expected);
        }
    }
}

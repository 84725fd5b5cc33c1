//! Where a key of a config stands or would stand, in whichever of TOML's forms the operator wrote
//! it: under a header, with dots, between braces. Gives splices of the text; knows nothing of
//! grants.

use std::ops::Range;

use toml_edit::{Array, Document, InlineTable, Item, Table, Value};

use super::scan::{Splice, apply, comments, content, indent, line_end, line_start, newline};
use super::sequence::TomlSequence;
use crate::config::depth::too_deep;

/// A text and its tree. The tree is of exactly this text, so its spans can be trusted.
pub(super) struct TomlTree<'a> {
    text: &'a str,
    document: Document<&'a str>,
}

impl<'a> TomlTree<'a> {
    /// None for what is no TOML, or nested so deep that walking its tree would cost the stack.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        if too_deep(text).is_some() {
            return None;
        }
        Some(Self { text, document: Document::parse(text).ok()? })
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    pub(super) fn root(&self) -> &Table {
        self.document.as_table()
    }

    pub(super) fn find(&self, path: &[&str]) -> Option<&Item> {
        path.iter().try_fold(self.document.as_item(), |item, key| item.as_table_like()?.get(key))
    }

    /// Puts a value in place of the one at the path, or writes a line for it; `after` is the key
    /// that it is written behind, where nothing says better. None when there is no place for it.
    pub(super) fn set(&self, path: &[&str], value: &str, after: Option<&str>) -> Option<String> {
        if let Some(item) = self.find(path) {
            let span = item.as_value()?.span()?;
            return Some(apply(self.text, vec![Splice::replace(span, value)]));
        }
        // Forms that TOML does not allow here are known by their result: the path must lead to the
        // value then.
        let attempts = [self.line(path, value, after), self.header(path, value)];
        attempts
            .into_iter()
            .flatten()
            .map(|splice| apply(self.text, vec![splice]))
            .find(|text| leads_somewhere(text, path))
    }

    /// Takes the key away, with all below it. Comments stay, each on a line of its own. None when
    /// it is not there.
    pub(super) fn remove(&self, path: &[&str]) -> Option<String> {
        let item = self.find(path)?;
        let braces_of = |depth: usize| match self.find(&path[..depth])? {
            Item::Value(Value::InlineTable(table)) if !table.is_dotted() => {
                braces(self.text, table)
            }
            _ => None,
        };
        let Some(sequence) = (1..path.len()).rev().find_map(braces_of) else {
            let (key, above) = path.split_last()?;
            let key = self.find(above)?.as_table_like()?.key(key).and_then(toml_edit::Key::span);
            let mut lines = Vec::new();
            collect_lines(item, key, &mut lines);
            return Some(apply(
                self.text,
                lines.into_iter().map(|line| self.without_lines(line)).collect(),
            ));
        };
        let mut ends = Vec::new();
        collect_ends(item.as_value()?, &mut ends);
        let index = sequence.entries.iter().position(|entry| Some(&entry.end) == ends.first())?;
        let edited = apply(self.text, sequence.remove(self.text, index));
        // Of a key with dots there may be more between the braces.
        if ends.len() > 1 { TomlTree::parse(&edited)?.remove(path) } else { Some(edited) }
    }

    /// Takes tables of a list of tables away, their headers included.
    pub(super) fn remove_tables(&self, path: &[&str], indexes: &[usize]) -> Option<String> {
        let tables = self.find(path)?.as_array_of_tables()?;
        let mut lines = Vec::new();
        for index in indexes {
            let table = tables.get(*index)?;
            lines.push(table.span()?);
            collect_below(table, &mut lines);
        }
        Some(apply(self.text, lines.into_iter().map(|line| self.without_lines(line)).collect()))
    }

    /// The last byte of all that an item holds, headers and all.
    pub(super) fn last_byte(item: &Item) -> Option<usize> {
        let mut lines = Vec::new();
        collect_lines(item, None, &mut lines);
        lines.into_iter().map(|line| line.end).max()
    }

    /// A new line below the deepest table of the path that is written out.
    fn line(&self, path: &[&str], value: &str, after: Option<&str>) -> Option<Splice> {
        // The table whose header or braces the line stands below, and the part of the path that
        // this header says.
        let (mut anchor, mut depth, mut deepest) =
            (self.document.as_item(), 0, self.document.as_item());
        let mut item = deepest;
        for (index, key) in path[..path.len() - 1].iter().enumerate() {
            let Some(below) = item.as_table_like().and_then(|table| table.get(key)) else { break };
            item = below;
            match item {
                Item::Table(table) if table.is_dotted() => deepest = item,
                Item::Value(Value::InlineTable(table)) if table.is_dotted() => deepest = item,
                // It is there for the headers below it only.
                Item::Table(table) if table.is_implicit() => {}
                _ => (anchor, depth, deepest) = (item, index + 1, item),
            }
        }
        let line = format!("{} = {value}", path[depth..].join("."));
        match anchor {
            Item::Value(Value::InlineTable(table)) => {
                braces(self.text, table)?.add(self.text, &line).pop()
            }
            Item::Table(table) => {
                let leaves = |item: &Item| {
                    let mut lines = Vec::new();
                    collect_dotted(item, &mut lines);
                    lines.into_iter().map(|line| line.end).max()
                };
                let named =
                    after.and_then(|key| deepest.as_table_like()?.get(key)).and_then(leaves);
                let last = named
                    .or_else(|| leaves(deepest))
                    .or_else(|| leaves(anchor))
                    .or_else(|| Some(table.span()?.end));
                Some(self.line_after(last.unwrap_or_default(), &line))
            }
            _ => None,
        }
    }

    fn line_after(&self, at: usize, line: &str) -> Splice {
        let (start, end, newline) =
            (line_start(self.text, at), line_end(self.text, at), newline(self.text));
        let before = if self.text[..end].ends_with('\n') || end == 0 { "" } else { newline };
        Splice::insert(end, format!("{before}{}{line}{newline}", indent(self.text, start)))
    }

    /// A table of its own before the first one that stands below the path's.
    fn header(&self, path: &[&str], value: &str) -> Option<Splice> {
        let (key, above) = path.split_last()?;
        let first = first_header(self.find(above)?)?;
        let newline = newline(self.text);
        Some(Splice::insert(
            line_start(self.text, first),
            format!("[{}]{newline}{key} = {value}{newline}{newline}", above.join(".")),
        ))
    }

    /// Lines without what stood on them; their comments stay.
    fn without_lines(&self, range: Range<usize>) -> Splice {
        let (start, end) = (line_start(self.text, range.start), line_end(self.text, range.end));
        let (indent, newline) = (indent(self.text, start), newline(self.text));
        let kept: String = comments(&self.text[start..end])
            .into_iter()
            .map(|comment| format!("{indent}{comment}{newline}"))
            .collect();
        Splice::replace(start..end, kept)
    }
}

/// Where the first table begins that stands in an item.
fn first_header(item: &Item) -> Option<usize> {
    match item {
        Item::Table(table) if table.is_implicit() => {
            table.iter().filter_map(|(_, item)| first_header(item)).min()
        }
        item => item.span().map(|span| span.start),
    }
}

/// The entries of a list.
pub(super) fn brackets(array: &Array) -> Option<TomlSequence> {
    Some(TomlSequence {
        span: array.span()?,
        entries: array.iter().map(Value::span).collect::<Option<_>>()?,
    })
}

/// The entries of a table between braces, keys included.
fn braces(text: &str, table: &InlineTable) -> Option<TomlSequence> {
    let span = table.span()?;
    let mut ends = Vec::new();
    for (_, value) in table.iter() {
        collect_ends(value, &mut ends);
    }
    ends.sort_unstable();
    let mut start = span.start + 1;
    let mut entries = Vec::new();
    for end in ends {
        entries.push(start + content(&text[start..end])..end);
        start = end;
    }
    Some(TomlSequence { span, entries })
}

/// Ends of the values that have a key of their own between the same braces.
fn collect_ends(value: &Value, ends: &mut Vec<usize>) {
    match value {
        Value::InlineTable(table) if table.is_dotted() => {
            table.iter().for_each(|(_, value)| collect_ends(value, ends))
        }
        value => ends.extend(value.span().map(|span| span.end)),
    }
}

/// From key to value, for every line that belongs to an item, headers included.
fn collect_lines(item: &Item, key: Option<Range<usize>>, lines: &mut Vec<Range<usize>>) {
    match item {
        Item::Table(table) => {
            lines.extend(table.span().filter(|_| !table.is_dotted() && !table.is_implicit()));
            collect_below(table, lines);
        }
        Item::ArrayOfTables(tables) => {
            for table in tables {
                lines.extend(table.span());
                collect_below(table, lines);
            }
        }
        Item::Value(value) => {
            lines.extend(value.span().map(|span| key.map_or(span.start, |key| key.start)..span.end))
        }
        Item::None => {}
    }
}

fn collect_below(table: &Table, lines: &mut Vec<Range<usize>>) {
    for (name, item) in table {
        collect_lines(item, table.key(name).and_then(toml_edit::Key::span), lines);
    }
}

/// The same, without what has a header of its own.
fn collect_dotted(item: &Item, lines: &mut Vec<Range<usize>>) {
    match item {
        Item::Value(value) => lines.extend(value.span()),
        Item::Table(table) => {
            let is_part = |item: &Item| item.as_table().is_none_or(Table::is_dotted);
            table
                .iter()
                .filter(|(_, item)| is_part(item))
                .for_each(|(_, item)| collect_dotted(item, lines));
        }
        _ => {}
    }
}

fn leads_somewhere(text: &str, path: &[&str]) -> bool {
    TomlTree::parse(text).is_some_and(|tree| tree.find(path).is_some())
}

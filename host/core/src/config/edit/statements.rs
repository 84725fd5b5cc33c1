//! The statements of a config, its headers and `key = value` lines, by the spans of `toml_edit`. A
//! statement is edited as a `DocumentMut` of its own, and every other byte of the text stays. A
//! `DocumentMut` of the whole text would gather dotted keys that stand apart and write every line
//! end as `\n`.

use std::ops::Range;

use toml_edit::{Document, DocumentMut, Item, Table, Value};

use super::entries;
use crate::config::depth::too_deep;

/// The least blanks between a value and its comment.
const GAP: usize = 2;

/// A text and its tree. The tree is of exactly this text, so its spans are places in it.
pub(super) struct Statements<'a> {
    pub(super) text: &'a str,
    document: Document<&'a str>,
}

impl<'a> Statements<'a> {
    /// `None` for what is no TOML, or nested so deep that walking its tree would exhaust the stack.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        if too_deep(text).is_some() {
            return None;
        }
        Some(Self { text, document: Document::parse(text).ok()? })
    }

    pub(super) fn root(&self) -> &Item {
        self.document.as_item()
    }

    pub(super) fn find(&self, path: &[&str]) -> Option<&Item> {
        path.iter().try_fold(self.document.as_item(), |item, key| item.as_table_like()?.get(key))
    }

    /// Changes the value at the path. `None` if `change` returns it, or if `toml_edit` does not
    /// write the statement back as it is.
    pub(super) fn change(
        &self,
        path: &[&str],
        change: impl FnOnce(&mut Value) -> Option<()>,
    ) -> Option<String> {
        let (statement, span) = self.statement(path)?;
        let range = line_start(self.text, span.start)..line_end(self.text, span.end);
        let written = self.text[range.clone()].trim_end_matches(['\r', '\n']);
        let before = written.replace("\r\n", "\n");
        let newline = if before == written { "\n" } else { "\r\n" };
        let mut document: DocumentMut = before.parse().ok()?;
        // Of two kinds of line ends one would be lost.
        if document.to_string().replace('\n', newline).strip_suffix(newline) != Some(written) {
            return None;
        }
        let statement_path = &path[statement.clone()];
        let suffix = entries::raw(value_at(&mut document, statement_path)?.decor().suffix());
        change(value_at(&mut document, &path[statement.start..])?)?;
        let aligned = aligned(&suffix, &before, &document.to_string());
        value_at(&mut document, statement_path)?.decor_mut().set_suffix(aligned);
        let after = document.to_string().replace('\n', newline);
        let range = range.start..range.start + written.len();
        Some(replaced(self.text, range, after.strip_suffix(newline)?))
    }

    /// Replaces the value at the path, or writes a line for it: behind that of the key `after`,
    /// where no other place is better. `None` if there is no place for it.
    pub(super) fn set(&self, path: &[&str], value: &str, after: Option<&str>) -> Option<String> {
        if self.find(path).is_some() {
            return self.change(path, |old| entries::replace(old, value.parse().ok()?));
        }
        // TOML forbids some of these forms here; they are known by their result, in which the path
        // must lead to the value.
        let attempts = [self.insert(path, value, after), self.insert_header(path, value)];
        let is_there = |text: &String| {
            Statements::parse(text).is_some_and(|edited| edited.find(path).is_some())
        };
        attempts.into_iter().flatten().find(is_there)
    }

    /// Removes a key with all below it. Comments stay, each on a line of its own. `None` if the key
    /// is not there.
    pub(super) fn remove(&self, path: &[&str]) -> Option<String> {
        let item = self.find(path)?;
        let is_braces = |depth: &usize| match self.find(&path[..*depth]) {
            Some(Item::Value(Value::InlineTable(table))) => !table.is_dotted(),
            _ => false,
        };
        if let Some(depth) = (1..path.len()).rev().find(is_braces) {
            return self.change(&path[..depth], |table| entries::remove_key(table, &path[depth..]));
        }
        Some(self.without(spans(item)))
    }

    /// Removes tables of a list of tables, with their headers.
    pub(super) fn remove_tables(&self, path: &[&str], indexes: &[usize]) -> Option<String> {
        let tables = self.find(path)?.as_array_of_tables()?;
        let spans = indexes.iter().map(|index| tables.get(*index).map(table_spans));
        Some(self.without(spans.collect::<Option<Vec<_>>>()?.concat()))
    }

    /// The statement that holds the value at the path: the part of the path that its keys are, and
    /// the span of its value.
    fn statement(&self, path: &[&str]) -> Option<(Range<usize>, Range<usize>)> {
        let mut item = self.document.as_item();
        let mut header = 0;
        for (index, key) in path.iter().enumerate() {
            item = item.as_table_like()?.get(key)?;
            match item {
                Item::Table(table) if !table.is_dotted() => header = index + 1,
                Item::Value(value) => return Some((header..index + 1, value.span()?)),
                _ => {}
            }
        }
        None
    }

    /// Writes a value in the deepest table of the path that is written out: between its braces, or
    /// as a line.
    fn insert(&self, path: &[&str], value: &str, after: Option<&str>) -> Option<String> {
        // The table with a header or braces, the length of its path, and the deepest table below
        // it.
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
        let Item::Table(table) = anchor else {
            return self.change(&path[..depth], |table| {
                entries::insert(table, &path[depth..], value.parse().ok()?)
            });
        };
        let preceding_end =
            after.and_then(|key| deepest.as_table_like()?.get(key)).and_then(last_line);
        let last = preceding_end
            .or_else(|| last_line(deepest))
            .or_else(|| last_line(anchor))
            .or_else(|| Some(table.span()?.end));
        let last = last.unwrap_or_default();
        let (start, end, newline) =
            (line_start(self.text, last), line_end(self.text, last), newline(self.text));
        let before = if self.text[..end].ends_with('\n') || end == 0 { "" } else { newline };
        let (indent, keys) = (indent(self.text, start), path[depth..].join("."));
        Some(replaced(self.text, end..end, &format!("{before}{indent}{keys} = {value}{newline}")))
    }

    /// Writes a table of its own before the first one that stands below the path's.
    fn insert_header(&self, path: &[&str], value: &str) -> Option<String> {
        let (key, above) = path.split_last()?;
        let first = spans(self.find(above)?).into_iter().map(|span| span.start).min();
        let at = line_start(self.text, first?);
        let newline = newline(self.text);
        let block = format!("[{}]{newline}{key} = {value}{newline}{newline}", above.join("."));
        Some(replaced(self.text, at..at, &block))
    }

    /// The text without the lines of these headers and values; their comments stay.
    fn without(&self, mut spans: Vec<Range<usize>>) -> String {
        spans.sort_unstable_by_key(|span| span.start);
        let mut text = self.text.to_owned();
        for span in spans.into_iter().rev() {
            let (start, end) = (line_start(&text, span.start), line_end(&text, span.end));
            let inside = text[span.clone()].parse().map(|mut value| entries::comments(&mut value));
            let mut comments = inside.unwrap_or_default();
            comments.extend(entries::comments_of(&text[span.end..end]));
            let (indent, newline) = (indent(&text, start), newline(self.text));
            let comment_lines: String =
                comments.iter().map(|comment| format!("{indent}{comment}{newline}")).collect();
            text.replace_range(start..end, &comment_lines);
        }
        text
    }
}

/// The blanks and the comment behind a value, with the comment in its old column as far as there is
/// room.
fn aligned(suffix: &str, before: &str, after: &str) -> String {
    let width = |text: &str| {
        let line = text.trim_end_matches('\n').rsplit('\n').next().unwrap_or_default();
        line.strip_suffix(suffix).unwrap_or(line).chars().count()
    };
    let (old, new, comment) = (width(before), width(after), suffix.trim_start());
    let gap = suffix.len() - comment.len();
    if comment.is_empty() || gap < GAP || old == new {
        return suffix.to_owned();
    }
    format!("{}{comment}", " ".repeat((old + gap).saturating_sub(new).max(GAP)))
}

fn value_at<'v>(document: &'v mut DocumentMut, path: &[&str]) -> Option<&'v mut Value> {
    let item = document.as_item_mut();
    path.iter().try_fold(item, |item, key| item.as_table_like_mut()?.get_mut(key))?.as_value_mut()
}

/// The last byte of all that an item holds, headers and all.
pub(super) fn last_byte(item: &Item) -> Option<usize> {
    spans(item).into_iter().map(|span| span.end).max()
}

/// The end of the last line of an item, without what has a header of its own.
fn last_line(item: &Item) -> Option<usize> {
    match item {
        Item::Value(value) => value.span().map(|span| span.end),
        Item::Table(table) => {
            let is_part = |item: &&Item| item.as_table().is_none_or(Table::is_dotted);
            table.iter().map(|(_, item)| item).filter(is_part).filter_map(last_line).max()
        }
        _ => None,
    }
}

/// The spans of the headers and values of an item.
pub(super) fn spans(item: &Item) -> Vec<Range<usize>> {
    match item {
        Item::Value(value) => value.span().into_iter().collect(),
        Item::Table(table) => table_spans(table),
        Item::ArrayOfTables(tables) => tables.iter().flat_map(table_spans).collect(),
        Item::None => Vec::new(),
    }
}

fn table_spans(table: &Table) -> Vec<Range<usize>> {
    let header = table.span().filter(|_| !table.is_dotted() && !table.is_implicit());
    header.into_iter().chain(table.iter().flat_map(|(_, item)| spans(item))).collect()
}

pub(super) fn replaced(text: &str, range: Range<usize>, with: &str) -> String {
    [&text[..range.start], with, &text[range.end..]].concat()
}

/// The start of the line of a byte; a byte order mark is part of no line.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    let first = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    text[..at].rfind('\n').map_or(first.min(at), |newline| newline + 1)
}

/// The end of the line of a byte, behind its line end.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

/// The blanks that a line begins with.
fn indent(text: &str, line: usize) -> &str {
    let rest = &text[line..];
    &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()]
}

/// The line end that a text uses.
pub(super) fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

//! The problems of a manifest file, collected so that an author sees all of them at once.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The problems of one file, in the order of its lines.
pub(super) struct Problems<'i> {
    file: &'i str,
    text: &'i str,
    entries: Vec<(usize, String)>,
}

impl<'i> Problems<'i> {
    pub(super) fn new(file: &'i str, text: &'i str) -> Self {
        Self { file, text, entries: Vec::new() }
    }

    /// Adds a problem. Without a span, it concerns the whole file.
    pub(super) fn add(&mut self, span: Option<Range<usize>>, message: String) {
        self.entries.push((span.map_or(0, |span| span.start), message));
    }

    /// Fails with all problems, one per line: `file:line:column: message`.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.entries.sort_by_key(|(offset, _)| *offset);
        let lines = self.entries.iter().map(|(offset, message)| {
            let (line, column) = self.position(*offset);
            format!("{}:{line}:{column}: {message}", self.file)
        });
        Err(lines.collect::<Vec<_>>().join("\n"))
    }

    /// Adds a problem of the TOML itself. A key that is there twice gets the line of the first.
    pub(super) fn add_syntax(&mut self, span: Option<Range<usize>>, message: &str) {
        let first = span.as_ref().filter(|_| message == "duplicate key");
        let first = first.and_then(|span| self.first_line_of(span));
        let message = match first {
            Some(line) => format!("{message}: line {line} has it already"),
            // The keys of a table that is there twice, which was reported.
            None if message == "duplicate key" && !self.entries.is_empty() => return,
            None => message.to_owned(),
        };
        self.add(span, message);
    }

    /// Returns the number of the line that has the key or the table's header of this place before.
    fn first_line_of(&self, span: &Range<usize>) -> Option<usize> {
        let before = self.text.get(..span.start)?;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let name = |line: &str| {
            let line = line.trim_start();
            match line.strip_prefix('[') {
                Some(header) => header.split_once(']').map(|(name, _)| format!("[{name}")),
                None => line.split_once('=').map(|(key, _)| key.trim_end().to_owned()),
            }
        };
        let own = name(self.text.get(start..)?.lines().next()?)?;
        let earlier: Vec<(usize, &str)> = self.text[..start].lines().enumerate().collect();
        let same_table = |(_, line): &&(usize, &str)| {
            own.starts_with('[') || !line.trim_start().starts_with('[')
        };
        earlier
            .iter()
            .rev()
            .take_while(same_table)
            .find(|(_, line)| name(line).as_ref() == Some(&own))
            .map(|(index, _)| index + 1)
    }

    pub(super) fn check_keys(&mut self, place: &str, table: &DeTable, known: &[&str]) {
        for key in table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let message = format!(
                "{place} has an unknown key `{}`; remove it or use one of {}",
                key.get_ref(),
                known.join(", ")
            );
            self.add(Some(key.span()), message);
        }
    }

    pub(super) fn table<'t, 'v>(
        &mut self,
        path: &str,
        value: &'t Spanned<DeValue<'v>>,
    ) -> Option<&'t DeTable<'v>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.add(
                Some(value.span()),
                format!("`{path}` must be a table: write [{path}] on a line of its own"),
            );
        }
        table
    }

    /// Returns the line and the column, both from 1. Columns count characters, as editors do.
    fn position(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

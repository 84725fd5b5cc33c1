//! The span of each key of the file, so that later problems (a plugin that fails to load, a missing
//! grant) can point to its line.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::problem::Span;

/// Spans by dotted path: `plugins.search.grants.files[0].dir`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SourceSpans(BTreeMap<String, Span>);

impl SourceSpans {
    pub(crate) fn of(table: &DeTable<'_>) -> Self {
        let mut spans = Self::default();
        spans.add_table(table, "");
        spans
    }

    /// The span of a path, else of the nearest one above it; `None` if even its first part is
    /// absent.
    pub(crate) fn find(&self, path: &str) -> Option<&Span> {
        let mut path = path;
        loop {
            if let Some(span) = self.0.get(path) {
                return Some(span);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }

    /// Whether the path itself is present.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    fn add_table(&mut self, table: &DeTable<'_>, prefix: &str) {
        for (key, value) in table {
            let name = key.get_ref();
            let path =
                if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
            self.add_value(value.get_ref(), &path);
            self.0.insert(path, key.span());
        }
    }

    fn add_value(&mut self, value: &DeValue<'_>, path: &str) {
        match value {
            DeValue::Table(table) => self.add_table(table, path),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    self.add_value(item.get_ref(), &path);
                    self.0.insert(path, item.span());
                }
            }
            _ => {}
        }
    }
}

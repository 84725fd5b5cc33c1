//! The form of JSON that is hashed: recorded names, sorted keys, no nulls in objects, and texts
//! apart.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::names::{Names, words};

/// The placeholder of a text, for strings with a space.
const TEXT: &str = "\"§\"";

/// A writer of values in the hashed form, which collects the omitted texts.
pub(crate) struct Canon<'n> {
    names: &'n Names,
    texts: String,
}

impl<'n> Canon<'n> {
    pub(crate) fn new(names: &'n Names) -> Self {
        Self { names, texts: String::new() }
    }

    /// Returns the texts so far, one per line, in order.
    pub(crate) fn texts(&self) -> &str {
        &self.texts
    }

    pub(crate) fn text(&mut self, value: &Value) -> String {
        let mut out = String::new();
        self.write(value, "", &mut out);
        out
    }

    fn write(&mut self, value: &Value, key: &str, out: &mut String) {
        match value {
            Value::String(text) if text.contains(char::is_whitespace) => {
                writeln!(self.texts, "{value}").expect("a string takes it");
                out.push_str(TEXT);
            }
            Value::String(word) => {
                write!(out, "{}", Value::from(self.names.recorded(&[key], word)))
                    .expect("a string takes it");
            }
            Value::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    self.write(item, key, out);
                }
                out.push(']');
            }
            Value::Object(fields) => {
                let mut holders = vec![key];
                if !self.names.is_empty() {
                    holders.extend(words(fields).map(|(_, word)| word));
                }
                // Who led to a call is a later list; a question had its last member alone.
                let (led_by, asked_by) = ("led_by", "asked_by".to_owned());
                let requester = fields
                    .get(led_by)
                    .filter(|_| fields.contains_key("causes"))
                    .and_then(|plugins| plugins.as_array()?.last());
                let named = fields.iter().filter(|(key, value)| !value.is_null() && *key != led_by);
                let named =
                    named.map(|(key, value)| (self.names.recorded(&holders, key), (key, value)));
                // A renamed key keeps its position, so it is sorted by its recorded name.
                let mut sorted: BTreeMap<&str, (&String, &Value)> = named.collect();
                sorted.extend(requester.map(|plugin| ("asked_by", (&asked_by, plugin))));
                out.push('{');
                for (index, (name, (key, value))) in sorted.into_iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write!(out, "{}:", Value::from(name)).expect("a string takes it");
                    self.write(value, key, out);
                }
                out.push('}');
            }
            other => write!(out, "{other}").expect("a string takes it"),
        }
    }
}

//! The form of JSON that is hashed: sorted keys, no nulls in objects, and texts apart.

use std::fmt::Write as _;

use serde_json::Value;

/// The placeholder of a text, for strings with a space.
const TEXT: &str = "\"§\"";

/// A writer of values in the hashed form, which collects the omitted texts.
#[derive(Default)]
pub(crate) struct Canon {
    texts: String,
}

impl Canon {
    /// Returns the texts so far, one per line, in order.
    pub(crate) fn texts(&self) -> &str {
        &self.texts
    }

    pub(crate) fn text(&mut self, value: &Value) -> String {
        let mut out = String::new();
        self.write(value, &mut out);
        out
    }

    fn write(&mut self, value: &Value, out: &mut String) {
        match value {
            Value::String(text) if text.contains(char::is_whitespace) => {
                writeln!(self.texts, "{value}").expect("a string takes it");
                out.push_str(TEXT);
            }
            Value::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    self.write(item, out);
                }
                out.push(']');
            }
            // The keys are sorted already.
            Value::Object(fields) => {
                out.push('{');
                let fields = fields.iter().filter(|(_, value)| !value.is_null());
                for (index, (key, value)) in fields.enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write!(out, "{}:", Value::from(key.as_str())).expect("a string takes it");
                    self.write(value, out);
                }
                out.push('}');
            }
            other => write!(out, "{other}").expect("a string takes it"),
        }
    }
}

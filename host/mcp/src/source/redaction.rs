//! Redacts a server's keys from its output. A server may repeat them in a result, an error or its
//! stderr, which models read and journals keep.

use std::sync::Arc;

use conclave_core::permissions::secret::{Scrubber, SecretValue};
use conclave_core::types::ids::SecretName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::text::display;

/// Redacts the keys of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyFilter(Arc<Scrubber>);

impl KeyFilter {
    /// Returns a filter for these keys, each with its name in the config.
    ///
    /// # Errors
    /// If a key is too short to be redacted, in words for the operator.
    pub(super) fn without<'a>(
        keys: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, String> {
        let values = keys
            .into_iter()
            .map(|(name, value)| SecretValue::new(SecretName::from(name), value.to_owned()));
        let values = values.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        Ok(Self(Arc::new(Scrubber::new(values))))
    }

    /// The text on one line, escaped and truncated. Keys are redacted before truncation, since half
    /// a key would not be found.
    pub(super) fn words(&self, text: &str, most: usize) -> String {
        display(&self.0.scrub_text(text), most)
    }

    /// Redacts a whole message. `None` if it is no longer valid afterwards, because a key was in a
    /// place where none can be.
    pub(super) fn all<T: Serialize + DeserializeOwned>(&self, sent: T) -> Option<T> {
        if self.0.is_empty() {
            return Some(sent);
        }
        let value = self.value(serde_json::to_value(sent).ok()?);
        serde_json::from_value(value).ok()
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.0.scrub_text(&text).into_owned()),
            Value::Array(items) => {
                Value::Array(items.into_iter().map(|item| self.value(item)).collect())
            }
            Value::Object(fields) => {
                let field = |(name, value): (String, Value)| {
                    (self.0.scrub_text(&name).into_owned(), self.value(value))
                };
                Value::Object(fields.into_iter().map(field).collect())
            }
            Value::Number(number) => {
                let text = number.to_string();
                match self.0.scrub_text(&text).into_owned() {
                    scrubbed if scrubbed == text => Value::Number(number),
                    scrubbed => Value::String(scrubbed),
                }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_key_is_left_in_any_place() {
        let filter = KeyFilter::without([("K", "sesame-4711"), ("N", "8812345678")]).unwrap();
        let sent = json!({ "a": ["x sesame-4711", { "sesame-4711": 1 }], "n": 8_812_345_678_u64, "b": "c2VzYW1lLTQ3MTE=", "m": 5 });
        let filtered = filter.all(sent).unwrap().to_string();
        assert!(
            !filtered.contains("4711")
                && !filtered.contains("88123")
                && !filtered.contains("c2VzYW1l"),
            "{filtered}"
        );
        assert!(filtered.contains("x [secret K]") && filtered.contains("\"m\":5"), "{filtered}");
        assert_eq!(filter.words(&format!("{}sesame-4711", " ".repeat(3)), 6), "[secre…");
        let short = KeyFilter::without([("K", "abc")]).unwrap_err();
        assert!(short.contains("fewer than 8 bytes") && !short.contains("abc"), "{short}");
    }
}

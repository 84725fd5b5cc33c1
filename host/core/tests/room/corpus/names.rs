//! The table of names: the current name of a key or a word, and its name when the corpus was
//! recorded.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// The table of `tests/data/corpus/names.txt`. A row is `NEW = RECORDED`, or `HOLDER.NEW =
/// RECORDED` for a name with another meaning elsewhere. The holder, by its new name, is the key of
/// the name's object or word. It may also be a word in the same object, such as its tag.
#[derive(Default)]
pub(crate) struct Names {
    /// By holder and new name; the holder is empty for rows without one.
    recorded: BTreeMap<(String, String), String>,
    /// By holder and recorded name.
    current: BTreeMap<(String, String), String>,
}

impl Names {
    pub(crate) fn parse(text: &str) -> Self {
        let mut names = Self::default();
        let rows =
            text.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#'));
        for row in rows {
            let (new, recorded) = row.split_once(" = ").unwrap_or_else(|| panic!("no row: {row}"));
            let (holder, new) = new.trim().split_once('.').unwrap_or(("", new.trim()));
            let (holder, recorded) = (holder.to_owned(), recorded.trim().to_owned());
            let before = names.recorded.insert((holder.clone(), new.to_owned()), recorded.clone());
            let twin = names.current.insert((holder, recorded), new.to_owned());
            assert!(before.is_none() && twin.is_none(), "two rows for one name: {row}");
        }
        names
    }

    /// Returns the recorded name for a current one.
    pub(crate) fn recorded<'n>(&'n self, holders: &[&str], name: &'n str) -> &'n str {
        look_up(&self.recorded, holders, name)
    }

    /// Returns JSON of the recorded names with the current names.
    pub(crate) fn current(&self, value: &Value) -> Value {
        if self.current.is_empty() { value.clone() } else { self.current_under(value, "") }
    }

    fn current_under(&self, value: &Value, key: &str) -> Value {
        match value {
            Value::String(word) => Value::from(look_up(&self.current, &[key], word)),
            Value::Array(bytes) if key == "scratch" => Value::from(in_base64(bytes)),
            Value::Array(items) => items.iter().map(|item| self.current_under(item, key)).collect(),
            Value::Object(fields) => {
                // Words are renamed first, because a holder is given by its new name.
                let words =
                    words(fields).map(|(field, word)| look_up(&self.current, &[field], word));
                let holders: Vec<&str> = [key].into_iter().chain(words).collect();
                let fields = fields.iter().map(|(field, value)| {
                    let field = look_up(&self.current, &holders, field);
                    (field.to_owned(), self.current_under(value, field))
                });
                Value::Object(fields.collect())
            }
            other => other.clone(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.recorded.is_empty()
    }
}

/// Returns a scratch, which was recorded as a list of numbers.
fn in_base64(bytes: &[Value]) -> String {
    let bytes = bytes.iter().filter_map(Value::as_u64);
    STANDARD.encode(bytes.filter_map(|byte| u8::try_from(byte).ok()).collect::<Vec<u8>>())
}

/// Returns the words in an object, with their keys.
pub(crate) fn words(fields: &Map<String, Value>) -> impl Iterator<Item = (&str, &str)> {
    fields.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

fn look_up<'n>(
    table: &'n BTreeMap<(String, String), String>,
    holders: &[&str],
    name: &'n str,
) -> &'n str {
    if table.is_empty() {
        return name;
    }
    let of = |holder: &str| table.get(&(holder.to_owned(), name.to_owned()));
    holders.iter().find_map(|holder| of(holder)).or_else(|| of("")).map_or(name, String::as_str)
}

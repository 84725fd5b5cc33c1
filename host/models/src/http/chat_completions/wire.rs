//! Replies of Chat Completions as servers send them, whole or in chunks. Every field may be missing
//! or null, as some server omits each. Memory is a small multiple of the received bytes: unused
//! parts of lists are skipped.

mod bounded;

use serde::{Deserialize, Deserializer};

use self::bounded::Scalar;
pub(crate) use self::bounded::{BoundedCalls, Content, FromItems, Items, ModelNames, json_text};
use self::bounded::{Choices, Object};

/// Maximum calls of one answer, far above real use.
pub(crate) const CALLS_MAX: usize = 1024;

/// A whole reply, or one chunk of it.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Chunk {
    #[serde(default, deserialize_with = "text")]
    pub id: String,
    #[serde(default, deserialize_with = "text")]
    pub model: String,
    #[serde(default)]
    pub choices: Choices,
    #[serde(default, deserialize_with = "object")]
    pub usage: Option<Tokens>,
    /// An error in a stream, or with a status of success; some servers send either.
    #[serde(default, deserialize_with = "is_something", rename = "error")]
    pub is_error: bool,
    /// `error` if the whole value is one, in an older format.
    #[serde(default, deserialize_with = "text")]
    pub object: String,
}

impl Chunk {
    /// Returns a chunk of an API that has one answer only.
    pub(crate) fn of_choice(choice: Option<WireChoice>) -> Self {
        Self { choices: Choices { any: true, first: choice }, ..Self::default() }
    }
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct WireChoice {
    #[serde(default, deserialize_with = "index")]
    pub index: Option<i64>,
    /// Present in a chunk.
    #[serde(default, deserialize_with = "object")]
    pub delta: Option<WireText>,
    /// Present in a whole reply.
    #[serde(default, deserialize_with = "object")]
    pub message: Option<WireText>,
    #[serde(default, deserialize_with = "some_text")]
    pub finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct WireText {
    #[serde(default)]
    pub content: Option<Content>,
    #[serde(default)]
    pub reasoning_content: Option<Content>,
    #[serde(default)]
    pub reasoning: Option<Content>,
    /// A refusal by the provider's policy.
    #[serde(default, deserialize_with = "some_text")]
    pub refusal: Option<String>,
    #[serde(default)]
    pub tool_calls: Option<BoundedCalls>,
}

impl WireText {
    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        let is_said = |text: &Option<Content>| text.as_ref().is_some_and(|text| !text.0.is_empty());
        let texts = [&self.content, &self.reasoning_content, &self.reasoning];
        let has_calls = self.tool_calls.as_ref().is_some_and(|calls| !calls.0.is_empty());
        !texts.into_iter().any(is_said) && self.refusal.is_none() && !has_calls
    }
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct CallPiece {
    #[serde(default, deserialize_with = "index")]
    pub index: Option<i64>,
    #[serde(default, deserialize_with = "text")]
    pub id: String,
    #[serde(default, deserialize_with = "object")]
    pub function: Option<FunctionPiece>,
    /// Whether the arguments replace those of the earlier pieces. No field of Chat Completions.
    #[serde(skip)]
    pub is_whole: bool,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct FunctionPiece {
    #[serde(default, deserialize_with = "text")]
    pub name: String,
    /// A piece of JSON as text; a few servers send the JSON itself.
    #[serde(default, deserialize_with = "json_text")]
    pub arguments: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Tokens {
    #[serde(default, deserialize_with = "amount")]
    pub prompt_tokens: u64,
    #[serde(default, deserialize_with = "amount")]
    pub completion_tokens: u64,
    #[serde(default, deserialize_with = "object")]
    pub prompt_tokens_details: Option<TokenDetails>,
    /// Cost in dollars, from some gateways.
    #[serde(default, deserialize_with = "dollars")]
    pub cost: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct TokenDetails {
    #[serde(default, deserialize_with = "amount")]
    pub cached_tokens: u64,
}

/// Reads an object; `None` for anything else.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Object::deserialize(deserializer).map(|Object(value)| value)
}

/// Reads whether a value says anything: some servers send an empty error beside each chunk.
pub(crate) fn is_something<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let json = json_text(deserializer)?;
    Ok(!matches!(json.as_str(), "" | "null" | "false" | "0" | "{}" | "[]"))
}

/// Reads a text, a number as text, or nothing.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match Scalar::deserialize(deserializer)? {
        Scalar::Text(text) => text,
        Scalar::Number(number) => number.to_string(),
        Scalar::Other => String::new(),
    })
}

/// Reads a text or a number as text; `None` for anything else.
pub(crate) fn some_text<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Ok(Some(text(deserializer)?).filter(|text| !text.is_empty()))
}

/// Reads an index, also as a text, a float or a negative number; `None` for anything else.
pub(crate) fn index<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(match Scalar::deserialize(deserializer)? {
        Scalar::Text(text) => text.trim().parse().ok(),
        // A cast from a float saturates.
        Scalar::Number(number) => {
            number.as_i64().or_else(|| number.as_f64().map(|index| index.round() as i64))
        }
        Scalar::Other => None,
    })
}

/// Reads a count; 0 for anything else.
fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    some_amount(deserializer).map(Option::unwrap_or_default)
}

/// Reads a count; `None` for anything else.
pub(crate) fn some_amount<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let Scalar::Number(number) = Scalar::deserialize(deserializer)? else { return Ok(None) };
    let rounded = number.as_f64().filter(|amount| *amount >= 0.0).map(|amount| amount as u64);
    Ok(number.as_u64().or(rounded))
}

fn dollars<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let Scalar::Number(number) = Scalar::deserialize(deserializer)? else { return Ok(None) };
    Ok(number.as_f64().filter(|cost| cost.is_finite() && *cost >= 0.0))
}

#[cfg(test)]
mod tests;

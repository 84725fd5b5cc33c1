//! Conversions between the contract's types and the core's. Values from a guest are checked here:
//! invalid JSON is a bad answer, with its place for the plugin's author.

mod action;
mod channel;
mod delivery;
mod message;
mod model;
pub(crate) mod queries;
mod state;
mod tool;

pub(crate) use action::{action_out, turn_in};
pub(crate) use channel::{
    channel_delivery_in, channel_message_out, channel_reception_in, channel_request_out,
};
pub(crate) use delivery::{channel_out, decision_in, ended_out, wake_out};
pub(crate) use message::{blob_out, message_out};
pub(crate) use model::{completion_out, model_error_out, request_in};
pub(crate) use state::{metrics_out, past_out, remaining_out, summary_out};
pub(crate) use tool::{outcome_in, spec_in, tool_error_in};

use conclave_core::types::denial::Denial;
use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::json_depth::is_deeper_than;
use serde_json::Value;

use crate::imports::bindings::plugin::actions::AgentError;
use crate::imports::bindings::plugin::types;
use crate::support::escape::{excerpt, harmless};

/// Maximum characters of a plugin's error text.
const TEXT: usize = 4_000;

/// Levels of nested lists and objects that the parser accepts.
const LEVELS: usize = 127;

/// Parses JSON from a guest; `place` describes its location.
pub(crate) fn json_in(text: &str, place: impl Fn() -> String) -> Result<Value, Fault> {
    serde_json::from_str(text).map_err(|cause| {
        let what = if text.is_empty() {
            "is empty".to_owned()
        } else {
            format!("begins with {:?}", excerpt(text, 40))
        };
        let why = if is_deeper_than(text, LEVELS) {
            format!("is nested deeper than {LEVELS} levels")
        } else {
            format!("is not JSON: {cause}; it {what}")
        };
        Fault::new(FaultKind::BadAnswer, format!("{} {why}", place()))
    })
}

/// Parses a JSON object from a guest.
pub(crate) fn object_in(text: &str, place: impl Fn() -> String) -> Result<Value, Fault> {
    let value = json_in(text, &place)?;
    if value.is_object() {
        return Ok(value);
    }
    Err(Fault::new(
        FaultKind::BadAnswer,
        format!("{} must be a JSON object; it is {}", place(), kind_of(&value)),
    ))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Converts the free fields of a record, including duplicate keys.
pub(crate) fn extras_in(
    extras: Vec<types::Extra>,
    place: &str,
) -> Result<Vec<(String, Value)>, Fault> {
    extras
        .into_iter()
        .map(|extra| {
            Ok((
                json_in(&extra.value, || format!("`{}` in `{place}`", excerpt(&extra.key, 40)))?,
                extra.key,
            ))
        })
        .map(|pair| pair.map(|(value, key)| (key, value)))
        .collect()
}

pub(crate) fn denial_out(denial: &Denial) -> types::Denial {
    types::Denial {
        capability: denial.capability.clone(),
        target: denial.target.clone(),
        detail: denial.detail.clone(),
    }
}

/// Converts a denial that a guest passes on.
pub(crate) fn denial_in(denial: &types::Denial) -> Denial {
    Denial {
        // It is the guest's text, so it is truncated and escaped.
        capability: excerpt(&denial.capability, 32),
        target: excerpt(&denial.target, 256),
        detail: excerpt(&denial.detail, 512),
    }
}

/// Converts an error text of a guest.
pub(crate) fn text_in(text: &str) -> String {
    let cut = text.char_indices().nth(TEXT).map_or(text.len(), |(at, _)| at);
    // Error texts may have line breaks; other deceptive characters are escaped.
    text[..cut].split('\n').map(harmless).collect::<Vec<_>>().join("\n")
}

impl From<AgentError> for Fault {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Malformed(text) => Self::new(FaultKind::BadAnswer, text_in(&text)),
            AgentError::Denied(denial) => denied_fault(&denial),
            AgentError::Other(text) => Self::new(FaultKind::Error, text_in(&text)),
        }
    }
}

/// The fault of a guest that gave up after a refusal.
fn denied_fault(denial: &types::Denial) -> Fault {
    let denial = denial_in(denial);
    Fault::new(FaultKind::Error, format!("it was refused {}: {}", denial.capability, denial.target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_that_does_not_parse_is_told_with_its_place_and_beginning() {
        let fault = json_in("{oops", || "the value".to_owned()).unwrap_err();
        assert_eq!(fault.kind, FaultKind::BadAnswer);
        assert!(fault.message.starts_with("the value is not JSON: "), "{}", fault.message);
        assert!(fault.message.ends_with(r#"it begins with "{oops""#), "{}", fault.message);
    }

    #[test]
    fn json_that_is_nested_too_deep_is_named_so() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(json_in(&nested(LEVELS), || "the value".to_owned()).is_ok());
        let fault = json_in(&nested(LEVELS + 1), || "the value".to_owned()).unwrap_err();
        assert_eq!(fault.message, "the value is nested deeper than 127 levels");
    }

    #[test]
    fn an_object_is_asked_for_where_the_contract_says_object() {
        let fault = object_in("[1]", || "`inputs`".to_owned()).unwrap_err();
        assert_eq!(fault.message, "`inputs` must be a JSON object; it is a list");
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_an_overflow() {
        let text = "[".repeat(100_000);
        assert!(json_in(&text, String::new).is_err());
    }

    #[test]
    fn error_texts_keep_their_lines_and_lose_their_escapes() {
        assert_eq!(text_in("a\nb\u{1b}[2J"), "a\nb\\u{1b}[2J");
        assert_eq!(text_in(&"x".repeat(5_000)).len(), TEXT);
    }
}

//! Results in the type that the caller wants: a number, a truth value, a text (L-050i). Calls as
//! results are handled in `termination`.

use serde_json::{Value, json};

use crate::setup::ReturnType;

/// Whether the value is of this plain type.
pub(super) fn is(return_type: &ReturnType, value: &Value) -> bool {
    match return_type {
        ReturnType::Text => value.is_string(),
        ReturnType::Int => value.is_i64() || value.is_u64(),
        ReturnType::Float => value.is_f64(),
        ReturnType::Bool => value.is_boolean(),
        ReturnType::AnyTool | ReturnType::Tool(_) => false,
    }
}

/// The name of the type.
pub(super) fn describe(return_type: &ReturnType) -> String {
    match return_type {
        ReturnType::Text => "a text".to_owned(),
        ReturnType::Int => "the whole number that was wanted".to_owned(),
        ReturnType::Float => "the number that was wanted".to_owned(),
        ReturnType::Bool => "the truth value that was wanted".to_owned(),
        ReturnType::AnyTool => "the call that was wanted".to_owned(),
        ReturnType::Tool(tool) => format!("the call of {tool} that was wanted"),
    }
}

/// Parses the text as this plain type.
pub(super) fn from_text(return_type: &ReturnType, text: &str) -> Option<Value> {
    let text = text.trim();
    match return_type {
        ReturnType::Text => (!text.is_empty()).then(|| json!(text)),
        ReturnType::Int => text.parse::<i64>().ok().map(|number| json!(number)),
        ReturnType::Float => {
            // JSON has neither infinity nor NaN.
            text.parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| json!(number))
        }
        ReturnType::Bool => {
            Some(json!(["true", "yes", "1"].contains(&text.to_lowercase().as_str())))
        }
        ReturnType::AnyTool | ReturnType::Tool(_) => None,
    }
}

/// The first argument of a call that is of this plain type.
pub(super) fn field(return_type: &ReturnType, arguments: &Value) -> Option<Value> {
    arguments.as_object()?.values().find(|value| is(return_type, value)).cloned()
}

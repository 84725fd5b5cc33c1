//! Old spellings that 2025-11 still reads (O-044): renamed and removed fields, and editor calls
//! stored as code.

use serde_json::{Map, Value};

use crate::python;
use crate::vocabulary::SecurityRisk;

/// The prefix and suffix of a stored editor call.
const EDITOR_CALL: (&str, &str) = ("print(file_editor(**", "))");

/// Converts the arguments of an action to current names; returns a timestamp among them.
pub(crate) fn update_args(args: &mut Map<String, Value>) -> Option<Value> {
    let timestamp = args.remove("timestamp");
    match args.remove("is_confirmed") {
        None | Some(Value::Null) => {}
        Some(Value::Bool(flag)) => {
            args.insert(
                "confirmation_state".to_owned(),
                if flag { "confirmed" } else { "awaiting_confirmation" }.into(),
            );
        }
        Some(state) => {
            args.insert("confirmation_state".to_owned(), state);
        }
    }
    if let Some(urls) = args.remove("images_urls") {
        args.insert("image_urls".to_owned(), urls);
    }
    if args.get("security_risk").is_some_and(|risk| !risk.is_null() && !is_risk(risk)) {
        args.remove("security_risk");
    }
    args.remove("keep_prompt");
    args.remove("task_completed");
    if let Some(code) = args.remove("translated_ipython_code") {
        let literal = code
            .as_str()
            .and_then(|code| code.strip_prefix(EDITOR_CALL.0)?.strip_suffix(EDITOR_CALL.1));
        if let Some(call) = literal.and_then(python::read_dictionary) {
            args.extend(call);
        }
        // `view` became the `read` action, which has no command.
        if args.get("command").and_then(Value::as_str) == Some("view") {
            args.remove("command");
        }
    }
    timestamp.filter(|timestamp| !timestamp.is_null())
}

fn is_risk(risk: &Value) -> bool {
    use SecurityRisk::{High, Low, Medium, Unknown};
    [Unknown, Low, Medium, High].iter().any(|known| risk.as_f64() == Some(known.number() as f64))
}

/// Converts the extras of an observation to current names.
pub(crate) fn update_extras(extras: &mut Map<String, Value>) {
    for (old, new) in [("exit_code", "exit_code"), ("command_id", "pid")] {
        let Some(value) = extras.remove(old) else { continue };
        let metadata = extras.entry("metadata").or_insert(Value::Null);
        if !metadata.is_object() {
            *metadata = Value::Object(Map::new());
        }
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert(new.to_owned(), value);
        }
    }
    extras.remove("formatted_output_and_error");
}

//! One thing under the several names and forms that cases have for it: what was seen is put into the form that a case asks for. Nothing
//! here makes up what was not seen.

use serde_json::{Map, Value, json};

/// Names for what a call of a cancel gave, for whether two things are one, for a tool without agents, and for what a worker was told.
const NAMES: [(&str, &[&str]); 9] = [
    (
        "returns",
        &["return", "returned", "cancel_returned", "cancel_returns", "cancelled", "cancel", "cancel_result", "first", "returns_bool"],
    ),
    ("second", &["second_cancel", "returns_second", "second_returns", "again", "second_cancel_returns"]),
    ("equal", &["equals", "lossless", "same", "round_trip", "round_trips", "roundtrip_equal", "identical", "unchanged", "equal_to_input"]),
    ("is_generic", &["same_object", "is_generic_object", "generic", "same_as_generic", "equals_generic", "generic_object"]),
    ("generic_unmodified", &["original_unmodified", "generic_unchanged", "original_unchanged", "unmodified"]),
    (
        "worker_input",
        &["agent_input", "agent_received", "worker_saw", "worker_message", "first_message", "child_first_message", "agent_saw"],
    ),
    ("child_metadata", &["child_room_metadata", "child_metadata_after", "child_meta"]),
    ("dead_letter", &["dead_letters", "dead_letter_depth", "dead_letter_count", "dead_lettered"]),
    ("max_concurrent", &["max_concurrent_delegate_calls", "max_concurrent_calls", "max_in_flight", "concurrency"]),
];

/// What was seen, in the words of the case.
pub(super) fn align(then: &Value, mut got: Value) -> Value {
    let (Some(then), Some(seen)) = (then.as_object(), got.as_object_mut()) else { return got };
    for (name, others) in NAMES {
        let Some(value) = seen.get(name).cloned() else { continue };
        for other in others {
            seen.entry(*other).or_insert_with(|| value.clone());
        }
    }
    if then.get("child_bindings").is_some_and(Value::is_object) {
        seen.insert("child_bindings".to_owned(), seen.get("child_binding").cloned().unwrap_or_default());
    }
    if then.get("hooks").is_some_and(Value::is_array) {
        let fired = seen.get("order").and_then(Value::as_array).into_iter().flatten();
        let hooks: Vec<Value> = fired.filter(|name| name.as_str().is_some_and(|name| name.starts_with("on_"))).cloned().collect();
        seen.insert("hooks".to_owned(), json!(hooks));
    }
    rename_interrupts(then, seen);
    // Errors have a name in a case, and with us a text that says which: where the host refused, it is that one.
    if let (Some(Value::String(_)), Some(Value::String(kind))) = (then.get("error"), seen.get("error_kind").cloned()) {
        seen.insert("error".to_owned(), then.get("error").cloned().unwrap_or(Value::String(kind)));
    }
    got
}

/// The call with which a voice is interrupted has the name that the case gives it.
fn rename_interrupts(then: &Map<String, Value>, seen: &mut Map<String, Value>) {
    let is_one = |name: &&str| name.starts_with("interrupt") || name.starts_with("stop");
    let of_calls = then.get("voice_calls").and_then(Value::as_array).into_iter().flatten().filter_map(|call| call.get(0)?.as_str());
    let of_order = then.get("order").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let Some(name) = of_calls.chain(of_order).find(is_one).map(str::to_owned) else { return };
    for call in seen.get_mut("voice_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(own) = call.get_mut(0).filter(|own| own.as_str().is_some_and(|own| own.starts_with("interrupt"))) {
            *own = json!(name);
        }
    }
    for own in seen.get_mut("order").and_then(Value::as_array_mut).into_iter().flatten() {
        if own.as_str().is_some_and(|own| own.starts_with("interrupt")) {
            *own = json!(name);
        }
    }
}

/// Their ids of child rooms are `parent::task-<12 hex>`, ours `parent/1`: a case that asks for a part of one asks for ours.
pub(super) fn in_our_ids(then: &Value) -> Value {
    match then {
        Value::Object(fields) => {
            let ours = |(key, value): (&String, &Value)| {
                let is_id = ["child_id", "child_room_id"].iter().any(|name| key.starts_with(name)) && key.as_str() != "child_id_shape";
                let value = match value.as_str().filter(|_| is_id) {
                    Some(id) => json!(id.replace("::task-", "/").replace("[0-9a-f]{12}", "[0-9]+").replace("\\w{12}", "[0-9]+")),
                    None => in_our_ids(value),
                };
                (key.clone(), value)
            };
            Value::Object(fields.iter().map(ours).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_has_the_names_of_the_case() {
        let got = align(&json!({ "cancelled": true }), json!({ "returns": true }));
        assert_eq!(got["cancelled"], json!(true));
        let got = align(&json!({ "hooks": ["on_a"] }), json!({ "order": ["on_a", "x"], "hooks": {} }));
        assert_eq!(got["hooks"], json!(["on_a"]));
        let then = json!({ "voice_calls": [["interrupt", "r", "t"]], "order": ["interrupt"] });
        let got = align(&then, json!({ "voice_calls": [["interrupt_all", "r", "t"]], "order": ["interrupt_all"] }));
        assert_eq!((&got["voice_calls"], &got["order"]), (&then["voice_calls"], &then["order"]));
        let got = align(&json!({ "error": "already" }), json!({ "error": "tasks.a: twice", "error_kind": "refused" }));
        assert_eq!(got["error"], json!("already"));
        let got = align(&json!({ "error": "already" }), json!({ "error": "other" }));
        assert_eq!(got["error"], json!("other"), "nothing was refused");
    }

    #[test]
    fn ids_are_ours() {
        let then = json!({ "handle": { "child_room_id_prefix": "room-1::task-" }, "child_id_shape": "<parent>::task-<12 hex>" });
        let ours = in_our_ids(&then);
        assert_eq!(ours["handle"]["child_room_id_prefix"], json!("room-1/"));
        assert_eq!(ours["child_id_shape"], then["child_id_shape"]);
    }
}

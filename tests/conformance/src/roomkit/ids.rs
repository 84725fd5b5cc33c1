//! Ids of child rooms, converted between the reference's form and ours.

use serde_json::{Value, json};

/// Replaces parts of ids in expectations. The reference's child rooms are `parent::task-<12 hex>`,
/// ours `parent/1`.
pub(super) fn in_our_ids(then: &Value) -> Value {
    match then {
        Value::Object(fields) => {
            let ours = |(key, value): (&String, &Value)| {
                let is_id = ["child_id", "child_room_id"].iter().any(|name| key.starts_with(name))
                    && key.as_str() != "child_id_shape";
                let value = match value.as_str().filter(|_| is_id) {
                    Some(id) => json!(
                        id.replace("::task-", "/")
                            .replace("[0-9a-f]{12}", "[0-9]+")
                            .replace("\\w{12}", "[0-9]+")
                    ),
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
    fn ids_are_ours() {
        let then = json!({ "handle": { "child_room_id_prefix": "room-1::task-" }, "child_id_shape": "<parent>::task-<12 hex>" });
        let ours = in_our_ids(&then);
        assert_eq!(ours["handle"]["child_room_id_prefix"], json!("room-1/"));
        assert_eq!(ours["child_id_shape"], then["child_id_shape"]);
    }
}

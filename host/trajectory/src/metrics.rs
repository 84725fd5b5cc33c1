//! Model metadata of 2025-11 events, the cost and the model call, in their normal form and order.

use serde_json::{Map, Value, json};

use crate::json::Json;

const METRICS: [&str; 6] = [
    "accumulated_cost",
    "max_budget_per_task",
    "accumulated_token_usage",
    "costs",
    "response_latencies",
    "token_usages",
];
const USAGE: [&str; 8] = [
    "model",
    "prompt_tokens",
    "completion_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "context_window",
    "per_turn_token",
    "response_id",
];
const COST: [&str; 3] = ["model", "cost", "timestamp"];
const LATENCY: [&str; 3] = ["model", "latency", "response_id"];
const CALL: [&str; 4] =
    ["function_name", "tool_call_id", "model_response", "total_calls_in_response"];

/// The normal form of stored metrics, with every total and list present. Anything but an object
/// becomes empty metrics.
pub(crate) fn normalised(metrics: &Value) -> Value {
    let empty = Map::new();
    let fields = metrics.as_object().unwrap_or(&empty);
    let take = |key: &str, default: Value| fields.get(key).cloned().unwrap_or(default);
    let list = |key: &str, fill: fn(&Value) -> Value| -> Value {
        fields
            .get(key)
            .and_then(Value::as_array)
            .map(|items| items.iter().map(fill).collect())
            .unwrap_or_else(|| json!([]))
    };
    json!({
        "accumulated_cost": take("accumulated_cost", json!(0.0)),
        "max_budget_per_task": take("max_budget_per_task", Value::Null),
        "accumulated_token_usage": fields.get("accumulated_token_usage").map_or_else(|| usage(&json!({"model": "default"})), usage),
        "costs": list("costs", Value::clone),
        "response_latencies": list("response_latencies", Value::clone),
        "token_usages": list("token_usages", usage),
    })
}

fn usage(recorded: &Value) -> Value {
    let default =
        |key: &str| if matches!(key, "model" | "response_id") { json!("") } else { json!(0) };
    let value = |key: &str| recorded.get(key).cloned().unwrap_or_else(|| default(key));
    Value::Object(USAGE.iter().map(|key| ((*key).to_owned(), value(key))).collect())
}

/// Returns metrics with their keys in the order on the wire.
pub(crate) fn ordered_metrics(metrics: &Value) -> Json {
    ordered(metrics, &METRICS, |key, value| match key {
        "accumulated_token_usage" => ordered(value, &USAGE, leaf),
        "token_usages" => each(value, &USAGE),
        "costs" => each(value, &COST),
        "response_latencies" => each(value, &LATENCY),
        _ => leaf(key, value),
    })
}

/// A model call with its keys in the order on the wire.
pub(crate) fn ordered_call(call: &Value) -> Json {
    ordered(call, &CALL, leaf)
}

fn leaf(_: &str, value: &Value) -> Json {
    Json::Leaf(value.clone())
}

fn each(items: &Value, keys: &[&'static str]) -> Json {
    match items {
        Value::Array(items) => {
            Json::List(items.iter().map(|item| ordered(item, keys, leaf)).collect())
        }
        other => Json::Leaf(other.clone()),
    }
}

/// Orders an object that only has these keys; anything else stays as it is.
fn ordered(value: &Value, keys: &[&'static str], field: impl Fn(&str, &Value) -> Json) -> Json {
    match value {
        Value::Object(map) if map.keys().all(|key| keys.contains(&key.as_str())) => Json::Object(
            keys.iter()
                .filter_map(|key| map.get(*key).map(|value| (*key, field(key, value))))
                .collect(),
        ),
        other => Json::Leaf(other.clone()),
    }
}

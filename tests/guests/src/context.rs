//! Returns every fact about the call.

use conclave_sdk::{Call, Json, tool};

/// What the host stamped on this call.
#[tool]
fn run(call: &Call) -> Json<serde_json::Value> {
    Json(serde_json::json!({
        "call_id": call.call_id,
        "attempt": call.attempt,
        "task_name": call.task_name,
        "room_id": call.room_id,
        "caller": call.caller,
        "deadline_ms": call.deadline_ms,
        "traceparent": call.traceparent,
    }))
}

conclave_sdk::export!(tools: [run], asks: []);

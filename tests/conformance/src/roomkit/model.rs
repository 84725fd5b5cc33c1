//! Records by themselves: what a result and a handle hold when nothing is said, and that JSON gives back what was written.

use conclave_core::ids::BackgroundId;
use conclave_runtime::delegation::{BackgroundState, Delegation};
use conclave_runtime::delivery::{BackgroundStatus, EndedTask};
use conclave_runtime::ids::TaskName;
use serde_json::{Value, json};

use super::{Case, names};

pub(super) fn play(case: &Case<'_>) -> Result<Value, String> {
    let given = case.any(&["result", "record", "fields", "with"]).unwrap_or(case.when);
    let word = |key: &str| given.get(key).or_else(|| case.get(key)).and_then(Value::as_str);
    let ids = json!({
        "id": word("id").or_else(|| word("task_id")), "task_id": word("task_id"), "child_room_id": word("child_room_id"),
        "parent_room_id": word("parent_room_id"), "agent_id": word("agent_id"), "task": word("task"),
    });
    let mut got = ids;
    if case.op == "handle_new" || case.op.contains("handle") {
        got["status"] = json!(names::state(BackgroundState::Pending));
        got["result"] = Value::Null;
        got["done"] = json!(false);
        return Ok(got);
    }
    let status = match word("status").unwrap_or("completed") {
        "completed" => BackgroundStatus::Completed,
        "failed" => BackgroundStatus::Failed,
        "cancelled" => BackgroundStatus::Cancelled,
        other => return Err(format!("a result has no status {other:?}")),
    };
    let milliseconds = given.get("duration_ms").and_then(Value::as_f64).unwrap_or_default();
    let record = EndedTask {
        id: BackgroundId::from(word("task_id").unwrap_or_default()),
        agent: TaskName::from(word("agent_id").unwrap_or_default()),
        task: word("task").unwrap_or_default().to_owned(),
        status,
        output: word("output").map(str::to_owned),
        error: word("error").map(str::to_owned),
        duration_ms: milliseconds as u64,
        metadata: given.get("metadata").cloned().unwrap_or(Delegation::default().context),
        attempts: 0,
    };
    // what was written is what is read.
    let text = serde_json::to_string(&record).map_err(|error| error.to_string())?;
    let read: EndedTask = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let is_same = read == record;
    let metadata = if read.metadata.is_null() { json!({}) } else { read.metadata.clone() };
    let fields = json!({
        "status": names::status(read.status), "output": read.output, "error": read.error,
        // Ours are whole milliseconds.
        "duration_ms": if read.duration_ms == milliseconds as u64 { milliseconds } else { read.duration_ms as f64 },
        "metadata": metadata, "task_id": read.id, "agent_id": read.agent,
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        got[key] = value.clone();
    }
    got["equal"] = json!(is_same);
    let all = got.clone();
    for key in ["result", "restored", "decoded", "json"] {
        got[key] = all.clone();
    }
    Ok(got)
}

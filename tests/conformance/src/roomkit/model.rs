//! A task result alone: its JSON is that of the journal (`Event::BackgroundEnded`) and reads back
//! as the same value.

use conclave_core::types::ids::BackgroundId;
use conclave_runtime::delivery::{BackgroundStatus, EndedTask};
use conclave_runtime::ids::TaskName;
use serde_json::{Value, json};

use super::{Case, names};

pub(super) fn play(case: &Case<'_>) -> Result<Value, String> {
    let given = case.get("result").unwrap_or(case.when);
    let word = |key: &str| given.get(key).and_then(Value::as_str);
    let status = match word("status").ok_or("the result has no status")? {
        "completed" => BackgroundStatus::Completed,
        "failed" => BackgroundStatus::Failed,
        "cancelled" => BackgroundStatus::Cancelled,
        other => return Err(format!("a result has no status {other:?}")),
    };
    // Durations of the host are whole milliseconds.
    let milliseconds = given.get("duration_ms").and_then(Value::as_f64).unwrap_or_default();
    let record = EndedTask {
        id: BackgroundId::from(word("task_id").unwrap_or_default()),
        worker: TaskName::from(word("agent_id").unwrap_or_default()),
        description: word("task").unwrap_or_default().to_owned(),
        status,
        output: word("output").map(str::to_owned),
        error: word("error").map(str::to_owned),
        cause: None,
        duration_ms: milliseconds as u64,
        metadata: given.get("metadata").cloned().unwrap_or_default(),
        attempts: 0,
    };
    // the record must read back as written.
    let text = serde_json::to_string(&record).map_err(|error| error.to_string())?;
    let read: EndedTask = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Ok(json!({
        "equal": read == record,
        "result": {
            "task_id": read.id, "agent_id": read.worker, "task": read.description, "status": names::status(read.status), "output": read.output,
            "error": read.error, "duration_ms": read.duration_ms, "metadata": read.metadata,
        },
    }))
}

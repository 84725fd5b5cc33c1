//! The runner and its handles: waiting, cancelling, closing, and the possible ends of a task.

use std::sync::Arc;

use conclave_runtime::clock::SystemClock;
use conclave_runtime::delegation::{BackgroundRecord, Delegation};
use conclave_runtime::ids::RoomId;
use conclave_runtime::journal::{JournalFailure, Journals, Opening};
use conclave_runtime::{TaskHandle, WaitError};
use serde_json::{Map, Value, json};

use super::agents::Script;
use super::delegate::{background, result, settled, shown};
use super::stage::{Open, Stage};
use super::{Case, names};
use crate::Runner;
use crate::case_store::CaseStore;

/// The worker of these cases.
const WORKER: &str = "agent-bg";
/// In milliseconds: practically without end.
const LONG_MS: u64 = 60_000;

pub(super) async fn play(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let open = staged(case).open_with(runner, journals(case)?, Arc::new(SystemClock)).await?;
    match case.kind {
        "wait" => wait(&open, case).await,
        "submit_two_then_close" => close(&open, case).await,
        "submit" => submit(&open, case).await,
        _ => cancel(&open, case).await,
    }
}

fn staged(case: &Case<'_>) -> Stage {
    let mut stage = Stage::of(case.given);
    let reply = case.any(&["agent_reply", "reply"]);
    let replies = case.any(&["agent_replies", "replies"]).and_then(Value::as_array);
    // The worker returns the result that a case gives.
    let given = case.get("result").filter(|result| result.is_object());
    let of_result = |key: &str| {
        given.and_then(|result| result.get(key)).and_then(Value::as_str).map(str::to_owned)
    };
    let cancels = case.op.contains("cancel") || case.flag("cancelled");
    stage.add_agent(Script {
        id: WORKER.to_owned(),
        replies: match (replies, reply) {
            (Some(replies), _) => {
                replies.iter().map(|reply| reply.as_str().map(str::to_owned)).collect()
            }
            (None, Some(reply)) => vec![reply.as_str().map(str::to_owned)],
            (None, None) => vec![Some(of_result("output").unwrap_or_else(|| "done".to_owned()))],
        },
        delay_ms: case
            .any(&["delay_ms", "agent_delay_ms"])
            .and_then(Value::as_u64)
            .unwrap_or(if cancels { LONG_MS } else { 0 }),
        raises: case
            .any(&["agent_raises", "raises"])
            .and_then(Value::as_str)
            .map(str::to_owned)
            .or_else(|| of_result("error")),
        ..Script::default()
    });
    stage
}

/// Returns journals that refuse a missing room, so that it cannot be opened.
fn journals(case: &Case<'_>) -> Result<Arc<dyn Journals>, String> {
    let is_missing = case.get("child_room").is_some_and(Value::is_null);
    let journals = CaseStore::new()?.journals();
    Ok(if is_missing { Arc::new(WithoutChildren(journals)) } else { journals })
}

async fn started(open: &Open, case: &Case<'_>, task: &str) -> Result<TaskHandle, String> {
    let context =
        case.get("context").cloned().filter(Value::is_object).unwrap_or_else(|| json!({}));
    let wanted = Delegation {
        worker: WORKER.to_owned(),
        description: task.to_owned(),
        context,
        ..Delegation::default()
    };
    open.delegate(None, wanted).await.map_err(|refusal| refusal.message)
}

async fn submit(open: &Open, case: &Case<'_>) -> Result<Value, String> {
    let task = started(open, case, "do the work").await?;
    let record = open.wait(&task.id).await.map_err(|error| error.to_string())?;
    let returned = open.follower.note("wait_returned");
    let record = settled(open, record).await;
    Ok(shown(open, &record, returned))
}

async fn wait(open: &Open, case: &Case<'_>) -> Result<Value, String> {
    let task = started(open, case, "do the work").await?;
    if case.flag("cancelled") {
        task.cancel("cancelled").await.map_err(|refusal| refusal.message)?;
    }
    let before = case.text("when").or_else(|| case.text("order")).unwrap_or("before");
    if before == "after" || case.flag("result_set") || case.flag("done") {
        open.wait(&task.id).await.map_err(|error| error.to_string())?;
    }
    let takes = open.stage.agent(WORKER).map_or(0, |worker| worker.script().delay_ms);
    let gives_up = case.number("timeout_ms").filter(|at_most| *at_most < takes);
    // All waiting callers receive the same result.
    let once = async || match gives_up {
        Some(at_most) => open.wait_at_most(&task.id, at_most).await,
        None => open.wait(&task.id).await,
    };
    let (first, second) = tokio::join!(once(), once());
    let record = match first {
        Ok(record) => record,
        Err(WaitError::TimedOut) => {
            let after = open.handle.task(&task.id).map(|record| names::state(record.state));
            let later = open.wait(&task.id).await.map_err(|error| error.to_string())?;
            return Ok(json!({
                "error": "timeout", "status_after": after, "later_status": names::state(later.state),
            }));
        }
        Err(other) => return Err(other.to_string()),
    };
    let same =
        second.is_ok_and(|second| (second.state, &second.output) == (record.state, &record.output));
    let again =
        open.wait_at_most(&task.id, 0).await.is_ok_and(|again| again.output == record.output);
    Ok(
        json!({ "status": names::state(record.state), "waiters_equal": same, "returns_at_once": again }),
    )
}

async fn cancel(open: &Open, case: &Case<'_>) -> Result<Value, String> {
    let is_unknown = case.op.contains("unknown")
        || case.flag("unknown")
        || case.given.get("submitted") == Some(&json!(false));
    let named = case
        .text("id")
        .filter(|_| case.op == "cancel" && case.given.as_object().is_none_or(Map::is_empty));
    if is_unknown || named.is_some() {
        let cancelled = open
            .handle
            .cancel(&background(named.unwrap_or("ghost")), "cancelled")
            .await
            .map_err(|refusal| refusal.message)?;
        return Ok(json!({ "returns": cancelled }));
    }
    let task = started(open, case, "do the work").await?;
    let is_late = case.op.contains("finished")
        || case.op.contains("done")
        || case.flag("finished")
        || case.flag("done");
    if is_late {
        open.wait(&task.id).await.map_err(|error| error.to_string())?;
    }
    if case.number("cancel_after_ms").is_some()
        && let Some(worker) = open.stage.agent(WORKER)
    {
        // The worker is running by then.
        worker.has_begun(1).await;
    }
    let times = case.number("times").unwrap_or(1).max(1);
    let mut answers = Vec::new();
    for _ in 0..times {
        answers.push(task.cancel("cancelled").await.map_err(|refusal| refusal.message)?);
    }
    let again = task.cancel("cancelled").await.map_err(|refusal| refusal.message)?;
    let record = open.wait_for_stopped(&task.id).await.map_err(|error| error.to_string())?;
    let returned = open.follower.note("wait_returned");
    let record = settled(open, record).await;
    if case.kind == "cancel_handle" {
        return Ok(
            json!({ "status": names::state(record.state), "result": result(open, &record) }),
        );
    }
    let mut got = shown(open, &record, returned);
    got["returns"] = json!(answers.first().copied().unwrap_or_default());
    got["second"] = json!(again);
    Ok(got)
}

async fn close(open: &Open, case: &Case<'_>) -> Result<Value, String> {
    let mut ids = case.texts("ids");
    if ids.is_empty() {
        ids = vec!["t1".to_owned()];
    }
    let mut tasks = Vec::new();
    for id in &ids {
        tasks.push((id.clone(), started(open, case, id).await?));
    }
    open.handle.close("the host closes").await.map_err(|refusal| refusal.message)?;
    let mut statuses = Map::new();
    for (id, task) in tasks {
        let record: Arc<BackgroundRecord> =
            open.wait_for_stopped(&task.id).await.map_err(|error| error.to_string())?;
        statuses.insert(id, json!(names::state(record.state)));
    }
    Ok(json!({ "statuses": statuses }))
}

/// Journals that refuse child rooms.
struct WithoutChildren(Arc<dyn Journals>);

impl Journals for WithoutChildren {
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
        if room.as_str().contains('/') {
            let cause = std::io::Error::new(std::io::ErrorKind::NotFound, "the room was not found");
            return Err(JournalFailure::new(room.clone(), "the case's rooms".to_owned(), cause));
        }
        self.0.open(room)
    }
}

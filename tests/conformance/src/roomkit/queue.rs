//! Pending results, which the room stores in its journal. A failing channel is retried until the
//! result is undeliverable. A delivery that was in progress at a crash is pending again when the
//! room is resumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conclave_runtime::RunOptions;
use conclave_runtime::clock::{BoxFuture, Clock, SystemClock};
use conclave_runtime::delegation::{Delegation, ResultForm};
use conclave_runtime::delivery::{Decision, DeliveryState};
use conclave_runtime::ids::Millis;
use serde_json::{Value, json};

use super::Case;
use super::agents::Script;
use super::delegate::{add_strategy, outcome, settled};
use super::followed::Follower;
use super::stage::Stage;
use crate::Runner;
use crate::case_store::CaseStore;

/// The number of rejected messages, if the case gives a number of failures but no success.
const NEVER: u32 = 100;

pub(super) async fn play(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    if case.kind == "backend_close" {
        close(runner, case).await
    } else {
        failing(runner, case).await
    }
}

fn staged(case: &Case<'_>) -> Result<Stage, String> {
    let mut stage = Stage::of(case.given);
    if stage.channels.is_empty() {
        stage.channels.push(("sms-1".to_owned(), Default::default()));
    }
    stage.deliver = add_strategy(&mut stage, &json!("immediate"));
    stage.add_agent(Script {
        id: "agent-bg".to_owned(),
        replies: vec![Some("result".to_owned())],
        ..Script::default()
    });
    Ok(stage)
}

fn wanted() -> Delegation {
    Delegation {
        worker: "agent-bg".to_owned(),
        description: "do the work".to_owned(),
        result_delivery: Some(ResultForm::Text),
        ..Delegation::default()
    }
}

/// Ends the process while messages are in progress. The next process reads the journal.
async fn close(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let in_flight = case.number("in_flight").unwrap_or(1);
    let store = CaseStore::new()?;
    let stage = Stage { is_stuck: true, ..staged(case)? };
    let open = stage.open_with(runner, store.journals(), Arc::new(SystemClock)).await?;
    for number in 1..=in_flight {
        let task = open.delegate(None, wanted()).await.map_err(|refusal| refusal.message)?;
        open.wait(&task.id).await.map_err(|error| error.to_string())?;
        let said = |seen: &super::followed::Seen| (seen.said.len() as u64 >= number).then_some(());
        open.follower.until(said).await.ok_or("nothing is said")?;
    }
    let room = open.room().clone();
    // From this moment on, because a killed process writes nothing more.
    let killed = store.after_kill(&room).await?;
    drop(open.hosted);
    let follower = Follower::new(0, true);
    let options = RunOptions {
        channels: Arc::clone(&follower) as _,
        journals: killed.journals(),
        ..RunOptions::default()
    };
    let session = open.prepared.reopen(&room, options).await.map_err(|error| error.to_string())?;
    let (handle, hosted) = session.resume_room();
    // The answer shows that the room has been resumed.
    handle.unbind("nothing").await.map_err(|refusal| refusal.message)?;
    let is_there = |state: DeliveryState| {
        !matches!(state, DeliveryState::Delivered | DeliveryState::Read | DeliveryState::None)
    };
    let waiting = handle.tasks().iter().filter(|record| is_there(record.delivery.state)).count();
    drop(hosted);
    Ok(json!({ "queue_depth": waiting }))
}

/// Plays a channel that rejects messages.
async fn failing(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let failures = case.number("failures");
    let deaf = failures.and_then(|count| u32::try_from(count).ok()).unwrap_or(NEVER);
    let stage = Stage { deaf, ..staged(case)? };
    let open =
        stage.open_with(runner, CaseStore::new()?.journals(), Arc::new(Hurried::default())).await?;
    let task = open.delegate(None, wanted()).await.map_err(|refusal| refusal.message)?;
    let record = task.wait(None).await.map_err(|error| error.to_string())?;
    let record = settled(&open, record).await;
    let seen = open.follower.seen();
    let pause = |decision: &Decision| {
        if let Decision::Wait { timeout_ms, .. } = decision { Some(*timeout_ms) } else { None }
    };
    let pauses: Vec<u64> = seen.decided.iter().flatten().filter_map(pause).collect();
    let dead = u64::from(record.delivery.state == DeliveryState::DeadLetter);
    let waits = u64::from(matches!(
        record.delivery.state,
        DeliveryState::Waiting | DeliveryState::Delivering
    ));
    Ok(json!({
        "dead_letter": dead, "queue_depth": waits, "delays_ms": pauses, "attempts": record.delivery.attempts,
        "outcome": outcome(&record), "inbound_calls": seen.inbound(),
    }))
}

/// A clock whose sleeps end at once.
#[derive(Default)]
struct Hurried(Arc<AtomicU64>);

impl Clock for Hurried {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Millis) -> BoxFuture<'static, ()> {
        let now = Arc::clone(&self.0);
        Box::pin(async move {
            tokio::task::yield_now().await;
            now.fetch_max(at.0, Ordering::SeqCst);
        })
    }
}

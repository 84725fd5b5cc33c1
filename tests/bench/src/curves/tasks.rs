//! Background tasks in one room: all are delegated at once, each runs, and the room's agent takes a
//! turn about each result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::protocol::notice::Notice;
use conclave_core::types::ids::BackgroundId;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::series::{Curve, Rounds};
use super::{Place, failed};
use crate::BenchError;
use crate::delivery::Cycles;

const TASKS: [u64; 4] = [10, 100, 1_000, 10_000];
/// The timeout for the results of all tasks.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) async fn curve(place: &Place<'_>) -> Result<Curve, BenchError> {
    let mut whole = Rounds::new("delegate, run, report");
    let mut remark = None;
    for _ in 0..place.rounds() {
        for &tasks in place.sizes(&TASKS) {
            let count = u32::try_from(tasks).unwrap_or(u32::MAX);
            let mut times = Vec::new();
            for _ in 0..(200 / tasks).max(1) {
                let cycle = cycles(place, count).await?;
                times.push(cycle.each);
                if cycle.refused > 0 {
                    let refused = cycle.refused;
                    remark = Some(format!(
                        "Of {tasks} results, {refused} wait for the agent's next turn."
                    ));
                }
            }
            whole.take(tasks, times);
        }
    }
    Ok(Curve {
        what: super::TASKS.to_owned(),
        axis: "tasks delegated at once".to_owned(),
        series: vec![whole.series()],
        remark,
    })
}

/// The time for each task, and the number of results without a turn of their own.
struct Cycle {
    each: Duration,
    refused: usize,
}

/// Delegates this many tasks at once, and waits until the agent has a turn about each result.
async fn cycles(place: &Place<'_>, tasks: u32) -> Result<Cycle, BenchError> {
    let results =
        Arc::new(Results { relayed: Mutex::default(), wanted: tasks as usize, all: Notify::new() });
    let subscribers = Subscribers::new([Arc::clone(&results) as Arc<dyn Subscriber>]);
    let cycles = Cycles::followed(place.hosted.host(), place.guests, subscribers).await?;
    let began = Instant::now();
    let mut requests = JoinSet::new();
    for _ in 0..tasks {
        requests.spawn(cycles.delegation());
    }
    while let Some(reply) = requests.join_next().await {
        reply.map_err(failed)??;
    }
    let is_over = tokio::time::timeout(PATIENCE, results.all.notified()).await.is_ok();
    let took = began.elapsed();
    let relayed = results.relayed.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_over {
        return Err(BenchError::Answer(format!("{} of {tasks} results came", relayed.len())));
    }
    let refused = relayed.values().filter(|is_relayed| !**is_relayed).count();
    Ok(Cycle { each: took / tasks, refused })
}

/// The results that the agent has a turn about (true), or that wait for another turn (false).
struct Results {
    relayed: Mutex<BTreeMap<BackgroundId, bool>>,
    wanted: usize,
    all: Notify,
}

impl Subscriber for Results {
    fn on(&self, happening: &Published) {
        let RunEvent::Notice { notice } = &happening.what else { return };
        let (ids, is_relayed) = match notice {
            Notice::ResultsRelayed { ids, .. } => (ids.as_slice(), true),
            Notice::ResultsRead { ids, .. } => (ids.as_slice(), false),
            Notice::NotDelivered { id, .. } | Notice::DeadLetter { id, .. } => {
                (std::slice::from_ref(id), false)
            }
            _ => return,
        };
        let mut relayed = self.relayed.lock().unwrap_or_else(PoisonError::into_inner);
        for id in ids {
            *relayed.entry(id.clone()).or_default() |= is_relayed;
        }
        if relayed.len() == self.wanted {
            self.all.notify_one();
        }
    }
}

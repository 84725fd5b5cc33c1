//! The subscribers of a run: a step with its host's answer, each event of which every subscriber
//! receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use conclave_runtime::subscribe::{Published, Subscriber, Subscribers};

use super::Place;
use super::series::{Curve, Rounds};
use crate::BenchError;

const SUBSCRIBERS: [u64; 4] = [0, 1, 10, 100];
/// The number of steps of each run: the agent's, and the host's answers.
const STEPS: u32 = 1_000;

pub(super) async fn curve(place: &Place<'_>) -> Result<Curve, BenchError> {
    let mut step = Rounds::new("a step and the host's answer");
    for _ in 0..place.rounds() {
        for &count in place.sizes(&SUBSCRIBERS) {
            let mut times = Vec::new();
            for _ in 0..5 {
                let counters: Vec<Arc<Counter>> = (0..count).map(|_| Arc::default()).collect();
                let subscribers = counters.iter().map(|one| Arc::clone(one) as Arc<dyn Subscriber>);
                let subscribers = Subscribers::new(subscribers);
                let began = Instant::now();
                place.hosted.talk(STEPS, subscribers).await?;
                times.push(began.elapsed() / (STEPS / 2));
                if counters.iter().any(|one| one.0.load(Ordering::Relaxed) < u64::from(STEPS)) {
                    return Err(BenchError::Answer("a subscriber missed events".to_owned()));
                }
            }
            step.take(count, times);
        }
    }
    Ok(Curve {
        what: super::SUBSCRIBERS.to_owned(),
        axis: "subscribers that count events".to_owned(),
        series: vec![step.series()],
        remark: None,
    })
}

/// Counts the events that it receives.
#[derive(Default)]
struct Counter(AtomicU64);

impl Subscriber for Counter {
    fn on(&self, _: &Published) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

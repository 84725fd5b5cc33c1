//! Rooms at once: many tasks begin together, each in a room of its own, on one thread.

use std::sync::Arc;
use std::time::Instant;

use conclave_runtime::journal::{Journals, NoJournals};

use super::Place;
use super::series::{Curve, Rounds};
use crate::BenchError;

const ROOMS: [u64; 5] = [1, 10, 100, 1_000, 10_000];

pub(super) async fn curve(place: &Place<'_>) -> Result<Curve, BenchError> {
    let journals = Arc::new(NoJournals) as Arc<dyn Journals>;
    let mut task = Rounds::new("a task: step, tool call, step");
    for _ in 0..place.rounds() {
        for &rooms in place.sizes(&ROOMS) {
            let count = u32::try_from(rooms).unwrap_or(u32::MAX);
            let mut times = Vec::new();
            for _ in 0..(1_000 / rooms).clamp(1, 100) {
                let began = Instant::now();
                place.hosted.run_at_once(count, &journals).await?;
                times.push(began.elapsed() / count);
            }
            task.take(rooms, times);
        }
    }
    Ok(Curve {
        what: super::ROOMS.to_owned(),
        axis: "rooms that run at once".to_owned(),
        series: vec![task.series()],
        remark: None,
    })
}

//! Measures times: a baseline and a subject alternate in short blocks, after a warm-up. Independent
//! of the measured work.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::BenchError;

/// The length of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    Quick,
    Full,
}

/// The numbers of executions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Uncounted executions: caches, pools and branch predictors fill.
    warm_up: usize,
    samples: usize,
}

/// The number of executions before the other side follows. Long enough for the processor's caches
/// to adapt, short enough that a disturbance of a few milliseconds affects both sides.
const BLOCK: usize = 25;

impl Plan {
    /// Returns the plan for work of microseconds.
    pub(crate) fn short(effort: Effort) -> Self {
        Self::of(effort, 20_000)
    }

    /// Returns the plan for work of a millisecond.
    pub(crate) fn medium(effort: Effort) -> Self {
        Self::of(effort, 1_000)
    }

    /// Returns the plan for work of tens of milliseconds.
    pub(crate) fn long(effort: Effort) -> Self {
        Self::of(effort, 100)
    }

    fn of(effort: Effort, full: usize) -> Self {
        let samples = if effort == Effort::Quick { full / 10 } else { full };
        Self { warm_up: samples / 10, samples }
    }
}

/// The times of one side, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Times {
    pub(crate) samples: usize,
    pub(crate) min_ns: u64,
    pub(crate) median_ns: u64,
    pub(crate) p99_ns: u64,
}

impl Times {
    /// Creates the times from a non-empty list.
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |share: f64| {
            // The rank of the smallest time that at least this share of all times does not exceed.
            let rank = (share * times.len() as f64).ceil() as usize;
            times
                .get(rank.max(1) - 1)
                .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        Self { samples: times.len(), min_ns: at(0.0), median_ns: at(0.5), p99_ns: at(0.99) }
    }
}

/// Measures one side alone.
pub(crate) async fn alone(
    plan: Plan,
    mut subject: impl AsyncFnMut() -> Result<(), BenchError>,
) -> Result<Times, BenchError> {
    for _ in 0..plan.warm_up {
        subject().await?;
    }
    let mut times = Vec::with_capacity(plan.samples);
    take(&mut times, plan.samples, &mut subject).await?;
    Ok(Times::of(times))
}

/// Measures a baseline and a subject in alternating blocks. Each goes first in every other block.
pub(crate) async fn by_turns(
    plan: Plan,
    mut baseline: impl AsyncFnMut() -> Result<(), BenchError>,
    mut subject: impl AsyncFnMut() -> Result<(), BenchError>,
) -> Result<(Times, Times), BenchError> {
    for _ in 0..plan.warm_up {
        baseline().await?;
        subject().await?;
    }
    let (mut of_baseline, mut of_subject) =
        (Vec::with_capacity(plan.samples), Vec::with_capacity(plan.samples));
    let mut baseline_first = true;
    while of_subject.len() < plan.samples {
        let block = BLOCK.min(plan.samples - of_subject.len());
        if baseline_first {
            take(&mut of_baseline, block, &mut baseline).await?;
            take(&mut of_subject, block, &mut subject).await?;
        } else {
            take(&mut of_subject, block, &mut subject).await?;
            take(&mut of_baseline, block, &mut baseline).await?;
        }
        baseline_first = !baseline_first;
    }
    Ok((Times::of(of_baseline), Times::of(of_subject)))
}

async fn take(
    times: &mut Vec<Duration>,
    count: usize,
    work: &mut impl AsyncFnMut() -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    for _ in 0..count {
        let began = Instant::now();
        work().await?;
        times.push(began.elapsed());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(times: impl IntoIterator<Item = u64>) -> Times {
        Times::of(times.into_iter().map(Duration::from_nanos).collect())
    }

    #[test]
    fn ranks_of_a_hundred() {
        let times = nanos((1..=100).rev());
        assert_eq!(times, Times { samples: 100, min_ns: 1, median_ns: 50, p99_ns: 99 });
    }

    #[test]
    fn one_time_is_every_rank() {
        assert_eq!(nanos([7]), Times { samples: 1, min_ns: 7, median_ns: 7, p99_ns: 7 });
    }

    #[test]
    fn sides_take_turns_and_are_counted_alike() {
        let executor = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let order = std::cell::RefCell::new(String::new());
        let side = async |name: char| {
            order.borrow_mut().push(name);
            Ok(())
        };
        let plan = Plan { warm_up: 1, samples: 60 };
        let (baseline, subject) = executor
            .block_on(by_turns(plan, async || side('b').await, async || side('s').await))
            .unwrap();
        assert_eq!((baseline.samples, subject.samples), (60, 60));
        let (b, s) = ("b".repeat(25), "s".repeat(25));
        assert_eq!(
            order.into_inner(),
            format!("bs{b}{s}{s}{b}{}{}", "b".repeat(10), "s".repeat(10))
        );
    }
}

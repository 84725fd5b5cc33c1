//! The faults of a soak: a deck with each kind in its share, shuffled by the seed.

use std::time::Duration;

use conclave_test_servers::{Direction, Ending};

use super::ClusterPlan;
use crate::random::Random;

/// The bytes of a notice that the server sends with each commit of records.
pub(super) const COMMIT: &str = "soak-commit";

/// A fault. A worker is named by its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL; the worker is started again after this time.
    Kill {
        worker: usize,
        starts_after: Duration,
    },
    /// SIGSTOP for a time.
    Freeze {
        worker: usize,
        time: Duration,
    },
    /// The end of its input: the worker gives its runs back and ends.
    Drain {
        worker: usize,
    },
    Cut {
        worker: usize,
        ending: Ending,
    },
    Delay {
        worker: usize,
        direction: Direction,
        delay: Duration,
        time: Duration,
    },
    Hold {
        worker: usize,
        direction: Direction,
        time: Duration,
    },
    /// The next commit is done, and the worker is not told.
    LoseAnswer {
        worker: usize,
    },
    Refuse {
        worker: usize,
        time: Duration,
    },
    /// The server crashes and starts again.
    Restart,
    /// The server crashes, and its standby takes its place.
    Failover,
}

/// The kinds of faults, with the share of each in a hundred.
const SHARES: [(&str, u64); 10] = [
    ("worker killed", 16),
    ("worker stopped for a time", 14),
    ("worker drained", 4),
    ("connections cut", 18),
    ("bytes delayed", 8),
    ("bytes held", 9),
    ("acknowledgement of a commit lost", 18),
    ("connections refused", 8),
    ("server crashed and started again", 3),
    ("failover to the standby", 2),
];

/// The shares under Patroni, without the kinds that need a proxy.
const PATRONI_SHARES: [u64; SHARES.len()] = [40, 30, 10, 0, 0, 0, 0, 0, 10, 10];

impl Fault {
    pub(super) fn name(&self) -> &'static str {
        let index = match self {
            Self::Kill { .. } => 0,
            Self::Freeze { .. } => 1,
            Self::Drain { .. } => 2,
            Self::Cut { .. } => 3,
            Self::Delay { .. } => 4,
            Self::Hold { .. } => 5,
            Self::LoseAnswer { .. } => 6,
            Self::Refuse { .. } => 7,
            Self::Restart => 8,
            Self::Failover => 9,
        };
        SHARES[index].0
    }

    /// The worker that it hits; `None` for the server.
    pub(super) fn worker(&self) -> Option<usize> {
        match self {
            Self::Kill { worker, .. }
            | Self::Freeze { worker, .. }
            | Self::Drain { worker }
            | Self::Cut { worker, .. }
            | Self::Delay { worker, .. }
            | Self::Hold { worker, .. }
            | Self::LoseAnswer { worker }
            | Self::Refuse { worker, .. } => Some(*worker),
            Self::Restart | Self::Failover => None,
        }
    }

    /// Draws a fault of a kind.
    fn drawn(kind: usize, random: &mut Random, workers: usize, longest: Duration) -> Self {
        let worker = usize::try_from(random.below(workers as u64)).unwrap_or_default();
        let mut up_to = |ms: u64| Duration::from_millis(1 + random.below(ms));
        let (short, long) = (up_to(3_000), up_to(u64::try_from(longest.as_millis()).unwrap_or(1)));
        let direction = match random.below(2) {
            0 => Direction::ToServer,
            _ => Direction::ToClient,
        };
        let ending = if random.below(2) == 0 { Ending::Close } else { Ending::Reset };
        match kind {
            0 => Self::Kill { worker, starts_after: short },
            1 => Self::Freeze { worker, time: long },
            2 => Self::Drain { worker },
            3 => Self::Cut { worker, ending },
            4 => {
                let delay = Duration::from_millis(5 + random.below(250));
                Self::Delay { worker, direction, delay, time: short }
            }
            5 => Self::Hold { worker, direction, time: long },
            6 => Self::LoseAnswer { worker },
            7 => Self::Refuse { worker, time: short },
            8 => Self::Restart,
            _ => Self::Failover,
        }
    }
}

/// Returns the planned number of faults, each kind at least once.
pub(super) fn deck(plan: &ClusterPlan, random: &mut Random) -> Vec<Fault> {
    let ClusterPlan { faults: count, workers, longest, .. } = *plan;
    let shares = if plan.patroni { PATRONI_SHARES } else { SHARES.map(|(_, share)| share) };
    let mut deck = Vec::new();
    for (kind, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0) {
        for _ in 0..(count * share / 100).max(1) {
            deck.push(Fault::drawn(kind, random, workers, longest));
        }
    }
    while (deck.len() as u64) < count {
        let kind = usize::try_from(random.below(8)).unwrap_or_default();
        if shares[kind] > 0 {
            deck.push(Fault::drawn(kind, random, workers, longest));
        }
    }
    for place in (1..deck.len()).rev() {
        let other = usize::try_from(random.below(place as u64 + 1)).unwrap_or_default();
        deck.swap(place, other);
    }
    deck
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_deck_has_every_kind_and_is_that_of_its_seed() {
        let deck_of = |seed| deck(&plan(300, false), &mut Random::new(seed));
        let faults = deck_of(7);
        assert!(faults.len() >= 300, "{}", faults.len());
        let names: BTreeSet<&str> = faults.iter().map(Fault::name).collect();
        assert_eq!(names.len(), SHARES.len());
        assert_eq!(faults, deck_of(7));
        assert_ne!(faults, deck_of(8));
        let few = deck(&plan(1, false), &mut Random::new(7));
        assert_eq!(few.len(), SHARES.len());
        let of_patroni = deck(&plan(50, true), &mut Random::new(7));
        let is_failover = |fault: &&Fault| matches!(fault, Fault::Restart | Fault::Failover);
        assert_eq!((of_patroni.len(), of_patroni.iter().filter(is_failover).count()), (50, 10));
    }

    fn plan(faults: u64, patroni: bool) -> ClusterPlan {
        ClusterPlan {
            seed: 7,
            faults,
            time: Duration::ZERO,
            longest: Duration::from_secs(20),
            workers: 3,
            runs: 1,
            open: 1,
            slowest_ms: 1,
            patroni,
            stock: "".into(),
            cache: "".into(),
        }
    }
}

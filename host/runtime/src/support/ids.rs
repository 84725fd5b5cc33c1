//! The names of runs. Ids inside a run are counted by its room; only the run's own name comes from
//! outside.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

pub use conclave_core::types::ids::{
    BackgroundId, CallId, ChannelId, ControlId, Millis, ModelName, PluginName, RoomId, TaskName,
};

/// Generates the names of runs.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use conclave_runtime::RunOptions;
/// use conclave_runtime::ids::{Ids, RoomId};
///
/// /// Tickets of a shop.
/// struct Tickets(AtomicU64);
///
/// impl Ids for Tickets {
///     fn run(&self) -> RoomId {
///         RoomId::from(format!("ticket-{}", self.0.fetch_add(1, Ordering::Relaxed)))
///     }
/// }
///
/// let ids = Arc::new(Tickets(AtomicU64::new(1)));
/// let options = RunOptions { ids, ..RunOptions::default() };
/// assert_eq!(options.ids.run().as_str(), "ticket-1");
/// ```
pub trait Ids: Send + Sync + 'static {
    /// A name that is unique in this process and among the journals in the same place. It must not
    /// contain `/`: the name of a child room is this one, `/` and a number.
    fn run(&self) -> RoomId;
}

/// Always returns this name, for a single run and for tests.
impl Ids for RoomId {
    fn run(&self) -> RoomId {
        self.clone()
    }
}

/// Names of eight hexadecimal digits. They are unique in a process for four thousand million runs,
/// and collisions between processes are rare.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn run(&self) -> RoomId {
        // Per process rather than per host, because two hosts may share a journal folder.
        static START: OnceLock<u32> = OnceLock::new();
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let count = RUNS.fetch_add(1, Ordering::Relaxed);
        // Multiplication by an odd number maps different counts to different, dissimilar names.
        let spread = count.wrapping_mul(0x9e37_79b1).wrapping_add(*START.get_or_init(random));
        RoomId::from(format!("{spread:08x}"))
    }
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u32::from_ne_bytes(bytes),
        // Names need not be secret, so the standard library's hash seed suffices.
        Err(_) => RandomState::new().build_hasher().finish() as u32,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_runs_have_one_name() {
        let names: BTreeSet<RoomId> = (0..100_000).map(|_| RandomIds.run()).collect();
        assert_eq!(names.len(), 100_000);
        assert!(names.iter().all(|name| name.as_str().len() == 8));
    }
}

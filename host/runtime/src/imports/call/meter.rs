//! The usage of one call, and the first limit that it exceeded. The engine asks the meter before
//! memory and tables grow. The epoch callback reports ticks; each import counts itself.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use conclave_core::types::fault::FaultKind;
use conclave_core::types::limits::{MEMORIES, MEMORY_MAX, PluginLimits, TABLES, TICK_MS};
use wasmtime::ResourceLimiter;

/// Repeated work may use at most this fraction of a limit: one in so many.
const SHARE: u64 = 4;

/// Stops a guest that exceeded a limit.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a limit was broken: {}", .0.as_str())]
pub(crate) struct Broken(pub(crate) FaultKind);

/// The counters of one call.
#[derive(Debug)]
pub(crate) struct Meter {
    memory_limit: u64,
    tick_limit: u64,
    host_call_limit: u64,
    table_limit: usize,
    instance_limit: usize,
    list_limit: usize,
    /// Bytes of all memories. Memories never shrink, so this is also the peak.
    memory: u64,
    table_elements: usize,
    /// Peak memory of earlier attempts, in bytes.
    most: u64,
    host_calls: u64,
    /// The time waited since a tick was last left out of the computing time.
    uncharged: Duration,
    // Atomic, because the epoch callback only has a shared reference.
    ticks: AtomicU64,
    waited: AtomicBool,
    broken: OnceLock<FaultKind>,
}

impl Meter {
    pub(crate) fn new(limits: &PluginLimits) -> Self {
        Self {
            // A slot of the pool holds no more.
            memory_limit: limits.memory.min(MEMORY_MAX),
            tick_limit: limits.cpu_ms.div_ceil(TICK_MS).max(1),
            host_call_limit: limits.host_calls,
            table_limit: usize::try_from(limits.table_elements).unwrap_or(usize::MAX),
            instance_limit: usize::try_from(limits.instances).unwrap_or(usize::MAX),
            list_limit: usize::try_from(limits.list).unwrap_or(usize::MAX),
            memory: 0,
            table_elements: 0,
            most: 0,
            host_calls: 0,
            uncharged: Duration::ZERO,
            ticks: AtomicU64::new(0),
            waited: AtomicBool::new(false),
            broken: OnceLock::new(),
        }
    }

    /// The first limit that was exceeded, if any.
    pub(crate) fn broken(&self) -> Option<FaultKind> {
        self.broken.get().copied()
    }

    pub(crate) fn memory(&self) -> u64 {
        self.memory.max(self.most)
    }

    /// Prepares the meter for the next attempt. Ticks and host calls carry over; a new instance
    /// starts with new memory.
    pub(crate) fn begin_attempt(&mut self) {
        self.most = self.memory.max(self.most);
        (self.memory, self.table_elements) = (0, 0);
        self.waited = AtomicBool::new(false);
    }

    /// Whether the work so far may be repeated, which suspending the call implies. It may if it is
    /// a small part of the limits, so a replay rarely exceeds them.
    pub(crate) fn may_repeat(&self) -> bool {
        // Each attempt repeats the one before, so the counters include all attempts.
        self.ticks().saturating_mul(SHARE) <= self.tick_limit
            && self.host_calls.saturating_mul(SHARE) <= self.host_call_limit
    }

    pub(crate) fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Records an exceeded limit, unless there is one, and returns the first.
    pub(crate) fn break_limit(&self, kind: FaultKind) -> Broken {
        Broken(*self.broken.get_or_init(|| kind))
    }

    /// Counts a host call.
    ///
    /// # Errors
    /// If the limit is exceeded.
    pub(crate) fn count_host_call(&mut self) -> Result<(), Broken> {
        self.host_calls += 1;
        if self.host_calls > self.host_call_limit {
            Err(self.break_limit(FaultKind::HostCalls))
        } else {
            Ok(())
        }
    }

    /// Checks the length of a list from the guest.
    ///
    /// # Errors
    /// If the limit is exceeded.
    pub(crate) fn check_list(&self, length: usize) -> Result<(), Broken> {
        if length > self.list_limit { Err(self.break_limit(FaultKind::List)) } else { Ok(()) }
    }

    /// Records a wait of the guest for the host. The next tick is not charged once the waits add up
    /// to a tick: one that passes in a short wait is seen after it.
    pub(crate) fn note_wait(&mut self, waited: Duration) {
        self.uncharged += waited;
        if self.uncharged >= Duration::from_millis(TICK_MS) {
            self.uncharged = Duration::ZERO;
            self.waited.store(true, Ordering::Relaxed);
        }
    }

    /// Counts a tick while the guest runs.
    ///
    /// # Errors
    /// If the CPU limit is exceeded, or a limit was exceeded where the guest could not be stopped.
    pub(crate) fn tick(&self) -> Result<(), Broken> {
        if let Some(kind) = self.broken() {
            return Err(Broken(kind));
        }
        if self.waited.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let ticks = self.ticks.fetch_add(1, Ordering::Relaxed) + 1;
        if ticks > self.tick_limit { Err(self.break_limit(FaultKind::Cpu)) } else { Ok(()) }
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let memory = self.memory.saturating_add(desired.saturating_sub(current) as u64);
        if memory > self.memory_limit {
            return Err(wasmtime::Error::new(self.break_limit(FaultKind::Memory)));
        }
        // Never given back, even if the engine fails to grow afterwards: it also reports failures
        // of growths that were not counted.
        self.memory = memory;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let elements = self.table_elements.saturating_add(desired.saturating_sub(current));
        if elements > self.table_limit {
            return Err(wasmtime::Error::new(self.break_limit(FaultKind::Tables)));
        }
        self.table_elements = elements;
        Ok(true)
    }

    fn instances(&self) -> usize {
        self.instance_limit
    }

    fn tables(&self) -> usize {
        TABLES
    }

    fn memories(&self) -> usize {
        MEMORIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(change: impl FnOnce(&mut PluginLimits)) -> Meter {
        let mut limits = PluginLimits::default();
        change(&mut limits);
        Meter::new(&limits)
    }

    #[test]
    fn memory_is_counted_over_all_memories() {
        let mut meter = meter(|limits| limits.memory = 100);
        assert!(meter.memory_growing(0, 60, None).unwrap());
        assert!(meter.memory_growing(0, 50, None).is_err());
        assert_eq!(meter.broken(), Some(FaultKind::Memory));
    }

    /// Otherwise a guest could fail a growth to have an earlier one forgotten.
    #[test]
    fn failed_growths_give_nothing_back() {
        let mut meter = meter(|limits| limits.memory = 100);
        assert!(meter.memory_growing(0, 60, None).unwrap());
        assert!(!meter.memory_growing(60, 70, Some(60)).unwrap());
        meter.memory_grow_failed(wasmtime::Error::msg("no")).unwrap();
        assert_eq!(meter.memory(), 60);
    }

    #[test]
    fn tables_are_counted_together() {
        let mut meter = meter(|limits| limits.table_elements = 100);
        assert!(meter.table_growing(0, 100, None).unwrap());
        assert!(
            !meter.table_growing(0, 1, Some(0)).unwrap(),
            "its own maximum is an answer that wasm knows how to deal with"
        );
        assert!(meter.table_growing(0, 1, None).is_err());
        assert_eq!(meter.broken(), Some(FaultKind::Tables));
    }

    #[test]
    fn a_list_may_be_as_long_as_its_limit() {
        let meter = meter(|limits| limits.list = 2);
        meter.check_list(2).unwrap();
        assert!(meter.check_list(3).is_err());
        assert_eq!(meter.broken(), Some(FaultKind::List));
    }

    #[test]
    fn cpu_ends_after_the_last_tick_that_is_allowed() {
        let meter = meter(|limits| limits.cpu_ms = 25);
        for _ in 0..3 {
            meter.tick().unwrap();
        }
        assert!(meter.tick().is_err());
        assert_eq!(meter.broken(), Some(FaultKind::Cpu));
    }

    #[test]
    fn a_wait_for_the_host_is_not_computing() {
        let mut meter = meter(|limits| limits.cpu_ms = 10);
        for _ in 0..10 {
            meter.note_wait(Duration::from_millis(TICK_MS));
            meter.tick().unwrap();
        }
        assert_eq!(meter.ticks(), 0);
    }

    #[test]
    fn the_first_broken_limit_counts() {
        let mut meter = meter(|limits| limits.host_calls = 1);
        meter.count_host_call().unwrap();
        assert!(meter.count_host_call().is_err());
        meter.break_limit(FaultKind::Cpu);
        assert_eq!(meter.broken(), Some(FaultKind::HostCalls));
    }
}

//! What one call uses up, and the limit that it broke first. The engine asks it before memory and
//! tables grow; the epoch callback tells it of every tick; each import counts itself.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use conclave_core::types::fault::FaultKind;
use conclave_core::types::limits::{MEMORIES, MEMORY_MAX, PluginLimits, TABLES, TICK_MS};
use wasmtime::ResourceLimiter;

/// Attempts that are run again use up to one part in so many of a limit.
const SHARE: u64 = 4;

/// Stops a guest; which limit it broke is in the meter.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a limit was broken: {}", .0.as_str())]
pub(crate) struct Broken(pub(crate) FaultKind);

/// Counters of one call.
#[derive(Debug)]
pub(crate) struct Meter {
    memory_limit: u64,
    tick_limit: u64,
    host_call_limit: u64,
    table_limit: usize,
    instance_limit: usize,
    list_limit: usize,
    /// Bytes of all memories together. They never shrink, so this is also the most there was.
    memory: u64,
    table_elements: usize,
    /// The most that an attempt before this one had.
    most: u64,
    host_calls: u64,
    // The epoch callback sees the meter through a shared reference only.
    ticks: AtomicU64,
    waited: AtomicBool,
    broken: OnceLock<FaultKind>,
}

impl Meter {
    pub(crate) fn new(limits: &PluginLimits) -> Self {
        Self {
            // A slot of the pool holds no more, whatever the limits say.
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
            ticks: AtomicU64::new(0),
            waited: AtomicBool::new(false),
            broken: OnceLock::new(),
        }
    }

    /// The limit that was broken first, if any.
    pub(crate) fn broken(&self) -> Option<FaultKind> {
        self.broken.get().copied()
    }

    pub(crate) fn memory(&self) -> u64 {
        self.memory.max(self.most)
    }

    /// The meter of the next attempt: what was computed and asked before counts on, a fresh
    /// instance has fresh memory.
    pub(crate) fn again(self) -> Self {
        Self {
            most: self.memory.max(self.most),
            memory: 0,
            table_elements: 0,
            waited: AtomicBool::new(false),
            ..self
        }
    }

    /// What was done so far may be done once more: all that was then repeated is little of the
    /// limits. So a call that is run again is hardly ever stopped for it, and none computes more
    /// than it may. Each attempt repeats the one before it, so all attempts together are what is
    /// repeated.
    pub(crate) fn may_repeat(&self) -> bool {
        self.ticks().saturating_mul(SHARE) <= self.tick_limit
            && self.host_calls.saturating_mul(SHARE) <= self.host_call_limit
    }

    pub(crate) fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Remembers a broken limit; the first one counts.
    pub(crate) fn break_limit(&self, kind: FaultKind) -> Broken {
        Broken(*self.broken.get_or_init(|| kind))
    }

    /// A call of the host.
    ///
    /// # Errors
    /// When there were more than allowed.
    pub(crate) fn count_host_call(&mut self) -> Result<(), Broken> {
        self.host_calls += 1;
        if self.host_calls > self.host_call_limit {
            Err(self.break_limit(FaultKind::HostCalls))
        } else {
            Ok(())
        }
    }

    /// A list of so many elements came out of the guest.
    ///
    /// # Errors
    /// When it is longer than allowed.
    pub(crate) fn check_list(&self, length: usize) -> Result<(), Broken> {
        if length > self.list_limit { Err(self.break_limit(FaultKind::List)) } else { Ok(()) }
    }

    /// The guest waited for the host for a tick or longer, so the tick that is due was not its own.
    pub(crate) fn note_wait(&self) {
        self.waited.store(true, Ordering::Relaxed);
    }

    /// A tick went by while the guest was inside.
    ///
    /// # Errors
    /// When it has computed longer than allowed, or broke a limit where nothing could stop it.
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
        // Never given back, not even when the engine then fails to grow: it also reports failures
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

    /// Else a guest could grow, fail to grow, and have the first growth forgotten.
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
        let meter = meter(|limits| limits.cpu_ms = 10);
        for _ in 0..10 {
            meter.note_wait();
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

//! The WebAssembly engine of a host: compilation, the memory pool, the clock that interrupts
//! guests, and the limit of concurrent guests. Their permissions are decided in `imports`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use conclave_core::types::limits::{
    INSTANCES_MAX, MEMORIES, MEMORY_MAX, TABLE_ELEMENTS_MAX, TABLES, TICK_MS,
};
use tokio::sync::SemaphorePermit;
use wasmtime::component::Linker;
use wasmtime::{Config, Enabled, EngineWeak, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::imports::linker::add_to_linker;
use crate::imports::state::CallState;
use crate::support::admission::CallPermits;
use crate::support::clock::{MonotonicClock, SystemMonotonicClock};
use crate::support::suspension::Suspension;

/// The settings that an embedder can choose.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Maximum concurrent sandboxes of all plugins; further calls wait. Each reserves address
    /// space, not memory.
    pub slots: u32,
    /// Bytes of stack for a guest's frames in one call, from 64 KiB to 8 MiB. Other values are
    /// clamped.
    ///
    /// It applies to every plugin of the host, since the engine has one size. A language's own
    /// stack, in the guest's memory, is part of `limits.memory`. The guest's linker decides its
    /// size.
    pub stack: u32,
    /// Time after which a call that waits for a model releases its sandbox; it is replayed when the
    /// answer is there. It happens sooner if other calls wait for a sandbox. `None` keeps every
    /// sandbox to the end of its call.
    pub park_after: Option<Duration>,
    /// The clock for suspending calls. The limits of running calls use the machine's clock.
    pub park_clock: Arc<dyn MonotonicClock>,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            slots: 256,
            stack: 512 << 10,
            park_after: Some(Duration::from_millis(100)),
            park_clock: Arc::new(SystemMonotonicClock),
        }
    }
}

/// The range of `stack` in bytes.
const STACK: std::ops::RangeInclusive<u32> = 64 << 10..=8 << 20;
/// Bytes of a sandbox's stack that are reserved for the host's own frames.
const HOST_STACK: usize = 1536 << 10;

/// Why the engine could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The engine could not be created.
    #[error(
        "the WebAssembly engine does not start with {slots} slots: {cause}. Fewer slots need less address space."
    )]
    Setup {
        /// The requested number of sandboxes.
        slots: u32,
        /// The engine's reason, such as too little address space.
        cause: String,
    },
    /// The operating system could not start the thread that stops guests.
    #[error("the thread that stops guests does not start: {0}")]
    Ticker(#[from] std::io::Error),
}

/// Compiles and runs guests. Cloning is cheap; the engine lives as long as its last clone or
/// plugin.
#[derive(Clone)]
pub struct Engine(Arc<EngineState>);

struct EngineState {
    wasm: wasmtime::Engine,
    /// Every import of the contract, and the inert part of WASI.
    linker: Linker<CallState>,
    slots: CallPermits,
    park_after: Option<Duration>,
    park_clock: Arc<dyn MonotonicClock>,
    parked: AtomicUsize,
}

impl Engine {
    /// Returns an engine with its pool and its ticker thread.
    ///
    /// # Errors
    /// `Setup` if the machine lacks address space for the pool or cannot run compiled code;
    /// `Ticker` if no thread can be started.
    pub fn new(settings: &EngineSettings) -> Result<Self, EngineError> {
        // Without a slot, every call would wait forever.
        let slots = settings.slots.max(1);
        let setup =
            |cause: wasmtime::Error| EngineError::Setup { slots, cause: format!("{cause:#}") };
        let mut config = code_config();
        let stack = usize::try_from(settings.stack.clamp(*STACK.start(), *STACK.end()))
            .unwrap_or(HOST_STACK);
        config.max_wasm_stack(stack).async_stack_size(stack + HOST_STACK);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(slots)));
        let wasm = wasmtime::Engine::new(&config).map_err(setup)?;
        let mut linker = Linker::new(&wasm);
        add_to_linker(&mut linker).map_err(setup)?;
        start_ticker(wasm.weak())?;
        let slots = CallPermits::new(usize::try_from(slots).unwrap_or(usize::MAX));
        let parked = AtomicUsize::new(0);
        let (park_after, park_clock) = (settings.park_after, Arc::clone(&settings.park_clock));
        Ok(Self(Arc::new(EngineState { wasm, linker, slots, park_after, park_clock, parked })))
    }

    pub(crate) fn wasm(&self) -> &wasmtime::Engine {
        &self.0.wasm
    }

    pub(crate) fn linker(&self) -> &Linker<CallState> {
        &self.0.linker
    }

    /// Waits for a slot of the pool, first come, first served. Taken before a guest is
    /// instantiated, so the pool is never exhausted.
    pub(crate) async fn slot(&self) -> SemaphorePermit<'_> {
        self.0.slots.take().await
    }

    /// The number of live sandboxes.
    #[must_use]
    pub fn live(&self) -> usize {
        self.0.slots.in_use()
    }

    /// The number of calls that wait without a sandbox.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.parked.load(Ordering::SeqCst)
    }

    /// The suspension policy for a plugin with these permits; `None` if calls keep their sandbox.
    pub(crate) fn parking(&self, at_once: Option<&CallPermits>) -> Option<Suspension> {
        let after = self.0.park_after?;
        Some(Suspension {
            after,
            slots: self.0.slots.clone(),
            at_once: at_once.cloned(),
            clock: Arc::clone(&self.0.park_clock),
        })
    }

    /// The clock for suspending calls.
    pub(crate) fn park_clock(&self) -> &dyn MonotonicClock {
        &*self.0.park_clock
    }

    /// Counts a suspended call until the guard is dropped.
    pub(crate) fn parked(&self) -> ParkedCall {
        self.0.parked.fetch_add(1, Ordering::SeqCst);
        ParkedCall(self.clone())
    }
}

/// A counted call without a sandbox.
pub(crate) struct ParkedCall(Engine);

impl Drop for ParkedCall {
    fn drop(&mut self) {
        self.0.0.parked.fetch_sub(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Engine")
            .field("live", &self.live())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

/// Whether the machine can report the written pages of a sandbox. Without that, fresh instances
/// cost more.
#[must_use]
pub fn has_page_map_scan() -> bool {
    PoolingAllocationConfig::is_pagemap_scan_available()
}

/// Returns an engine that compiles for an [`Engine`] but cannot run guests: it has no pool, so it
/// needs no address space for one.
///
/// # Errors
/// If the machine cannot run compiled code.
pub(crate) fn compiler() -> wasmtime::Result<wasmtime::Engine> {
    wasmtime::Engine::new(&code_config())
}

/// Returns the same for every machine of this processor family and operating system.
///
/// # Errors
/// If there is no compiler for this machine.
pub(crate) fn portable_compiler() -> wasmtime::Result<wasmtime::Engine> {
    use std::env::consts::{ARCH, OS};
    let system = if OS == "macos" { "apple-darwin".to_owned() } else { format!("unknown-{OS}") };
    // A named target has no instructions beyond those of its family's first machines.
    wasmtime::Engine::new(code_config().target(&format!("{ARCH}-{system}"))?)
}

/// All settings that compiled code depends on.
fn code_config() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .memory_init_cow(true)
        // No guest toolchain needs these proposals by default. Disabling them keeps parts of the
        // engine out of reach of hostile guests.
        .wasm_threads(false)
        .wasm_gc(false)
        .wasm_exceptions(false)
        .wasm_function_references(false)
        .wasm_memory64(false)
        // Its results may differ between machines, and a replay must give the same answer.
        .wasm_relaxed_simd(false)
        // Enough frames to distinguish a runaway recursion from a stray pointer.
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(64));
    config
}

fn pool(slots: u32) -> PoolingAllocationConfig {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let each = |most: usize| slots.saturating_mul(count(most));
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(slots)
        .total_core_instances(slots.saturating_mul(INSTANCES_MAX))
        .total_memories(each(MEMORIES))
        .total_tables(each(TABLES))
        // Every live store holds a stack, not only the running ones.
        .total_stacks(slots)
        .max_core_instances_per_component(INSTANCES_MAX)
        .max_memories_per_component(count(MEMORIES))
        .max_tables_per_component(count(TABLES))
        .table_elements(usize::try_from(TABLE_ELEMENTS_MAX).unwrap_or(usize::MAX))
        .max_memory_size(usize::try_from(MEMORY_MAX).unwrap_or(usize::MAX))
        // With the page-map scan a slot is reset by copying the changed pages, without stopping all
        // threads. That keeps the cost of a fresh instance at microseconds.
        .linear_memory_keep_resident(1 << 20)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(64 << 10)
        .pagemap_scan(Enabled::Auto);
    pool
}

/// Advances the epoch that running guests check. The thread ends with the engine.
fn start_ticker(engine: EngineWeak) -> std::io::Result<()> {
    let ticks = move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            // Before the sleep, so that this thread does not keep the engine alive.
            drop(engine);
            std::thread::sleep(Duration::from_millis(TICK_MS));
        }
    };
    std::thread::Builder::new()
        .name("conclave-ticker".to_owned())
        .stack_size(128 << 10)
        .spawn(ticks)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hash, Hasher};

    use wasmtime::component::{Component, Instance, InstancePre};
    use wasmtime::{Store, Trap};

    use super::*;

    fn hash(engine: &wasmtime::Engine) -> u64 {
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        hasher.finish()
    }

    /// Otherwise no code of the child could be loaded or found in the cache.
    #[test]
    fn the_compiler_makes_what_the_engine_takes() {
        for stack in [0, 512 << 10, u32::MAX] {
            let engine =
                Engine::new(&EngineSettings { slots: 1, stack, ..EngineSettings::default() })
                    .unwrap();
            assert_eq!(hash(engine.wasm()), hash(&compiler().unwrap()));
        }
    }

    /// Returns how the same recursion ends on stacks of two sizes.
    #[test]
    fn the_stack_has_the_size_that_is_set() {
        let component = |engine: &Engine| -> InstancePre<CallState> {
            let text = r#"(component
                (core module $m (func $down (export "down") (param i32) (result i32)
                    (if (result i32) (i32.eqz (local.get 0)) (then (i32.const 0))
                        (else (i32.add (i32.const 1) (call $down (i32.sub (local.get 0) (i32.const 1))))))))
                (core instance $i (instantiate $m))
                (func (export "down") (param "deep" u32) (result u32) (canon lift (core func $i "down"))))"#;
            engine
                .linker()
                .instantiate_pre(
                    &Component::new(engine.wasm(), wat::parse_str(text).unwrap()).unwrap(),
                )
                .unwrap()
        };
        let recurse = async |stack: u32| {
            let engine =
                Engine::new(&EngineSettings { slots: 1, stack, ..EngineSettings::default() })
                    .unwrap();
            let code = component(&engine);
            let mut store = Store::new(
                engine.wasm(),
                crate::imports::testing::state(crate::imports::testing::setup()),
            );
            store.set_epoch_deadline(1_000_000);
            let instance: Instance = code.instantiate_async(&mut store).await.unwrap();
            let down = instance.get_typed_func::<(u32,), (u32,)>(&mut store, "down").unwrap();
            down.call_async(&mut store, (10_000,))
                .await
                .map_err(|error| error.downcast_ref::<Trap>().copied())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(recurse(64 << 10)).unwrap_err(), Some(Trap::StackOverflow));
        assert_eq!(runtime.block_on(recurse(4 << 20)).unwrap().0, 10_000);
    }
}

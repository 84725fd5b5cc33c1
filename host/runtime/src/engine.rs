//! The WebAssembly engine of a host: how guests are compiled, where their memory comes from, the clock that stops them, and how many
//! may be alive at once. Not what a guest may do: that is linked in `capability`.

use std::sync::Arc;
use std::time::Duration;

use conclave_core::limits::{CORE_INSTANCES, MEMORIES, MEMORY_MAX, TABLE_ELEMENTS, TABLES, TICK_MS};
use tokio::sync::{Semaphore, SemaphorePermit};
use wasmtime::component::Linker;
use wasmtime::{Config, Enabled, EngineWeak, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::capability;
use crate::sandbox::CallState;

/// What an embedder can choose.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Sandboxes alive at once, over all plugins; further calls wait for their turn. Each reserves address space, not memory.
    pub slots: u32,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self { slots: 256 }
    }
}

/// The engine could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("the WebAssembly engine does not start with {slots} slots: {cause}. Fewer slots need less address space.")]
    Setup { slots: u32, cause: String },
    #[error("the thread that stops guests does not start: {0}")]
    Ticker(#[from] std::io::Error),
}

/// Compiles and runs guests. Cloning is cheap; the engine lives as long as its last clone or plugin.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    wasm: wasmtime::Engine,
    /// Every import of the contract, and the inert part of WASI.
    linker: Linker<CallState>,
    slots: Semaphore,
}

impl Engine {
    /// An engine with its pool and its ticker thread.
    ///
    /// # Errors
    /// `Setup` when the machine has not enough address space for the pool, or cannot run compiled code; `Ticker` when no thread can
    /// be started.
    pub fn new(settings: &EngineSettings) -> Result<Self, EngineError> {
        // With none, every call would wait for ever.
        let slots = settings.slots.max(1);
        let setup = |cause: wasmtime::Error| EngineError::Setup { slots, cause: format!("{cause:#}") };
        let wasm = wasmtime::Engine::new(&config(slots)).map_err(setup)?;
        let mut linker = Linker::new(&wasm);
        capability::add_to_linker(&mut linker).map_err(setup)?;
        start_ticker(wasm.weak())?;
        let slots = usize::try_from(slots).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Ok(Self(Arc::new(Inner { wasm, linker, slots: Semaphore::new(slots) })))
    }

    pub(crate) fn wasm(&self) -> &wasmtime::Engine {
        &self.0.wasm
    }

    pub(crate) fn linker(&self) -> &Linker<CallState> {
        &self.0.linker
    }

    /// A place in the pool, first come, first served. Taken before a guest is instantiated, so the pool is never exhausted.
    pub(crate) async fn slot(&self) -> SemaphorePermit<'_> {
        self.0.slots.acquire().await.expect("the semaphore is never closed")
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Engine").field("free_slots", &self.0.slots.available_permits()).finish_non_exhaustive()
    }
}

/// This machine can say which pages of a sandbox were written to; without that a fresh one costs more.
#[must_use]
pub fn has_page_map_scan() -> bool {
    PoolingAllocationConfig::is_pagemap_scan_available()
}

fn config(slots: u32) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .memory_init_cow(true)
        // Proposals that no guest toolchain needs by default. Each is a part of the engine that a hostile guest cannot reach.
        .wasm_threads(false)
        .wasm_gc(false)
        .wasm_exceptions(false)
        .wasm_function_references(false)
        .wasm_memory64(false)
        // Its results may differ from machine to machine, and a replayed call must give the same answer.
        .wasm_relaxed_simd(false)
        // Enough frames to tell a runaway recursion from a stray pointer.
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(64))
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool(slots)));
    config
}

fn pool(slots: u32) -> PoolingAllocationConfig {
    let each = |count: usize| slots.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(slots)
        .total_core_instances(each(CORE_INSTANCES))
        .total_memories(each(MEMORIES))
        .total_tables(each(TABLES))
        // Every store that lives holds a stack, not only those that compute.
        .total_stacks(slots)
        .max_core_instances_per_component(count(CORE_INSTANCES))
        .max_memories_per_component(count(MEMORIES))
        .max_tables_per_component(count(TABLES))
        .table_elements(TABLE_ELEMENTS)
        .max_memory_size(usize::try_from(MEMORY_MAX).unwrap_or(usize::MAX))
        // With the page-map scan a slot is cleaned by copying what changed, without a call that stops all threads: this is what
        // makes a fresh instance cost microseconds.
        .linear_memory_keep_resident(1 << 20)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(64 << 10)
        .pagemap_scan(Enabled::Auto);
    pool
}

/// Advances the epoch that running guests look at. The thread ends when the engine is gone.
fn start_ticker(engine: EngineWeak) -> std::io::Result<()> {
    let ticks = move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            std::thread::sleep(Duration::from_millis(TICK_MS));
        }
    };
    std::thread::Builder::new().name("conclave-ticker".to_owned()).stack_size(128 << 10).spawn(ticks).map(drop)
}

//! The baseline: a tool component on plain wasmtime, with Conclave's engine settings
//! (host/runtime/src/sandbox/engine.rs) and the limits that any host needs. Imports that the tool
//! does not call are traps.

use std::time::Duration;

use wasmtime::component::{Component, HasSelf, Linker, ResourceTable};
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store,
    StoreLimits, StoreLimitsBuilder,
};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::BenchError;
use bindings::conclave::plugin::call;
use bindings::{ToolPlugin, ToolPluginPre};

mod bindings {
    wasmtime::component::bindgen!({
        world: "tool-plugin",
        path: "../../wit",
        imports: { default: trappable },
        exports: { default: async },
    });
}

/// The maximum number of live sandboxes, as in Conclave's default settings.
const SLOTS: u32 = 256;
const MEMORY: usize = 64 << 20;
/// The maximum number of bytes in one transfer from the guest to the host.
const HOSTCALL_FUEL: usize = 1 << 20;
const HANDLES: usize = 256;
const TICK: Duration = Duration::from_millis(10);

/// The allocator of instance memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocator {
    OnDemand,
    /// Pooling, with resident memory cleaned by the page-map scan.
    Pool,
}

/// Creates an engine with its ticker.
pub(crate) fn engine(allocator: Allocator) -> Result<Engine, BenchError> {
    let mut config = Config::new();
    config.epoch_interruption(true).wasm_threads(false).wasm_gc(false).wasm_exceptions(false);
    config.wasm_function_references(false).wasm_memory64(false).wasm_relaxed_simd(false);
    if allocator == Allocator::Pool {
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
    }
    let engine = Engine::new(&config)?;
    let weak = engine.weak();
    std::thread::spawn(move || {
        while let Some(engine) = weak.upgrade() {
            engine.increment_epoch();
            drop(engine);
            std::thread::sleep(TICK);
        }
    });
    Ok(engine)
}

fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(SLOTS)
        .total_core_instances(SLOTS * 60)
        .total_memories(SLOTS * 4)
        .total_tables(SLOTS * 60)
        .total_stacks(SLOTS)
        .max_core_instances_per_component(60)
        .max_memories_per_component(4)
        .max_tables_per_component(60)
        .table_elements(20_000)
        .max_memory_size(1 << 30)
        .linear_memory_keep_resident(1 << 20)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(64 << 10)
        .pagemap_scan(Enabled::Auto);
    pool
}

pub(crate) fn limits() -> StoreLimits {
    StoreLimitsBuilder::new().memory_size(MEMORY).trap_on_grow_failure(true).build()
}

/// Sets the limits that the limiter does not cover.
pub(crate) fn bound<T>(store: &mut Store<T>) {
    store.set_hostcall_fuel(HOSTCALL_FUEL);
    store.set_max_component_handles(HANDLES);
    store.set_epoch_deadline(1);
    store.epoch_deadline_async_yield_and_update(1);
}

struct State {
    table: ResourceTable,
    limits: StoreLimits,
    /// Created on first use: most calls do not need it, and it costs as much as an instance.
    wasi: Option<Box<WasiCtx>>,
}

/// A tool, linked and ready to be instantiated.
pub(crate) struct Tool {
    engine: Engine,
    linked: ToolPluginPre<State>,
}

/// A request to a tool.
pub(crate) struct Request {
    pub(crate) tool: String,
    /// A JSON object.
    pub(crate) arguments: String,
}

/// An instance that is kept.
pub(crate) struct Instance {
    store: Store<State>,
    plugin: ToolPlugin,
}

impl Tool {
    pub(crate) fn compile(engine: &Engine, wasm: &[u8]) -> Result<Self, BenchError> {
        let component = Component::new(engine, wasm)?;
        let mut linker = Linker::<State>::new(engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        call::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
        linker.define_unknown_imports_as_traps(&component)?;
        Ok(Self {
            engine: engine.clone(),
            linked: ToolPluginPre::new(linker.instantiate_pre(&component)?)?,
        })
    }

    /// Creates a store with limits and an instance in it.
    pub(crate) async fn instantiate(&self) -> Result<Instance, BenchError> {
        let mut store = Store::new(
            &self.engine,
            State { table: ResourceTable::new(), limits: limits(), wasi: None },
        );
        store.limiter(|state| &mut state.limits);
        bound(&mut store);
        let plugin = self.linked.instantiate_async(&mut store).await?;
        Ok(Instance { store, plugin })
    }

    /// Instantiates, calls and drops the tool.
    pub(crate) async fn call_fresh(&self, request: &Request) -> Result<String, BenchError> {
        self.instantiate().await?.call(request).await
    }
}

impl Instance {
    /// Calls the tool and returns the content of the outcome.
    pub(crate) async fn call(&mut self, request: &Request) -> Result<String, BenchError> {
        let tools = self.plugin.conclave_plugin_tools();
        match tools.call_call(&mut self.store, &request.tool, &request.arguments).await? {
            Ok(outcome) => Ok(outcome.content.unwrap_or_default()),
            Err(error) => Err(BenchError::Answer(format!("{error:?}"))),
        }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let ctx = self.wasi.get_or_insert_with(|| Box::new(WasiCtx::builder().build()));
        WasiCtxView { ctx, table: &mut self.table }
    }
}

impl call::Host for State {
    fn call_id(&mut self) -> wasmtime::Result<String> {
        Ok("1".to_owned())
    }

    fn attempt(&mut self) -> wasmtime::Result<u32> {
        Ok(1)
    }

    fn task_name(&mut self) -> wasmtime::Result<String> {
        Ok("bench".to_owned())
    }

    fn room_id(&mut self) -> wasmtime::Result<String> {
        Ok("bench".to_owned())
    }

    fn caller(&mut self) -> wasmtime::Result<String> {
        Ok("bench".to_owned())
    }

    fn deadline_ms(&mut self) -> wasmtime::Result<u64> {
        Ok(30_000)
    }

    fn traceparent(&mut self) -> wasmtime::Result<String> {
        Ok(String::new())
    }
}

//! The baseline of an agent's step: the component on plain wasmtime, with the engine and limits of
//! `bare`. The view returns prepared data without checks.

use wasmtime::component::{Component, HasSelf, Linker, ResourceTable};
use wasmtime::{Engine, Store, StoreLimits};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::BenchError;
use crate::bare;
use bindings::AgentPluginPre;
use bindings::conclave::plugin::actions::Action;
use bindings::conclave::plugin::state::{
    self, PastAction, Peer, RemainingBudgets, RunMetrics, ToolSummary,
};
use bindings::conclave::plugin::types::{Message, Role};
use bindings::conclave::plugin::{actions, types};

mod bindings {
    wasmtime::component::bindgen!({
        world: "agent-plugin",
        path: "../../wit",
        imports: { default: trappable },
        exports: { default: async },
    });
}

struct State {
    table: ResourceTable,
    limits: StoreLimits,
    history: u64,
    wasi: Option<Box<WasiCtx>>,
}

/// An agent, linked and ready to be instantiated.
pub(crate) struct Agent {
    engine: Engine,
    linked: AgentPluginPre<State>,
}

impl Agent {
    pub(crate) fn compile(engine: &Engine, wasm: &[u8]) -> Result<Self, BenchError> {
        let component = Component::new(engine, wasm)?;
        let mut linker = Linker::<State>::new(engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        types::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
        actions::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
        state::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
        linker.define_unknown_imports_as_traps(&component)?;
        Ok(Self {
            engine: engine.clone(),
            linked: AgentPluginPre::new(linker.instantiate_pre(&component)?)?,
        })
    }

    /// Instantiates, steps and drops the agent. Returns its message.
    pub(crate) async fn step(&self, history: u64) -> Result<String, BenchError> {
        let mut store = Store::new(
            &self.engine,
            State { table: ResourceTable::new(), limits: bare::limits(), history, wasi: None },
        );
        store.limiter(|state| &mut state.limits);
        bare::bound(&mut store);
        let plugin = self.linked.instantiate_async(&mut store).await?;
        match plugin.conclave_plugin_agent().call_step(&mut store).await? {
            Ok(turn) => match turn.action {
                Action::Finish(outputs) => Ok(outputs),
                other => Err(BenchError::Answer(format!("{other:?}"))),
            },
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

impl types::Host for State {}
impl actions::Host for State {}

fn message(seq: u64) -> Message {
    Message {
        seq,
        sender: Role::User,
        sender_name: "terminal".to_owned(),
        recipient: None,
        content: crate::rows::QUESTION.to_owned(),
        tool_calls: Vec::new(),
        tool_results: Vec::new(),
        attachments: Vec::new(),
        labels: Vec::new(),
        extra: Vec::new(),
    }
}

impl state::Host for State {
    fn task_name(&mut self) -> wasmtime::Result<String> {
        Ok("bench".to_owned())
    }

    fn inputs(&mut self) -> wasmtime::Result<String> {
        Ok("{}".to_owned())
    }

    fn pending(&mut self) -> wasmtime::Result<Option<Message>> {
        Ok(Some(message(self.history)))
    }

    fn history_length(&mut self) -> wasmtime::Result<u64> {
        Ok(self.history)
    }

    fn history(&mut self, start: u64, count: u32) -> wasmtime::Result<Vec<Message>> {
        Ok((start..self.history).take(count as usize).map(message).collect())
    }

    fn since_last_step(&mut self) -> wasmtime::Result<Vec<PastAction>> {
        Ok(Vec::new())
    }

    fn latest_user_message(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }

    fn plan(&mut self) -> wasmtime::Result<String> {
        Ok("{}".to_owned())
    }

    fn tools(&mut self) -> wasmtime::Result<Vec<ToolSummary>> {
        Ok(Vec::new())
    }

    fn peers(&mut self) -> wasmtime::Result<Vec<Peer>> {
        Ok(Vec::new())
    }

    fn remaining(&mut self) -> wasmtime::Result<RemainingBudgets> {
        Ok(RemainingBudgets {
            turns: None,
            tokens: None,
            cost_micro_usd: None,
            wall_ms: None,
            model_calls: None,
            tool_calls: None,
        })
    }

    fn current_plan_node(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }

    fn outputs(&mut self) -> wasmtime::Result<String> {
        Ok("null".to_owned())
    }

    fn last_error(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }

    fn metrics(&mut self) -> wasmtime::Result<RunMetrics> {
        Ok(RunMetrics { turns: 0, tokens: 0, cost_micro_usd: 0, model_calls: 0, tool_calls: 0 })
    }

    fn delegate_level(&mut self) -> wasmtime::Result<u32> {
        Ok(0)
    }

    fn iteration(&mut self) -> wasmtime::Result<u32> {
        Ok(0)
    }
}

//! The guest call of each export, with the conversion of its answer to the core's types.

use conclave_core::setup::plugin_query::{CondenseReason, Passing, PluginReply};
use conclave_core::types::action::{Action, Turn};
use conclave_core::types::delivery::{Decision, Wake};
use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::tool::{ToolError, ToolOutcome};
use wasmtime::Store;
use wasmtime::component::{Instance, Resource};

use super::run::GuestCall;
use crate::imports::bindings::exports::conclave::plugin::{
    agent, condenser, delivery_strategy, gate, memory, responder, security_analyzer, tools,
};
use crate::imports::call::state::CallState;
use crate::imports::convert::{
    action_out, agent_error_in, analyzer_error_in, checked, condensation_in, condenser_error_in,
    decision_in, denied_fault, gate_error_in, gate_verdict_in, outcome_in, passing_out, reason_out,
    text_in, tool_error_in, turn_in, verdict_in, wake_out,
};

pub(crate) struct StepCall<'a>(pub(crate) &'a agent::GuestIndices);

impl GuestCall for StepCall<'_> {
    type Answer = Result<Turn, Fault>;

    async fn run(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<Self::Answer> {
        let agent = self.0.load(&mut *store, instance)?;
        let answer = agent.call_step(&mut *store, Resource::new_borrow(0)).await?;
        store.data().meter.check_lists(&answer)?;
        let turn = answer.map_err(agent_error_in).and_then(turn_in);
        Ok(turn.map(|turn| store.data_mut().own_turn(turn)))
    }
}

pub(crate) struct Respond<'a>(pub(crate) &'a responder::GuestIndices);

impl GuestCall for Respond<'_> {
    type Answer = Result<Option<Turn>, Fault>;

    async fn run(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<Self::Answer> {
        let responder = self.0.load(&mut *store, instance)?;
        let answer = responder.call_respond(&mut *store, Resource::new_borrow(0)).await?;
        store.data().meter.check_lists(&answer)?;
        let turn = answer.map_err(agent_error_in).and_then(|turn| turn.map(turn_in).transpose());
        Ok(turn.map(|turn| turn.map(|turn| store.data_mut().own_turn(turn))))
    }
}

pub(crate) struct RecallCall<'a> {
    pub(crate) memory: &'a memory::GuestIndices,
    pub(crate) query: &'a str,
    pub(crate) limit: u32,
}

impl GuestCall for RecallCall<'_> {
    type Answer = Result<PluginReply, Fault>;

    async fn run(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<Self::Answer> {
        let memory = self.memory.load(&mut *store, instance)?;
        let answer = memory.call_search(&mut *store, self.query, self.limit).await?;
        store.data().meter.check_lists(&answer)?;
        Ok(match answer {
            Ok(memories) => checked(PluginReply::Memories { memories }, self.limit),
            Err(memory::MemoryError::Denied(denial)) => Err(denied_fault(&denial)),
            Err(memory::MemoryError::Other(text)) => {
                Err(Fault::new(FaultKind::Error, text_in(&text)))
            }
        })
    }
}

pub(crate) struct AssessCall<'a> {
    pub(crate) analyzer: &'a security_analyzer::GuestIndices,
    pub(crate) action: &'a Action,
    pub(crate) thought: &'a str,
}

impl GuestCall for AssessCall<'_> {
    type Answer = Result<PluginReply, Fault>;

    async fn run(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<Self::Answer> {
        let analyzer = self.analyzer.load(&mut *store, instance)?;
        let answer = analyzer
            .call_assess(
                &mut *store,
                &action_out(self.action),
                self.thought,
                Resource::new_borrow(0),
            )
            .await?;
        store.data().meter.check_lists(&answer)?;
        let verdict = answer.map_err(analyzer_error_in).map(verdict_in);
        Ok(verdict.and_then(|verdict| checked(PluginReply::Risk { verdict }, 0)))
    }
}

pub(crate) struct CondenseCall<'a> {
    pub(crate) condenser: &'a condenser::GuestIndices,
    pub(crate) reason: CondenseReason,
}

impl GuestCall for CondenseCall<'_> {
    type Answer = Result<PluginReply, Fault>;

    async fn run(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<Self::Answer> {
        let condenser = self.condenser.load(&mut *store, instance)?;
        let answer = condenser
            .call_condense(&mut *store, reason_out(self.reason), Resource::new_borrow(0))
            .await?;
        store.data().meter.check_lists(&answer)?;
        let condensation =
            answer.map_err(condenser_error_in).map(|wanted| wanted.map(condensation_in));
        Ok(condensation.and_then(|condensation| checked(PluginReply::Condense { condensation }, 0)))
    }
}

pub(crate) struct CheckCall<'a> {
    pub(crate) gate: &'a gate::GuestIndices,
    pub(crate) passing: &'a Passing,
}

impl GuestCall for CheckCall<'_> {
    type Answer = Result<PluginReply, Fault>;

    async fn run(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<Self::Answer> {
        let gate = self.gate.load(&mut *store, instance)?;
        let answer = gate.call_check(&mut *store, &passing_out(self.passing)).await?;
        store.data().meter.check_lists(&answer)?;
        let verdict = answer.map_err(gate_error_in).map(gate_verdict_in);
        Ok(verdict.and_then(|verdict| checked(PluginReply::Gate { verdict }, 0)))
    }
}

pub(crate) struct DecideCall<'a> {
    pub(crate) strategy: &'a delivery_strategy::GuestIndices,
    pub(crate) wake: &'a Wake,
}

impl GuestCall for DecideCall<'_> {
    type Answer = Result<Vec<Decision>, Fault>;

    async fn run(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<Self::Answer> {
        let strategy = self.strategy.load(&mut *store, instance)?;
        let answer = strategy
            .call_decide(&mut *store, &wake_out(self.wake), Resource::new_borrow(0))
            .await?;
        store.data().meter.check_lists(&answer)?;
        Ok(match answer {
            Ok(decisions) => Ok(decisions.into_iter().map(decision_in).collect()),
            Err(delivery_strategy::StrategyError::Denied(denial)) => Err(denied_fault(&denial)),
            Err(delivery_strategy::StrategyError::Other(text)) => {
                Err(Fault::new(FaultKind::Error, text_in(&text)))
            }
        })
    }
}

pub(crate) struct CallTool<'a> {
    pub(crate) tools: &'a tools::GuestIndices,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl GuestCall for CallTool<'_> {
    type Answer = Result<ToolOutcome, ToolError>;

    async fn run(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<Self::Answer> {
        let tools = self.tools.load(&mut *store, instance)?;
        let answer = tools
            .call_call(&mut *store, &self.name, &self.arguments, Resource::new_borrow(0))
            .await?;
        store.data().meter.check_lists(&answer)?;
        Ok(match answer {
            Ok(outcome) => {
                let outcome = outcome_in(outcome).map_err(|fault| ToolError::Fault { fault });
                outcome.map(|outcome| store.data_mut().own_outcome(outcome))
            }
            Err(error) => Err(tool_error_in(error)),
        })
    }
}

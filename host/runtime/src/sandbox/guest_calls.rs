//! The call of a guest's export, with the conversion of its answer to the core's types.

use std::sync::Arc;

use conclave_core::setup::plugin_query::{
    CondenseReason, GateInput, JudgedAnswer, PluginReply, TaskEnding,
};
use conclave_core::types::action::Action;
use conclave_core::types::delivery::Wake;
use conclave_core::types::fault::Fault;
use conclave_core::types::observed::ObservedEvent;
use conclave_core::types::tool::ToolError;
use wasmtime::Store;
use wasmtime::component::Instance;

use super::run::GuestCall;
use crate::calls::PluginOutput;
use crate::imports::bindings::exports::conclave::plugin::{
    agent, condenser, delivery_strategy, gate, judge, memory, observer, responder,
    security_analyzer, simulated_user, tools,
};
use crate::imports::call::CallState;
use crate::imports::convert::{
    action_out, checked, condensation_in, decision_in, ending_out, gate_input_out, gate_verdict_in,
    judged_out, observed_out, observer_reply_in, outcome_in, reason_out, ruling_in, task_result_in,
    tool_error_in, turn_in, verdict_in, wake_out,
};
use crate::imports::interfaces::judge_feedback::JudgeFeedback;
use crate::sandbox::plain::PlainTool;

/// An export of a component, with its arguments. A task or a room is not among them: the guest reads
/// it through imports.
pub(crate) enum GuestFunction<'a> {
    Step(&'a agent::GuestIndices),
    Respond(&'a responder::GuestIndices),
    Tool { tools: &'a tools::GuestIndices, name: String, arguments: String },
    Plain { tool: &'a PlainTool, arguments: String },
    Recall { memory: &'a memory::GuestIndices, query: String, limit: u32 },
    Assess { analyzer: &'a security_analyzer::GuestIndices, action: Action, thought: String },
    Condense { condenser: &'a condenser::GuestIndices, reason: CondenseReason },
    Check { gate: &'a gate::GuestIndices, input: Box<GateInput> },
    Rule { judge: &'a judge::GuestIndices, answer: Box<JudgedAnswer> },
    Conclude { judge: &'a judge::GuestIndices, ending: Box<TaskEnding> },
    AnswerAsUser { user: &'a simulated_user::GuestIndices, prompt: String },
    Observe { observer: &'a observer::GuestIndices, events: Arc<Vec<ObservedEvent>> },
    Decide { strategy: &'a delivery_strategy::GuestIndices, wake: Wake },
}

/// Calls a function of an export and checks the lists of its answer. The bindings have a type for
/// each export, and no trait that joins them.
macro_rules! call {
    ($indices:ident.$function:ident($($argument:expr),*) in $store:ident, $instance:ident) => {{
        let export = $indices.load(&mut *$store, $instance)?;
        let answer = export.$function(&mut *$store, $($argument),*).await?;
        $store.data().meter.check_lists(&answer)?;
        answer
    }};
}

impl GuestCall for GuestFunction<'_> {
    type Answer = PluginOutput;

    async fn run(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<PluginOutput> {
        Ok(match self {
            Self::Step(agent) => {
                let answer = call!(agent.call_step() in store, instance);
                let turn = answer.map_err(Fault::from).and_then(turn_in);
                PluginOutput::Step(turn.map(|turn| store.data_mut().own_turn(turn)))
            }
            Self::Respond(responder) => {
                let answer = call!(responder.call_respond() in store, instance);
                let turn =
                    answer.map_err(Fault::from).and_then(|turn| turn.map(turn_in).transpose());
                let own = |turn| store.data_mut().own_turn(turn);
                PluginOutput::Respond(turn.map(|turn| turn.map(own)))
            }
            Self::Tool { tools, name, arguments } => {
                let answer = call!(tools.call_call(name, arguments) in store, instance);
                PluginOutput::Tool(match answer {
                    Ok(outcome) => outcome_in(outcome)
                        .map(|outcome| store.data_mut().own_outcome(outcome))
                        .map_err(|fault| ToolError::Fault { fault }),
                    Err(error) => Err(store.data().own_error(tool_error_in(error))),
                })
            }
            Self::Plain { tool, arguments } => {
                PluginOutput::Tool(tool.call(store, instance, arguments).await?)
            }
            Self::Recall { memory, query, limit } => {
                let answer = call!(memory.call_search(query, *limit) in store, instance);
                reply(answer.map(|memories| PluginReply::Memories { memories }), *limit)
            }
            Self::Assess { analyzer, action, thought } => {
                let action = action_out(action);
                let answer = call!(analyzer.call_assess(&action, thought) in store, instance);
                let verdict = answer.map(verdict_in);
                reply(verdict.map(|verdict| PluginReply::Risk { verdict }), 0)
            }
            Self::Condense { condenser, reason } => {
                let reason = reason_out(*reason);
                let answer = call!(condenser.call_condense(reason) in store, instance);
                let condensation = answer.map(|condensation| condensation.map(condensation_in));
                reply(condensation.map(|condensation| PluginReply::Condense { condensation }), 0)
            }
            Self::Check { gate, input } => {
                let answer = call!(gate.call_check(&gate_input_out(input)) in store, instance);
                let verdict = answer.map(gate_verdict_in);
                reply(verdict.map(|verdict| PluginReply::Gate { verdict }), 0)
            }
            Self::Rule { judge, answer } => {
                store.data_mut().feedback = JudgeFeedback::Open(None);
                let answer = call!(judge.call_rule(&judged_out(answer)) in store, instance);
                let feedback = store.data_mut().take_feedback();
                let ruling = answer.map(|ruling| ruling_in(ruling, feedback));
                reply(ruling.map(|ruling| PluginReply::Rule { ruling }), 0)
            }
            Self::Conclude { judge, ending } => {
                let answer = call!(judge.call_conclude(&ending_out(ending)) in store, instance);
                let result = answer
                    .map_err(Fault::from)
                    .and_then(|result| result.map(task_result_in).transpose());
                reply(result.map(|result| PluginReply::Conclude { result }), 0)
            }
            Self::AnswerAsUser { user, prompt } => {
                let answer = call!(user.call_answer(prompt) in store, instance);
                reply(answer.map(|text| PluginReply::AnswerAsUser { text }), 0)
            }
            Self::Observe { observer, events } => {
                let events: Vec<_> = events.iter().map(observed_out).collect();
                let answer = call!(observer.call_observe(&events) in store, instance);
                let observed = observer_reply_in(answer);
                PluginOutput::Query(observed.map(|reply| PluginReply::Observe { reply }))
            }
            Self::Decide { strategy, wake } => {
                let wake = wake_out(wake);
                let answer = call!(strategy.call_decide(&wake) in store, instance);
                let decisions = answer.map(|all| all.into_iter().map(decision_in).collect());
                PluginOutput::Decide(decisions.map_err(Fault::from))
            }
        })
    }
}

/// The reply to a query. It has no more memories than `limit`, and no part that is too long.
fn reply(answer: Result<PluginReply, impl Into<Fault>>, limit: u32) -> PluginOutput {
    PluginOutput::Query(answer.map_err(Into::into).and_then(|reply| checked(reply, limit)))
}

//! The functions between the contract and an author's code, one per kind, so that `export!`
//! generates little. Not for authors.

use crate::analyzer::SecurityAnalyzer;
use crate::bindings::agent::conclave::plugin::actions::{self, AgentError};
use crate::bindings::analyzer::exports::conclave::plugin::security_analyzer::{
    AnalyzerError, Verdict,
};
use crate::bindings::channel::exports::conclave::plugin::channel::{
    ChannelError, Delivery, Message, Reception, Request,
};
use crate::bindings::condenser::exports::conclave::plugin::condenser::{
    Condensation, CondenserError, Reason,
};
use crate::bindings::delivery::exports::conclave::plugin::delivery_strategy::{
    Decision, StrategyError, Wake,
};
use crate::bindings::gate::exports::conclave::plugin::gate::{
    GateError, GateInput, Verdict as GateVerdict,
};
use crate::bindings::judge::conclave::plugin::judge_feedback;
use crate::bindings::judge::exports::conclave::plugin::judge::{
    Answer, Ending, JudgeError, Ruling, TaskResult,
};
use crate::bindings::memory::exports::conclave::plugin::memory::MemoryError;
use crate::bindings::observer::exports::conclave::plugin::observer::{
    ObservedEvent, ObserverError,
};
use crate::bindings::simulated_user::exports::conclave::plugin::simulated_user::SimulatedUserError;
use crate::bindings::tool::exports::conclave::plugin::tools::{Outcome, ToolError, ToolSpec};
use crate::channel::Channel;
use crate::condenser::Condenser;
use crate::delivery::{self, DeliveryStrategy};
use crate::gate::Gate;
use crate::judge::Judge;
use crate::memory::Memory;
use crate::observer::Observer;
use crate::simulated_user::SimulatedUser;
use crate::tool::Tool;
use crate::{Agent, Call, Error, Responder, Toolset, View};

/// Runs the tool `T`.
pub fn call_tool<T: Tool>(arguments: &str) -> Result<Outcome, ToolError> {
    Ok(T::call(arguments, &Call::read)?)
}

/// Returns the error for an unknown tool. The host calls only listed tools, so the caller is at
/// fault.
pub fn unknown_tool(name: &str) -> Result<Outcome, ToolError> {
    Err(Error::other(format!("this plugin has no tool named {name}")).into())
}

/// Lists the tools of `T`.
pub fn list_toolset<T: Toolset>() -> Result<Vec<ToolSpec>, ToolError> {
    Ok(T::list()?)
}

/// Runs a tool of `T`.
pub fn call_toolset<T: Toolset>(name: &str, arguments: &str) -> Result<Outcome, ToolError> {
    let arguments = serde_json::from_str(arguments)
        .map_err(|error| ToolError::InvalidArguments(error.to_string()))?;
    Ok(T::call(name, arguments, &Call::read())?)
}

/// Steps the agent `A`.
pub fn step<A: Agent>() -> Result<actions::Turn, AgentError> {
    Ok(A::step(&View::of_call())?.into())
}

/// Asks the responder `R`.
pub fn respond<R: Responder>() -> Result<Option<actions::Turn>, AgentError> {
    Ok(R::respond(&View::of_call())?.map(Into::into))
}

/// Calls the strategy `S`.
pub fn decide<S: DeliveryStrategy>(wake: Wake) -> Result<Vec<Decision>, StrategyError> {
    Ok(S::decide(wake, &delivery::Context::of_call())?)
}

/// Calls the memory `M`.
pub fn search<M: Memory>(query: &str, limit: u32) -> Result<Vec<String>, MemoryError> {
    Ok(M::search(query, limit)?)
}

/// Calls the analyzer `S`.
pub fn assess<S: SecurityAnalyzer>(
    action: &actions::Action,
    thought: &str,
) -> Result<Verdict, AnalyzerError> {
    Ok(S::assess(action, thought, &View::of_call())?)
}

/// Calls the gate `G`.
pub fn check<G: Gate>(what: &GateInput) -> Result<GateVerdict, GateError> {
    Ok(G::check(what)?)
}

/// Asks the judge `J` for its ruling. An answer that it refuses ends nothing, so `done` is not asked
/// about it.
pub fn rule<J: Judge>(answer: &Answer) -> Result<Ruling, JudgeError> {
    let view = View::of_call();
    let valid = J::valid(answer, &view)?;
    let is_done = if valid == Some(false) { None } else { J::done(answer, &view)? };
    if (valid == Some(false) || is_done == Some(false))
        && let Some(words) = J::feedback(answer, &view)?
    {
        judge_feedback::explain(&words);
    }
    Ok(Ruling { valid, done: is_done })
}

/// Asks the judge `J` for the result.
pub fn conclude<J: Judge>(ending: &Ending) -> Result<Option<TaskResult>, JudgeError> {
    Ok(J::result(ending, &View::of_call())?)
}

/// Asks the simulated user `U`.
pub fn answer<U: SimulatedUser>(question: &str) -> Result<Option<String>, SimulatedUserError> {
    Ok(U::answer(question, &View::of_call())?)
}

/// Calls the observer `O`.
pub fn observe<O: Observer>(events: &[ObservedEvent]) -> Result<(), ObserverError> {
    Ok(O::observe(events)?)
}

/// Calls the condenser `C`.
pub fn condense<C: Condenser>(why: Reason) -> Result<Option<Condensation>, CondenserError> {
    Ok(C::condense(why, &View::of_call())?)
}

/// Has the channel `C` make an attempt at a message.
pub fn send<C: Channel>(message: &Message) -> Result<Delivery, ChannelError> {
    Ok(C::send(message)?)
}

/// Has the channel `C` read a request.
pub fn received<C: Channel>(request: &Request) -> Result<Reception, ChannelError> {
    Ok(C::received(request)?)
}

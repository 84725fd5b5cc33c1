//! What `export!` puts between the contract and an author's code: one function per kind, so that the macro writes little and the
//! rest is ordinary Rust. Not for authors.

use crate::bindings::agent::conclave::plugin::{actions, state};
use crate::bindings::agent::exports::conclave::plugin::agent::AgentError;
use crate::bindings::delivery::exports::conclave::plugin::delivery_strategy::{Decision, StrategyError, Wake};
use crate::bindings::tool::conclave::plugin::call::Context;
use crate::bindings::tool::exports::conclave::plugin::tools::{Outcome, ToolError};
use crate::delivery::{self, DeliveryStrategy};
use crate::tool::Tool;
use crate::{Agent, Call, Error, View};

/// Runs the tool `T`.
pub fn call_tool<T: Tool>(arguments: &str, context: &Context) -> Result<Outcome, ToolError> {
    Ok(T::call(arguments, &|| Call::read(context))?)
}

/// The host asks only for tools that were listed, so this is a fault of whoever asks.
pub fn unknown_tool(name: &str) -> Result<Outcome, ToolError> {
    Err(Error::other(format!("this plugin has no tool named {name}")).into())
}

/// Steps the agent `A`.
pub fn step<A: Agent>(state: &state::View) -> Result<actions::Turn, AgentError> {
    Ok(A::step(&View::new(state))?.into())
}

/// Asks the strategy `S`.
pub fn decide<S: DeliveryStrategy>(wake: Wake, context: &delivery::Context) -> Result<Vec<Decision>, StrategyError> {
    Ok(S::decide(wake, context)?)
}

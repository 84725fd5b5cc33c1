//! The states of an agent, loop detection, and which actions wait for consent. Pure functions and small states that the
//! room asks.

pub mod agent_state;
pub mod confirm;
pub mod fingerprint;
pub mod stuck;
pub mod triggers;

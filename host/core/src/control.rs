//! What a task's agent may do next, and when it has gone astray: agent states, limits, what is pending, stuck detection, confirmation.
//! Pure functions and small states; the room asks them, and the conformance cases play them.

pub mod agent_state;
pub mod confirm;
pub mod controller;
pub mod fingerprint;
pub mod hook;
pub mod limit;
pub mod parallel;
pub mod should_step;
pub mod stuck;
pub mod triggers;

//! A gate: it passes, changes or blocks a text before it takes effect. The operator configures its
//! places: messages from channels, messages between tasks and to background tasks, texts about
//! results, and questions and answers for people.
//! A gate that traps, fails, is refused or times out blocks.

use crate::Result;
use crate::bindings::gate::exports::conclave::plugin::gate as contract;

pub use contract::{GateInput, Point, Verdict};

/// The trait of a gate; `export!(gate: X)` exports it.
///
/// ```
/// use conclave_sdk::Result;
/// use conclave_sdk::gate::{Gate, GateInput, Verdict, allow, block, modify};
///
/// /// Keeps a word in the house.
/// struct Discreet;
///
/// impl Gate for Discreet {
///     fn check(input: &GateInput) -> Result<Verdict> {
///         Ok(match input.text.as_str() {
///             text if text.contains("top secret") => block("it is top secret"),
///             text if text.contains("secret") => modify(text.replace("secret", "…")),
///             _ => allow(),
///         })
///     }
/// }
/// # conclave_sdk::export!(gate: Discreet, asks: []);
/// # assert!(true);
/// ```
pub trait Gate {
    /// Decides whether a text may pass. `input.metadata` is a JSON object with further facts about
    /// it. An error blocks.
    fn check(input: &GateInput) -> Result<Verdict>;
}

/// Passes the text unchanged.
pub fn allow() -> Verdict {
    Verdict::Allow
}

/// Passes this text instead, which the next gate sees.
pub fn modify(text: impl Into<String>) -> Verdict {
    Verdict::Modify(text.into())
}

/// Blocks the text, with a reason for its sender.
pub fn block(reason: impl Into<String>) -> Verdict {
    Verdict::Block(reason.into())
}

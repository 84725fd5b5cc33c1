//! A gate: it is asked before something counts, and lets it pass, changes its text or blocks it.
//! The operator says where it is asked: what comes in on channels, what background tasks are told
//! to do, what is said of their results. A gate that traps, fails, refuses or is too slow blocks.

use crate::Result;
use crate::bindings::gate::exports::conclave::plugin::gate as contract;

pub use contract::{Passing, Point, Verdict};

/// What makes a component a gate; `export!(gate: X)` exports it.
///
/// ```
/// use conclave_sdk::Result;
/// use conclave_sdk::gate::{Gate, Passing, Verdict, allow, block, modify};
///
/// /// Keeps a word in the house.
/// struct Discreet;
///
/// impl Gate for Discreet {
///     fn check(what: &Passing) -> Result<Verdict> {
///         Ok(match what.text.as_str() {
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
    /// May it pass? `what.metadata` is a JSON object of what else is known of it. An error blocks.
    fn check(what: &Passing) -> Result<Verdict>;
}

/// It passes as it is.
pub fn allow() -> Verdict {
    Verdict::Allow
}

/// It passes with this text, which the next gate sees.
pub fn modify(text: impl Into<String>) -> Verdict {
    Verdict::Modify(text.into())
}

/// It does not pass; why, for whoever sent it.
pub fn block(reason: impl Into<String>) -> Verdict {
    Verdict::Block(reason.into())
}

//! A security analyzer: it assesses the risk of an action before the host executes it. It makes no
//! decision: the operator's rules name the risk at which a user is asked. An analyzer that traps,
//! is refused or times out counts as [`Risk::High`].

use crate::actions::Action;
use crate::bindings::analyzer::exports::conclave::plugin::security_analyzer as contract;
use crate::{Result, View};

pub use contract::{Risk, Verdict};

/// The trait of a security analyzer; `export!(analyzer: X)` exports it.
///
/// ```
/// use conclave_sdk::actions::Action;
/// use conclave_sdk::analyzer::{SecurityAnalyzer, Verdict, high, low};
/// use conclave_sdk::{Result, View};
///
/// /// Commands that delete are risky.
/// struct Careful;
///
/// impl SecurityAnalyzer for Careful {
///     fn assess(action: &Action, _thought: &str, _view: &View) -> Result<Verdict> {
///         Ok(match action {
///             Action::Run(run) if run.command.contains("rm ") => high("it deletes files"),
///             _ => low(""),
///         })
///     }
/// }
/// # conclave_sdk::export!(analyzer: Careful, asks: []);
/// # assert!(true);
/// ```
pub trait SecurityAnalyzer {
    /// Returns the risk of an action. A tool call comes as a reply with that one call. `view` is
    /// the agent's view. An error counts as high.
    fn assess(action: &Action, thought: &str, view: &View) -> Result<Verdict>;
}

/// A low risk. The reason may be empty.
pub fn low(reason: impl Into<String>) -> Verdict {
    Verdict { risk: Risk::Low, reason: reason.into() }
}

/// A medium risk, at which some operators want to be asked.
pub fn medium(reason: impl Into<String>) -> Verdict {
    Verdict { risk: Risk::Medium, reason: reason.into() }
}

/// A high risk, which should not pass without a user's approval.
pub fn high(reason: impl Into<String>) -> Verdict {
    Verdict { risk: Risk::High, reason: reason.into() }
}

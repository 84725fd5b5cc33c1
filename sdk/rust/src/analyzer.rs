//! A security analyzer: it says how risky an action is before the host carries it out. It decides
//! nothing: the operator's rules say at which risk a person is asked. An analyzer that traps,
//! refuses or is too slow counts as [`Risk::High`].

use crate::actions::Action;
use crate::bindings::analyzer::exports::conclave::plugin::security_analyzer as contract;
use crate::{Result, View};

pub use contract::{Risk, Verdict};

/// What makes a component a security analyzer; `export!(analyzer: X)` exports it.
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
    /// How risky is it? A tool call comes as a reply with that one call. `view` is what the agent
    /// sees. An error counts as high.
    fn assess(action: &Action, thought: &str, view: &View) -> Result<Verdict>;
}

/// Nothing to worry about. The reason may be empty.
pub fn low(reason: impl Into<String>) -> Verdict {
    Verdict { risk: Risk::Low, reason: reason.into() }
}

/// Some operators want to be asked.
pub fn medium(reason: impl Into<String>) -> Verdict {
    Verdict { risk: Risk::Medium, reason: reason.into() }
}

/// Nobody should let it pass unseen.
pub fn high(reason: impl Into<String>) -> Verdict {
    Verdict { risk: Risk::High, reason: reason.into() }
}

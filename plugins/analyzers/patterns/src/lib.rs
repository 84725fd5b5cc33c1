//! Patterns: a security analyzer that recognizes risky actions by their texts. It is a hint for
//! approvers, and **no security boundary**: a command can be written so that no pattern matches it.
//! The sandbox and the grants are the boundary.

mod deed;
mod rules;

use conclave_sdk::actions::Action;
use conclave_sdk::analyzer::{SecurityAnalyzer, Verdict};
use conclave_sdk::{Error, Result, View, config};

use rules::{Settings, assess, higher};

struct Patterns;

impl SecurityAnalyzer for Patterns {
    fn assess(action: &Action, _thought: &str, _view: &View) -> Result<Verdict> {
        verdict(action, &config::get()?)
    }
}

/// Returns the highest risk of the action's parts.
fn verdict(action: &Action, settings: &Settings) -> Result<Verdict> {
    let assessed: Vec<_> =
        deed::deeds(action).iter().map(|deed| assess(deed, settings)).collect::<Result<_>>()?;
    let highest = assessed
        .into_iter()
        .reduce(higher)
        .ok_or_else(|| Error::other("there is nothing to assess"))?;
    Ok(Verdict { risk: highest.0, reason: highest.1 })
}

conclave_sdk::export!(analyzer: Patterns);

//! Which actions wait for somebody's consent, by how risky they are (O-109…O-111). Knows nothing of who says how risky an action is, nor of
//! whom is asked.

use serde::{Deserialize, Serialize};

use crate::consult::Risk;
use crate::ids::PluginName;

/// Which actions wait for consent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConfirmPolicy {
    #[default]
    Never,
    Always,
    /// From `threshold` on; `unknown`: also those of which nobody says how risky they are.
    Risky {
        threshold: Risk,
        unknown: bool,
    },
}

/// A policy of the reference that is none (O-111).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPolicy {
    #[error("the threshold cannot be UNKNOWN: it is LOW, MEDIUM or HIGH; whether unknown risks wait is `confirm_unknown`")]
    UnknownThreshold,
    #[error("there is no policy {0:?}: never, always or risky")]
    Kind(String),
    #[error("there is no risk {0:?}: LOW, MEDIUM, HIGH or UNKNOWN")]
    Risk(String),
}

impl ConfirmPolicy {
    /// The policy with the reference's words; the threshold is HIGH and unknown risks wait when it says nothing of them.
    ///
    /// # Errors
    /// When a word is none of theirs, and when the threshold is UNKNOWN, which is not ordered (O-111).
    pub fn named(kind: &str, threshold: Option<&str>, unknown: Option<bool>) -> Result<Self, NoPolicy> {
        match kind.to_ascii_lowercase().as_str() {
            "never" => Ok(Self::Never),
            "always" => Ok(Self::Always),
            "risky" => {
                let threshold = risk_named(threshold.unwrap_or("HIGH"))?.ok_or(NoPolicy::UnknownThreshold)?;
                Ok(Self::Risky { threshold, unknown: unknown.unwrap_or(true) })
            }
            _ => Err(NoPolicy::Kind(kind.to_owned())),
        }
    }

    /// Whether an action of this risk waits; none: nobody says how risky it is.
    #[must_use]
    pub fn asks(self, risk: Option<Risk>) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Risky { threshold, unknown } => risk.map_or(unknown, |risk| risk >= threshold),
        }
    }

    /// Whether a batch of actions waits: all of it when one does, except that a lone `finish` or `think` never does (O-111).
    #[must_use]
    pub fn asks_for_batch<'a>(self, batch: impl IntoIterator<Item = (&'a str, Option<Risk>)>) -> bool {
        let mut batch = batch.into_iter().peekable();
        let Some((name, risk)) = batch.next() else { return false };
        if batch.peek().is_none() && is_harmless(name) {
            return false;
        }
        self.asks(risk) || batch.any(|(_, risk)| self.asks(risk))
    }

    /// Whether a plugin is to be asked how risky an action is.
    #[must_use]
    pub fn depends_on_risk(self) -> bool {
        matches!(self, Self::Risky { .. })
    }
}

/// The same for a task, and who says how risky an action is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmRules {
    pub policy: ConfirmPolicy,
    /// A plugin that exports `security-analyzer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analyzer: Option<PluginName>,
}

/// A risk by the reference's word, in whatever case; none: UNKNOWN.
///
/// # Errors
/// When it is none of theirs.
pub fn risk_named(word: &str) -> Result<Option<Risk>, NoPolicy> {
    Ok(match word.to_ascii_lowercase().as_str() {
        "unknown" => None,
        "low" => Some(Risk::Low),
        "medium" => Some(Risk::Medium),
        "high" => Some(Risk::High),
        _ => return Err(NoPolicy::Risk(word.to_owned())),
    })
}

/// An action that changes nothing outside the conversation. By their names here, in 2024 and in the SDK.
fn is_harmless(name: &str) -> bool {
    matches!(name, "finish" | "think" | "FinishTool" | "ThinkTool" | "FinishAction" | "ThinkAction")
}

/// Kinds of action that the reference of 2025-11 asks for at all; that the others never ask is its hole (O-110).
pub const V0_ASKS_FOR: [&str; 5] = ["run", "run_ipython", "browse_interactive", "edit", "read"];

/// The rule of 2025-11 with its hole: of five kinds, those of high risk, and all of unknown risk where there is no analyzer (O-109). An
/// analyzer that fails makes the risk unknown; without one it always is, whatever the model said of it.
#[must_use]
pub fn v0_asks(action: &str, risk: Option<Risk>, has_analyzer: bool) -> bool {
    let risk = if has_analyzer { risk } else { None };
    V0_ASKS_FOR.contains(&action) && (risk == Some(Risk::High) || (risk.is_none() && !has_analyzer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn risky(threshold: Risk, unknown: bool) -> ConfirmPolicy {
        ConfirmPolicy::Risky { threshold, unknown }
    }

    #[test]
    fn a_risk_waits_from_its_threshold_on() {
        let risks = [None, Some(Risk::Low), Some(Risk::Medium), Some(Risk::High)];
        for (policy, asked) in [
            (ConfirmPolicy::Never, [false; 4]),
            (ConfirmPolicy::Always, [true; 4]),
            (risky(Risk::High, true), [true, false, false, true]),
            (risky(Risk::High, false), [false, false, false, true]),
            (risky(Risk::Medium, false), [false, false, true, true]),
            (risky(Risk::Low, false), [false, true, true, true]),
        ] {
            assert_eq!(risks.map(|risk| policy.asks(risk)), asked, "{policy:?}");
        }
        assert_eq!(ConfirmRules::default().policy, ConfirmPolicy::Never);
    }

    #[test]
    fn one_of_a_batch_makes_all_of_it_wait_and_a_lone_finish_never_waits() {
        let batch = |names: &[&'static str]| ConfirmPolicy::Always.asks_for_batch(names.iter().map(|name| (*name, None)));
        assert_eq!(["finish", "think", "run"].map(|name| batch(&[name])), [false, false, true]);
        assert!(batch(&["think", "finish"]) && batch(&["run", "finish"]) && !batch(&[]));
        let of_risks = |risks: &[Risk]| risky(Risk::High, true).asks_for_batch(risks.iter().map(|risk| ("run", Some(*risk))));
        assert!(of_risks(&[Risk::Low, Risk::High]) && !of_risks(&[Risk::Low, Risk::Medium]));
    }

    #[test]
    fn the_references_words_make_policies_and_an_unknown_threshold_does_not() {
        assert_eq!(ConfirmPolicy::named("risky", None, None), Ok(risky(Risk::High, true)));
        assert_eq!(ConfirmPolicy::named("risky", Some("medium"), Some(false)), Ok(risky(Risk::Medium, false)));
        assert_eq!(ConfirmPolicy::named("Never", None, None), Ok(ConfirmPolicy::Never));
        assert_eq!(ConfirmPolicy::named("risky", Some("UNKNOWN"), None), Err(NoPolicy::UnknownThreshold));
        assert!(matches!(ConfirmPolicy::named("sometimes", None, None), Err(NoPolicy::Kind(_))));
        assert!(matches!(ConfirmPolicy::named("risky", Some("huge"), None), Err(NoPolicy::Risk(_))));
    }

    #[test]
    fn the_rule_of_2025_asks_for_five_kinds_only() {
        for kind in V0_ASKS_FOR {
            assert!(v0_asks(kind, Some(Risk::High), true) && v0_asks(kind, None, false) && v0_asks(kind, Some(Risk::Low), false));
            assert!(!v0_asks(kind, Some(Risk::Medium), true) && !v0_asks(kind, None, true));
        }
        for hole in ["write", "browse", "call_tool_mcp"] {
            assert!(!v0_asks(hole, Some(Risk::High), true) && !v0_asks(hole, None, false), "{hole}");
            assert!(ConfirmPolicy::Always.asks(None), "ours knows no kinds");
        }
    }
}

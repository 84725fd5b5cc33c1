//! The rules for actions that need consent, by their risk (O-109…O-111). Does not rate risks and
//! does not ask approvers.

use serde::{Deserialize, Serialize};

use crate::types::ids::PluginName;
use crate::types::risk::Risk;

/// The actions that need consent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConfirmPolicy {
    #[default]
    Never,
    Always,
    /// Actions with at least the risk `threshold`; with `unknown`, also those without a rating.
    Risky {
        threshold: Risk,
        unknown: bool,
    },
}

impl ConfirmPolicy {
    /// Whether an action of this risk needs consent; `None` stands for an unknown risk.
    #[must_use]
    pub fn asks(self, risk: Option<Risk>) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Risky { threshold, unknown } => risk.map_or(unknown, |risk| risk >= threshold),
        }
    }
}

/// The consent rules of a task, with the plugin that rates risks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmRules {
    pub policy: ConfirmPolicy,
    /// The plugin, which exports `security-analyzer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analyzer: Option<PluginName>,
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
        for (policy, expected) in [
            (ConfirmPolicy::Never, [false; 4]),
            (ConfirmPolicy::Always, [true; 4]),
            (risky(Risk::High, true), [true, false, false, true]),
            (risky(Risk::High, false), [false, false, false, true]),
            (risky(Risk::Medium, false), [false, false, true, true]),
            (risky(Risk::Low, false), [false, true, true, true]),
        ] {
            assert_eq!(risks.map(|risk| policy.asks(risk)), expected, "{policy:?}");
        }
        assert_eq!(ConfirmRules::default().policy, ConfirmPolicy::Never);
    }
}

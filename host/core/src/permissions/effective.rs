//! The effective rules and limits of a resumed run: those at its start, and those of today's config
//! where they are stricter. Grants and task scopes narrow themselves.

use crate::permissions::overlap::smaller_of;
use crate::types::confirm::{ConfirmPolicy, ConfirmRules};
use crate::types::limits::{PluginLimits, RunLimits, WhenUsedUp};

impl ConfirmPolicy {
    /// The policy that asks whenever one of both asks.
    fn stricter(self, today: Self) -> Self {
        match (self, today) {
            (Self::Always, _) | (_, Self::Always) => Self::Always,
            (Self::Never, other) | (other, Self::Never) => other,
            (
                Self::Risky { threshold: one, unknown },
                Self::Risky { threshold: other, unknown: also },
            ) => Self::Risky { threshold: one.min(other), unknown: unknown || also },
        }
    }
}

impl ConfirmRules {
    /// The rules that ask whenever these, with which the run began, or today's ask. If the analyzer
    /// is another one, its ratings cannot stand for those of the first, so everything is asked
    /// about.
    #[must_use]
    pub fn narrowed_by(&self, today: &Self) -> Self {
        let rates = |rules: &Self| rules.policy != ConfirmPolicy::Never;
        let analyzers_differ = rates(self) && rates(today) && self.analyzer != today.analyzer;
        let policy = match analyzers_differ {
            true => ConfirmPolicy::Always,
            false => self.policy.stricter(today.policy),
        };
        let analyzer = if rates(self) { &self.analyzer } else { &today.analyzer };
        Self { policy, analyzer: analyzer.clone() }
    }
}

impl PluginLimits {
    /// The smaller of each limit.
    #[must_use]
    pub fn narrowed_by(&self, today: &Self) -> Self {
        smaller_of! {
            self, today: memory cpu_ms wall_ms output log host_calls handles read scratch blobs
            at_once table_elements instances arguments list component compile_ms compile_memory;;
        }
    }
}

impl RunLimits {
    /// The smaller of each limit. A run asks for more only if both configs say so.
    #[must_use]
    pub fn narrowed_by(&self, today: &Self) -> Self {
        let asks = (self.when_used_up, today.when_used_up) == (WhenUsedUp::Ask, WhenUsedUp::Ask);
        smaller_of! {
            self, today: depth; turns wall_ms tokens cost_micro_usd model_calls tool_calls history
            cpu_ms tasks tasks_at_once task_turns;
            when_used_up: if asks { WhenUsedUp::Ask } else { WhenUsedUp::End }
        }
    }
}

#[cfg(test)]
mod tests;

//! The effective rules and limits of a resumed run: those at its start, and those of today's config
//! where they are stricter. Grants and task scopes narrow themselves.

use crate::permissions::overlap::smaller;
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
        Self {
            memory: self.memory.min(today.memory),
            cpu_ms: self.cpu_ms.min(today.cpu_ms),
            wall_ms: self.wall_ms.min(today.wall_ms),
            output: self.output.min(today.output),
            log: self.log.min(today.log),
            host_calls: self.host_calls.min(today.host_calls),
            handles: self.handles.min(today.handles),
            read: self.read.min(today.read),
            scratch: self.scratch.min(today.scratch),
            blobs: self.blobs.min(today.blobs),
            at_once: self.at_once.min(today.at_once),
            table_elements: self.table_elements.min(today.table_elements),
            instances: self.instances.min(today.instances),
            arguments: self.arguments.min(today.arguments),
            list: self.list.min(today.list),
            component: self.component.min(today.component),
            compile_ms: self.compile_ms.min(today.compile_ms),
            compile_memory: self.compile_memory.min(today.compile_memory),
        }
    }
}

impl RunLimits {
    /// The smaller of each limit. A run asks for more only if both configs say so.
    #[must_use]
    pub fn narrowed_by(&self, today: &Self) -> Self {
        let asks = (self.when_used_up, today.when_used_up) == (WhenUsedUp::Ask, WhenUsedUp::Ask);
        Self {
            turns: smaller(self.turns, today.turns),
            wall_ms: smaller(self.wall_ms, today.wall_ms),
            tokens: smaller(self.tokens, today.tokens),
            cost_micro_usd: smaller(self.cost_micro_usd, today.cost_micro_usd),
            model_calls: smaller(self.model_calls, today.model_calls),
            tool_calls: smaller(self.tool_calls, today.tool_calls),
            history: smaller(self.history, today.history),
            cpu_ms: smaller(self.cpu_ms, today.cpu_ms),
            tasks: smaller(self.tasks, today.tasks),
            tasks_at_once: smaller(self.tasks_at_once, today.tasks_at_once),
            depth: self.depth.min(today.depth),
            task_turns: smaller(self.task_turns, today.task_turns),
            when_used_up: if asks { WhenUsedUp::Ask } else { WhenUsedUp::End },
        }
    }
}

#[cfg(test)]
mod tests;

//! Budgets of a run: their limits, names, error texts, and how much more an approver may grant. The
//! room decides how much is reserved for each task.

mod shortfall;
mod top_up;

use crate::types::limits::{RunLimits, WhenUsedUp};
use crate::types::outcome::Status;
use crate::types::text::{show_duration, show_number, show_size};
use crate::types::usage::Spent;

use serde::{Deserialize, Serialize};

pub use shortfall::BudgetShortfall;
pub use top_up::{LimitIncrease, NoAmount, check_top_up_arguments};

/// A limit of the whole run, which ends when it is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Budget {
    Turns,
    Wall,
    Tokens,
    Cost,
    ModelCalls,
    ToolCalls,
    Cpu,
    History,
}

/// A limit in force, with what is used of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BudgetUse {
    pub budget: Budget,
    /// The amount used, in the budget's smallest unit.
    pub used: u64,
    pub limit: u64,
}

impl Budget {
    /// The limits in force with what is used of each, without those of time and memory, which the
    /// room alone measures.
    #[must_use]
    pub fn uses(limits: &RunLimits, spent: &Spent) -> Vec<BudgetUse> {
        let measured = Self::ALL.into_iter().filter(|it| !matches!(it, Self::Wall | Self::History));
        let of_budget = |budget: Self| {
            Some(BudgetUse { budget, used: budget.of(spent), limit: budget.limit(limits)? })
        };
        measured.filter_map(of_budget).collect()
    }

    /// Every budget.
    pub const ALL: [Self; 8] = [
        Self::Turns,
        Self::Wall,
        Self::Tokens,
        Self::Cost,
        Self::ModelCalls,
        Self::ToolCalls,
        Self::Cpu,
        Self::History,
    ];

    /// The budget's key in the config.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Turns => "limits.run.turns",
            Self::Wall => "limits.run.wall",
            Self::Tokens => "limits.run.tokens",
            Self::Cost => "limits.run.cost_usd",
            Self::ModelCalls => "limits.run.model_calls",
            Self::ToolCalls => "limits.run.tool_calls",
            Self::Cpu => "limits.run.cpu",
            Self::History => "limits.run.history",
        }
    }

    /// The status of a run that used the budget up.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Self::Turns => Status::MaxTurns,
            Self::Wall => Status::Timeout,
            Self::Tokens => Status::MaxTokens,
            Self::Cost => Status::MaxCost,
            Self::ModelCalls | Self::ToolCalls => Status::MaxCalls,
            Self::Cpu => Status::MaxCpu,
            Self::History => Status::MaxHistory,
        }
    }

    /// The reason for that end, as one sentence without a full stop.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Turns => "the run made as many steps as limits.run.turns allows",
            Self::Wall => "the run took longer than limits.run.wall allows",
            Self::Tokens => "the run used more tokens than limits.run.tokens allows",
            Self::Cost => "the run spent more than limits.run.cost_usd allows",
            Self::ModelCalls => "the run asked models as often as limits.run.model_calls allows",
            Self::ToolCalls => "the run called as many tools as limits.run.tool_calls allows",
            Self::Cpu => "the run computed longer than limits.run.cpu allows",
            Self::History => {
                "the run held more messages and results in memory than limits.run.history allows"
            }
        }
    }

    /// The limit; `None` if there is none. The limit of time is in the run's deadline.
    #[must_use]
    pub fn limit(self, limits: &RunLimits) -> Option<u64> {
        match self {
            Self::Turns => limits.turns,
            Self::Wall => limits.wall_ms,
            Self::Tokens => limits.tokens,
            Self::Cost => limits.cost_micro_usd,
            Self::ModelCalls => limits.model_calls,
            Self::ToolCalls => limits.tool_calls,
            Self::Cpu => limits.cpu_ms,
            Self::History => limits.history,
        }
    }

    /// Raises the limit; does nothing if there is none.
    pub(crate) fn raise(self, limits: &mut RunLimits, more: u64) {
        let limit = match self {
            Self::Turns => &mut limits.turns,
            Self::Wall => &mut limits.wall_ms,
            Self::Tokens => &mut limits.tokens,
            Self::Cost => &mut limits.cost_micro_usd,
            Self::ModelCalls => &mut limits.model_calls,
            Self::ToolCalls => &mut limits.tool_calls,
            Self::Cpu => &mut limits.cpu_ms,
            Self::History => &mut limits.history,
        };
        if let Some(limit) = limit {
            *limit = limit.saturating_add(more);
        }
    }

    /// The amount used; 0 for time, which passes by itself, and for memory, which is freed again.
    /// The room measures both.
    #[must_use]
    pub fn of(self, spent: &Spent) -> u64 {
        match self {
            Self::Turns => spent.turns,
            Self::Wall | Self::History => 0,
            Self::Tokens => spent.tokens,
            Self::Cost => spent.cost_micro_usd,
            Self::ModelCalls => spent.model_calls,
            Self::ToolCalls => spent.tool_calls,
            Self::Cpu => spent.cpu_ms,
        }
    }

    /// An amount of the budget as text for people.
    #[must_use]
    pub fn show(self, amount: u64) -> String {
        match self {
            Self::Turns => counted(amount, "step"),
            Self::Tokens => counted(amount, "token"),
            Self::ModelCalls | Self::ToolCalls => counted(amount, "call"),
            Self::Wall | Self::Cpu => show_duration(amount),
            Self::History => show_size(amount),
            Self::Cost => dollars(amount),
        }
    }
}

fn counted(amount: u64, unit: &str) -> String {
    format!("{} {unit}{}", show_number(amount), if amount == 1 { "" } else { "s" })
}

/// A line of text for each limit of a run and for its consequence.
#[must_use]
pub fn describe(limits: &RunLimits) -> Vec<String> {
    let then = match limits.when_used_up {
        WhenUsedUp::End => "the run ends",
        WhenUsedUp::Ask => "you are asked",
    };
    let of_budget = |budget: Budget| {
        let limit = budget.show(budget.limit(limits)?);
        let what = match budget {
            Budget::Turns => " of agents",
            Budget::Wall => " from the first message",
            Budget::Tokens => " of all models",
            Budget::Cost => " for all models",
            Budget::ModelCalls => " of models",
            Budget::ToolCalls => " of tools",
            Budget::Cpu => " of computing",
            Budget::History => " of messages and results in memory",
        };
        Some(format!("at most {limit}{what}, then {then}"))
    };
    let mut lines: Vec<String> = Budget::ALL.into_iter().filter_map(of_budget).collect();
    lines.extend(limits.task_turns.map(|limit| {
        format!("at most {} each time that a task is at work", counted(u64::from(limit), "step"))
    }));
    lines
        .extend(limits.tasks.map(|limit| format!("at most {}", counted(limit, "background task"))));
    lines.extend(
        limits.tasks_at_once.map(|limit| {
            format!("at most {} at once", counted(u64::from(limit), "background task"))
        }),
    );
    lines.push(match limits.depth {
        0 => "no background tasks".to_owned(),
        depth => format!("background tasks at most {} deep", counted(u64::from(depth), "level")),
    });
    lines
}

/// `0.50 US dollars`, with as many decimal places as needed.
fn dollars(micro_usd: u64) -> String {
    let (dollars, rest) = (micro_usd / 1_000_000, format!("{:06}", micro_usd % 1_000_000));
    let digits = rest.trim_end_matches('0').len().max(2);
    format!("{}.{} US dollars", show_number(dollars), &rest[..digits])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_shown_in_their_unit() {
        let amounts = [
            (Budget::Turns, 1),
            (Budget::Tokens, 1_500),
            (Budget::Cost, 500_000),
            (Budget::Cost, 12),
            (Budget::Cpu, 2_000),
        ];
        let texts = amounts.map(|(budget, amount)| budget.show(amount));
        assert_eq!(
            texts,
            ["1 step", "1 500 tokens", "0.50 US dollars", "0.000012 US dollars", "2 s"]
        );
    }

    #[test]
    fn limits_are_described_with_what_happens_then() {
        let limits = RunLimits {
            tokens: Some(5_000),
            tasks: Some(1),
            when_used_up: WhenUsedUp::Ask,
            ..RunLimits::default()
        };
        let expected = [
            "at most 100 steps of agents, then you are asked",
            "at most 10 min from the first message, then you are asked",
            "at most 5 000 tokens of all models, then you are asked",
            "at most 1 000 calls of tools, then you are asked",
            "at most 64 MiB of messages and results in memory, then you are asked",
            "at most 1 background task",
            "background tasks at most 3 levels deep",
        ];
        assert_eq!(describe(&limits), expected);
        let none = RunLimits {
            turns: None,
            wall_ms: None,
            tool_calls: None,
            history: None,
            depth: 0,
            ..RunLimits::default()
        };
        assert_eq!(describe(&none), ["no background tasks"]);
    }

    #[test]
    fn the_limits_in_force_have_their_use_and_the_others_are_left_out() {
        let limits = RunLimits { tokens: Some(5), cost_micro_usd: None, ..RunLimits::default() };
        let spent = Spent { tokens: 3, cost_micro_usd: 7, ..Spent::default() };
        let uses = Budget::uses(&limits, &spent);
        assert!(uses.contains(&BudgetUse { budget: Budget::Tokens, used: 3, limit: 5 }));
        let absent = [Budget::Cost, Budget::Wall, Budget::History];
        assert!(uses.iter().all(|it| !absent.contains(&it.budget)), "{uses:?}");
    }

    #[test]
    fn every_budget_is_a_key_of_the_config_and_can_be_raised() {
        let keys = crate::config::KEYS.iter().map(|key| format!("{}.{}", key.table, key.name));
        let keys: Vec<String> = keys.collect();
        for budget in Budget::ALL {
            assert!(keys.iter().any(|key| key == budget.key()), "{budget:?}");
            assert!(budget.reason().contains(budget.key()));
            let mut limits = RunLimits {
                tokens: Some(1),
                cost_micro_usd: Some(1),
                model_calls: Some(1),
                tool_calls: Some(1),
                cpu_ms: Some(1),
                ..RunLimits::default()
            };
            let before = budget.limit(&limits);
            budget.raise(&mut limits, 3);
            assert_eq!(budget.limit(&limits), before.map(|before| before + 3), "{budget:?}");
        }
    }
}

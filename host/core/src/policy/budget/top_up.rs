//! The request to an approver to raise a limit that a run has used up. Lists of approvals show it
//! as an approval.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Budget, BudgetShortfall};
use crate::types::approval::{ApprovalCause, ApprovalRequest};
use crate::types::ids::{PluginName, TaskName};
use crate::types::text::{show_duration, show_size};
use crate::types::units;

/// The argument with the amount to add.
const ADD: &str = "add";
/// The caller's name in lists of approvals; not a valid plugin name.
const CALLER: &str = "(budget)";

/// A request to raise a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitIncrease {
    /// The budget that is used up.
    pub budget: Budget,
    /// The current limit, in the budget's smallest unit: milliseconds, millionths of a dollar.
    pub limit: u64,
    /// The amount used.
    pub used: u64,
    /// The amount reserved for work under way.
    pub set_aside: u64,
    /// The minimum for the next piece of work, if the rest is less than that; `None` if nothing is
    /// left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<u64>,
    /// The amount added when the request is approved unchanged.
    pub proposed: u64,
    /// The blocked task; the entry task if no particular one is.
    pub task: TaskName,
    /// The error in the approver's previous amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// An invalid amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write {{\"add\": {example}}}, with how much more there shall be of {key}")]
pub struct NoAmount {
    key: &'static str,
    example: String,
}

impl LimitIncrease {
    /// One sentence for people about the budget that is used up.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { budget, limit, used, set_aside, needed, .. } = *self;
        BudgetShortfall { budget, limit, used, set_aside, needed }.sentence()
    }

    /// The arguments for an amount to add, which an approver may edit.
    #[must_use]
    pub fn arguments(&self, more: u64) -> Value {
        json!({ ADD: self.value(more) })
    }

    fn value(&self, more: u64) -> Value {
        match self.budget {
            Budget::Wall | Budget::Cpu => json!(show_duration(more)),
            Budget::History => json!(show_size(more)),
            #[expect(clippy::cast_precision_loss, reason = "a billion dollars in millionths fits")]
            Budget::Cost => json!(more as f64 / 1e6),
            _ => json!(more),
        }
    }

    /// Returns the amount to add from such arguments.
    ///
    /// # Errors
    /// `NoAmount` if the arguments hold no valid amount.
    pub fn amount(&self, arguments: &Value) -> Result<u64, NoAmount> {
        amount_of(self.budget, arguments).ok_or_else(|| NoAmount {
            key: self.budget.key(),
            example: self.value(self.proposed).to_string(),
        })
    }

    /// The request in the form of an approval, for programs that list and decide approvals.
    #[must_use]
    pub fn as_approval(&self) -> ApprovalRequest {
        ApprovalRequest {
            task: self.task.clone(),
            caller: PluginName::from(CALLER),
            led_by: Vec::new(),
            delegators: Vec::new(),
            executor: None,
            tool: self.budget.key().to_owned(),
            arguments: self.arguments(self.proposed),
            source: self.sentence(),
            causes: vec![ApprovalCause::Limit],
            expires_ms: None,
            risk: None,
            risk_reason: None,
            problem: self.problem.clone(),
        }
    }
}

/// The amount in the smallest unit; `None` if it is not above 0.
fn amount_of(budget: Budget, arguments: &Value) -> Option<u64> {
    let add = arguments.get(ADD).unwrap_or(arguments);
    let amount = match budget {
        Budget::Wall | Budget::Cpu => add.as_str().and_then(|text| units::duration(text).ok()),
        Budget::History => add.as_str().and_then(|text| units::size(text).ok()),
        Budget::Cost => add.as_f64().and_then(units::micro_usd),
        _ => add.as_u64(),
    };
    amount.filter(|amount| *amount > 0)
}

/// Checks edited arguments before they are submitted: those of a request to raise a limit must hold
/// an amount. Other requests are not checked.
///
/// # Errors
/// The way to write an amount, for people.
pub fn check_top_up_arguments(request: &ApprovalRequest, arguments: &Value) -> Result<(), String> {
    let budget = Budget::ALL.into_iter().find(|budget| budget.key() == request.tool);
    let Some(budget) = budget.filter(|_| request.caller.as_str() == CALLER) else { return Ok(()) };
    let example = || request.arguments.get(ADD).unwrap_or(&request.arguments).to_string();
    amount_of(budget, arguments)
        .map(drop)
        .ok_or_else(|| NoAmount { key: budget.key(), example: example() }.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top_up(budget: Budget, proposed: u64) -> LimitIncrease {
        LimitIncrease {
            budget,
            limit: 1_000,
            used: 900,
            set_aside: 0,
            needed: None,
            proposed,
            task: TaskName::from("desk"),
            problem: None,
        }
    }

    #[test]
    fn what_is_proposed_reads_back_in_every_unit() {
        for budget in Budget::ALL {
            let top_up = top_up(budget, 2_000);
            assert_eq!(top_up.amount(&top_up.arguments(2_000)), Ok(2_000), "{budget:?}");
        }
    }

    #[test]
    fn what_is_no_amount_is_refused_with_an_example() {
        let tokens = top_up(Budget::Tokens, 500);
        for wrong in [
            json!({}),
            json!({ "add": 0 }),
            json!({ "add": -3 }),
            json!({ "add": "many" }),
            json!(null),
            json!({ "add": 1.5 }),
        ] {
            assert!(tokens.amount(&wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            tokens.amount(&json!("x")).unwrap_err().to_string(),
            "write {\"add\": 500}, with how much more there shall be of limits.run.tokens"
        );
        let wall = top_up(Budget::Wall, 60_000);
        assert_eq!(wall.amount(&json!({ "add": "5 min" })), Ok(300_000));
        assert!(
            wall.amount(&json!({ "add": 5 })).is_err(),
            "a number without a unit could mean anything"
        );
        let cost = top_up(Budget::Cost, 1);
        assert_eq!(cost.amount(&json!({ "add": 0.25 })), Ok(250_000));
    }

    #[test]
    fn an_amount_is_looked_at_before_it_is_handed_in() {
        let request = top_up(Budget::Cost, 250_000).as_approval();
        assert_eq!(check_top_up_arguments(&request, &json!({ "add": 0.5 })), Ok(()));
        let wrong = check_top_up_arguments(&request, &json!({ "add": "plenty" })).unwrap_err();
        assert_eq!(
            wrong,
            "write {\"add\": 0.25}, with how much more there shall be of limits.run.cost_usd"
        );
        let other = ApprovalRequest { caller: PluginName::from("desk"), ..request };
        assert_eq!(
            check_top_up_arguments(&other, &json!({})),
            Ok(()),
            "a plugin's tool of that name is none"
        );
    }

    #[test]
    fn the_sentence_says_how_much_of_what() {
        assert_eq!(
            top_up(Budget::Tokens, 1).sentence(),
            "limits.run.tokens is used up: 900 tokens of 1 000 tokens"
        );
        let short = LimitIncrease {
            limit: 5_000,
            used: 4_200,
            needed: Some(899),
            ..top_up(Budget::Tokens, 1)
        };
        assert_eq!(
            short.sentence(),
            "limits.run.tokens: the next request reserves at least 899 tokens, and 800 tokens of 5 000 tokens are left (4 200 tokens used)"
        );
        assert_eq!(
            top_up(Budget::Wall, 1).sentence(),
            "the run took longer than limits.run.wall allows: 1 s"
        );
    }
}

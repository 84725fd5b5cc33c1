//! The budget of a person for a day of UTC: decides whether the person's runs have used it up.
//! Callers count the spending; this module has no state.

use std::collections::BTreeMap;

use serde::Serialize;

use super::budget::{Budget, BudgetUse};
use crate::types::ids::{Millis, Principal};
use crate::types::limits::RunLimits;
use crate::types::usage::Spent;

/// Milliseconds of a day.
const DAY: u64 = 24 * 60 * 60 * 1_000;

/// The budgets of people for a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DailyBudgets {
    /// That of each person without one of its own.
    pub each: DailyBudget,
    /// Those of single people, by name.
    pub people: BTreeMap<String, DailyBudget>,
}

/// What the runs of one person may spend in a day together; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DailyBudget {
    pub tokens: Option<u64>,
    pub cost_micro_usd: Option<u64>,
}

/// A day of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Day {
    /// The first moment of the day.
    pub from: Millis,
    /// The first moment of the next one.
    pub until: Millis,
}

/// The refusal of more work for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error(
    "the budget of {} for today is used up: {} of {} ({}) are spent, and more may be again in {}",
    .person.0,
    .spent.budget.show(.spent.used),
    .spent.budget.show(.spent.limit),
    key(.spent.budget),
    about(*.wait_ms),
)]
pub struct BudgetUsedUp {
    /// The person whose runs spent it.
    pub person: Principal,
    /// The limit that is reached first.
    #[serde(flatten)]
    pub spent: BudgetUse,
    /// The beginning of the next day.
    pub free_at: Millis,
    /// The time until then in milliseconds.
    #[serde(skip)]
    pub wait_ms: u64,
}

impl DailyBudgets {
    /// The budget of a person.
    #[must_use]
    pub fn of(&self, person: &Principal) -> DailyBudget {
        self.people.get(&*person.0).copied().unwrap_or(self.each)
    }

    /// Whether anybody has a limit, so that what is spent in a day counts.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        let mut all = self.people.values().chain([&self.each]);
        all.any(DailyBudget::has_limits)
    }
}

impl DailyBudget {
    /// Whether it limits anything.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        self.tokens.is_some() || self.cost_micro_usd.is_some()
    }

    /// The limits with what is used of each.
    #[must_use]
    pub fn uses(&self, spent: &Spent) -> Vec<BudgetUse> {
        let limits = [(Budget::Tokens, self.tokens), (Budget::Cost, self.cost_micro_usd)];
        let of_budget = |(budget, limit): (Budget, Option<u64>)| {
            Some(BudgetUse { budget, used: budget.of(spent), limit: limit? })
        };
        limits.into_iter().filter_map(of_budget).collect()
    }

    /// Decides whether a run or a message of this person may begin more work now.
    ///
    /// # Errors
    /// If nothing is left of one of the limits.
    pub fn check(
        &self,
        person: &Principal,
        spent: &Spent,
        now: Millis,
    ) -> Result<(), BudgetUsedUp> {
        let used_up = self.uses(spent).into_iter().find(|of| of.used >= of.limit);
        let Some(spent) = used_up else { return Ok(()) };
        let free_at = Day::of(now).until;
        let wait_ms = free_at.since(now);
        Err(BudgetUsedUp { person: person.clone(), spent, free_at, wait_ms })
    }

    /// The limits of a run that begins now, none of them above what is left of the day's budget.
    #[must_use]
    pub fn cap(&self, spent: &Spent, limits: &RunLimits) -> RunLimits {
        let mut capped = limits.clone();
        for BudgetUse { budget, used, limit } in self.uses(spent) {
            let limit_of_run = match budget {
                Budget::Tokens => &mut capped.tokens,
                _ => &mut capped.cost_micro_usd,
            };
            let rest = limit.saturating_sub(used);
            *limit_of_run = Some(limit_of_run.map_or(rest, |of_run| of_run.min(rest)));
        }
        capped
    }
}

impl Day {
    /// The day of a moment.
    #[must_use]
    pub fn of(now: Millis) -> Self {
        let from = now.0 - now.0 % DAY;
        Self { from: Millis(from), until: Millis(from.saturating_add(DAY)) }
    }
}

/// The key of a limit in `[server.daily_budget]`.
fn key(budget: Budget) -> &'static str {
    match budget {
        Budget::Tokens => "server.daily_budget.tokens",
        _ => "server.daily_budget.cost_usd",
    }
}

/// A wait in hours, or in minutes if it is short.
fn about(ms: u64) -> String {
    let minutes = ms.div_ceil(60_000);
    if minutes < 120 { format!("{minutes} min") } else { format!("{} h", minutes.div_ceil(60)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Millis = Millis(10 * DAY + DAY / 2);

    fn spent(tokens: u64, cost_micro_usd: u64) -> Spent {
        Spent { tokens, cost_micro_usd, ..Spent::default() }
    }

    fn budget(tokens: Option<u64>, cost_micro_usd: Option<u64>) -> DailyBudget {
        DailyBudget { tokens, cost_micro_usd }
    }

    #[test]
    fn nothing_more_begins_once_one_limit_is_reached() {
        let ada = Principal("ada".into());
        let both = budget(Some(1_000), Some(2_000_000));
        for (used, expected) in [
            (spent(999, 1_999_999), None),
            (spent(1_000, 0), Some(Budget::Tokens)),
            (spent(5_000, 0), Some(Budget::Tokens)),
            (spent(0, 2_000_000), Some(Budget::Cost)),
        ] {
            let refused = both.check(&ada, &used, NOON).err();
            assert_eq!(refused.as_ref().map(|refused| refused.spent.budget), expected, "{used:?}");
            assert!(refused.is_none_or(|refused| refused.free_at == Millis(11 * DAY)));
        }
        assert_eq!(budget(None, None).check(&ada, &spent(u64::MAX, u64::MAX), NOON), Ok(()));
        let text = both.check(&ada, &spent(15, 3_000_000), NOON).unwrap_err().to_string();
        assert_eq!(
            text,
            "the budget of ada for today is used up: 3.00 US dollars of 2.00 US dollars \
             (server.daily_budget.cost_usd) are spent, and more may be again in 12 h"
        );
    }

    #[test]
    fn a_person_has_a_budget_of_its_own_or_that_of_each() {
        let people = [("lea".to_owned(), budget(None, None))].into();
        let budgets = DailyBudgets { each: budget(Some(5), None), people };
        assert_eq!(budgets.of(&Principal("ada".into())).tokens, Some(5));
        assert_eq!(budgets.of(&Principal("lea".into())).tokens, None, "none means no limit");
        assert!(budgets.has_limits() && !DailyBudgets::default().has_limits());
    }

    #[test]
    fn a_run_may_spend_no_more_than_the_rest_of_the_day() {
        let limits = RunLimits { tokens: Some(300), cost_micro_usd: None, ..RunLimits::default() };
        let capped = budget(Some(1_000), Some(50)).cap(&spent(900, 20), &limits);
        assert_eq!((capped.tokens, capped.cost_micro_usd), (Some(100), Some(30)));
        let capped = budget(Some(1_000), None).cap(&spent(0, 0), &limits);
        assert_eq!((capped.tokens, capped.cost_micro_usd), (Some(300), None), "its own is less");
    }

    #[test]
    fn days_begin_at_midnight() {
        assert_eq!(Day::of(NOON), Day { from: Millis(10 * DAY), until: Millis(11 * DAY) });
        assert_eq!(Day::of(Millis(11 * DAY)).from, Millis(11 * DAY));
    }
}

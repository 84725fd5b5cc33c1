//! The amounts of a budget that a run cannot go on with: what was used, what is reserved, what the
//! next request needs, and what is left. The end of a run and the request for more say the same.

use super::Budget;

/// A budget with too little left for what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetShortfall {
    pub budget: Budget,
    /// The limit, in the budget's smallest unit: milliseconds, millionths of a dollar.
    pub limit: u64,
    /// The amount used.
    pub used: u64,
    /// The amount reserved for work under way.
    pub set_aside: u64,
    /// The least that the next request reserves, if the rest is less than that; `None` if nothing
    /// is left.
    pub needed: Option<u64>,
}

impl BudgetShortfall {
    /// One sentence for people, with the amounts.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { budget, limit, used, set_aside, needed } = *self;
        let (key, limit_text) = (budget.key(), budget.show(limit));
        let aside_text = match set_aside {
            0 => String::new(),
            amount => format!(", {} set aside", budget.show(amount)),
        };
        match (budget, needed) {
            (Budget::Wall, _) => format!("{}: {limit_text}", budget.reason()),
            (_, Some(needed)) => {
                let remaining = limit.saturating_sub(used).saturating_sub(set_aside);
                let used = match used {
                    0 => "nothing used".to_owned(),
                    amount => format!("{} used", budget.show(amount)),
                };
                format!(
                    "{key}: the next request reserves at least {}, and {} of {limit_text} are left ({used}{aside_text})",
                    budget.show(needed),
                    budget.show(remaining)
                )
            }
            (_, None) => {
                format!("{key} is used up: {} of {limit_text}{aside_text}", budget.show(used))
            }
        }
    }

    /// The reason of a run that ended for lack of the budget.
    #[must_use]
    pub fn reason(&self) -> String {
        let Self { budget, limit, used, needed, .. } = *self;
        // Of tokens and money more was used than allowed only if the amounts say so.
        let is_measured = matches!(budget, Budget::Tokens | Budget::Cost);
        if needed.is_some() || (is_measured && used <= limit) {
            return self.sentence();
        }
        match budget {
            Budget::Wall => budget.reason().to_owned(),
            budget => {
                format!("{}: {} of {}", budget.reason(), budget.show(used), budget.show(limit))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(budget: Budget, limit: u64, used: u64) -> BudgetShortfall {
        BudgetShortfall { budget, limit, used, set_aside: 0, needed: None }
    }

    #[test]
    fn a_reservation_that_does_not_fit_is_not_money_that_was_spent() {
        let first = BudgetShortfall { needed: Some(4_100), ..of(Budget::Cost, 300, 0) };
        assert_eq!(
            first.reason(),
            "limits.run.cost_usd: the next request reserves at least 0.0041 US dollars, and 0.0003 US dollars of 0.0003 US dollars are left (nothing used)"
        );
        let later =
            BudgetShortfall { set_aside: 50, needed: Some(90), ..of(Budget::Tokens, 200, 100) };
        assert_eq!(
            later.reason(),
            "limits.run.tokens: the next request reserves at least 90 tokens, and 50 tokens of 200 tokens are left (100 tokens used, 50 tokens set aside)"
        );
    }

    #[test]
    fn the_end_of_a_run_says_how_much_was_used() {
        let reasons = [
            (
                of(Budget::Tokens, 200, 231),
                "the run used more tokens than limits.run.tokens allows: 231 tokens of 200 tokens",
            ),
            (
                of(Budget::Tokens, 200, 200),
                "limits.run.tokens is used up: 200 tokens of 200 tokens",
            ),
            (
                of(Budget::Turns, 1, 1),
                "the run made as many steps as limits.run.turns allows: 1 step of 1 step",
            ),
            (of(Budget::Wall, 5, 5), "the run took longer than limits.run.wall allows"),
        ];
        for (shortfall, reason) in reasons {
            assert_eq!(shortfall.reason(), reason);
        }
    }
}

//! What a run and its turns used, and the status line of a silent turn.

use std::time::Duration;

use conclave_core::types::usage::Spent;

use crate::ui::show::amounts::{money, thousands, took_for};
use crate::ui::show::plural;
use crate::ui::show::tally::Counts;

/// The usage of a turn and of all turns: `1 234 tokens · $0.0012 · 3.4 s · 5 sandboxes`.
pub(crate) fn after_turn(turn: Counts, took: Duration, total: Counts, columns: usize) -> String {
    // Without a model, a token count says nothing.
    let used = if total.tokens == 0 { String::new() } else { format!("{} · ", spent(turn)) };
    let mut line =
        format!("  {used}{} · {}", took_for(took), plural(turn.sandboxes, "sandbox", "sandboxes"));
    let all = format!(" · all: {}", spent(total));
    // On the first turn both are equal, and a narrow terminal has room for the turn alone.
    if total.tokens > turn.tokens && line.chars().count() + all.chars().count() < columns {
        line.push_str(&all);
    }
    line
}

/// Returns the tokens and, if known, the cost. Some of them may be estimated.
pub(crate) fn spent(counts: Counts) -> String {
    let about = if counts.estimated > 0 { "about " } else { "" };
    let tokens = if counts.tokens == 1 {
        format!("{about}1 token")
    } else {
        format!("{about}{} tokens", thousands(counts.tokens))
    };
    match counts.cost() {
        Some(cost) => format!("{tokens} · {}", money(cost)),
        None => tokens,
    }
}

/// Returns the total usage of a resumed run; `None` if other processes used nothing.
pub(crate) fn in_all(spent: &Spent, counts: Counts) -> Option<String> {
    let before = spent.tokens.checked_sub(counts.tokens).filter(|tokens| *tokens > 0);
    before.map(|_| format!("in all {} tokens", thousands(spent.tokens)))
}

/// The status line of a silent turn: `thinking … 3 s · search.find`.
pub(crate) fn while_waiting(took: Duration, tools: &[String]) -> String {
    let working = if tools.is_empty() { "thinking" } else { "working" };
    let tools = if tools.is_empty() { String::new() } else { format!(" · {}", tools.join(", ")) };
    format!("{working} … {} s{tools} · Ctrl-C stops", took.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Spent, after_turn, in_all, while_waiting};
    use crate::ui::show::tally::Counts;

    fn counts(tokens: u64, cost: Option<u64>) -> Counts {
        let (unpriced, cost_micro_usd) = (u64::from(cost.is_none()), cost.unwrap_or_default());
        Counts { tokens, cost_micro_usd, unpriced, sandboxes: 5, ..Counts::default() }
    }

    #[test]
    fn a_turn_is_summed_up_in_one_line() {
        let took = Duration::from_millis(3400);
        let turn = counts(1234, Some(1200));
        assert_eq!(
            after_turn(turn, took, turn, 100),
            "  1 234 tokens · $0.0012 · 3.4 s · 5 sandboxes"
        );
        let long = Duration::from_secs(200);
        assert_eq!(
            after_turn(turn, long, turn, 100),
            "  1 234 tokens · $0.0012 · 3 min 20 s · 5 sandboxes"
        );
        let total = counts(5678, Some(5000));
        assert_eq!(
            after_turn(turn, took, total, 100),
            "  1 234 tokens · $0.0012 · 3.4 s · 5 sandboxes · all: 5 678 tokens · $0.0050"
        );
        assert!(!after_turn(turn, took, total, 50).contains("all"));
        assert_eq!(
            after_turn(counts(7, None), took, counts(7, None), 80),
            "  7 tokens · 3.4 s · 5 sandboxes"
        );
        let stopped = Counts { estimated: 319, ..counts(319, None) };
        assert_eq!(
            after_turn(stopped, took, stopped, 80),
            "  about 319 tokens · 3.4 s · 5 sandboxes"
        );
    }

    #[test]
    fn the_total_includes_usage_of_other_processes() {
        let spent = Spent { tokens: 5_787, ..Spent::default() };
        assert_eq!(in_all(&spent, counts(1_234, None)).as_deref(), Some("in all 5 787 tokens"));
        assert_eq!(in_all(&spent, counts(5_787, None)), None);
    }

    #[test]
    fn the_status_names_what_is_waited_for() {
        assert_eq!(
            while_waiting(Duration::from_millis(3900), &[]),
            "thinking … 3 s · Ctrl-C stops"
        );
        assert_eq!(
            while_waiting(Duration::from_secs(4), &["search.find".into()]),
            "working … 4 s · search.find · Ctrl-C stops"
        );
    }
}

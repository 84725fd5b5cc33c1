use proptest::prelude::*;

use super::*;

fn entries(list: &[(PromptRole, u64)]) -> Vec<HistoryEntry> {
    list.iter().map(|(role, text)| HistoryEntry { role: *role, text: *text, rest: 0 }).collect()
}

/// Returns a line for each entry, such as `0` or `1:30`.
fn describe(plan: &TruncationPlan) -> String {
    let entry = |retained: &RetainedEntry| match retained {
        RetainedEntry::Whole(index) => index.to_string(),
        RetainedEntry::Cut { index, tokens } => format!("{index}:{tokens}"),
    };
    format!("{} | {}", plan.output, plan.keep.iter().map(entry).collect::<Vec<_>>().join(" "))
}

/// C-104a, with the texts of the case; a token is a byte there.
#[test]
fn the_case_of_the_reference() {
    let padded = |text: &str, padding: usize| format!("{text}{}", "x".repeat(padding));
    let history = [
        (PromptRole::System, padded("System message", 0)),
        (PromptRole::User, padded("User message 1 ", 8000)),
        (PromptRole::Assistant, padded("Assistant reply 1", 0)),
        (PromptRole::User, padded("User message 2 ", 8000)),
        (PromptRole::Assistant, padded("Assistant reply 2", 0)),
        (PromptRole::User, padded("User message 3 ", 8000)),
        (PromptRole::Assistant, padded("Assistant reply 3", 0)),
        (PromptRole::User, padded("Final message", 0)),
    ];
    let entries: Vec<HistoryEntry> = history
        .iter()
        .map(|(role, text)| HistoryEntry { role: *role, text: tokens_of(text, 1), rest: 0 })
        .collect();
    let limits = Limits::new(16_000, 1000, 50, 1);
    let plan = fit(&entries, &limits, Overflow::Truncate).unwrap();
    let is_cut: Vec<bool> =
        plan.keep.iter().map(|retained| matches!(retained, RetainedEntry::Cut { .. })).collect();
    assert_eq!(is_cut, [false, true, false, true, false, true, false, false]);
    let sent: u64 = plan
        .keep
        .iter()
        .map(|retained| match retained {
            RetainedEntry::Whole(index) => tokens_of(&history[*index].1, 1),
            RetainedEntry::Cut { index, tokens } => {
                tokens_of(&cut(&history[*index].1, *tokens, 1), 1)
            }
        })
        .sum();
    assert_eq!(sent + plan.output + limits.reserve, limits.context);
    assert!((50..60).contains(&plan.output), "no more is cut than needed: {}", plan.output);
}

#[test]
fn the_answer_gives_way_first_then_the_history() {
    use PromptRole::{Assistant as A, System as S, Tool as T, User as U};
    let limits = Limits { context: 2000, max_output: 500, min_output: 100, reserve: 300, mark: 5 };
    let (cut, drop) = (Overflow::Truncate, Overflow::DropTurns);
    // Expected values come from the loop of the reference, run with these numbers.
    for (list, strategy, expected) in [
        (vec![(S, 500), (U, 1000)], cut, "500 | 0 1"),
        (vec![(S, 500), (U, 1001)], cut, "199 | 0 1"),
        (vec![(S, 600), (U, 1000)], cut, "100 | 0 1"),
        (vec![(S, 601), (U, 1000)], cut, "does not fit: 1601 > 1600"),
        (vec![(S, 100), (U, 1000), (A, 1000), (U, 100)], cut, "102 | 0 1:693 2:695 3"),
        (vec![(S, 100), (U, 1000), (A, 36), (U, 800)], cut, "101 | 0 1:658 2 3"),
        (
            vec![(S, 100), (U, 1000), (A, 60), (T, 1000), (U, 800)],
            cut,
            "102 | 0 1:539 2:30 3:114 4",
        ),
        (vec![(S, 1400), (U, 1000), (A, 35), (U, 130)], cut, "100 | 0 1:30 2 3"),
        (vec![(S, 1400), (U, 1000), (A, 35), (U, 131)], cut, "does not fit: 1601 > 1600"),
        (vec![(S, 100), (A, 1000), (T, 1000)], cut, "does not fit: 2100 > 1600"),
        (
            vec![(S, 100), (A, 500), (U, 600), (A, 600), (U, 300), (U, 300), (A, 10)],
            drop,
            "490 | 0 1 4 5 6",
        ),
        (vec![(S, 100), (U, 600), (T, 600), (U, 300), (U, 600), (A, 300)], drop, "400 | 0 3 4 5"),
        (vec![(S, 100), (U, 600), (A, 1), (U, 1600)], drop, "does not fit: 1700 > 1600"),
        (vec![(S, 1700), (A, 600)], drop, "does not fit: 2300 > 1600"),
        (vec![], drop, "500 | "),
    ] {
        let plan = fit(&entries(&list), &limits, strategy);
        let text = plan.map_or_else(
            |error| format!("does not fit: {} > {}", error.tokens, error.most),
            |plan| describe(&plan),
        );
        assert_eq!(text, expected, "{list:?}");
    }
    let tiny = Limits { context: 350, ..limits };
    assert!(fit(&entries(&[(S, 1)]), &tiny, cut).is_err(), "no room for any answer");
}

#[test]
fn cut_texts_say_so() {
    assert_eq!(cut("abcdefgh", 2, 4), "abcdefgh");
    assert_eq!(cut("abcdefghi", 2, 4), format!("abcdefgh\n{MARK}"));
    assert_eq!(cut("aéé", 2, 1), format!("a\n{MARK}"));
    assert_eq!(cut("ab", 1, 0), format!("a\n{MARK}"));
    assert_eq!(
        shortened(&"hello ".repeat(50), 10, 1),
        "hello hell\n[The result was cut to 10 tokens; ask for less at a time.]"
    );
    let once = retained("hello there", "p.my_tool", 2, 1);
    assert_eq!(once, "he\n[Of this result 2 tokens remain; for all of it call p.my_tool again.]");
    assert_eq!(retained(&once, "p.my_tool", 2, 1), once);
}

fn any_entry() -> impl Strategy<Value = HistoryEntry> {
    let role = prop::sample::select(vec![
        PromptRole::User,
        PromptRole::User,
        PromptRole::Assistant,
        PromptRole::Tool,
    ]);
    (role, prop_oneof![0..60u64, 0..2000u64], 0..20u64)
        .prop_map(|(role, text, rest)| HistoryEntry { role, text, rest })
}

proptest! {
    #[test]
    fn a_plan_fits_and_keeps_system_last_turn_and_order(
        mut entries in prop::collection::vec(any_entry(), 0..12),
        (context, max_output, min_output) in (0..6000u64, 0..1500u64, 0..300u64),
        by_turns in any::<bool>(),
    ) {
        entries.insert(0, HistoryEntry { role: PromptRole::System, text: 100, rest: 0 });
        let limits = Limits::new(context, max_output, min_output, 4);
        let strategy = if by_turns { Overflow::DropTurns } else { Overflow::Truncate };
        let Ok(plan) = fit(&entries, &limits, strategy) else { return Ok(()) };
        let index = |retained: &RetainedEntry| match retained { RetainedEntry::Whole(index) | RetainedEntry::Cut { index, .. } => *index };
        let sent: u64 = plan.keep.iter().map(|retained| match retained {
            RetainedEntry::Whole(index) => entries[*index].text + entries[*index].rest,
            RetainedEntry::Cut { index, tokens } => {
                let text = cut(&"x".repeat(entries[*index].text as usize * 4), *tokens, 4);
                tokens_of(&text, 4) + entries[*index].rest
            }
        }).sum();
        prop_assert!(sent + plan.output <= context);
        prop_assert!(plan.output >= min_output.min(max_output) && plan.output <= max_output);
        prop_assert!(plan.keep.is_sorted_by(|a, b| index(a) < index(b)));
        let last_user = entries.iter().rposition(|entry| entry.role == PromptRole::User).unwrap_or(0);
        prop_assert!(plan.keep.contains(&RetainedEntry::Whole(0)));
        prop_assert!((last_user..entries.len()).all(|index| plan.keep.contains(&RetainedEntry::Whole(index))));
        prop_assert!(by_turns || plan.keep.len() == entries.len());
        let floored = plan.keep.iter().all(|retained| !matches!(retained, RetainedEntry::Cut { tokens, .. } if *tokens < FLOOR));
        prop_assert!(floored);
    }
}

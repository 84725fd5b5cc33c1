use crate::room::state::stuck_watch::{ActWatch, MAX_KEPT, StuckWatch, WatchedAct};
use crate::types::stuck_rules::StuckRules;
use serde_json::json;

use super::*;

const FINE: StuckVerdict = StuckVerdict::Fine;

fn act(what: u64, result: u64) -> Act {
    Act::action([what, 0], [result, 0], false)
}

fn failed(what: u64, result: u64) -> Act {
    Act::action([what, 0], [result, 0], true)
}

fn say(what: u64) -> Act {
    Act::message([what, 0])
}

/// Returns the last verdict, and the number of the first act that was not fine.
fn watched(doings: &[Act], rules: &StuckRules) -> (StuckVerdict, Option<usize>) {
    let mut watch = ActWatch::default();
    let verdicts: Vec<StuckVerdict> =
        doings.iter().map(|doing| watch.record(doing, rules)).collect();
    (
        verdicts.last().cloned().unwrap_or(FINE),
        verdicts.iter().position(|verdict| *verdict != FINE).map(|at| at + 1),
    )
}

fn stuck(kind: StuckKind, repeats: u32) -> StuckVerdict {
    StuckVerdict::Stuck { kind, repeats }
}

#[test]
fn the_same_again_and_again_is_stuck_at_its_threshold() {
    let rules = StuckRules::default();
    let (a, b) = (act(1, 1), act(2, 2));
    for (doings, expected, at) in [
        (vec![a; 3], FINE, None),
        (vec![a; 4], stuck(StuckKind::SameResult, 4), Some(4)),
        // A different result, or a different action, is progress.
        (vec![a, a, act(1, 9), a, a, a], FINE, None),
        (vec![a, a, a, b, a], FINE, None),
        // Messages between do not count as acts.
        (vec![a, say(1), a, say(2), a, say(3), a], stuck(StuckKind::SameResult, 4), Some(7)),
        (vec![a, a, Act::condensation(), a, a], stuck(StuckKind::SameResult, 4), Some(5)),
        (vec![a, b, a, b, a], FINE, None),
        (vec![a, b, a, b, a, b], stuck(StuckKind::Alternating, 6), Some(6)),
        (vec![b, b, a, b, a, b, a], stuck(StuckKind::Alternating, 6), Some(7)),
        (vec![a, b, a, b, b, a, b, a], FINE, None),
        (vec![a, b, act(3, 3), a, b, act(3, 3), a, b, act(3, 3)], FINE, None),
        (vec![say(1); 2], FINE, None),
        (vec![say(1); 3], stuck(StuckKind::SameMessage, 3), Some(3)),
        (vec![say(1), say(1), a, say(1)], FINE, None),
        (vec![say(1), say(2), say(3), say(4)], FINE, None),
        (vec![Act::condensation(); 9], FINE, None),
        (vec![Act::condensation(); 10], stuck(StuckKind::OnlyCondensing, 10), Some(10)),
        (
            [vec![Act::condensation(); 9], vec![a], vec![Act::condensation(); 9]].concat(),
            FINE,
            None,
        ),
        // Any user message resets the counts.
        (vec![a, a, a, Act::user(), a, a, a], FINE, None),
        (vec![say(1), say(1), Act::user(), say(1)], FINE, None),
    ] {
        assert_eq!(watched(&doings, &rules), (expected, at), "{doings:?}");
    }
}

#[test]
fn errors_are_counted_whatever_they_say_and_the_agent_is_nudged_once() {
    let rules = StuckRules::default();
    let errors: Vec<Act> = (0..4).map(|text| failed(1, text)).collect();
    let mut watch = ActWatch::default();
    let verdicts: Vec<StuckVerdict> =
        errors.iter().map(|doing| watch.record(doing, &rules)).collect();
    assert_eq!(verdicts[..2], [FINE, FINE]);
    assert!(
        matches!(&verdicts[2], StuckVerdict::Nudge { repeats: 3, text } if text.contains("3 times")),
        "{verdicts:?}"
    );
    assert_eq!(verdicts[3], stuck(StuckKind::SameError, 4));
    // A message changes nothing and causes no second nudge. Another action, or a success, resets
    // the count.
    let mut watch = ActWatch::default();
    errors[..3].iter().for_each(|doing| drop(watch.record(doing, &rules)));
    assert_eq!(watch.record(&say(1), &rules), FINE);
    assert_eq!(watch.record(&errors[3], &rules), stuck(StuckKind::SameError, 4));
    for other in [failed(2, 0), act(1, 0)] {
        let doings = [errors[0], errors[1], errors[2], other, errors[0], errors[1]];
        assert_eq!(watched(&doings, &rules).0, FINE, "{other:?}");
    }
}

#[test]
fn thresholds_are_the_operators_and_zero_switches_one_off() {
    let a = act(1, 1);
    let rules =
        StuckRules { repeats: 2, errors: 3, messages: 0, alternations: 0, ..StuckRules::default() };
    assert_eq!(watched(&[a, a], &rules).0, stuck(StuckKind::SameResult, 2));
    assert!(matches!(
        watched(&[failed(1, 1), failed(1, 2)], &rules).0,
        StuckVerdict::Nudge { repeats: 2, .. }
    ));
    assert_eq!(watched(&[say(1); 50], &rules), (FINE, None));
    let turns: Vec<Act> = (0..50).map(|step| act(step % 2, step % 2)).collect();
    assert_eq!(watched(&turns, &rules), (FINE, None));
    assert_eq!(watched(&[a; 50], &StuckRules { on: false, ..rules }), (FINE, None));
    // The first error is never a loop.
    assert_eq!(watched(&[failed(1, 1)], &StuckRules { errors: 2, ..rules }), (FINE, None));
}

#[test]
fn a_watch_is_stored_and_goes_on_where_it_was() {
    let rules = StuckRules::default();
    let mut watch = ActWatch::default();
    (0..3).for_each(|_| drop(watch.record(&act(1, 1), &rules)));
    let stored = serde_json::to_string(&watch).unwrap();
    assert!(stored.len() < 400, "{stored}");
    let mut restored: ActWatch = serde_json::from_str(&stored).unwrap();
    assert_eq!(restored.record(&act(1, 1), &rules), stuck(StuckKind::SameResult, 4));
    let partial: StuckRules = serde_json::from_value(json!({ "errors": 7 })).unwrap();
    assert_eq!(partial, StuckRules { errors: 7, ..StuckRules::default() });
}

/// Returns a watch that saw these acts, whose messages are numbered from 0.
fn seen(doings: &[Act], rules: &StuckRules) -> StuckWatch {
    let mut watch = StuckWatch::default();
    for (seq, doing) in (0..).zip(doings) {
        drop(watch.saw(&WatchedAct { doing: *doing, seq, what: "".into() }, rules));
    }
    watch
}

#[test]
fn a_loop_began_with_the_first_of_its_acts() {
    let rules = StuckRules::default();
    let a = act(1, 1);
    let watch = seen(&[act(2, 2), a, say(1), a, say(1), a, a, say(1)], &rules);
    assert_eq!(watch.began(StuckKind::SameResult, 4), Some(1));
    assert_eq!(watch.began(StuckKind::Alternating, 2), Some(5));
    assert_eq!(watch.began(StuckKind::SameMessage, 2), Some(4));
    assert_eq!(watch.began(StuckKind::SameMessage, 99), Some(2), "the oldest that is known");
    assert_eq!(seen(&[say(1)], &rules).began(StuckKind::SameResult, 4), None);
}

#[test]
fn a_watch_remembers_no_more_acts_than_its_longest_rule_needs() {
    let acts: Vec<Act> = (0..1_000).map(|what| act(what, what)).collect();
    let longest = |errors| StuckRules { errors, ..StuckRules::default() };
    assert_eq!(seen(&acts, &longest(9)).acts.len(), 9);
    assert_eq!(seen(&acts, &longest(u32::MAX)).acts.len(), MAX_KEPT);
}

#[test]
fn a_word_of_the_user_forgets_all_but_the_restart() {
    let rules = StuckRules::default();
    let mut watch = StuckWatch { restarted: true, ..seen(&[act(1, 1), say(1)], &rules) };
    let word = WatchedAct { doing: Act::user(), seq: 9, what: "".into() };
    assert_eq!(watch.saw(&word, &rules), FINE);
    assert_eq!(watch, StuckWatch { restarted: true, ..StuckWatch::default() });
}

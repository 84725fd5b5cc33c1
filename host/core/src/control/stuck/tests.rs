use serde_json::{Value, json};

use super::pairs::{Pair, PairRules};
use super::sdk::{Detector, Seen, Thresholds};
use super::*;

const FINE: Verdict = Verdict::Fine;

fn act(what: u64, result: u64) -> Doing {
    Doing::act([what, 0], [result, 0], false)
}

fn failed(what: u64, result: u64) -> Doing {
    Doing::act([what, 0], [result, 0], true)
}

fn said(what: u64) -> Doing {
    Doing::message([what, 0])
}

/// What the last of them brings, and at which of them it was not fine for the first time.
fn watched(doings: &[Doing], rules: &StuckRules) -> (Verdict, Option<usize>) {
    let mut watch = Watch::default();
    let verdicts: Vec<Verdict> = doings.iter().map(|doing| watch.saw(doing, rules)).collect();
    (verdicts.last().cloned().unwrap_or(FINE), verdicts.iter().position(|verdict| *verdict != FINE).map(|at| at + 1))
}

fn stuck(kind: StuckKind, repeats: u32) -> Verdict {
    Verdict::Stuck { kind, repeats }
}

#[test]
fn the_same_again_and_again_is_stuck_at_its_threshold() {
    let rules = StuckRules::default();
    let (a, b) = (act(1, 1), act(2, 2));
    for (doings, expected, at) in [
        (vec![a; 3], FINE, None),
        (vec![a; 4], stuck(StuckKind::SameResult, 4), Some(4)),
        // Another result, or another action, is a step.
        (vec![a, a, act(1, 9), a, a, a], FINE, None),
        (vec![a, a, a, b, a], FINE, None),
        // What is said between is no deed.
        (vec![a, said(1), a, said(2), a, said(3), a], stuck(StuckKind::SameResult, 4), Some(7)),
        (vec![a, a, Doing::condensation(), a, a], stuck(StuckKind::SameResult, 4), Some(5)),
        (vec![a, b, a, b, a], FINE, None),
        (vec![a, b, a, b, a, b], stuck(StuckKind::Alternating, 6), Some(6)),
        (vec![b, b, a, b, a, b, a], stuck(StuckKind::Alternating, 6), Some(7)),
        (vec![a, b, a, b, b, a, b, a], FINE, None),
        (vec![a, b, act(3, 3), a, b, act(3, 3), a, b, act(3, 3)], FINE, None),
        (vec![said(1); 2], FINE, None),
        (vec![said(1); 3], stuck(StuckKind::SameMessage, 3), Some(3)),
        (vec![said(1), said(1), a, said(1)], FINE, None),
        (vec![said(1), said(2), said(3), said(4)], FINE, None),
        (vec![Doing::condensation(); 9], FINE, None),
        (vec![Doing::condensation(); 10], stuck(StuckKind::OnlyCondensing, 10), Some(10)),
        ([vec![Doing::condensation(); 9], vec![a], vec![Doing::condensation(); 9]].concat(), FINE, None),
        // Whatever it was, the user has said something.
        (vec![a, a, a, Doing::user(), a, a, a], FINE, None),
        (vec![said(1), said(1), Doing::user(), said(1)], FINE, None),
    ] {
        assert_eq!(watched(&doings, &rules), (expected, at), "{doings:?}");
    }
}

#[test]
fn errors_are_counted_whatever_they_say_and_the_agent_is_nudged_once() {
    let rules = StuckRules::default();
    let errors: Vec<Doing> = (0..4).map(|text| failed(1, text)).collect();
    let mut watch = Watch::default();
    let verdicts: Vec<Verdict> = errors.iter().map(|doing| watch.saw(doing, &rules)).collect();
    assert_eq!(verdicts[..2], [FINE, FINE]);
    assert!(matches!(&verdicts[2], Verdict::Nudge { repeats: 3, text } if text.contains("3 times")), "{verdicts:?}");
    assert_eq!(verdicts[3], stuck(StuckKind::SameError, 4));
    // A message changes nothing and nudges nobody again; another action, or a good result, does.
    let mut watch = Watch::default();
    errors[..3].iter().for_each(|doing| drop(watch.saw(doing, &rules)));
    assert_eq!(watch.saw(&said(1), &rules), FINE);
    assert_eq!(watch.saw(&errors[3], &rules), stuck(StuckKind::SameError, 4));
    for other in [failed(2, 0), act(1, 0)] {
        let doings = [errors[0], errors[1], errors[2], other, errors[0], errors[1]];
        assert_eq!(watched(&doings, &rules).0, FINE, "{other:?}");
    }
}

#[test]
fn thresholds_are_the_operators_and_zero_switches_one_off() {
    let a = act(1, 1);
    let rules = StuckRules { repeats: 2, errors: 3, messages: 0, alternations: 0, ..StuckRules::default() };
    assert_eq!(watched(&[a, a], &rules).0, stuck(StuckKind::SameResult, 2));
    assert!(matches!(watched(&[failed(1, 1), failed(1, 2)], &rules).0, Verdict::Nudge { repeats: 2, .. }));
    assert_eq!(watched(&[said(1); 50], &rules), (FINE, None));
    let turns: Vec<Doing> = (0..50).map(|step| act(step % 2, step % 2)).collect();
    assert_eq!(watched(&turns, &rules), (FINE, None));
    assert_eq!(watched(&[a; 50], &StuckRules { on: false, ..rules }), (FINE, None));
    // Nobody goes in a circle at the first error.
    assert_eq!(watched(&[failed(1, 1)], &StuckRules { errors: 2, ..rules }), (FINE, None));
}

#[test]
fn a_watch_is_stored_and_goes_on_where_it_was() {
    let rules = StuckRules::default();
    let mut watch = Watch::default();
    (0..3).for_each(|_| drop(watch.saw(&act(1, 1), &rules)));
    let stored = serde_json::to_string(&watch).unwrap();
    assert!(stored.len() < 400, "{stored}");
    let mut again: Watch = serde_json::from_str(&stored).unwrap();
    assert_eq!(again.saw(&act(1, 1), &rules), stuck(StuckKind::SameResult, 4));
    again.reset();
    assert_eq!(again, Watch::default());
    let partial: StuckRules = serde_json::from_value(json!({ "errors": 7 })).unwrap();
    assert_eq!(partial, StuckRules { errors: 7, ..StuckRules::default() });
}

fn run(command: &str, thought: &str) -> Value {
    json!({ "action": "run", "args": { "command": command, "thought": thought } })
}

fn ran(command: &str, pid: i64, exit: i64) -> Value {
    json!({ "observation": "run", "content": format!("{pid}"), "extras": { "command": command, "command_id": pid, "exit_code": exit } })
}

#[test]
fn pairs_are_compared_as_in_2024() {
    let stuck = |pairs: &[(Value, Value)]| {
        let pairs: Vec<Pair> = pairs.iter().map(|(action, result)| Pair::of(action, result)).collect();
        [PairRules::Pairs2024_06, PairRules::Pairs2024_07].map(|rules| pairs::find(rules, pairs.iter()).map(|kind| kind.as_str()))
    };
    let kill = |id: i64, thought: &str| json!({ "action": "kill", "args": { "command_id": id, "thought": thought } });
    let same = |count: i64| (0..count).map(|pid| (run("ls", ""), ran("ls", pid, 0))).collect::<Vec<_>>();
    assert_eq!(stuck(&same(2)), [None, None]);
    assert_eq!(stuck(&same(3)), [None, Some("repeating_action_observation")]);
    assert_eq!(stuck(&same(4)), [Some("repeating_action_observation"); 2]);
    let killed: Vec<_> = (0..4).map(|id| (kill(id, "t"), ran("srv", id, 0))).collect();
    assert_eq!(stuck(&killed), [Some("repeating_action_observation"); 2], "the number of what is killed is not looked at");
    let thoughts: Vec<_> = ["a", "b", "c", "d"].iter().map(|thought| (run("ls", thought), ran("ls", 1, 0))).collect();
    assert_eq!(stuck(&thoughts), [None; 2]);
    let errors: Vec<_> = (0..4).map(|text| (run("x", ""), json!({ "observation": "error", "content": text }))).collect();
    assert_eq!(stuck(&errors), [Some("repeating_action_error"); 2]);
    let turns: Vec<_> = (0..6).map(|at| (run(["a", "b"][at % 2], ""), ran(["a", "b"][at % 2], 1, 0))).collect();
    assert_eq!((stuck(&turns[..5]), stuck(&turns)), ([None; 2], [Some("repeating_action_observation_pattern"); 2]));
}

#[test]
fn edits_are_compared_by_their_first_lines_and_syntax_errors_by_theirs() {
    let cell = |code: &str| json!({ "action": "run_ipython", "args": { "code": code } });
    let output = |content: &str| json!({ "observation": "run_ipython", "content": content, "extras": { "code": "" } });
    let found = |pairs: &[(Value, Value)]| {
        let seen: Vec<_> = pairs.iter().flat_map(|(action, result)| [events::Seen::of(action), events::Seen::of(result)]).collect();
        events::find(&seen, true).map(|found| (found.kind.as_str(), found.repeats, found.start))
    };
    let edits = |lines: &str| (0..4).map(|at| (cell(&format!("edit_file_by_replace(\n{lines}{at}")), output("x"))).collect::<Vec<_>>();
    assert_eq!(found(&edits("a\nb\n")), Some(("repeating_action_observation", 4, 0)));
    assert_eq!(found(&edits("")), None, "two lines are not even the same as themselves");
    let ours = "[Jupyter current working directory: /w]\n[Jupyter Python interpreter: /p]";
    let unterminated = |line: u32| output(&format!("x\nSyntaxError: unterminated string literal (detected at line {line})\n{ours}"));
    let three = |results: [Value; 3]| results.map(|result| (cell("print('"), result));
    assert_eq!(found(&three([unterminated(1), unterminated(1), unterminated(1)])), Some(("repeating_action_error", 3, 0)));
    assert_eq!(found(&three([unterminated(1), unterminated(2), unterminated(1)])), None);
    let comma =
        |line: u32| output(&format!("  Cell In[1], line {line}\n1\n2\nSyntaxError: invalid syntax. Perhaps you forgot a comma?\n{ours}"));
    assert_eq!(found(&three([comma(1), comma(1), comma(1)])), Some(("repeating_action_error", 3, 0)));
    assert_eq!(found(&three([comma(1), comma(2), comma(1)])), None);
    assert_eq!(found(&three([comma(1), unterminated(1), comma(1)])), None);
}

#[test]
fn the_sdk_nudges_once_and_looks_at_twenty_events() {
    let bad = [Seen::Action([1, 0]), Seen::AgentError([1, 0])];
    let mut log = bad.repeat(2);
    let mut detector = Detector::default();
    assert_eq!((detector.nudge(&log), detector.find(&log)), (None, None));
    log.extend(bad);
    assert_eq!((detector.nudge(&log), detector.nudge(&log), detector.find(&log)), (Some(3), None, None));
    log.push(Seen::OtherMessage);
    log.extend(bad);
    assert_eq!(detector.nudge(&log), None);
    assert_eq!(detector.find(&log).map(sdk::LoopKind::as_str), Some("repeating_action_observation"));
    let other_text: Vec<Seen> = (0..4).flat_map(|text| [Seen::Action([1, 0]), Seen::AgentError([text, 0])]).collect();
    assert_eq!(Detector::default().find(&other_text).map(sdk::LoopKind::as_str), Some("repeating_action_error"));
    let messages = [Seen::AgentMessage, Seen::CondensationSummary, Seen::AgentMessage, Seen::AgentMessage];
    assert_eq!(Detector::default().find(&messages).map(sdk::LoopKind::as_str), Some("monologue"));
    assert_eq!(Detector::default().find(&[messages[0], messages[0], bad[0], messages[0]]), None);
    let turns: Vec<Seen> = (0..6).flat_map(|at| [Seen::Action([at % 2, 0]), Seen::Observation([at % 2, 0])]).collect();
    assert_eq!(Detector::default().find(&turns).map(sdk::LoopKind::as_str), Some("repeating_action_observation_pattern"));
    log.push(Seen::UserMessage);
    assert_eq!(Detector::default().find(&log), None);
    // Four of the same, of which the window shows three.
    let good = [Seen::Action([7, 0]), Seen::Observation([7, 0])];
    let wide = [&good[..], &[Seen::Other; 15], &good.repeat(3)[..]].concat();
    assert_eq!(Detector::default().find(&wide), None);
    let strict = Thresholds { action_observation: 3, ..Thresholds::default() };
    assert!(Detector::new(strict).find(&wide).is_some());
    assert!(sdk::nudge_text("terminal", 3, "no such file").contains("`terminal`"));
}

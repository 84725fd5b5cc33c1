//! Steps in which no agent and no user answers: their number is limited, whatever the host asks
//! approvers and plugins in them.

use conclave_core::types::outcome::{Outcome, Status};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use serde_json::{Value, json};

use crate::arbitrary::{Choices, case_json};
use crate::case::Case;
use crate::checks::violations;
use crate::properties::{answered_case, config};

/// Answers of an operator for an absent user, most of which are calls.
const DEFAULT_ANSWERS: [&str; 10] = [
    r#"{"request": "box.a"}"#,
    r#"{"request": "safe.open"}"#,
    r#"{"request": "delegate_task", "agent": "slow", "task": "x"}"#,
    r#"{"request": "agent_send", "to": "help", "content": "x"}"#,
    r#"{"request": "forward", "agent": "llm"}"#,
    r#"{"request": "box.b"} and {"request": "box.a"}"#,
    r#"{"request": "handoff_conversation", "agent": "help"}"#,
    "__PASS__",
    "__SEND__:mute look",
    "go on",
];

/// Returns the outcome of a room whose user always gives this answer. All that the host asks is
/// answered with nothing, a fault or a refusal.
fn outcome(answer: &str, mut setup: Value) -> Outcome {
    let task = &mut setup["tasks"]["desk"];
    task["interactive"] = json!(true);
    task["default_human_response"] = json!(answer);
    task["text_rules"] = json!({ "calls": true });
    setup["plugins"]["desk"] = json!({ "grants": { "tools": ["*"] } });
    setup["plugins"]["box"] = json!({ "tools": ["a"] });
    setup["plugins"]["judge"] = json!({ "kinds": ["security-analyzer"] });
    let case = json!({ "name": "by hand", "setup": setup, "input": answer, "expect": {} });
    let case: Case = serde_json::from_value(case).expect("a case of the right form");
    let recorded = answered_case(&case, &mut Choices::new(&[]), 20_000);
    assert_eq!(recorded.room.outcome().map(|outcome| outcome.spent.turns), Some(0));
    Outcome::clone(recorded.room.outcome().expect("it is over"))
}

#[test]
fn a_default_answer_whose_call_is_always_refused_ends_the_run() {
    let confirm = json!({ "tasks": { "desk": { "confirm": { "policy": "always" } } } });
    let outcome = outcome(DEFAULT_ANSWERS[0], confirm);
    assert_eq!(outcome.status, Status::InfLoop, "{outcome:?}");
}

#[test]
fn a_default_answer_whose_call_is_always_judged_ends_the_run() {
    let risky = json!({ "risky": { "threshold": "low", "unknown": true } });
    let confirm = json!({ "policy": risky, "analyzer": "judge" });
    let outcome =
        outcome(DEFAULT_ANSWERS[0], json!({ "tasks": { "desk": { "confirm": confirm } } }));
    assert_eq!(outcome.status, Status::InfLoop, "{outcome:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 4,
        max_shrink_iters: 50,
        ..config()
    })]

    #[test]
    fn a_room_whose_user_has_a_default_answer_ends(
        row in vec(any::<u16>(), 0..1_500),
        answers in vec(0..DEFAULT_ANSWERS.len(), 5),
        detects in any::<bool>(),
    ) {
        let mut choices = Choices::new(&row);
        let mut case = case_json(&mut choices);
        let tasks = case["setup"]["tasks"].as_object_mut().expect("it has tasks");
        for (task, answer) in tasks.values_mut().zip(answers) {
            task["interactive"] = json!(true);
            task["default_human_response"] = json!(DEFAULT_ANSWERS[answer]);
            task["text_rules"]["calls"] = json!(true);
            if !detects {
                task["loop_detection"]["cycle_len"] = json!(0);
                task["stuck_detection"]["on"] = json!(false);
            }
        }
        let case: Case = serde_json::from_value(case).expect("a case of the right form");
        let recorded = answered_case(&case, &mut choices, 40_000);
        prop_assert!(recorded.room.outcome().is_some(), "{:?}", recorded.room.calls_in_flight().collect::<Vec<_>>());
        prop_assert_eq!(violations(&recorded.room, &recorded.records), Vec::<String>::new());
    }
}

//! The cases of `tests/data/room`, one test for each file.

use serde_json::Value;

use crate::case::Case;
use crate::checks::{changes_when_told_again, violations};
use crate::matching::difference;
use crate::world::{Order, World};

/// Returns the problems of a case performed in this order.
fn problems_of(case: &Case, order: &Value) -> Vec<String> {
    let mut world = World::new(case, Order::parse(order));
    world.run();
    let outcome = serde_json::to_value(world.room.outcome()).expect("an outcome is serialisable");
    let seen = world.seen.report(&outcome, &world.state(), world.hours());
    let mut problems: Vec<String> = difference(&case.expect, &seen).into_iter().collect();
    problems.extend(violations(&world.room, &world.records));
    problems.extend(changes_when_told_again(&world.room, &world.records));
    if world.room.outcome().is_none() != case.goes_on {
        problems.push(format!("the room {}", if case.goes_on { "is over" } else { "goes on" }));
    }
    if world.finishes != usize::from(world.room.outcome().is_some()) {
        problems.push(format!("{} times finished", world.finishes));
    }
    let mut started = world.started.clone();
    started.sort_unstable();
    started.dedup();
    if started.len() != world.started.len() {
        problems.push("a call was started twice".to_owned());
    }
    problems
}

fn check(text: &str) {
    let cases: Vec<Case> = serde_json::from_str(text).expect("the file holds a list of cases");
    assert!(!cases.is_empty(), "the file holds no case");
    let mut report = String::new();
    for case in &cases {
        assert!(!case.rules.is_empty() || !case.name.is_empty(), "a case has a name");
        eprintln!("case: {}", case.name);
        for order in &case.orders {
            for problem in problems_of(case, order) {
                report += &format!("\n- {} (order {order})\n    {problem}", case.name);
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

macro_rules! files {
    ($($(#[$doc:meta])* $name:ident: $file:literal,)+) => {
        /// Every file of cases: its name and its text.
        pub(crate) const FILES: &[(&str, &str)] =
            &[$(($file, include_str!(concat!("../../../../tests/data/room/", $file, ".json")))),+];

        $($(#[$doc])* #[test]
        fn $name() {
            check(include_str!(concat!("../../../../tests/data/room/", $file, ".json")));
        })+
    };
}

files! {
    what_is_risky_waits_for_consent: "confirm",
    histories_are_condensed_before_a_step: "condense",
    what_a_user_says_calls_for_knowledge: "knowledge",
    calls_wait_for_whoever_approves_them: "approvals",
    a_turn_can_be_stopped_without_its_run: "turns",
    roles_are_asked_in_order_until_one_answers_validly: "responders",
    subtasks_get_the_message_and_hand_back_a_result: "subtasks",
    recipients_are_checked_granted_and_obeyed: "recipients",
    tasks_end_for_a_stated_reason: "endings",
    the_user_alone_ends_an_interactive_task: "user",
    a_judge_overrules_the_host_and_people_may_be_simulated: "judging",
    texts_between_tasks_and_to_people_pass_their_gates: "passages",
    tools_run_at_once_and_answer_in_order: "tools",
    calls_that_follow_from_tools_are_bounded: "chains",
    faults_are_observations_until_there_are_too_many: "faults",
    delegated_work_comes_back_as_an_observation: "delegate",
    several_delegates_work_at_once_unless_they_could_meet: "delegates",
    executors_carry_out_actions_and_none_is_an_observation: "acting",
    an_agent_plans_and_reads_what_was_wrong: "planning",
    an_agent_that_does_the_same_again_and_again_is_led_back: "stuck",
    the_state_of_each_agent_is_told_once: "agent_states",
    background_tasks_are_granted_bounded_and_settled: "background",
    results_are_told_once: "delivery",
    stopping_abandons_everything_in_flight: "stopping",
    nobody_does_by_way_of_others_what_was_not_granted: "leave",
    a_task_takes_away_from_what_was_granted: "scope",
    model_calls_are_granted_and_paid_for: "models",
    budgets_are_set_aside_settled_and_topped_up: "budgets",
    prompts_and_answers_have_the_form_of_the_task: "formats",
    steps_see_what_came_since_the_last_one: "views",
}

//! A user who speaks, and a phone that refuses.
use conclave_harness::Harness;
use conclave_sdk::delivery::{Activity, DeliveryStrategy};

use super::Polite;

#[test]
fn it_waits_for_the_user_and_for_the_phone() {
    let report = Harness::new(Polite::decide)
        .voice("phone", 2_000) // a phone that is busy for 2 s when it says something
        .activity("phone", Activity::UserSpeaking)
        .at(300)
        .completes("task-1", "48 metres")
        .at(900)
        .refuses("phone", 2) // the next two messages are not accepted
        .at(1_000)
        .completes("task-2", "in 1844")
        .at(5_000)
        .activity("phone", Activity::Idle)
        .run();
    report.check().unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(report.delivered_at("task-1"), Some(8_000)); // tried at 5 s and 6 s, and taken at 8 s
}

#[test]
fn a_thousand_results_are_two_turns() {
    let report = Harness::new(Polite::decide).voice("phone", 2_000).burst("task", 1_000).run();
    report.check().unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(report.delivered.len(), 2); // the first one, and all that came while it was said
}

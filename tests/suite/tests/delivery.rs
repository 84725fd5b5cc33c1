//! Background tasks and the strategies that deliver their results.

use conclave_core::config::ProblemCode;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::fault::FaultKind;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Ran, Rig, guest};

/// Returns the config of a coordinator with a background task and a question. The strategy is the
/// subject.
fn config(strategy: &str, grants: &str) -> String {
    format!(
        r#"
entry = "desk"
[plugins.coordinator]
source = "{coordinator}"
grants.route = ["answer"]
grants.delegate = ["digest"]
[plugins.echo]
source = "{echo}"
[plugins.strategy]
source = "{strategy}"
{grants}
[tasks.desk]
agent = "coordinator"
subtasks = ["answer"]
[tasks.answer]
agent = "echo"
[tasks.digest]
agent = "echo"
delivery_strategy = "strategy"
"#,
        coordinator = guest("coordinator").display(),
        echo = guest("agent_echo").display(),
    )
}

fn with_guest(name: &str, grants: &str) -> String {
    config(&guest(name).display().to_string(), grants)
}

fn not_delivered(ran: &Ran) -> Vec<String> {
    let reason = |notice: &Notice| match notice {
        Notice::NotDelivered { reason, .. } | Notice::DeadLetter { reason, .. } => {
            Some(reason.clone())
        }
        _ => None,
    };
    ran.notices().filter_map(reason).collect()
}

const TERMINAL: &str = r#"grants.channels = ["terminal"]"#;

#[test]
fn immediate_brings_a_background_result_to_the_terminal_once() {
    let ran = Rig::new().run(&config("stock:immediate", TERMINAL), "hello");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "hello"));
    let heard: Vec<(&str, &str)> =
        ran.heard.iter().map(|(channel, text)| (channel.as_str(), text.as_str())).collect();
    assert_eq!(heard, [("terminal", "Digest the folder.")]);
    assert_eq!(ran.rooms().iter().map(ToString::to_string).collect::<Vec<_>>(), ["test", "test/1"]);
}

#[test]
fn a_strategy_that_cannot_do_without_its_grant_is_refused_at_load() {
    let problems = conclave_test_support::refused(&Rig::new(), &config("stock:immediate", ""));
    assert_eq!(problems.codes(), [ProblemCode::MissingGrant], "{problems}");
    assert!(problems.to_string().contains("grants.channels"), "{problems}");
}

#[test]
fn a_channel_that_takes_nothing_is_tried_again_and_then_given_up() {
    let ran = Rig::new().with_deaf_channel().run(&config("stock:immediate", TERMINAL), "hello");
    assert_eq!(ran.status(), Status::Done);
    assert_eq!(not_delivered(&ran).len(), 1, "{:?}", not_delivered(&ran));
    assert!(ran.heard.is_empty());
}

#[test]
fn a_strategy_that_spins_is_stopped_and_the_result_stays_in_the_inbox() {
    let ran = Rig::new().run(
        &with_guest(
            "strategy_spin",
            "limits = { cpu = \"50 ms\" }\ngrants.channels = [\"terminal\"]",
        ),
        "hello",
    );
    assert_eq!((ran.status(), ran.plugin_faults()), (Status::Done, vec![FaultKind::Cpu]));
    assert!(not_delivered(&ran)[0].contains("strategy failed"), "{:?}", not_delivered(&ran));
}

#[test]
fn a_strategy_that_decides_nothing_leaves_a_word_at_the_end() {
    let ran = Rig::new().run(&with_guest("strategy_silent", TERMINAL), "hello");
    assert_eq!(ran.status(), Status::Done);
    assert!(not_delivered(&ran)[0].contains("had not decided"), "{:?}", not_delivered(&ran));
}

#[test]
fn a_strategy_cannot_speak_on_another_channel() {
    let ran = Rig::new().run(&with_guest("strategy_foreign_channel", TERMINAL), "hello");
    assert!(ran.heard.is_empty());
    let denials = ran.denials();
    assert!(
        denials
            .iter()
            .any(|record| record.denial.capability == "channels" && record.denial.target == "vault"),
        "{denials:?}"
    );
}

#[test]
fn a_strategy_cannot_speak_about_a_task_that_does_not_wait() {
    let ran = Rig::new().run(&with_guest("strategy_unknown_task", TERMINAL), "hello");
    assert!(ran.heard.is_empty());
    assert_eq!(not_delivered(&ran).len(), 1);
}

//! Gates with real components: messages that pass, are changed or are blocked. A misbehaving gate
//! blocks, and delays nothing for longer than its deadline (R-009, R-118).

use conclave_core::config::ProblemCode;
use conclave_core::protocol::notice::Notice;
use conclave_core::setup::GatePoint;
use conclave_core::types::fault::FaultKind;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Ran, Rig, guest, refused};

/// Returns the config of a coordinator with a background task and a question. `gates` contains
/// tables, `limits` lines of the gate's plugin.
fn config(mode: &str, gates: &str, limits: &str) -> String {
    format!(
        r#"
entry = "desk"
[plugins.coordinator]
source = "{coordinator}"
grants.route = ["answer"]
grants.delegate = ["digest"]
[plugins.echo]
source = "{echo}"
[plugins.immediate]
source = "stock:immediate"
grants.channels = ["terminal"]
[plugins.guard]
source = "{gate}"
config = {{ mode = "{mode}" }}
{limits}
[tasks.desk]
agent = "coordinator"
subtasks = ["answer"]
[tasks.answer]
agent = "echo"
[tasks.digest]
agent = "echo"
delivery_strategy = "immediate"
{gates}
"#,
        coordinator = guest("coordinator").display(),
        echo = guest("agent_echo").display(),
        gate = guest("hostile_gate").display(),
    )
}

const DELEGATE: &str = "[[gates]]\non = \"delegate\"\nplugin = \"guard\"\ndeadline = \"20 s\"\n";
const DELIVER: &str = "[[gates]]\non = \"deliver\"\nplugin = \"guard\"\ndeadline = \"20 s\"\n";

fn heard(ran: &Ran) -> Vec<&str> {
    ran.heard.iter().map(|(_, text)| text.as_str()).collect()
}

/// Returns the blocked messages and tasks with the reasons.
fn blocked(ran: &Ran) -> Vec<(GatePoint, String)> {
    let reason = |notice: &Notice| match notice {
        Notice::GateBlocked { point, reason, .. } => Some((*point, reason.clone())),
        _ => None,
    };
    ran.notices().filter_map(reason).collect()
}

fn begun(ran: &Ran) -> usize {
    ran.notices().filter(|notice| matches!(notice, Notice::BackgroundStarted { .. })).count()
}

#[test]
fn what_a_gate_lets_pass_goes_on_as_it_was() {
    let ran = Rig::new().run(&config("allow", &format!("{DELEGATE}{DELIVER}"), ""), "hello");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "hello"));
    assert_eq!((heard(&ran), blocked(&ran)), (vec!["Digest the folder."], Vec::new()));
}

#[test]
fn a_gate_changes_what_a_worker_is_told_and_what_is_said() {
    for gates in [DELEGATE, DELIVER] {
        let ran = Rig::new().run(&config("modify", gates, ""), "hello");
        assert_eq!(heard(&ran), ["Digest the drawer."], "{gates}");
        assert_eq!(
            ran.notices().filter(|notice| matches!(notice, Notice::GateModified { .. })).count(),
            1,
            "{gates}"
        );
    }
}

#[test]
fn a_gate_that_blocks_a_delegation_starts_nothing_and_the_rest_goes_on() {
    let ran = Rig::new().run(&config("block", DELEGATE, ""), "hello");
    assert_eq!((ran.status(), ran.content(), begun(&ran)), (Status::Done, "hello", 0));
    assert_eq!(
        blocked(&ran),
        [(GatePoint::Delegate, "gate guard blocked it: it is blocked here".to_owned())]
    );
}

#[test]
fn a_gate_that_blocks_a_delivery_leaves_nothing_said() {
    let ran = Rig::new().run(&config("block", DELIVER, ""), "hello");
    assert_eq!((ran.status(), ran.content(), begun(&ran)), (Status::Done, "hello", 1));
    assert!(heard(&ran).is_empty(), "{:?}", ran.heard);
    assert!(
        blocked(&ran).iter().all(|(point, _)| *point == GatePoint::Deliver)
            && !blocked(&ran).is_empty()
    );
}

#[test]
fn a_gate_sees_who_asks_whom_for_what() {
    let ran = Rig::new().run(&config("show", DELEGATE, ""), "hello");
    let [(_, reason)] = &blocked(&ran)[..] else { panic!("{:?}", blocked(&ran)) };
    for part in [
        "Point::Delegate",
        "None",
        "Some(\"desk\")",
        "Some(\"digest\")",
        "Digest the folder.",
        "\"share_channels\":[]",
    ] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
}

#[test]
fn a_gate_that_misbehaves_blocks_and_nothing_else_stops() {
    for (mode, limits, kind, expected) in [
        ("spin", "limits.cpu = \"50 ms\"", FaultKind::Cpu, "gate guard failed"),
        ("trap", "", FaultKind::Panic, "the gate panics"),
        ("refuse", "", FaultKind::Error, "it was refused fetch"),
        ("fail", "", FaultKind::Error, "the gate does not know"),
        ("huge", "", FaultKind::Output, "gate guard failed"),
        ("nothing", "", FaultKind::BadAnswer, "changed the text to nothing"),
    ] {
        let ran = Rig::new().run(&config(mode, DELEGATE, limits), "hello");
        assert_eq!(
            (ran.status(), ran.content(), begun(&ran)),
            (Status::Done, "hello", 0),
            "{mode}"
        );
        let [(GatePoint::Delegate, reason)] = &blocked(&ran)[..] else {
            panic!("{mode}: {:?}", blocked(&ran))
        };
        assert!(
            reason.starts_with("gate guard failed: ")
                && reason.contains(expected)
                && reason.len() < 5_000,
            "{mode}: {reason}"
        );
        assert_eq!(ran.plugin_faults(), [kind], "{mode}");
    }
}

#[test]
fn a_gate_that_spins_is_cut_off_at_its_deadline() {
    let gates = "[[gates]]\non = \"delegate\"\nplugin = \"guard\"\ndeadline = \"30 ms\"\n";
    // The deadline is the only limit that can stop the gate in time.
    let ran = Rig::new()
        .run(&config("spin", gates, "limits = { cpu = \"5 min\", wall = \"5 min\" }"), "hello");
    assert_eq!((ran.status(), ran.content(), begun(&ran)), (Status::Done, "hello", 0));
    assert_eq!(
        blocked(&ran),
        [(
            GatePoint::Delegate,
            "gate guard failed: it gave no answer within 30 ms (gates: `deadline`)".to_owned()
        )]
    );
    assert_eq!(ran.plugin_faults(), [FaultKind::Wall]);
}

#[test]
fn a_gate_opens_no_file_that_it_was_not_granted() {
    let ran = Rig::new().run(&config("files", DELEGATE, ""), "hello");
    assert_eq!((ran.status(), begun(&ran)), (Status::Done, 0));
    let [(_, reason)] = &blocked(&ran)[..] else { panic!("{:?}", blocked(&ran)) };
    assert!(reason.contains("it was refused files"), "{reason}");
    let denied = ran.notices().any(|notice| matches!(notice, Notice::Denied { plugin, record, .. } if plugin.as_str() == "guard" && record.denial.capability == "files"));
    assert!(denied, "the operator learns of it");
}

const SUBTASK: &str = "[[gates]]\non = \"subtask\"\nplugin = \"guard\"\ndeadline = \"20 s\"\n";
const OUTBOUND: &str = "[[gates]]\non = \"outbound\"\nplugin = \"guard\"\ndeadline = \"20 s\"\n";

#[test]
fn a_gate_between_tasks_sees_who_calls_whom_and_what_it_blocks_reaches_nobody() {
    let ran = Rig::new().run(&config("show", SUBTASK, ""), "hello");
    let reasons: Vec<String> = blocked(&ran).into_iter().map(|(_, reason)| reason).collect();
    let of = |part: &str| reasons.iter().filter(|reason| reason.contains(part)).count();
    assert_eq!(of(r#"Subtask None Some("desk") Some("answer") hello"#), 1, "{reasons:?}");
    // The result of the background task leaves its room through the same gate.
    assert_eq!(of(r#"Subtask None Some("digest") None Digest the folder."#), 1, "{reasons:?}");
    let started = ran.notices().any(
        |notice| matches!(notice, Notice::StepStarted { task, .. } if task.as_str() == "answer"),
    );
    assert!(!started, "the sub-task got the message");
}

#[test]
fn an_answer_that_a_gate_blocks_reaches_nobody() {
    let ran = Rig::new().run(&config("show", OUTBOUND, ""), "hello");
    let mut reasons: Vec<String> = blocked(&ran).into_iter().map(|(_, reason)| reason).collect();
    reasons.sort();
    // The worker's answer would be heard on the terminal, which is shared with it.
    let answers = [r#"Some("desk") None hello "#, r#"Some("digest") None Digest the folder. "#];
    for (reason, answer) in reasons.iter().zip(answers) {
        assert!(reason.contains(&format!(r#"Outbound Some("terminal") {answer}"#)), "{reason}");
    }
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert_eq!((ran.status(), ran.content()), (Status::Error, ""), "{:?}", ran.outcome);
    for mode in ["spin", "trap", "refuse", "fail", "huge", "nothing"] {
        let limits = "limits = { cpu = \"200 ms\" }";
        let ran = Rig::new().run(&config(mode, OUTBOUND, limits), "hello");
        assert_eq!((ran.status(), ran.content()), (Status::Error, ""), "{mode}");
    }
    let passed = Rig::new().run(&config("allow", OUTBOUND, ""), "hello");
    assert_eq!((passed.status(), passed.content()), (Status::Done, "hello"));
    let changed = Rig::new().run(&config("modify", OUTBOUND, ""), "the folder");
    assert_eq!((changed.status(), changed.content()), (Status::Done, "the drawer"));
}

#[test]
fn a_plugin_that_is_no_gate_is_refused_before_anything_runs() {
    let text = config("allow", "[[gates]]\non = \"delegate\"\nplugin = \"echo\"\n", "");
    let problems = refused(&Rig::new(), &text);
    assert_eq!(problems.codes(), [ProblemCode::WrongPluginKind], "{problems}");
}

#[test]
fn the_stock_gate_blocks_and_changes_by_patterns() {
    let rules = |pattern: &str, does: &str| {
        let config = config("", DELEGATE, "");
        let hostile = guest("hostile_gate").display().to_string();
        let config = config.replace(&hostile, "stock:moderation");
        let rule = format!("config = {{ rules = [{{ pattern = \"{pattern}\", {does} }}] }}");
        config.replace("config = { mode = \"\" }", &rule)
    };
    let changed = Rig::new().run(&rules("(FOLDER)", "replace = \"$1 again\""), "hello");
    assert_eq!(heard(&changed), ["Digest the folder again."]);
    let stopped = Rig::new().run(&rules("digest +the", "reason = \"no digests\""), "hello");
    assert_eq!(
        blocked(&stopped),
        [(GatePoint::Delegate, "gate guard blocked it: no digests".to_owned())]
    );
    let wrong = Rig::new().run(&rules("(", "reason = \"x\""), "hello");
    assert_eq!(blocked(&wrong).len(), 1, "a gate that fails blocks");
}

/// Returns the config of a coordinator whose question to a sub-task, and whose answer, pass
/// `stock:moderation` with these rules at one point.
fn moderated(point: &str, rules: &str) -> String {
    format!(
        r#"
entry = "desk"
[plugins.coordinator]
source = "{coordinator}"
grants.route = ["answer"]
[plugins.echo]
source = "{echo}"
[plugins.moderation]
source = "stock:moderation"
config = {{ rules = [{rules}] }}
[tasks.desk]
agent = "coordinator"
subtasks = ["answer"]
[tasks.answer]
agent = "echo"
[[gates]]
on = "{point}"
plugin = "moderation"
"#,
        coordinator = guest("coordinator").display(),
        echo = guest("agent_echo").display(),
    )
}

#[test]
fn what_tasks_say_to_each_other_and_to_people_passes_its_gates() {
    let hide = r#"{ pattern = "\\d{4}", replace = "…" }"#;
    for point in ["subtask", "outbound"] {
        let ran = Rig::new().run(&moderated(point, hide), "call 1234");
        assert_eq!((ran.status(), ran.content()), (Status::Done, "call …"), "{point}");
        let changed = |notice: &&Notice| matches!(notice, Notice::GateModified { .. });
        // The message to the sub-task has no number left, so its result is not changed again.
        assert_eq!(ran.notices().filter(changed).count(), 1, "{point}");
    }
    let block = r#"{ pattern = "secret", reason = "no secrets" }"#;
    let ran = Rig::new().run(&moderated("outbound", block), "a secret");
    let reason = "gate moderation blocked it: no secrets".to_owned();
    assert_eq!((ran.status(), ran.content()), (Status::Error, ""));
    assert_eq!(blocked(&ran), [(GatePoint::Outbound, reason)]);
    let ran = Rig::new().run(&moderated("subtask", block), "a secret");
    assert!(!ran.content().contains("a secret"), "{}", ran.content());
    assert!(blocked(&ran).iter().all(|(point, _)| *point == GatePoint::Subtask));
}

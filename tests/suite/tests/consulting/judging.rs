//! Judges and simulated users with real components: what they decide holds, and whatever goes wrong
//! in them ends the task instead of passing for a decision.

use conclave_core::config::ProblemCode;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::fault::FaultKind;
use conclave_core::types::message::Role;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Ran, Rig, guest, refused, stepping};

/// Returns the config of an agent, with a plugin of this source in `key` of its task.
fn with(agent: &str, key: &str, source: &str, plugin: &str, task: &str) -> String {
    let task = format!("{key} = \"app\"\n{task}");
    format!("{}[plugins.app]\nsource = \"{source}\"\n{plugin}\n", stepping(agent, "", &task))
}

/// Returns the same with a hostile guest, which may compute for 200 ms and return 8 MiB.
fn hostile(agent: &str, key: &str, guest_name: &str, mode: &str, task: &str) -> String {
    let source = guest(guest_name).display().to_string();
    let plugin = format!(
        "config = {{ mode = \"{mode}\" }}\nlimits = {{ cpu = \"200 ms\", output = \"8 MiB\" }}"
    );
    with(agent, key, &source, &plugin, task)
}

/// Returns the config of a chat with scripted replies, and a plugin of this source in `key`.
fn chat(key: &str, source: &str, settings: &str, task: &str) -> String {
    format!(
        r#"
entry = "desk"
[models.default]
kind = "scripted"
replies = "replies.json"
[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
[plugins.app]
source = "{source}"
config = {{ {settings} }}
[tasks.desk]
agent = "chat"
{key} = "app"
{task}
"#
    )
}

fn replying(replies: &str) -> Rig {
    Rig::new().with_file("replies.json", format!("{{\"replies\": {replies}}}"))
}

/// Returns the rulings that differ from the host's, each with the responder, such as
/// `llm: valid Some(false), done None`, and the number of replaced results.
fn overruled(ran: &Ran) -> (Vec<String>, usize) {
    let ruling = |notice: &Notice| match notice {
        Notice::AnswerOverruled { responder, ruling, .. } => {
            Some(format!("{responder}: valid {:?}, done {:?}", ruling.valid, ruling.is_done))
        }
        _ => None,
    };
    let replaced = |notice: &&Notice| matches!(notice, Notice::ResultReplaced { .. });
    (ran.notices().filter_map(ruling).collect(), ran.notices().filter(replaced).count())
}

/// Returns a single ruling and the number of replaced results.
fn once(ruling: &str, replaced: usize) -> (Vec<String>, usize) {
    (vec![ruling.to_owned()], replaced)
}

#[test]
fn the_stock_judge_refuses_an_answer_and_extracts_the_result() {
    let settings = r#"require = ["\\d{4}"], result = "year:\\s*(\\d+)""#;
    let config = chat("judge", "stock:acceptance", settings, "");
    let ran = replying(r#"["It is very old.", "Year: 1844."]"#).run(&config, "When was it lit?");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "1844"), "{}", ran.outcome.reason);
    assert_eq!(overruled(&ran), once("llm: valid Some(false), done None", 1));
}

#[test]
fn the_stock_judge_ends_an_interactive_task() {
    let config =
        chat("judge", "stock:acceptance", "done_when = \"that is all\"", "interactive = true");
    let rig = replying(r#"["What else?", "That is all."]"#).with_answers(&["Go on.", "Too late."]);
    let ran = rig.run(&config, "When was it lit?");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "That is all."));
    assert_eq!(overruled(&ran), once("llm: valid None, done Some(true)", 0));
}

#[test]
fn a_wrong_pattern_of_the_stock_judge_ends_the_task_with_its_key() {
    let config = chat("judge", "stock:acceptance", "require = [\"(\"]", "");
    let ran = replying(r#"["In 1844."]"#).run(&config, "When was it lit?");
    assert_eq!((ran.status(), ran.content()), (Status::Error, ""));
    assert!(ran.outcome.reason.contains("require[0]"), "{}", ran.outcome.reason);
}

#[test]
fn a_judge_decides_and_a_limit_ends_what_it_never_ends() {
    let run = |agent: &str, mode: &str, task: &str| {
        Rig::new().run(&hostile(agent, "judge", "hostile_judge", mode, task), "hello")
    };
    let left = run("agent_echo", "leave", "");
    assert_eq!((left.status(), left.content()), (Status::Done, "hello"));
    assert_eq!(overruled(&left), (Vec::new(), 0));
    let replaced = run("agent_echo", "replace", "");
    assert_eq!((replaced.status(), replaced.content()), (Status::Done, "DONE: hello"));
    let ended = run("agent_loop", "always-done", "interactive = true");
    assert_eq!(ended.status(), Status::Done);
    let never_valid = run("agent_echo", "never-valid", "");
    assert_eq!((never_valid.status(), never_valid.content()), (Status::Stalled, ""));
    let never_done = run("agent_echo", "never-done", "turns = 3");
    assert_eq!(never_done.status(), Status::FixedTurns);
    let (rulings, _) = overruled(&never_done);
    assert!(!rulings.is_empty());
    assert!(rulings.iter().all(|ruling| ruling.ends_with("done Some(false)")), "{rulings:?}");
}

#[test]
fn a_judge_explains_what_it_does_not_take_within_a_limit() {
    for (mode, words) in [
        ("explain", "\"hello\" names no year."),
        ("explain-not-done", "\"hello\" names no year."),
        ("explain-much", "ää"),
    ] {
        let config = hostile("agent_echo", "judge", "hostile_judge", mode, "turns = 2");
        let ran = Rig::new().run(&config, "hello");
        let feedback = |notice: &Notice| match notice {
            Notice::AnswerOverruled { ruling, .. } => ruling.feedback.clone(),
            _ => None,
        };
        let all: Vec<String> = ran.notices().filter_map(feedback).collect();
        let first = all.first().expect("it explains itself");
        assert!(first.contains(words) && first.len() <= 4 << 10, "{mode}: {} bytes", first.len());
    }
}

#[test]
fn a_judge_that_misbehaves_ends_the_task_and_nothing_passes_for_its_ruling() {
    for (mode, fault) in [
        ("spin", FaultKind::Cpu),
        ("trap", FaultKind::Panic),
        ("refuse", FaultKind::Error),
        ("fail", FaultKind::Error),
        ("result-spin", FaultKind::Cpu),
        ("result-trap", FaultKind::Panic),
        ("result-fail", FaultKind::Error),
        ("huge", FaultKind::BadAnswer),
        ("huge-value", FaultKind::BadAnswer),
        ("no-json", FaultKind::BadAnswer),
    ] {
        let config = hostile("agent_echo", "judge", "hostile_judge", mode, "");
        let ran = Rig::new().run(&config, "hello");
        assert_eq!((ran.status(), ran.content()), (Status::Error, ""), "{mode}");
        assert_eq!(ran.plugin_faults(), [fault], "{mode}");
        let reason = &ran.outcome.reason;
        assert!(reason.contains("the judge app failed"), "{mode}: {reason}");
        assert_eq!(overruled(&ran), (Vec::new(), 0), "{mode}");
    }
}

#[test]
fn the_stock_user_says_its_lines_and_leaves() {
    let settings = r#"lines = ["For two.", "On the first of June."]"#;
    let config = chat("simulated_user", "stock:scripted-user", settings, "interactive = true");
    // The run has no user: a question to a person would end it.
    let rig = replying(r#"["How many?", "Which date?", "It is booked."]"#);
    let ran = rig.run(&config, "A table, please.");
    assert_eq!((ran.status(), ran.content()), (Status::UserQuit, "quit"));
    let said: Vec<&str> = ran
        .notices()
        .filter_map(|notice| match notice {
            Notice::MessagePosted { message, .. } if message.sender == Role::User => {
                Some(message.text())
            }
            _ => None,
        })
        .collect();
    assert_eq!(said, ["For two.", "On the first of June.", "quit"]);
}

#[test]
fn a_simulated_user_sees_the_question_and_its_task() {
    let config =
        hostile("agent_loop", "simulated_user", "hostile_user", "show", "interactive = true");
    let ran = Rig::new().run(&config, "hello");
    assert_eq!(ran.status(), Status::UserQuit, "{}", ran.outcome.reason);
    let shown = ran.notices().any(|notice| matches!(notice, Notice::MessagePosted { message, .. } if message.text().ends_with("in main")));
    assert!(shown);
}

#[test]
fn a_simulated_user_that_misbehaves_ends_the_task() {
    for (mode, fault) in [
        ("huge", FaultKind::BadAnswer),
        ("spin", FaultKind::Cpu),
        ("trap", FaultKind::Panic),
        ("refuse", FaultKind::Error),
        ("fail", FaultKind::Error),
    ] {
        let config =
            hostile("agent_loop", "simulated_user", "hostile_user", mode, "interactive = true");
        let ran = Rig::new().run(&config, "hello");
        assert_eq!((ran.status(), ran.content()), (Status::Error, ""), "{mode}");
        assert_eq!(ran.plugin_faults(), [fault], "{mode}");
        let reason = &ran.outcome.reason;
        assert!(reason.contains("the simulated user app failed"), "{mode}: {reason}");
    }
}

#[test]
fn a_plugin_of_another_kind_is_refused_before_anything_runs() {
    let user = guest("hostile_user").display().to_string();
    let problems = refused(&Rig::new(), &with("agent_echo", "judge", &user, "", ""));
    assert_eq!(problems.codes(), [ProblemCode::WrongPluginKind], "{problems}");
    let judge = guest("hostile_judge").display().to_string();
    let problems = refused(&Rig::new(), &with("agent_echo", "simulated_user", &judge, "", ""));
    assert_eq!(problems.codes(), [ProblemCode::WrongPluginKind], "{problems}");
}

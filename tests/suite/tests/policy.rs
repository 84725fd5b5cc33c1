//! The policy on tool calls: calls without a rule, rules on arguments, and rules on the whole chain
//! of callers. Approval prompts are tested beside the program's approver and, with a terminal,
//! manually (docs/use/policy.md).

use conclave_core::protocol::notice::Notice;
use conclave_core::types::approval::{Approval, ApprovalRequest};
use conclave_core::types::denial::Layer;
use conclave_core::types::outcome::Status;
use conclave_runtime::RunOptions;
use conclave_test_support::{Ran, Rig, block_on, guest};
use serde_json::{Value, json};

use crate::cli::text;

const WRITES: &str = r#"grants.files = [{ dir = "data", at = "/folder", mode = "read-write" }]"#;
const READS: &str = r#"grants.files = [{ dir = "data", at = "/folder", mode = "read" }]"#;
const ALLOW: &str = "[[policy]]\ntool = \"subject.run\"\narguments = { path = \"/folder/public/*\" }\ndecide = \"allow\"\n";

/// Returns the config of an agent that calls a tool of `files_write` or `files_read`, with these
/// rules.
fn config(guest_name: &str, arguments: &Value, grants: &str, rules: &str) -> String {
    let settings = format!("{{ tool = \"subject.run\", arguments = {} }}", inline(arguments));
    format!(
        "entry = \"main\"\n[plugins.caller]\nsource = \"{}\"\ngrants.tools = [\"subject.*\"]\nconfig = {settings}\n\
         [plugins.subject]\nsource = \"{}\"\n{grants}\n[tasks.main]\nagent = \"caller\"\n{rules}",
        guest("agent_caller").display(),
        guest(guest_name).display(),
    )
}

fn inline(arguments: &Value) -> String {
    let fields = arguments.as_object().expect("arguments are an object");
    format!(
        "{{ {} }}",
        fields
            .iter()
            .map(|(name, value)| format!("{name} = {value}"))
            .collect::<Vec<_>>()
            .join(", ")
    )
}

fn rig() -> Rig {
    Rig::new().with_file("data/public/a.txt", "a").with_file("data/secret/a.txt", "a")
}

fn asked(ran: &Ran) -> Vec<ApprovalRequest> {
    let request = |notice: &Notice| match notice {
        Notice::ApprovalAsked { request, .. } => Some(request.clone()),
        _ => None,
    };
    ran.notices().filter_map(request).collect()
}

fn write_at(path: &str, rules: &str) -> Ran {
    rig().run(&config("files_write", &json!({ "path": path, "bytes": 3 }), WRITES, rules), "go")
}

#[test]
fn without_a_rule_reading_runs_and_writing_is_asked_about() {
    let ran = rig()
        .run(&config("files_read", &json!({ "path": "/folder/public/a.txt" }), READS, ""), "go");
    assert!(asked(&ran).is_empty() && !ran.answer().is_error, "{}", ran.content());
    let ran = write_at("/folder/public/b.txt", "");
    let asked = asked(&ran);
    assert_eq!(
        (asked.len(), asked[0].source.as_str(), asked[0].rule()),
        (1, "subject may write data/", None)
    );
    assert!(ran.content().contains("Not approved: nobody is there"), "{}", ran.content());
}

#[test]
fn a_rule_about_arguments_lets_through_those_alone() {
    assert!(asked(&write_at("/folder/public/b.txt", ALLOW)).is_empty());
    for path in [
        "/folder/secret/b.txt",
        "/folder/public/../secret/b.txt",
        "/folder/public//b.txt",
        "/folder/public/%2e%2e/x",
    ] {
        let ran = write_at(path, ALLOW);
        assert!(
            asked(&ran).len() == 1 && ran.content().contains("Not approved"),
            "{path}: {}",
            ran.content()
        );
    }
}

#[test]
fn no_spelling_of_a_path_gets_round_a_rule_that_denies() {
    let rules = "[[policy]]\ntool = \"subject.*\"\narguments = { path = \"/folder/secret/*\" }\ndecide = \"deny\"\n\
        [[policy]]\ntool = \"*\"\ndecide = \"allow\"\n";
    for path in [
        "/folder/secret/a.txt",
        "/folder/public/../secret/a.txt",
        "/folder//secret/a.txt",
        "/folder/./secret/a.txt",
    ] {
        let ran = write_at(path, rules);
        let denials = ran.denials();
        assert!(denials.iter().any(|record| record.layer == Layer::Policy), "{path}: {denials:?}");
        assert!(
            ran.answer().is_error && !ran.content().contains("write"),
            "{path}: {}",
            ran.content()
        );
    }
}

#[test]
fn nobody_is_asked_about_arguments_that_could_not_run() {
    let ran = rig().run(
        &config("files_write", &json!({ "path": "/folder/a", "bytes": -1 }), WRITES, ""),
        "go",
    );
    assert!(ran.content().contains("\"bytes\" must be at least 0"), "{}", ran.content());
    let given: Vec<&Approval> = ran
        .notices()
        .filter_map(|notice| match notice {
            Notice::ApprovalGiven { approval, .. } => Some(approval),
            _ => None,
        })
        .collect();
    assert!(matches!(given[..], [] | [Approval::Invalid { .. }]), "{given:?}");
}

/// Returns a config in which the agent may call `deputy.help`, whose answer requests `subject.run`.
/// The agent may call that tool, but the deputy may not make it do so.
fn deputy(rules: &str) -> String {
    let effect = json!({ "do": "call", "tool": { "name": "subject.run", "args": { "path": "/folder/public/a.txt", "bytes": 3 } } });
    let tool = json!({ "name": "help", "description": "Helps.", "input_schema": { "type": "object" }, "effects": { "caller": effect } });
    let script = json!({ "tools": [tool] });
    format!(
        "entry = \"main\"\n[plugins.caller]\nsource = \"{}\"\ngrants.tools = [\"subject.*\", \"deputy.*\"]\n\
         config = {{ tool = \"deputy.help\", arguments = {{ }} }}\n[plugins.deputy]\nsource = \"{}\"\nconfig = {{ script = '{script}' }}\n\
         [plugins.subject]\nsource = \"{}\"\n{WRITES}\n[tasks.main]\nagent = \"caller\"\n{rules}",
        guest("agent_caller").display(),
        guest("script_tools").display(),
        guest("files_write").display(),
    )
}

#[test]
fn a_tool_cannot_have_done_by_its_caller_what_it_has_no_leave_for() {
    let own = "[[policy]]\ntool = \"subject.run\"\ncaller = \"caller\"\ndecide = \"allow\"\n";
    let ran = rig().run(&deputy(own), "go");
    let asked = asked(&ran);
    assert_eq!(asked.len(), 1, "the deputy has no rule: {}", ran.content());
    assert_eq!(
        (asked[0].caller.as_str(), asked[0].led_by.first().map(|by| by.as_str())),
        ("caller", Some("deputy"))
    );
    assert!(ran.content().contains("Not approved"), "{}", ran.content());
    let denied =
        format!("[[policy]]\ntool = \"subject.*\"\ncaller = \"deputy\"\ndecide = \"deny\"\n{own}");
    let ran = rig().run(&deputy(&denied), "go");
    assert!(ran.denials().iter().any(|record| record.layer == Layer::Policy), "{}", ran.content());
    let both = format!("{own}{}", own.replace("caller = \"caller\"", "caller = \"deputy\""));
    let ran = rig().run(&deputy(&both), "go");
    assert!(ran.denials().is_empty() && ran.content().contains("write"), "{}", ran.content());
}

#[test]
fn whoever_calls_a_tool_by_hand_has_decided_about_it() {
    let rig = rig();
    let text = config("files_write", &json!({}), WRITES, "");
    let prepared = rig.prepare(&text).expect("it loads");
    let arguments = json!({ "path": "/folder/public/b.txt", "bytes": 3 });
    let run = block_on(prepared.call_tool("subject.run", arguments.clone(), RunOptions::default()))
        .expect("it is called");
    assert!(run.answer.is_ok(), "{:?}", run.answer);
    let denied = rig
        .prepare(&(text + "[[policy]]\ntool = \"subject.*\"\ndecide = \"deny\"\n"))
        .expect("it loads");
    let run = block_on(denied.call_tool("subject.run", arguments, RunOptions::default()))
        .expect("it is called");
    assert!(run.answer.is_err(), "the operator's rules come first: {:?}", run.answer);
}

fn run(rig: &Rig) -> (Option<i32>, String) {
    let run = rig.conclave(&["run", "c.toml", "go"]).output().expect("the program runs");
    (run.status.code(), text(&run.stderr))
}

#[test]
fn without_a_terminal_the_program_says_which_rules_would_allow_it_and_they_do() {
    let text =
        config("files_write", &json!({ "path": "/folder/public/b.txt", "bytes": 3 }), WRITES, "");
    let rig = rig().with_file("c.toml", &text);
    let (code, stderr) = run(&rig);
    let rule = "[[policy]]\ntool = \"subject.run\"\ncaller = \"caller\"\ndecide = \"allow\"\n";
    assert_eq!(code, Some(6), "{stderr}");
    assert!(stderr.contains("(subject may write data/)") && stderr.contains(rule), "{stderr}");
    let rig = rig.with_file("c.toml", format!("{text}{rule}"));
    let (code, stderr) = run(&rig);
    assert_eq!(code, Some(0), "{stderr}");
}

/// Lets `driver` have `librarian` write a file, in its own room and in the background, with these
/// rules. Returns whether each file was written.
fn delegated(rules: &str) -> [bool; 2] {
    ["delegate", "delegate_task"].map(|action| {
        let args = match action {
            "delegate" => json!({ "agent": "shelf", "inputs": { "task": "please write one file" } }),
            _ => json!({ "agent": "shelf", "task": "please write one file" }),
        };
        let script = conclave_test_support::toml_inline(&json!({ "script": [{ "action": action, "args": args }] }));
        let config = format!(
            "entry = \"main\"\n[plugins.driver]\nsource = \"{}\"\nconfig = {script}\ngrants.delegate = [\"shelf\"]\n\
             [plugins.librarian]\nsource = \"{}\"\ngrants.tools = [\"subject.*\"]\n\
             config = {{ tool = \"subject.many\", arguments = {{ folder = \"/folder/public\", count = 1 }} }}\n\
             [plugins.subject]\nsource = \"{}\"\n{WRITES}\n[tasks.main]\nagent = \"driver\"\n[tasks.shelf]\nagent = \"librarian\"\n{rules}",
            guest("acting_agent").display(),
            guest("agent_caller").display(),
            guest("files_write").display(),
        );
        let rig = rig();
        let ran = rig.run(&config, "go");
        assert_eq!(ran.status(), Status::Done, "{action}: {}", ran.outcome.reason);
        rig.folder().join("data/public/0").exists()
    })
}

#[test]
fn a_deny_for_a_caller_holds_for_those_whom_it_sets_to_work() {
    let rule = |caller: &str, decide: &str| {
        format!(
            "[[policy]]\ntool = \"subject.many\"\ncaller = \"{caller}\"\ndecide = \"{decide}\"\n"
        )
    };
    let allowed = rule("librarian", "allow");
    assert_eq!(delegated(&allowed), [true, true], "nothing is said of the driver");
    assert_eq!(delegated(&(rule("driver", "deny") + &allowed)), [false, false]);
    assert_eq!(
        delegated(&(allowed + &rule("driver", "deny"))),
        [false, false],
        "whichever comes first"
    );
}

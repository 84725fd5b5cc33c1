//! Gates at tools with real components: a gate that misbehaves blocks the call or the result that it
//! checks, and the run goes on; `stock:secrets` keeps keys out of both.

use conclave_core::protocol::notice::Notice;
use conclave_core::types::fault::FaultKind;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Ran, Rig, guest};

const KEY: &str = "AKIAIOSFODNN7EXAMPLE";

/// Returns the config of an agent that calls `echo.run` with a text, through a gate. `gate` has the
/// lines of the gate's plugin.
fn config(on: &str, gate: &str, text: &str) -> String {
    format!(
        r#"
entry = "desk"
[plugins.caller]
source = "{caller}"
grants.tools = ["echo.*"]
config = {{ tool = "echo.run", arguments = {{ text = "{text}" }} }}
[plugins.echo]
source = "{echo}"
[plugins.guard]
{gate}
[tasks.desk]
agent = "caller"
[[gates]]
on = "{on}"
tools = ["echo.*"]
plugin = "guard"
deadline = "20 s"
"#,
        caller = guest("agent_caller").display(),
        echo = guest("echo").display(),
    )
}

fn hostile(mode: &str, limits: &str) -> String {
    let source = guest("hostile_gate");
    format!("source = \"{}\"\nconfig = {{ mode = \"{mode}\" }}\n{limits}", source.display())
}

fn called(ran: &Ran) -> usize {
    ran.notices().filter(|notice| matches!(notice, Notice::ToolCalled { .. })).count()
}

#[test]
fn a_gate_lets_a_call_run_changes_it_or_blocks_it() {
    for on in ["tool-call", "tool-result"] {
        let ran = Rig::new().run(&config(on, &hostile("allow", ""), "the folder"), "hello");
        assert_eq!((ran.status(), ran.content()), (Status::Done, "the folder"), "{on}");
        let ran = Rig::new().run(&config(on, &hostile("modify", ""), "the folder"), "hello");
        assert_eq!((ran.status(), ran.content()), (Status::Done, "the drawer"), "{on}");
    }
    let ran = Rig::new().run(&config("tool-call", &hostile("block", ""), "a"), "hello");
    let reason = "echo.run was not run: gate guard blocked it: it is blocked here";
    assert_eq!((ran.content(), called(&ran)), (reason, 0));
    let ran = Rig::new().run(&config("tool-result", &hostile("block", ""), "a"), "hello");
    let reason = "echo.run was run, and its result is withheld: gate guard blocked it: it is \
                  blocked here";
    assert_eq!((ran.content(), called(&ran)), (reason, 1));
}

#[test]
fn a_gate_that_misbehaves_at_a_tool_blocks_and_the_run_goes_on() {
    for (mode, limits, kind) in [
        ("spin", "limits.cpu = \"50 ms\"", FaultKind::Cpu),
        ("trap", "", FaultKind::Panic),
        ("refuse", "", FaultKind::Error),
        ("fail", "", FaultKind::Error),
        ("huge", "", FaultKind::Output),
        ("nothing", "", FaultKind::BadAnswer),
        ("garbage", "", FaultKind::BadAnswer),
        ("wrong-arguments", "", FaultKind::BadAnswer),
    ] {
        for (on, calls) in [("tool-call", 0), ("tool-result", 1)] {
            let ran = Rig::new().run(&config(on, &hostile(mode, limits), KEY), "hello");
            assert_eq!((ran.status(), called(&ran)), (Status::Done, calls), "{mode} {on}");
            assert!(ran.content().ends_with("gate guard failed"), "{mode}: {}", ran.content());
            assert_eq!(ran.plugin_faults(), [kind], "{mode} {on}");
        }
    }
}

#[test]
fn the_stock_gate_keeps_keys_out_of_results_and_of_calls() {
    let secrets = "source = \"stock:secrets\"";
    let text = format!("id {KEY} and more");
    let ran = Rig::new().run(&config("tool-result", secrets, &text), "hello");
    let redacted = "id [secret removed: aws-key] and more";
    assert_eq!((ran.status(), ran.content()), (Status::Done, redacted));
    let ran = Rig::new().run(&config("tool-call", secrets, &text), "hello");
    let blocked = "echo.run was not run: gate guard blocked it: it holds a secret (aws-key); leave \
                   it out";
    assert_eq!((ran.content(), called(&ran)), (blocked, 0));
    let ran = Rig::new().run(&config("tool-call", secrets, "no key"), "hello");
    assert_eq!((ran.content(), called(&ran)), ("no key", 1));
    let redact = format!("{secrets}\nconfig = {{ calls = \"redact\" }}");
    let ran = Rig::new().run(&config("tool-call", &redact, &text), "hello");
    assert_eq!(ran.content(), redacted);
    let wrong = format!("{secrets}\nconfig = {{ patterns = [\"(\"] }}");
    let ran = Rig::new().run(&config("tool-result", &wrong, "no key"), "hello");
    assert!(ran.content().ends_with("gate guard failed"), "{}", ran.content());
}

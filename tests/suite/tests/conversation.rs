//! Tools that read the conversation of their caller, by `grants.history`: what they see, how much of
//! it, and what the operator reads where it is not granted.

use conclave_core::config::ProblemCode;
use conclave_core::types::denial::Layer;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Rig, guest, refused};

/// Returns the config of a desk that quotes its conversation to an expert, who echoes it.
fn config(history: &str, route: &str, arguments: &str) -> String {
    format!(
        r#"
entry = "desk"
[plugins.desk]
source = "{caller}"
grants.tools = ["quote.*"]
grants.route = ["expert"]
config = {{ tool = "quote.forward", arguments = {arguments} }}
[plugins.quote]
source = "stock:quote"
{history}
{route}
[plugins.expert]
source = "{echo}"
[tasks.desk]
agent = "desk"
subtasks = ["expert"]
[tasks.expert]
agent = "expert"
"#,
        caller = guest("agent_caller").display(),
        echo = guest("agent_echo").display(),
    )
}

const HISTORY: &str = "grants.history = true";
const ROUTE: &str = "grants.route = [\"send\"]";

#[test]
fn a_third_partys_tool_forwards_what_was_said_with_its_origin() {
    let arguments = r#"{ to = "expert", note = "Answer this." }"#;
    let ran = Rig::new().run(&config(HISTORY, ROUTE, arguments), "Is the lamp lit?");
    assert_eq!(
        (ran.status(), ran.content()),
        (
            Status::Done,
            "Note of the agent that forwards this:\n> Answer this.\n\nterminal (untrusted):\n> Is the lamp lit?"
        )
    );
    assert_eq!(ran.denials(), []);
}

#[test]
fn without_its_grants_it_is_refused_before_anything_runs() {
    let problems = refused(&Rig::new(), &config("", ROUTE, r#"{ to = "expert" }"#));
    assert_eq!(problems.codes(), [ProblemCode::MissingGrant], "{problems}");
    assert!(problems.to_string().contains("`quote` needs `history`"), "{problems}");
    let problems = refused(&Rig::new(), &config(HISTORY, "", r#"{ to = "expert" }"#));
    assert_eq!(problems.codes(), [ProblemCode::MissingGrant], "{problems}");
    assert!(problems.to_string().contains("`quote` needs `route`"), "{problems}");
}

#[test]
fn the_grant_of_one_message_shows_the_call_alone() {
    let history = "grants.history = { messages = 1 }";
    let ran = Rig::new().run(&config(history, ROUTE, r#"{ to = "expert" }"#), "Is the lamp lit?");
    assert_eq!(ran.content(), "quote.forward failed: nothing was said before this call");
}

/// The message is the calling agent's, so its own grant says whom it may address.
#[test]
fn a_tool_addresses_no_task_that_its_caller_may_not_address() {
    let config = config(HISTORY, ROUTE, r#"{ to = "expert" }"#);
    let config = config.replace("grants.route = [\"expert\"]", "");
    let ran = Rig::new().run(&config, "Is the lamp lit?");
    let denials = ran.denials();
    let [denial] = &denials[..] else { panic!("{denials:?}") };
    assert_eq!((denial.denial.capability.as_str(), denial.layer), ("route", Layer::Config));
    assert!(!ran.content().contains("> Is the lamp lit?"), "{}", ran.content());
}

//! Tools that call other tools with their agent's: what they may call, what is refused, and what
//! ends them.

use conclave_core::protocol::notice::Notice;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Ran, Rig, guest};
use serde_json::{Value, json};

/// The parts of the config that a test changes.
struct World<'w> {
    /// Of the desk's agent.
    agent: &'w str,
    /// Of the tool that makes the calls.
    tool: &'w str,
    /// At the end of the config.
    more: &'w str,
}

const OPEN: World<'static> = World {
    agent: r#"grants.tools = ["nested.*", "echo.*"]"#,
    tool: r#"grants.tools = ["echo.*"]"#,
    more: "",
};

/// The limit of computing time is far above the real need: on a busy machine a call is charged for
/// time in which it did not run.
const PATIENT: &str = "grants.tools = [\"echo.*\"]\nlimits = { cpu = \"1 h\", wall = \"1 h\" }";

impl World<'_> {
    fn config(&self, tool: &str, arguments: &Value) -> String {
        format!(
            r#"
entry = "desk"
[plugins.desk]
source = "{caller}"
{agent}
config = {{ tool = "nested.{tool}", arguments = {arguments} }}
[plugins.nested]
source = "{nested}"
{own}
[plugins.echo]
source = "{echo}"
[tasks.desk]
agent = "desk"
{more}
"#,
            caller = guest("agent_caller").display(),
            nested = guest("nested").display(),
            echo = guest("echo").display(),
            arguments = conclave_test_support::toml_inline(arguments),
            agent = self.agent,
            own = self.tool,
            more = self.more,
        )
    }

    fn run(&self, tool: &str, arguments: &Value) -> Ran {
        Rig::new().run(&self.config(tool, arguments), "go")
    }

    /// Makes these calls at the same time, and returns what came of each.
    fn at_once(&self, calls: &[(&str, Value)]) -> (Vec<String>, Ran) {
        let ran = self.run("at_once", &calling(calls));
        let content = ran.content();
        let told = serde_json::from_str(content).unwrap_or_else(|_| panic!("{content}"));
        (told, ran)
    }
}

fn calling(calls: &[(&str, Value)]) -> Value {
    let calls: Vec<Value> = calls
        .iter()
        .map(|(tool, arguments)| json!({ "tool": tool, "arguments": arguments }))
        .collect();
    json!({ "calls": calls })
}

fn says(text: &str) -> Value {
    json!({ "text": text })
}

/// Returns the capability, the target and the plugin of each refusal.
fn refusals(ran: &Ran) -> Vec<(String, String, String)> {
    let refusal = |notice: &Notice| match notice {
        Notice::Denied { plugin, record, .. } => Some((
            plugin.to_string(),
            record.denial.capability.clone(),
            record.denial.target.clone(),
        )),
        _ => None,
    };
    ran.notices().filter_map(refusal).collect()
}

#[test]
fn calls_at_the_same_time_are_answered_in_the_order_of_the_requests() {
    let (told, ran) = OPEN.at_once(&[
        ("echo.run", says("a")),
        ("echo.fail", says("it is broken")),
        ("echo.run", json!({ "text": 7 })),
        ("echo.run", says("b")),
    ]);
    assert_eq!(told[0], "a");
    assert_eq!(told[1], "ERROR echo.fail failed: it is broken");
    assert!(told[2].starts_with("ERROR The arguments of echo.run are not right: "), "{}", told[2]);
    assert_eq!(told[3], "b");
    assert_eq!(ran.status(), Status::Done);
    let called: Vec<(String, bool)> = ran
        .notices()
        .filter_map(|notice| match notice {
            Notice::ToolCalled { name, caller, within, .. } => {
                assert_eq!(caller.as_str(), "desk", "a call of the agent");
                Some((name.clone(), within.is_some()))
            }
            _ => None,
        })
        .collect();
    let inner = ["echo.run", "echo.fail", "echo.run", "echo.run"];
    assert_eq!(called[0], ("nested.at_once".to_owned(), false));
    assert_eq!(called[1..], inner.map(|name| (name.to_owned(), true)));
}

/// The limit is about what a model reads.
#[test]
fn a_nested_result_is_not_cut() {
    let long = "x".repeat(20_000);
    let world = World {
        more: "tools = [{ tool = \"echo.run\", result_tokens = 10 }, \"nested.at_once\"]",
        ..OPEN
    };
    let (told, _) = world.at_once(&[("echo.run", says(&long))]);
    assert_eq!(told, [long]);
}

#[test]
fn a_denial_that_a_tool_passes_on_is_the_hosts() {
    let call = json!({ "call": { "tool": "echo.run", "arguments": says("a") } });
    let ran = World { tool: "", ..OPEN }.run("pass_on", &call);
    assert_eq!(ran.content(), "nested.pass_on was refused tools: echo.run");
    assert_eq!(refusals(&ran), [("nested".to_owned(), "tools".to_owned(), "echo.run".to_owned())]);
}

#[test]
fn both_the_tool_and_its_agent_need_the_grant() {
    let calls = [("echo.run", says("a"))];
    let (told, ran) = World { tool: "", ..OPEN }.at_once(&calls);
    assert_eq!(told[0], "ERROR nested may not call \"echo.run\"");
    let refused =
        |plugin: &str| [(plugin.to_owned(), "tools".to_owned(), "echo.run".to_owned())].to_vec();
    assert_eq!(refusals(&ran), refused("nested"));
    let lines: Vec<Option<String>> =
        ran.denials().into_iter().map(|record| record.suggestion).collect();
    let line = "[plugins.nested] grants.tools = [\"echo.run\"]";
    assert_eq!(lines, [Some(line.to_owned())]);
    let world = World { agent: r#"grants.tools = ["nested.*"]"#, ..OPEN };
    let (told, ran) = world.at_once(&calls);
    assert!(told[0].starts_with("ERROR "), "{}", told[0]);
    assert_eq!(refusals(&ran), refused("desk"));
    let ran = World { tool: "", ..OPEN }.run("list", &json!({}));
    assert_eq!((ran.content(), refusals(&ran).len()), ("[]", 0));
}

#[test]
fn a_tool_sees_the_tools_that_both_may_call() {
    let world = World { agent: r#"grants.tools = ["nested.*", "echo.run"]"#, ..OPEN };
    let ran = world.run("list", &json!({}));
    assert_eq!(ran.content(), r#"[["echo.run",["text"]]]"#);
}

#[test]
fn what_steers_the_task_or_waits_for_the_call_is_not_called() {
    let world = World { tool: r#"grants.tools = ["*"]"#, ..OPEN };
    let (told, ran) = world.at_once(&[
        ("done", json!({ "content": "the tool decided" })),
        ("nested.list", json!({})),
        ("echo.run", says("a")),
    ]);
    assert_eq!(told[0], "ERROR done steers the task, so only its agent can call it");
    assert_eq!(told[1], "ERROR nested.list belongs to a plugin that is waiting for this call");
    assert_eq!(told[2], "a");
    assert!(ran.content().contains("is waiting"), "the task went on: {}", ran.content());
}

#[test]
fn the_operators_rules_decide_about_each_call() {
    let rules = "[[policy]]\ntool = \"echo.run\"\ndecide = \"deny\"\n[[policy]]\ntool = \"echo.fail\"\ndecide = \"ask\"\n";
    let calls = [("echo.run", says("a")), ("echo.fail", says("b"))];
    let (told, ran) = World { more: rules, ..OPEN }.at_once(&calls);
    assert!(told[0].starts_with("ERROR Refused: tools echo.run"), "{}", told[0]);
    assert!(told[1].starts_with("ERROR Not approved: "), "{}", told[1]);
    let asked = ran.notices().find_map(|notice| match notice {
        Notice::ApprovalAsked { request, .. } => Some(request.clone()),
        _ => None,
    });
    assert_eq!(asked.expect("it is asked about").led_by, ["nested".into()]);
}

#[test]
fn calls_are_counted_for_the_agent_and_for_the_tool() {
    let flood = json!({ "call": { "tool": "echo.run", "arguments": says("a") }, "times": 100_000 });
    let told = |world: World<'_>| -> (u32, String) {
        let ran = world.run("flood", &flood);
        serde_json::from_str(ran.content()).unwrap_or_else(|_| panic!("{}", ran.content()))
    };
    let (answers, error) =
        told(World { tool: r#"grants.tools = { names = ["echo.*"], calls = 3 }"#, ..OPEN });
    assert_eq!(answers, 3, "{error}");
    // The call of the tool itself is one of the agent's.
    let agent = r#"grants.tools = { names = ["nested.*", "echo.*"], calls = 6 }"#;
    let (answers, error) = told(World { agent, ..OPEN });
    assert_eq!(answers, 5, "{error}");
    let ran = World { more: "[limits.run]\ntool_calls = 9", ..OPEN }.run("flood", &flood);
    assert_eq!(ran.status(), Status::MaxCalls, "{}", ran.content());
    // More than the limit of one call allows.
    let more = "[limits.run]\ntool_calls = 2000";
    let (answers, error) = told(World { more, tool: PATIENT, ..OPEN });
    assert_eq!((answers, error.as_str()), (1_024, "not run: a tool may make 1024 calls"));
}

#[test]
fn no_more_than_64_calls_run_at_once() {
    let call = json!({ "call": { "tool": "echo.run", "arguments": says("a") }, "times": 66 });
    let ran = OPEN.run("crowd", &call);
    let (answers, error): (u32, String) =
        serde_json::from_str(ran.content()).unwrap_or_else(|_| panic!("{}", ran.content()));
    assert_eq!(answers, 64);
    assert!(error.contains("not run: at most 64 calls run at once"), "{error}");
}

#[test]
fn the_library_sends_more_calls_in_batches() {
    let calls: Vec<(&str, Value)> = (0..66).map(|n| ("echo.run", says(&n.to_string()))).collect();
    let (told, _) = OPEN.at_once(&calls);
    assert_eq!(told.len(), 66);
    assert!(told.iter().enumerate().all(|(n, told)| *told == n.to_string()), "{told:?}");
}

/// A grant that the config refuses, or that allows nothing, is not proposed.
#[test]
fn a_tool_that_no_grant_allows_is_named_and_not_proposed() {
    let (told, ran) = OPEN.at_once(&[("echo.rum", says("a"))]);
    assert_eq!(
        told[0],
        "ERROR There is no tool \"echo.rum\". nested may call: echo.fail, echo.run."
    );
    assert_eq!(refusals(&ran), []);
    let world = World { tool: r#"grants.tools = ["echo.run"]"#, ..OPEN };
    let (told, ran) = world.at_once(&[("echo.rum", says("a")), ("nested.list", json!({}))]);
    assert_eq!(told[0], "ERROR nested may not call \"echo.rum\"");
    let told: Vec<(String, Option<String>)> =
        ran.denials().into_iter().map(|record| (record.reason, record.suggestion)).collect();
    assert_eq!(
        told,
        [
            ("there is no tool echo.rum".to_owned(), None),
            ("a plugin cannot call its own tools".to_owned(), None),
        ]
    );
}

/// The inner call ends by its own limit, or with the outer one: nothing is left that would keep the
/// room open.
#[test]
fn a_call_that_never_ends_ends_with_its_limits() {
    let source = format!(
        "[plugins.slow]\nsource = \"{}\"\nlimits = {{ wall = \"1 s\" }}\n",
        guest("sleepy").display()
    );
    let world = World {
        agent: r#"grants.tools = ["nested.*", "slow.*"]"#,
        tool: "grants.tools = [\"slow.*\"]\nlimits = { wall = \"300 ms\" }",
        more: &source,
    };
    let ran = world.run("at_once", &calling(&[("slow.run", json!({}))]));
    assert_eq!(ran.status(), Status::Done, "{}", ran.content());
    assert!(ran.content().contains("was stopped"), "{}", ran.content());
}

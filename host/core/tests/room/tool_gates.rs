//! Gates at calls of tools and at their results: what a gate decides comes before rules and
//! approvers, and nothing reads a result before it.

use conclave_core::journal::recovery::Unfinished;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::setup::GatePoint;
use conclave_core::setup::plugin_query::{GateInput, GateVerdict, PluginQuery, PluginReply};
use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::approval::{Approval, ApprovalAuthor};
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::{CallId, Millis};
use conclave_core::types::message::ToolCall;
use conclave_core::types::tool::{NestedAnswer, NestedCall, NestedError, ToolError, ToolOutcome};
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::checks::violations;
use crate::properties::Recorded;

/// A text that a gate takes out of calls and results.
const KEY: &str = "AKIAIOSFODNN7EXAMPLE";

fn gate(on: &str, tools: &[&str]) -> Value {
    json!({ "on": on, "plugin": "guard", "deadline_ms": 200, "tools": tools })
}

/// Returns a room whose agent calls `mail.send`, `mail.read` and `code.run`, which calls the
/// others, and acts with the executor `shell`.
fn opened(gates: Value, more: Value) -> Recorded {
    let to = json!({ "type": "string" });
    let schema = json!({ "type": "object", "properties": { "to": to }, "required": ["to"] });
    let mut setup = json!({
        "tasks": { "desk": { "action_plugins": ["shell"] } },
        "plugins": {
            "desk": { "grants": { "tools": ["mail.*", "code.*", "shell.*"] } },
            "mail": { "tools": ["send", "read"], "schemas": { "send": schema } },
            "code": { "tools": ["run"], "grants": { "tools": ["mail.*"] } },
            "shell": { "tools": ["run", "poll", "kill"] },
            "guard": { "kinds": ["gate"] }, "second": { "kinds": ["gate"] },
        },
        "gates": gates,
    });
    for (key, value) in more.as_object().expect("keys of a setup") {
        setup[key] = value.clone();
    }
    let case = json!({ "name": "by hand", "setup": setup, "expect": {} });
    let case: Case = serde_json::from_value(case).expect("a case of the right form");
    let mut recorded = Recorded::default();
    let (setup, opening) = (case.setup().into(), case.opening());
    recorded.handle(Event::RoomOpened { setup, opening, secret: SECRET }, START);
    recorded
}

/// Handles an event, and returns the effects that it leads to.
fn after(recorded: &mut Recorded, event: Event) -> Vec<Effect> {
    recorded.take_effects();
    recorded.handle(event, START);
    assert_eq!(violations(&recorded.room, &recorded.records), Vec::<String>::new());
    recorded.effects.clone()
}

fn act(recorded: &mut Recorded, action: Action) -> Vec<Effect> {
    let call = step_of(&recorded.effects).expect("a step is under way");
    let turn = Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
    after(recorded, Event::AgentStepped { call, answer: Ok(turn), report: CallReport::default() })
}

fn call(recorded: &mut Recorded, name: &str, arguments: Value) -> Vec<Effect> {
    let call = ToolCall { id: "c1".to_owned(), ..ToolCall::new(name, arguments) };
    act(recorded, Action::Reply(Reply { tool_calls: vec![call], ..Reply::default() }))
}

fn run(recorded: &mut Recorded, command: &str, background: bool) -> Vec<Effect> {
    act(recorded, Action::Run { command: command.to_owned(), background })
}

fn step_of(effects: &[Effect]) -> Option<CallId> {
    effects.iter().find_map(|effect| match effect {
        Effect::StepAgent { call, .. } => Some(*call),
        _ => None,
    })
}

/// The tool that an effect starts: its call, its name, its arguments.
fn tool_of(effects: &[Effect]) -> Option<(CallId, String, Value)> {
    effects.iter().find_map(|effect| match effect {
        Effect::CallTool { call, plugin, tool, arguments, .. } => {
            Some((*call, format!("{plugin}.{tool}"), Value::clone(arguments)))
        }
        _ => None,
    })
}

/// The only query, which is to a gate.
fn query(effects: &[Effect]) -> (CallId, String, GateInput) {
    assert_eq!(tool_of(effects), None, "no tool starts before its gates");
    let mut queries = effects.iter().filter_map(|effect| match effect {
        Effect::QueryPlugin { call, plugin, question: PluginQuery::Gate { input }, .. } => {
            Some((*call, plugin.to_string(), GateInput::clone(input)))
        }
        _ => None,
    });
    let first = queries.next().unwrap_or_else(|| panic!("no gate is asked: {effects:?}"));
    assert!(queries.next().is_none(), "two gates are asked: {effects:?}");
    first
}

/// The question to an approver: its call, and the arguments that it shows.
fn question(effects: &[Effect]) -> (CallId, Value) {
    let question = effects.iter().find_map(|effect| match effect {
        Effect::AskApproval { call, request } => Some((*call, request.arguments.clone())),
        _ => None,
    });
    question.unwrap_or_else(|| panic!("no approver is asked: {effects:?}"))
}

fn decide(recorded: &mut Recorded, effects: &[Effect], approval: Approval) -> Vec<Effect> {
    let (call, author) = (question(effects).0, ApprovalAuthor::Program);
    after(recorded, Event::Decided { call, approval, author, arguments_sha256: None })
}

fn answer(
    recorded: &mut Recorded,
    call: CallId,
    answer: Result<GateVerdict, Fault>,
) -> Vec<Effect> {
    let answer = answer.map(|verdict| PluginReply::Gate { verdict });
    after(recorded, Event::PluginQueried { call, answer, report: CallReport::default() })
}

fn allow() -> Result<GateVerdict, Fault> {
    Ok(GateVerdict::Allow)
}

fn modify(text: impl ToString) -> Result<GateVerdict, Fault> {
    Ok(GateVerdict::Modify { text: text.to_string() })
}

fn block(reason: &str) -> Result<GateVerdict, Fault> {
    Ok(GateVerdict::Block { reason: reason.to_owned() })
}

fn says(content: &str, value: Value) -> ToolOutcome {
    let value = Some(value).filter(|value| !value.is_null());
    ToolOutcome { content: Some(content.to_owned()), value, ..ToolOutcome::default() }
}

fn answered(
    recorded: &mut Recorded,
    call: CallId,
    answer: Result<ToolOutcome, ToolError>,
) -> Vec<Effect> {
    after(recorded, Event::ToolAnswered { call, answer, report: CallReport::default() })
}

/// What the agent's next step reads.
fn agent_reads(recorded: &Recorded) -> String {
    let call = step_of(&recorded.effects).unwrap_or_else(|| panic!("{:?}", recorded.effects));
    let view = recorded.room.agent_view(call).expect("a step is under way");
    view.pending.as_ref().expect("something is pending").text().to_owned()
}

/// Asserts that nothing outside the journal and the questions to gates holds the key.
fn assert_key_is_withheld(recorded: &Recorded) {
    let notices = serde_json::to_string(&recorded.notices).expect("JSON");
    assert!(!notices.contains(KEY), "{notices}");
    let effects: Vec<String> =
        recorded.effects.iter().map(|effect| format!("{effect:?}")).collect();
    assert!(!effects.join("\n").contains(KEY), "{effects:?}");
    let room = serde_json::to_string(&recorded.room).expect("JSON");
    assert!(!room.contains(KEY), "the room still knows it");
}

#[test]
fn a_call_starts_once_its_gates_have_let_it_pass_in_their_order() {
    let second = json!({ "on": "tool-call", "plugin": "second", "deadline_ms": 200 });
    let gates = json!([gate("tool-call", &["mail.*"]), gate("tool-result", &["code.*"]), second]);
    let mut recorded = opened(gates, json!({}));
    let arguments = json!({ "to": "ann" });
    let effects = call(&mut recorded, "mail.send", arguments.clone());
    let (first, plugin, input) = query(&effects);
    assert_eq!((plugin.as_str(), input.point), ("guard", GatePoint::ToolCall));
    assert_eq!(input.text, arguments.to_string());
    assert_eq!(input.from_task.as_ref().map(|task| task.as_str()), Some("desk"));
    let facts = json!({
        "tool": "mail.send", "call": "c1", "caller": "desk", "led_by": [], "labels": [],
    });
    assert_eq!(input.metadata, facts);
    let effects = answer(&mut recorded, first, allow());
    let (next, plugin, _) = query(&effects);
    assert_eq!(plugin, "second");
    let effects = answer(&mut recorded, next, allow());
    let (tool, name, started) = tool_of(&effects).expect("it starts");
    assert_eq!((name.as_str(), started), ("mail.send", arguments));
    answered(&mut recorded, tool, Ok(says("sent", Value::Null)));
    assert_eq!(agent_reads(&recorded), "sent");
}

#[test]
fn a_tool_without_gates_starts_at_once() {
    let gates = json!([gate("tool-call", &["mail.*"]), gate("tool-result", &["mail.*"])]);
    let mut recorded = opened(gates, json!({}));
    let effects = call(&mut recorded, "code.run", json!({}));
    let (tool, ..) = tool_of(&effects).expect("it starts");
    answered(&mut recorded, tool, Ok(says("done", Value::Null)));
    assert_eq!(agent_reads(&recorded), "done");
}

#[test]
fn the_model_reads_why_its_call_was_not_run() {
    let gates = json!([gate("tool-call", &[])]);
    let mut recorded = opened(gates, json!({}));
    let effects = call(&mut recorded, "mail.send", json!({ "to": "eve" }));
    let effects = answer(&mut recorded, query(&effects).0, block("no strangers"));
    assert_eq!(tool_of(&effects), None);
    let reason = "mail.send was not run: gate guard blocked it: no strangers";
    assert_eq!(agent_reads(&recorded), reason);
    let is_error = |notice: &Notice| matches!(notice, Notice::ToolAnswered { content, is_error: true, .. } if content == reason);
    assert!(recorded.notices.iter().any(is_error));
    let is_blocked = |notice: &Notice| matches!(notice, Notice::GateBlocked { tool: Some(tool), .. } if tool == "mail.send");
    assert!(recorded.notices.iter().any(is_blocked), "{:?}", recorded.notices);
}

#[test]
fn an_approver_is_asked_about_the_arguments_that_the_gates_left_and_those_run() {
    let policy = json!([{ "tool": "mail.send", "decide": "ask" }]);
    let mut recorded = opened(json!([gate("tool-call", &[])]), json!({ "policy": policy }));
    let effects = call(&mut recorded, "mail.send", json!({ "to": "eve" }));
    let is_question = |effect: &Effect| matches!(effect, Effect::AskApproval { .. });
    assert!(!effects.iter().any(is_question), "no approver before the gate");
    let changed = json!({ "to": "ann" });
    let effects = answer(&mut recorded, query(&effects).0, modify(&changed));
    assert_eq!(question(&effects).1, changed);
    let effects = decide(&mut recorded, &effects, Approval::Approved);
    assert_eq!(tool_of(&effects).expect("no gate is asked again").2, changed);
}

#[test]
fn arguments_of_an_approver_pass_the_gates_and_are_asked_about_again_where_they_change_them() {
    let policy = json!([{ "tool": "mail.send", "decide": "ask" }]);
    for verdict in [allow(), modify(json!({ "to": "bob" }))] {
        let gates = json!([gate("tool-call", &[])]);
        let mut recorded = opened(gates, json!({ "policy": policy }));
        let effects = call(&mut recorded, "mail.send", json!({ "to": "eve" }));
        let effects = answer(&mut recorded, query(&effects).0, allow());
        let approval = Approval::Edited { arguments: json!({ "to": "ann" }) };
        let effects = decide(&mut recorded, &effects, approval);
        let (gate_call, _, input) = query(&effects);
        assert_eq!(input.text, json!({ "to": "ann" }).to_string());
        let effects = answer(&mut recorded, gate_call, verdict.clone());
        if verdict == allow() {
            assert_eq!(tool_of(&effects).expect("it runs").2, json!({ "to": "ann" }));
            continue;
        }
        assert_eq!(question(&effects).1, json!({ "to": "bob" }));
        let effects = decide(&mut recorded, &effects, Approval::Approved);
        assert_eq!(tool_of(&effects).expect("it runs").2, json!({ "to": "bob" }));
    }
}

#[test]
fn a_rule_denies_the_arguments_that_a_gate_made() {
    let arguments = json!([{ "at": "to", "patterns": ["ann"] }]);
    let policy = json!([{ "tool": "mail.send", "arguments": arguments, "decide": "deny" }]);
    let mut recorded = opened(json!([gate("tool-call", &[])]), json!({ "policy": policy }));
    let effects = call(&mut recorded, "mail.send", json!({ "to": "eve" }));
    let effects = answer(&mut recorded, query(&effects).0, modify(json!({ "to": "ann" })));
    assert_eq!(tool_of(&effects), None);
    let is_denied = |notice: &Notice| matches!(notice, Notice::Denied { .. });
    assert!(recorded.notices.iter().any(is_denied), "{}", agent_reads(&recorded));
}

#[test]
fn a_gate_that_fails_or_answers_garbage_blocks_unless_the_operator_decides_otherwise() {
    let garbage = [
        Err(Fault::new(FaultKind::Trap, "it broke")),
        modify("to ann"),
        modify("[]"),
        modify("\"ann\""),
        modify("{}"),
        modify(json!({ "to": 7 })),
        modify(format!("{}1{}", "[".repeat(200), "]".repeat(200))),
    ];
    for verdict in garbage {
        let mut recorded = opened(json!([gate("tool-call", &[])]), json!({}));
        let effects = call(&mut recorded, "mail.send", json!({ "to": "eve" }));
        let effects = answer(&mut recorded, query(&effects).0, verdict.clone());
        assert_eq!(tool_of(&effects), None, "{verdict:?}");
        assert_eq!(agent_reads(&recorded), "mail.send was not run: gate guard failed");
        let mut gate = gate("tool-call", &[]);
        gate["fails_open"] = json!(true);
        let mut recorded = opened(json!([gate]), json!({}));
        let effects = call(&mut recorded, "mail.send", json!({ "to": "eve" }));
        let effects = answer(&mut recorded, query(&effects).0, verdict);
        assert_eq!(tool_of(&effects).expect("it runs as it was").2, json!({ "to": "eve" }));
    }
}

#[test]
fn a_gate_that_is_too_slow_blocks() {
    let mut recorded = opened(json!([gate("tool-call", &[])]), json!({}));
    let effects = call(&mut recorded, "mail.send", json!({ "to": "eve" }));
    let timer = effects.iter().find_map(|effect| match effect {
        Effect::SetTimer { timer, .. } => Some(*timer),
        _ => None,
    });
    let (late, ..) = query(&effects);
    after(&mut recorded, Event::TimerFired { timer: timer.expect("it has a deadline") });
    assert_eq!(agent_reads(&recorded), "mail.send was not run: gate guard failed");
    assert!(answer(&mut recorded, late, allow()).is_empty(), "a late answer changes nothing");
}

#[test]
fn an_action_passes_the_gates_of_its_executor_before_anybody_consents() {
    let task = json!({ "action_plugins": ["shell"], "confirm": { "policy": "always" } });
    let more = || json!({ "tasks": { "desk": task } });
    let mut recorded = opened(json!([gate("tool-call", &["shell.*"])]), more());
    let effects = run(&mut recorded, "rm -r /", false);
    let (gate_call, _, input) = query(&effects);
    assert_eq!(input.metadata["tool"], "shell.run");
    let mut changed: Value = serde_json::from_str(&input.text).expect("its arguments");
    changed["command"] = json!("ls /");
    let effects = answer(&mut recorded, gate_call, modify(changed));
    assert_eq!(question(&effects).1["command"], "ls /");
    let effects = decide(&mut recorded, &effects, Approval::Approved);
    let (_, name, arguments) = tool_of(&effects).expect("it runs");
    assert_eq!((name.as_str(), &arguments["command"]), ("shell.run", &json!("ls /")));
    // Arguments of another form are none of the action.
    let verdicts = [
        (block("no commands"), "run was not run: gate guard blocked it: no commands"),
        (modify(json!({ "background": 3 })), "run was not run: gate guard failed"),
    ];
    for (verdict, text) in verdicts {
        let gates = json!([gate("tool-call", &["shell.*"])]);
        let mut recorded = opened(gates, more());
        let effects = run(&mut recorded, "rm -r /", false);
        answer(&mut recorded, query(&effects).0, verdict);
        assert_eq!(agent_reads(&recorded), text);
    }
}

#[test]
fn actions_that_the_host_carries_out_pass_no_gate_of_tools() {
    let mut recorded = opened(json!([gate("tool-call", &[]), gate("tool-result", &[])]), json!({}));
    for action in [
        Action::Think { thought: "hm".to_owned() },
        Action::Recall { query: "keys".to_owned() },
        Action::Kill { command_id: 7 },
        Action::Custom { name: "unknown".to_owned(), arguments: json!({}) },
    ] {
        let effects = act(&mut recorded, action);
        assert!(step_of(&effects).is_some(), "{effects:?}");
    }
}

/// Starts `code.run`, which asks for `mail.send`, and returns its call with the effects.
fn nested(recorded: &mut Recorded) -> (CallId, Vec<Effect>) {
    let effects = call(recorded, "code.run", json!({}));
    let (outer, ..) = tool_of(&effects).expect("it starts");
    let arguments = json!({ "to": "eve" }).into();
    let calls = vec![NestedCall { name: "mail.send".to_owned(), arguments }];
    (outer, after(recorded, Event::ToolsAsked { call: outer, ordinal: 0, calls }))
}

fn nested_answers(effects: &[Effect]) -> Vec<NestedAnswer> {
    let answers = effects.iter().find_map(|effect| match effect {
        Effect::AnswerTools { answers, .. } => Some(answers.clone()),
        _ => None,
    });
    answers.unwrap_or_else(|| panic!("no answer: {effects:?}"))
}

#[test]
fn a_tool_that_calls_a_tool_passes_the_same_gates() {
    let gates = || json!([gate("tool-call", &["mail.*"]), gate("tool-result", &["mail.*"])]);
    let mut recorded = opened(gates(), json!({}));
    let (_, effects) = nested(&mut recorded);
    let (gate_call, _, input) = query(&effects);
    assert_eq!(input.metadata["led_by"], json!(["code"]));
    let effects = answer(&mut recorded, gate_call, block("no strangers"));
    let expected = "mail.send was not run: gate guard blocked it: no strangers";
    let failed = NestedError::Failed { message: expected.to_owned() };
    assert_eq!(nested_answers(&effects), [Err(failed)]);

    let mut recorded = opened(gates(), json!({}));
    let (_, effects) = nested(&mut recorded);
    let effects = answer(&mut recorded, query(&effects).0, allow());
    let (inner, ..) = tool_of(&effects).expect("it starts");
    let effects = answered(&mut recorded, inner, Ok(says(KEY, json!({ "key": KEY }))));
    let redacted = json!({ "content": "…", "value": { "key": "…" } });
    let effects = answer(&mut recorded, query(&effects).0, modify(redacted));
    let answers = nested_answers(&effects);
    let [Ok(result)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(result.content.as_deref(), Some("…"));
    assert_eq!(result.value, Some(json!({ "key": "…" })));
    assert_key_is_withheld(&recorded);
}

#[test]
fn a_gate_of_a_nested_call_is_abandoned_with_the_tool_that_made_it() {
    for point in ["tool-call", "tool-result"] {
        let mut recorded = opened(json!([gate(point, &["mail.*"])]), json!({}));
        let (outer, mut effects) = nested(&mut recorded);
        if let Some((inner, ..)) = tool_of(&effects) {
            effects = answered(&mut recorded, inner, Ok(says(KEY, Value::Null)));
        }
        let (gate_call, ..) = query(&effects);
        let effects = answered(&mut recorded, outer, Ok(says("done", Value::Null)));
        assert!(effects.contains(&Effect::AbandonCall { call: gate_call }), "{effects:?}");
        assert_eq!(agent_reads(&recorded), "done");
        assert!(answer(&mut recorded, gate_call, allow()).is_empty(), "nothing waits for it");
        assert_key_is_withheld(&recorded);
    }
}

#[test]
fn nothing_reads_a_result_before_its_gate() {
    let mut recorded = opened(json!([gate("tool-result", &["mail.read"])]), json!({}));
    let effects = call(&mut recorded, "mail.read", json!({ "id": 3 }));
    let (tool, ..) = tool_of(&effects).expect("it starts");
    let value = json!({ "body": KEY, "size": 20 });
    let effects = answered(&mut recorded, tool, Ok(says(KEY, value.clone())));
    let (gate_call, _, input) = query(&effects);
    assert_eq!(input.point, GatePoint::ToolResult);
    assert_eq!(input.to_task.as_deref(), Some("desk"));
    let text: Value = serde_json::from_str(&input.text).expect("a result as JSON");
    assert_eq!(text, json!({ "content": KEY, "value": value }));
    let facts = json!({
        "tool": "mail.read", "call": "c1", "caller": "desk", "led_by": [], "labels": [],
        "arguments": { "id": 3 }, "is_error": false, "attachments": [], "follow_up_calls": [],
    });
    assert_eq!(input.metadata, facts);
    assert!(step_of(&effects).is_none(), "the agent waits");
    let redacted = json!({ "content": "key …", "value": { "body": "…", "size": 20 } });
    answer(&mut recorded, gate_call, modify(redacted));
    assert_eq!(agent_reads(&recorded), "key …");
    assert_key_is_withheld(&recorded);
    let modified = |notice: &Notice| matches!(notice, Notice::GateModified { tool: Some(tool), .. } if tool == "mail.read");
    assert!(recorded.notices.iter().any(modified));
}

#[test]
fn the_model_reads_why_a_result_is_withheld_and_that_the_tool_was_run() {
    let failed = || ToolError::Other { message: KEY.to_owned() };
    let answers = [Ok(says(KEY, Value::Null)), Err(failed())];
    for tool_answer in answers {
        let mut recorded = opened(json!([gate("tool-result", &[])]), json!({}));
        let effects = call(&mut recorded, "mail.read", json!({}));
        let (tool, ..) = tool_of(&effects).expect("it starts");
        let effects = answered(&mut recorded, tool, tool_answer.clone());
        answer(&mut recorded, query(&effects).0, block("it holds a key"));
        let expected = "mail.read was run, and its result is withheld: gate guard blocked it: it \
                        holds a key";
        assert_eq!(agent_reads(&recorded), expected);
        assert_key_is_withheld(&recorded);
    }
}

#[test]
fn a_failed_call_stays_a_failed_call() {
    let mut recorded = opened(json!([gate("tool-result", &[])]), json!({}));
    let effects = call(&mut recorded, "mail.read", json!({}));
    let (tool, ..) = tool_of(&effects).expect("it starts");
    let error = ToolError::Other { message: format!("the server refused {KEY}") };
    let effects = answered(&mut recorded, tool, Err(error));
    let redacted = json!({ "error": "the server refused …" });
    answer(&mut recorded, query(&effects).0, modify(redacted));
    assert_eq!(agent_reads(&recorded), "mail.read failed: the server refused …");
    assert_key_is_withheld(&recorded);
}

#[test]
fn the_output_of_a_background_command_passes_the_gates_of_results() {
    let mut recorded = opened(json!([gate("tool-result", &["shell.*"])]), json!({}));
    let effects = run(&mut recorded, "srv", true);
    let (tool, ..) = tool_of(&effects).expect("it starts");
    let started = json!({ "background": { "command_id": 7, "poll_ms": 100 } });
    let effects = answered(&mut recorded, tool, Ok(says("", started)));
    let effects = answer(&mut recorded, query(&effects).0, modify(json!({ "content": "…" })));
    let timer = effects.iter().find_map(|effect| match effect {
        Effect::SetTimer { timer, .. } => Some(*timer),
        _ => None,
    });
    let timer = timer.expect("the host still follows the command");
    let step = step_of(&recorded.effects).expect("the agent goes on");
    recorded.handle(Event::TimerFired { timer }, Millis(START.0 + 10_000));
    let (poll, name, _) = tool_of(&recorded.effects).expect("it is polled");
    assert_eq!(name, "shell.poll");
    let outcome = says(KEY, json!({ "exit_code": 3 }));
    let effects = answered(&mut recorded, poll, Ok(outcome));
    let (gate_call, _, input) = query(&effects);
    assert_eq!(input.metadata["tool"], "shell.poll");
    assert_eq!(input.metadata["arguments"], json!({ "command_id": 7 }));
    answer(&mut recorded, gate_call, block("it holds a key"));
    assert_key_is_withheld(&recorded);
    let action = Action::Think { thought: "hm".to_owned() };
    let turn = Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
    let report = CallReport::default();
    after(&mut recorded, Event::AgentStepped { call: step, answer: Ok(turn), report });
    let step = step_of(&recorded.effects).expect("the agent goes on");
    let view = recorded.room.agent_view(step).expect("it is under way");
    let since = serde_json::to_string(&view.since).expect("it is serialisable");
    assert!(since.contains("The output is withheld: gate guard blocked it"), "{since}");
    assert!(since.contains("\"exit_code\":3"), "the command has ended: {since}");
}

#[test]
fn a_command_that_its_agent_never_learns_of_is_killed() {
    let mut recorded = opened(json!([gate("tool-result", &["shell.run"])]), json!({}));
    let effects = run(&mut recorded, "srv", true);
    let (tool, ..) = tool_of(&effects).expect("it starts");
    let started = json!({ "background": { "command_id": 7 } });
    let effects = answered(&mut recorded, tool, Ok(says("", started)));
    let effects = answer(&mut recorded, query(&effects).0, block("no servers"));
    let (_, name, arguments) = tool_of(&effects).expect("it is killed");
    assert_eq!((name.as_str(), arguments), ("shell.kill", json!({ "command_id": 7 })));
}

#[test]
fn a_gate_that_was_not_answered_is_asked_again_and_its_tool_is_not() {
    let gates = json!([gate("tool-call", &[]), gate("tool-result", &[])]);
    let mut recorded = opened(gates, json!({}));
    let effects = call(&mut recorded, "mail.send", json!({ "to": "ann" }));
    let (first, ..) = query(&effects);
    let restarted = |recorded: &Recorded| -> Vec<Effect> {
        let unfinished = Unfinished::fold(recorded.records.clone());
        let resumption = unfinished.resumption(START, unfinished.room.setup());
        resumption.restarts.into_iter().map(|restart| restart.effect).collect()
    };
    assert_eq!(query(&restarted(&recorded)).0, first);
    let effects = answer(&mut recorded, first, allow());
    let (tool, ..) = tool_of(&effects).expect("it starts");
    let effects = answered(&mut recorded, tool, Ok(says("sent", Value::Null)));
    let (second, ..) = query(&effects);
    assert_eq!(query(&restarted(&recorded)).0, second, "the tool is not called again");
    answer(&mut recorded, second, allow());
    assert_eq!(agent_reads(&recorded), "sent");
}

#[test]
fn a_run_that_is_stopped_waits_for_no_gate() {
    for point in ["tool-call", "tool-result"] {
        let mut recorded = opened(json!([gate(point, &[])]), json!({}));
        let mut effects = call(&mut recorded, "mail.send", json!({ "to": "ann" }));
        if let Some((tool, ..)) = tool_of(&effects) {
            effects = answered(&mut recorded, tool, Ok(says(KEY, Value::Null)));
        }
        let (gate_call, ..) = query(&effects);
        let effects = after(&mut recorded, Event::Cancelled { reason: "enough".to_owned() });
        assert!(effects.contains(&Effect::AbandonCall { call: gate_call }), "{effects:?}");
        assert!(recorded.room.outcome().is_some(), "the run is over");
        assert!(answer(&mut recorded, gate_call, allow()).is_empty());
    }
}

//! Tests every turn and observation through the wire form of both eras and back, and the mistakes
//! that a model may make.

use serde_json::{Value, json};

use super::value_in;
use crate::actions::{CommandOutput, CustomObservation, Page};
use crate::trajectory::Era;
use crate::{
    Error, Message, Observation, PlanState, Role, ToolOutput, ToolResult, Turn, act, call, finish,
    reject, say,
};

fn malformed(text: &str) -> String {
    match Turn::from_json(text) {
        Err(Error::InvalidArguments(text)) => text,
        other => panic!("it is not malformed: {other:?}"),
    }
}

#[test]
fn the_form_of_2024_is_exact() {
    let cases = [
        (
            act::run("ls"),
            json!({"message":"Running command: ls","action":"run","args":{"command":"ls","background":false,"thought":""}}),
        ),
        (
            act::kill(3),
            json!({"message":"Killing command: 3","action":"kill","args":{"command_id":3,"thought":""}}),
        ),
        (
            act::add_task("", "g").because("why"),
            json!({"message":"Added task: g","action":"add_task","args":{"parent":"","goal":"g","subtasks":[],"thought":"why"}}),
        ),
        (
            act::modify_task("0", PlanState::InProgress),
            json!({"message":"Set task 0 to in_progress","action":"modify_task","args":{"task_id":"0","state":"in_progress","thought":""}}),
        ),
        (
            reject("no"),
            json!({"message":"Task is rejected by the agent. Reason: no","action":"reject",
                "args":{"outputs":{"reason":"no"},"thought":""}}),
        ),
        (
            say("hi"),
            json!({"message":"hi","action":"message","args":{"content":"hi","wait_for_response":false},"source":"agent"}),
        ),
        (act::nothing(), json!({"message":"No action","action":"null","args":{}})),
    ];
    for (turn, mut expected) in cases {
        expected["source"] = "agent".into();
        assert_eq!(turn.to_json(Era::V2024), expected);
    }
}

#[test]
fn every_turn_comes_back_as_it_was() {
    let turns = [
        act::nothing(),
        act::run("ls").because("look"),
        act::run_in_background("serve"),
        act::kill(4),
        act::run_cell("1+1"),
        act::read_lines("/a", 2, 5),
        act::write("/a", "b"),
        act::browse("http://a"),
        act::recall("lamps"),
        act::add_tasks("0", "g", json!([{ "goal": "h" }])),
        act::modify_task("0.1", PlanState::Verified),
        act::think("hm"),
        act::talk("so"),
        act::delegate("study", json!({ "task": "t" })),
        crate::delegate("digest").task("Digest.").start(),
        act::track_tasks([json!({ "title": "t", "status": "todo", "notes": "" })]),
        act::request_condensation(),
        say("hello").and_wait_for_user(),
        call("search.find", json!({ "query": "x" })).because("look"),
        finish("In 1844."),
        finish(json!({ "year": 1844 })),
        reject("no"),
        reject(json!({ "code": 3 })),
    ];
    for turn in turns {
        // Background commands exist in 2024 only (O-039).
        let era = if turn == act::run_in_background("serve") { Era::V2024 } else { Era::V2025 };
        let form = turn.to_json(era);
        assert_eq!(
            Turn::from_value(&without_defaults(form.clone(), &turn)).unwrap(),
            turn,
            "{form}"
        );
    }
}

/// Removes defaults: a field of one era only is written in the other's form with that era's
/// defaults, which the custom kinds keep.
fn without_defaults(mut form: Value, turn: &Turn) -> Value {
    let custom = matches!(turn.action(), crate::actions::Action::Custom(_));
    if let Some(args) = form.get_mut("args").and_then(Value::as_object_mut).filter(|_| custom) {
        args.remove("thought");
    }
    form
}

#[test]
fn several_calls_are_a_list() {
    let turn = call("search.find", json!({ "query": "x" })).and_call("search.list", json!({}));
    let form = turn.to_json(Era::V2025);
    assert_eq!(form.as_array().map(Vec::len), Some(2));
    assert_eq!(Turn::from_value(&form).unwrap(), turn);
    let run = act::run("ls").to_json(Era::V2025);
    assert!(
        matches!(Turn::from_value(&json!([run, run])), Err(Error::InvalidArguments(text)) if text.contains("one action at a time"))
    );
}

#[test]
fn newer_kinds_travel_as_custom_actions() {
    let turn = Turn::from_json(
        r#"{"action":"edit","args":{"path":"/a","command":"view","thought":"look"}}"#,
    )
    .unwrap();
    let crate::actions::Action::Custom(custom) = turn.action() else { panic!("{turn:?}") };
    assert_eq!((custom.name.as_str(), turn.thought()), ("edit", "look"));
    let form = turn.to_json(Era::V2025);
    assert_eq!(
        (&form["args"]["command"], &form["args"]["thought"]),
        (&json!("view"), &json!("look"))
    );
    assert_eq!(
        act::custom("dance", json!({ "steps": 3 })).to_json(Era::V2025),
        json!({ "action": "dance", "args": { "steps": 3 } })
    );
}

#[test]
fn what_2025_adds_to_a_command_is_not_lost() {
    let turn =
        Turn::from_json(r#"{"action":"run","args":{"command":"y","is_input":true}}"#).unwrap();
    assert_eq!(turn.to_json(Era::V2025)["args"]["is_input"], true);
}

#[test]
fn a_model_reads_what_is_wrong() {
    let cases = [
        ("I would rather not.", "there is no JSON object"),
        (r#"{"action": "run", "args": {"command": "ls""#, "is no JSON"),
        (r#"{"action": "dance", "args": {}}"#, "Action `dance` does not exist. Known are: "),
        (r#"{"action": "run", "args": {"cmd": "ls"}}"#, "unknown: cmd; missing: command"),
        (r#"{"action": 4}"#, "`action` must be a string"),
        (r#"{"say": "hi"}"#, "must have `action` or `observation`"),
        (
            r#"{"action":"modify_task","args":{"task_id":"0","state":"done"}}"#,
            "there is no state `done`. Known are: open, in_progress",
        ),
        (r#"{"observation":"null","content":""}"#, "an observation was written"),
        (
            r#"{"action":"delegate_task","args":{"agent":"a","task":"t","share_channels":true}}"#,
            "share_channels",
        ),
    ];
    for (text, expected) in cases {
        assert!(malformed(text).contains(expected), "{text}: {}", malformed(text));
    }
}

#[test]
fn the_action_is_found_among_words() {
    let action = act::run("ls");
    let form = r#"{"action":"run","args":{"command":"ls"}}"#;
    for text in [
        format!("```json\n{form}\n```"),
        format!("As [1] says [sic], {{so}}: {form} and then we see."),
        form.to_owned(),
    ] {
        assert_eq!(Turn::from_json(&text).unwrap(), action, "{text}");
    }
    assert!(value_in(&"{".repeat(100_000)).is_err());
    assert!(value_in(&"[".repeat(100_000)).is_err());
}

#[test]
fn every_observation_comes_back_as_it_was() {
    let tool = |is_error| ToolOutput {
        call_id: String::new(),
        name: "a.b".into(),
        content: "c".into(),
        value: None,
        is_error,
    };
    let observations = [
        Observation::Null,
        Observation::Command(CommandOutput {
            command_id: 4,
            command: "ls".into(),
            exit_code: 2,
            content: "a".into(),
        }),
        Observation::Cell(("1+1".into(), "2".into())),
        Observation::Browsed(Page {
            url: "http://a".into(),
            status: 200,
            content: "x".into(),
            is_error: false,
        }),
        Observation::File(("/a".into(), "text".into())),
        Observation::Written("/a".into()),
        Observation::Recalled(vec!["m".into()]),
        Observation::Delegated(("study".into(), r#"{"a":1}"#.into())),
        Observation::Success("done".into()),
        Observation::Error("no".into()),
    ];
    for observation in observations {
        let form = observation.to_json(Era::V2024);
        assert_eq!(Observation::from_json(&form).unwrap(), observation, "{form}");
    }
    let form = Observation::Tool(tool(false)).to_json(Era::V2025);
    assert_eq!(Observation::from_json(&form).unwrap(), Observation::Tool(tool(false)));
    assert_eq!(Observation::Tool(tool(true)).to_json(Era::V2025)["observation"], "error");
    let custom = CustomObservation {
        name: "dance".into(),
        content: "x".into(),
        extras: r#"{"a":1}"#.into(),
    };
    assert_eq!(
        Observation::Custom(custom).to_json(Era::V2025),
        json!({ "observation": "dance", "content": "x", "extras": { "a": 1 } })
    );
    assert!(Observation::from_json(&json!({ "observation": "run", "extras": {} })).is_err());
}

#[test]
fn a_message_is_what_was_said_called_and_answered() {
    let message = |sender, content: &str| Message {
        seq: 7,
        sender,
        sender_name: String::new(),
        recipient: None,
        content: content.into(),
        tool_calls: Vec::new(),
        tool_results: Vec::new(),
        attachments: Vec::new(),
        labels: Vec::new(),
        extra: Vec::new(),
    };
    let events = super::events_of_message(message(Role::User, "When?"));
    assert_eq!(
        (events[0].id, events[0].kind(), events[0].message(Era::V2025)),
        (Some(7), "message", "When?".to_owned())
    );
    let result = |is_error| ToolResult {
        call_id: "1".into(),
        name: "a.b".into(),
        content: "x".into(),
        is_error,
    };
    let mut answered = message(Role::Agent, "x\nx");
    answered.tool_results = vec![result(false), result(true)];
    let kinds: Vec<_> =
        super::events_of_message(answered).iter().map(|event| event.kind()).collect();
    assert_eq!(kinds, ["mcp", "error"]);
}

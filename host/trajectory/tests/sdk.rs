//! SDK events, their tree, and their calls without a result.

use conclave_trajectory::{
    Era, SdkEvent, SdkSource, TrajectoryEvent, file_name, parse_file_name, translate, tree_of,
    unmatched_events,
};
use serde_json::{Value, json};

fn action(id: &str, call: &str) -> Value {
    json!({
        "kind": "ActionEvent", "id": id, "timestamp": "2026-01-01T00:00:00", "source": "agent", "thought": [], "tool_name": "terminal",
        "tool_call_id": call, "tool_call": {"id": call, "name": "terminal", "arguments": "{}", "origin": "completion"},
        "llm_response_id": "r1", "action": {"kind": "TerminalAction", "command": "ls", "timeout": null},
    })
}

fn read(value: &Value) -> SdkEvent {
    SdkEvent::from_json(value).unwrap_or_else(|error| panic!("{value}: {error}"))
}

#[test]
fn events_are_read_and_stored_without_nulls() {
    let event = read(&action("a1", "c1"));
    assert_eq!(
        (event.kind, event.id.as_deref(), event.source),
        ("ActionEvent", Some("a1"), SdkSource::Agent)
    );
    let stored = event.to_json();
    assert_eq!(stored["action"], json!({"kind": "TerminalAction", "command": "ls"}));
    assert!(stored.get("parent_id").is_none());
    assert_eq!(read(&stored).to_json(), stored);
}

/// O-006: a round trip is stable after the first one.
#[test]
fn a_time_is_written_as_the_era_reads_it() {
    for (time, in_2024) in [
        ("2026-01-01T00:00:00.123456789", "2026-01-01T00:00:00.123456"),
        ("2026-01-01T00:00:00.1234567Z", "2026-01-01T00:00:00.123456+00:00"),
        ("2026-01-01 00:00", "2026-01-01T00:00:00"),
        ("2026-01-01T00:00:00.5", "2026-01-01T00:00:00.500000"),
    ] {
        let mut value = action("a1", "c1");
        value["timestamp"] = json!(time);
        let sdk = read(&value);
        assert_eq!(sdk.to_json()["timestamp"], time, "the SDK has no normal form");
        let event = translate(&[sdk]).remove(0);
        for (era, expected) in [(Era::V2024, in_2024), (Era::V2025, time)] {
            let written = event.to_json(era);
            assert_eq!(written["timestamp"], expected);
            let reread = TrajectoryEvent::from_json_of(&written, era)
                .unwrap_or_else(|error| panic!("{written}: {error}"));
            assert_eq!(reread.to_json(era), written, "it is written as it was");
        }
        let stored = serde_json::to_value(&event).expect("it is stored");
        assert_eq!(stored["timestamp"], time, "what is stored loses nothing");
    }
}

#[test]
fn a_source_not_given_is_that_of_the_kind() {
    for (kind, source) in
        [("PauseEvent", SdkSource::User), ("CondensationRequest", SdkSource::Environment)]
    {
        assert_eq!(read(&json!({"kind": kind})).source, source);
    }
    let hook = json!({"kind": "HookExecutionEvent", "hook_event_type": "Stop", "hook_command": "c", "success": true, "exit_code": 0});
    assert_eq!(read(&hook).source, SdkSource::Hook);
}

#[test]
fn what_is_wrong_is_refused_with_the_right_names() {
    let mut unknown = action("a1", "c1");
    unknown["zzz"] = json!(1);
    let mut missing = action("a1", "c1");
    missing["tool_call"] = Value::Null;
    for (value, says) in [
        (unknown, "unknown: zzz; missing: none"),
        (missing, "unknown: none; missing: tool_call"),
        (json!({"kind": "Nope"}), "Kind `Nope` does not exist. Known are: SystemPromptEvent"),
        (json!({"id": "a"}), "must have a `kind`"),
        (json!(3), "must be an object"),
        (json!({"kind": "PauseEvent", "id": "__root__"}), "names the root"),
        (
            json!({"kind": "PauseEvent", "source": "robot"}),
            "must be agent, user, environment or hook, and is `robot`",
        ),
        (json!({"kind": "PauseEvent", "id": 3}), "`id` of `PauseEvent` must be a string"),
        (json!({"kind": "ConversationErrorEvent", "code": "c", "detail": "d"}), "needs a `source`"),
        (
            json!({"kind": "Condensation", "llm_response_id": "r", "summary_offset": -1}),
            "must not be negative",
        ),
    ] {
        let error = SdkEvent::from_json(&value).expect_err("it is refused");
        assert!(error.to_string().contains(says), "{value}: {error}");
    }
}

#[test]
fn events_of_earlier_eras_are_told_apart() {
    assert!(SdkEvent::looks_like(&action("a", "c")));
    assert!(!SdkEvent::looks_like(&json!({"action": "run", "kind": "x"})));
    assert!(!SdkEvent::looks_like(&json!({"observation": "run"})));
}

#[test]
fn file_names_hold_place_and_id() {
    assert_eq!(file_name(7, "0a1b2c3d"), "event-00007-0a1b2c3d.json");
    assert_eq!(parse_file_name("event-00007-0a1b-2c3d.json"), Some((7, "0a1b-2c3d")));
    assert_eq!(parse_file_name(&file_name(1_234_567, "0a1b2c3d")), Some((1_234_567, "0a1b2c3d")));
    for name in [
        "event-0007-0a1b2c3d.json",
        "event-00007-0a1b.json",
        "event-00007-0a1b2c3g.json",
        "event-00007.json",
        "x",
        ".eventlog.lock",
    ] {
        assert_eq!(parse_file_name(name), None, "{name}");
    }
}

#[test]
fn calls_are_pending_until_answered_refused_or_failed() {
    let answer = |action: &str, call: &str| {
        json!({
            "kind": "ObservationEvent", "observation": {}, "action_id": action, "tool_name": "t", "tool_call_id": call,
        })
    };
    let refusal = json!({"kind": "UserRejectObservation", "action_id": "a2", "tool_name": "t", "tool_call_id": "c2"});
    let error =
        json!({"kind": "AgentErrorEvent", "error": "e", "tool_name": "t", "tool_call_id": "c3"});
    let mut not_understood = action("a5", "c5");
    not_understood["action"] = Value::Null;
    let log = [
        action("a1", "c1"),
        action("a2", "c2"),
        action("a3", "c3"),
        action("a4", "c4"),
        not_understood,
        answer("a1", "c1"),
        refusal,
        error,
    ];
    let events: Vec<SdkEvent> = log.iter().map(read).collect();
    let pending: Vec<_> =
        unmatched_events(&events).iter().filter_map(|event| event.id.as_deref()).collect();
    assert_eq!(pending, ["a4"]);

    let early: Vec<SdkEvent> = [answer("a1", "c1"), action("a1", "c1")].iter().map(read).collect();
    assert_eq!(unmatched_events(&early).len(), 1, "an answer before its call answers nothing");
}

/// Returns a pause, an event without fields of its own.
fn event(id: &str, parent: Option<&str>) -> SdkEvent {
    read(&json!({"kind": "PauseEvent", "id": id, "parent_id": parent}))
}

#[test]
fn a_path_goes_along_one_branch() {
    let events = [
        event("a", None),
        event("b", None),
        event("c", Some("a")),
        event("d", Some("__root__")),
        event("e", None),
    ];
    let (tree, wrong) = tree_of(&events);
    assert_eq!(wrong, []);
    for (leaf, path) in
        [("a", &[0][..]), ("b", &[0, 1]), ("c", &[0, 2]), ("d", &[3]), ("e", &[3, 4])]
    {
        assert_eq!(tree.path_to_root(Some(leaf)).as_deref(), Ok(path), "{leaf}");
    }
    assert_eq!(tree.path_to_root(None), Ok(vec![]));
}

#[test]
fn what_is_wrong_with_a_tree_is_named_with_its_place() {
    let (tree, wrong) = tree_of(&[
        event("a", None),
        event("a", None),
        event("b", Some("z")),
        event("x", Some("y")),
        event("y", Some("x")),
    ]);
    let errors: Vec<(usize, &str)> = wrong.iter().map(|(at, error)| (*at, error.name())).collect();
    assert_eq!(errors, [(1, "duplicate-id"), (2, "unknown-parent"), (3, "unknown-parent")]);
    let refused = |leaf| tree.path_to_root(Some(leaf)).map_err(|error| error.name());
    assert_eq!(
        [refused("y"), refused("b"), refused("no")],
        [Err("cycle"), Err("unknown-id"), Err("unknown-id")]
    );
}

#[test]
fn a_log_older_than_the_tree_is_one_chain() {
    let events: Vec<SdkEvent> = ["a", "b", "c"].iter().map(|id| read(&action(id, id))).collect();
    assert_eq!(tree_of(&events).0.path_to_root(Some("c")), Ok(vec![0, 1, 2]));
}

#[test]
fn a_log_of_the_sdk_is_translated_to_events_of_2025() {
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let mut odd = action("a2", "c2");
    odd["action"] = Value::Null;
    odd["tool_name"] = json!("browser");
    odd["tool_call"]["arguments"] = json!("{\"url\": \"u\"}");
    let log = [
        json!({"kind": "MessageEvent", "id": "m", "source": "user", "llm_message": {"role": "user", "content": text("do it")}}),
        json!({"kind": "ConversationStateUpdateEvent", "id": "s", "key": "full_state", "value": {}}),
        action("a1", "c1"),
        json!({
            "kind": "ObservationEvent", "id": "o1", "action_id": "a1", "tool_name": "terminal", "tool_call_id": "c1",
            "observation": {"kind": "TerminalObservation", "content": text("out"), "command": "ls", "exit_code": 2},
        }),
        odd,
        json!({"kind": "AgentErrorEvent", "id": "e", "error": "no such tool", "tool_name": "browser", "tool_call_id": "c2"}),
        json!({
            "kind": "Condensation", "id": "c", "forgotten_event_ids": ["a1", "o1"], "summary": "s", "summary_offset": 1,
            "llm_response_id": "r",
        }),
    ];
    let events = translate(&log.iter().map(read).collect::<Vec<_>>());
    let seen: Vec<(i64, Option<i64>, String)> = events
        .iter()
        .filter_map(|event| Some((event.id?, event.cause, event.message(Era::V2025))))
        .collect();
    let call = "I am interacting with the MCP server with name:\n```\nbrowser\n```\nand arguments:\n```\n{'url': 'u'}\n```";
    assert_eq!(
        seen,
        [
            (0, None, "do it".to_owned()),
            (2, None, "Running command: ls".to_owned()),
            (3, Some(2), "Command `ls` executed with exit code 2.".to_owned()),
            (4, None, call.to_owned()),
            (5, Some(4), "no such tool".to_owned()),
            (6, None, "Summary: s".to_owned()),
        ]
    );
}

#[test]
fn each_tool_that_has_a_kind_of_its_own_gets_it() {
    for (tool, args, kind) in [
        ("file_editor", json!({"command": "view", "path": "f", "view_range": [1, 2]}), "read"),
        ("file_editor", json!({"command": "create", "path": "f", "file_text": "x"}), "edit"),
        ("finish", json!({"message": "m"}), "finish"),
        ("think", json!({"thought": "t"}), "think"),
        (
            "task_tracker",
            json!({"command": "plan", "task_list": [{"title": "t"}]}),
            "task_tracking",
        ),
        ("grep", json!({"pattern": "p"}), "call_tool_mcp"),
    ] {
        let mut event = action("a1", "c1");
        event["tool_name"] = json!(tool);
        event["action"] = args;
        let translated = translate(&[read(&event)]);
        assert_eq!(translated.iter().map(|event| event.kind()).collect::<Vec<_>>(), [kind]);
        let stored = translated[0].to_json(Era::V2025);
        assert_eq!(
            TrajectoryEvent::from_json_of(&stored, Era::V2025).as_ref(),
            Ok(&translated[0]),
            "{stored}"
        );
    }
}

use super::*;
use crate::types::action::PlanState;
use crate::types::delegation::{Deliver, OnClose, ResultForm};

fn actions() -> Vec<Action> {
    let text = || "t".to_owned();
    vec![
        Action::Null,
        Action::Reply(Reply { content: Some(text()), ..Reply::default() }),
        Action::Run { command: text(), background: true },
        Action::Run { command: String::new(), background: false },
        Action::Kill { command_id: -7 },
        Action::RunIpython { code: "1\n".to_owned(), kernel_init_code: text() },
        Action::Browse { url: "http://a".to_owned() },
        Action::Read { path: text(), start: 3, end: -1 },
        Action::Write { path: text(), content: "a\nb".to_owned(), start: 0, end: 9 },
        Action::Recall { query: text() },
        Action::AddTask { parent: String::new(), goal: text(), subtasks: json!([{ "goal": "b" }]) },
        Action::ModifyTask { task_id: "0.1".to_owned(), state: PlanState::InProgress },
        Action::Delegate { agent: text(), inputs: json!({ "task": "x", "n": [1] }) },
        Action::DelegateTask(Box::new(Delegation {
            worker: text(),
            description: text(),
            context: json!({ "a": 1 }),
            share_channels: vec!["terminal".to_owned()],
            ..Delegation::default()
        })),
        Action::Think { thought: text() },
        Action::Talk { content: text() },
        Action::Finish { outputs: json!({ "a": 1, "b": 2 }) },
        Action::Finish { outputs: json!("all done") },
        Action::Finish { outputs: Value::Null },
        Action::Reject { outputs: json!("no") },
        Action::Custom {
            name: "edit".to_owned(),
            arguments: json!({ "path": "a", "command": "view" }),
        },
    ]
}

#[test]
fn what_is_written_is_read_again_in_either_form() {
    for action in actions().into_iter().filter(|action| !matches!(action, Action::Custom { .. })) {
        for era in [Era::V2024, Era::V2025] {
            let turn = Turn {
                action: action.clone(),
                thought: String::new(),
                wait_for_response: false,
                extra: Vec::new(),
            };
            assert!(action.to_wire("").is_some(), "{action:?} is known to no era");
            let events = turn.to_events(era);
            let event =
                TrajectoryEvent::from_json(&events[0]).expect("the codec reads what it wrote");
            assert_eq!(Turn::from_event(&event), Some(turn), "{era:?} {events:?}");
        }
        assert_eq!(
            Action::from_args(action.name(), &action.args()).expect("they are its own"),
            action
        );
    }
}

/// An approver of a delegation approves the brief that the worker reads, not only its label.
#[test]
fn what_a_delegation_has_besides_its_fixed_form_is_shown_and_read_back() {
    let delegation = Delegation {
        worker: "a".to_owned(),
        description: "tidy up".to_owned(),
        context: json!({}),
        brief: Some("delete all".to_owned()),
        conversation: 100,
        wait: true,
        structured_retries: Some(3),
        result_schema: Some(json!({ "type": "object" })),
        notify: Some("n".into()),
        deliver: Deliver::By("s".into()),
        result_delivery: Some(ResultForm::Text),
        deadline_ms: Some(5),
        turns: Some(3),
        on_close: Some(OnClose::Detach),
        key: Some("k".to_owned()),
        share_channels: vec!["c".to_owned()],
    };
    let action = Action::DelegateTask(Box::new(delegation));
    let args = action.args();
    let more = (&args["notify"], &args["deliver"], &args["on_close"], &args["deadline_ms"]);
    assert_eq!(more, (&json!("n"), &json!({ "by": "s" }), &json!("detach"), &json!(5)));
    let mut odd = args.clone();
    odd["on_close"] = json!("explode");
    assert!(Action::from_args("delegate_task", &odd).is_err(), "an invalid option is no option");
    let options =
        (&args["brief"], &args["conversation"], &args["wait"], &args["structured_retries"]);
    assert_eq!(options, (&json!("delete all"), &json!(100), &json!(true), &json!(3)));
    assert_eq!(Action::from_args("delegate_task", &args).expect("they are its own"), action);
}

#[test]
fn a_thought_goes_with_whatever_can_have_one() {
    for action in actions() {
        let turn = Turn {
            action,
            thought: "because".to_owned(),
            wait_for_response: false,
            extra: Vec::new(),
        };
        let events = turn.to_events(Era::V2025);
        let has_none = matches!(
            turn.action,
            Action::Null | Action::Reply(_) | Action::Talk { .. } | Action::Think { .. }
        );
        assert_eq!(events[0]["args"]["thought"] == json!("because"), !has_none, "{events:?}");
    }
}

#[test]
fn arguments_are_the_fixed_ones_without_an_empty_thought() {
    let args = |action: Action| action.args();
    assert_eq!(
        args(Action::Run { command: "ls".to_owned(), background: false }),
        json!({ "command": "ls", "background": false })
    );
    assert_eq!(
        args(Action::Read { path: "a".to_owned(), start: 0, end: -1 }),
        json!({ "path": "a", "start": 0, "end": -1 })
    );
    assert_eq!(args(Action::Kill { command_id: 3 }), json!({ "command_id": 3 }));
    assert_eq!(
        args(Action::Custom { name: "edit".to_owned(), arguments: json!({ "path": "a" }) }),
        json!({ "path": "a" })
    );
    assert_eq!(args(Action::Custom { name: "x".to_owned(), arguments: Value::Null }), json!({}));
}

#[test]
fn nothing_is_done_under_another_name() {
    let custom =
        |name: &str, arguments: Value| Action::Custom { name: name.to_owned(), arguments }.typed();
    assert_eq!(custom("kill", json!({ "command_id": "42" })), Action::Kill { command_id: 42 });
    assert_eq!(
        custom("run", json!({ "command": "ls", "security_risk": 2 })),
        Action::Run { command: "ls".to_owned(), background: false }
    );
    assert_eq!(
        custom("finish", json!({ "outputs": {}, "final_thought": "bye" })),
        Action::Finish { outputs: json!("bye") }
    );
    let call = Action::Reply(Reply {
        tool_calls: vec![ToolCall::new("box.a", json!({ "n": 1 }))],
        ..Reply::default()
    });
    assert_eq!(custom("call_tool_mcp", json!({ "name": "box.a", "arguments": { "n": 1 } })), call);
    // Actions that the core's type would lose in part, malformed ones and unknown ones stay
    // unchanged.
    for (name, arguments) in [
        ("run", json!({ "command": "C-c", "is_input": true })),
        ("read", json!({ "path": "a", "view_range": [1, 2] })),
        ("run", json!({ "cmd": "ls" })),
        ("kill", json!({ "command_id": "seven" })),
        ("modify_task", json!({ "task_id": "0", "state": "lost" })),
        ("dance", json!([1])),
    ] {
        let Action::Custom { name: custom_name, .. } = custom(name, arguments.clone()) else {
            panic!("{name} {arguments}")
        };
        assert_eq!(custom_name, name);
    }
    let Action::Custom { arguments, .. } =
        custom("run", json!({ "command": "C-c", "is_input": true }))
    else {
        panic!()
    };
    assert_eq!((&arguments["command"], &arguments["is_input"]), (&json!("C-c"), &json!(true)));
}

#[test]
fn calls_of_a_reply_are_events_of_their_own() {
    let calls = vec![ToolCall::new("box.a", json!({ "n": 1 })), ToolCall::new("box.b", json!([2]))];
    let reply = Reply { content: Some("look".to_owned()), tool_calls: calls, ..Reply::default() };
    let turn = Turn {
        action: Action::Reply(reply),
        thought: String::new(),
        wait_for_response: false,
        extra: Vec::new(),
    };
    let events = turn.to_events(Era::V2025);
    let seen: Vec<_> = events
        .iter()
        .map(|event| (&event["action"], &event["args"]["name"], &event["args"]["thought"]))
        .collect();
    let (call, a, b) = (json!("call_tool_mcp"), json!("box.a"), json!("box.b"));
    // O-049
    assert_eq!(seen, [(&call, &a, &json!("look")), (&call, &b, &json!(""))]);
    assert_eq!(events[1]["args"]["arguments"], json!({ "value": [2] }));
}

#[test]
fn observations_are_read_as_they_were_written() {
    let text = || "t".to_owned();
    let all = [
        Observation::Null,
        Observation::Command { command_id: 4, command: text(), exit_code: 2, content: text() },
        Observation::Cell { code: text(), content: text() },
        Observation::File { path: text(), content: text() },
        Observation::Written { path: text() },
        Observation::Success { content: text() },
        Observation::Error { content: text() },
        Observation::Custom {
            name: "dance".to_owned(),
            content: text(),
            extras: json!({ "a": 1 }),
        },
        Observation::Custom {
            name: "user_rejected".to_owned(),
            content: text(),
            extras: json!({}),
        },
    ];
    for observation in all {
        for era in [Era::V2024, Era::V2025] {
            assert_eq!(
                Observation::from_json(&observation.to_json(era)).expect("it is one"),
                observation,
                "{era:?}"
            );
        }
    }
    let page = Observation::Browsed { url: text(), status: 404, content: text(), error: true };
    assert_eq!(Observation::from_json(&page.to_json(Era::V2024)).expect("it is one"), page);
    let recalled = Observation::Recalled { memories: vec![text()] };
    assert_eq!(Observation::from_json(&recalled.to_json(Era::V2024)).expect("it is one"), recalled);
    let tool = Observation::Tool(ToolResult {
        call_id: "c".to_owned(),
        name: text(),
        content: text(),
        value: None,
        is_error: true,
    });
    assert_eq!(
        Observation::from_json(&tool.to_json(Era::V2025)).expect("it is one"),
        Observation::Error { content: text() }
    );
    for wrong in [
        json!(3),
        json!({}),
        json!({ "observation": 1 }),
        json!({ "action": "run", "args": { "command": "x" } }),
        json!({ "observation": "read" }),
    ] {
        Observation::from_json(&wrong).expect_err("it is none");
    }
    let huge = json!({ "observation": "run", "content": "", "extras": { "command": "x", "metadata": { "exit_code": i64::MAX } } });
    let read = Observation::from_json(&huge).expect("it is one");
    assert!(matches!(read, Observation::Command { exit_code: -1, .. }), "{read:?}");
}

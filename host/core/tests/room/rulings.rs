//! Rulings beyond the reach of scripts: events of the wrong kind, damaged journals, inconsistent
//! setups, floods.

use conclave_core::journal::record::{self, JournalError, RecordTooDeep, from_lines};
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, Principal, RULES, Record, RunOpening};
use conclave_core::room::Room;
use conclave_core::setup::Setup;
use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::completion::{Completion, StopReason, TokenUsage};
use conclave_core::types::delivery::Decision;
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::{CallId, Millis, PluginName};
use conclave_core::types::json_depth::JSON_DEPTH_MAX;
use conclave_core::types::message::ToolCall;
use conclave_core::types::tool::ToolOutcome;
use conclave_core::types::usage::UsedByPlugin;
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::plan::request;

fn case(setup: &Value) -> Case {
    serde_json::from_value(json!({ "name": "by hand", "setup": setup, "expect": {} }))
        .expect("a case of the right form")
}

fn opened(setup: &Value) -> Room {
    let case = case(setup);
    let mut room = Room::new();
    room.handle(
        Event::RoomOpened { setup: case.setup().into(), opening: case.opening(), secret: SECRET },
        START,
    );
    room
}

fn effects(room: &mut Room) -> Vec<Effect> {
    std::iter::from_fn(|| room.poll_effect()).collect()
}

fn reply(calls: Vec<ToolCall>) -> Turn {
    let action = Action::Reply(Reply {
        content: Some("reply".to_owned()),
        tool_calls: calls,
        ..Reply::default()
    });
    Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() }
}

fn stepped(call: u64, turn: Turn) -> Event {
    Event::AgentStepped { call: CallId(call), answer: Ok(turn), report: CallReport::default() }
}

fn finish() -> Turn {
    Turn { action: Action::Finish { outputs: json!("end") }, ..reply(Vec::new()) }
}

fn call(name: &str) -> ToolCall {
    ToolCall::new(name, json!({}))
}

fn line_of(record: &Record) -> String {
    record::to_line(record).expect("it is not deep")
}

fn record(seq: u64, event: Event) -> Record {
    Record { seq, at: START, principal: Principal("tester".into()), rules: RULES, epoch: 0, event }
}

/// Returns a room with a tool plugin `box` that its agent may use.
fn with_box() -> Value {
    json!({ "plugins": { "desk": { "grants": { "tools": ["*"] } }, "box": { "tools": ["a"] } } })
}

#[test]
fn events_before_the_opening_and_after_the_end_change_nothing() {
    let mut room = Room::new();
    room.handle(Event::Cancelled { reason: "early".to_owned() }, Millis::default());
    assert_eq!(room, Room::new());
    let mut room = opened(&json!({}));
    room.handle(stepped(0, finish()), START);
    assert!(room.outcome().is_some());
    effects(&mut room);
    let over = room.clone();
    room.handle(Event::Cancelled { reason: "late".to_owned() }, START);
    room.handle(stepped(0, finish()), START);
    assert_eq!(room, over);
}

#[test]
fn a_second_opening_changes_nothing() {
    let mut room = opened(&json!({}));
    effects(&mut room);
    let before = room.clone();
    let other = case(&json!({ "entry": "other" }));
    room.handle(
        Event::RoomOpened { setup: other.setup().into(), opening: other.opening(), secret: SECRET },
        START,
    );
    assert_eq!(room, before);
}

#[test]
fn an_event_of_another_kind_does_not_answer_a_call() {
    let mut room = opened(&json!({ "plugins": { "desk": { "kinds": ["agent", "responder"] } } }));
    // Call 0 is the component's respond.
    assert!(matches!(effects(&mut room)[..], [Effect::AskResponder { call: CallId(0), .. }]));
    let before = room.clone();
    room.handle(Event::Sent { call: CallId(0), failure: None, unknown: false }, START);
    room.handle(stepped(0, finish()), START);
    room.handle(
        Event::UserAnswered {
            call: CallId(0),
            text: Some("q".to_owned()),
            attachments: Vec::new(),
            passed: false,
        },
        START,
    );
    room.handle(
        Event::ToolAnswered {
            call: CallId(0),
            answer: Ok(ToolOutcome::default()),
            report: CallReport::default(),
        },
        START,
    );
    room.handle(
        Event::StrategyDecided {
            call: CallId(0),
            answer: Ok(Vec::new()),
            report: CallReport::default(),
        },
        START,
    );
    assert_eq!(room, before);
    room.handle(
        Event::AgentResponded { call: CallId(0), answer: Ok(None), report: CallReport::default() },
        START,
    );
    room.handle(
        Event::AgentResponded {
            call: CallId(1),
            answer: Ok(Some(finish())),
            report: CallReport::default(),
        },
        START,
    );
    assert!(room.outcome().is_none(), "a step is not answered by a response");
    room.handle(stepped(1, finish()), START);
    assert!(room.outcome().is_some());
}

#[test]
fn a_server_that_does_not_say_what_it_used_is_counted_by_its_texts() {
    let spent = |model: Value| {
        let setup = json!({
            "models": { "default": model }, "limits": { "tokens": 100_000 }, "plugins": { "desk": { "grants": { "model": ["default"] } } },
        });
        let (content, usage) = (Some("word ".repeat(80)), TokenUsage::default());
        let silent = Completion {
            id: String::new(),
            content,
            reasoning: None,
            tool_calls: Vec::new(),
            stop: StopReason::End,
            usage,
            model: String::new(),
        };
        let mut room = opened(&setup);
        room.handle(
            Event::ModelAsked { call: CallId(0), ordinal: 0, request: request(&Value::Null) },
            START,
        );
        room.handle(
            Event::ModelAnswered {
                call: CallId(0),
                ordinal: 0,
                answer: Ok(silent),
                trouble: None,
                was_shown: false,
            },
            START,
        );
        room.spent().tokens
    };
    assert!(spent(json!({ "reached_at": "127.0.0.1:80" })) >= 100);
    // A native plugin uses no budget, and reports so.
    assert_eq!(spent(json!({})), 0);
}

#[test]
fn a_model_answer_that_comes_after_its_plugin_is_counted_and_given_to_nobody() {
    let setup = json!({
        "models": { "default": {} }, "limits": { "tokens": 100 },
        "tasks": { "desk": { "max_stalled_steps": 3 } }, "plugins": { "desk": { "grants": { "model": ["default"] } } },
    });
    let completion = |tokens| Completion {
        id: String::new(),
        content: None,
        reasoning: None,
        tool_calls: Vec::new(),
        stop: StopReason::End,
        usage: TokenUsage { input_tokens: tokens, ..TokenUsage::default() },
        model: String::new(),
    };
    let mut room = opened(&setup);
    room.handle(
        Event::ModelAsked { call: CallId(0), ordinal: 0, request: request(&Value::Null) },
        START,
    );
    let fault = Fault::new(FaultKind::Wall, "too slow");
    room.handle(
        Event::AgentStepped { call: CallId(0), answer: Err(fault), report: CallReport::default() },
        START,
    );
    effects(&mut room);
    room.handle(
        Event::ModelAnswered {
            call: CallId(0),
            ordinal: 0,
            answer: Ok(completion(60)),
            trouble: None,
            was_shown: false,
        },
        START,
    );
    assert_eq!(room.spent().tokens, 60);
    assert_eq!(effects(&mut room), Vec::new());
    // A second answer to the same request costs nothing.
    room.handle(
        Event::ModelAnswered {
            call: CallId(0),
            ordinal: 0,
            answer: Ok(completion(60)),
            trouble: None,
            was_shown: false,
        },
        START,
    );
    assert_eq!(room.spent().tokens, 60);
}

#[test]
fn a_flood_of_calls_runs_in_part_and_is_answered_in_full() {
    let mut room = opened(&with_box());
    effects(&mut room);
    room.handle(stepped(0, reply((0..1_000).map(|_| call("box.a")).collect())), START);
    let started = effects(&mut room);
    assert_eq!(started.len(), 128);
    for call in room.calls_in_flight().collect::<Vec<_>>() {
        let then = vec![self::call("box.a"); 500];
        room.handle(
            Event::ToolAnswered {
                call,
                answer: Ok(ToolOutcome { follow_up_calls: then, ..ToolOutcome::default() }),
                report: CallReport::default(),
            },
            START,
        );
    }
    let next = effects(&mut room);
    assert!(matches!(next[..], [Effect::StepAgent { .. }]), "{next:?}");
    let history = room.history(&"desk".into());
    let results = &history.last().expect("the results were written").tool_results;
    assert_eq!(results.len(), 1_000);
    assert!(results.iter().skip(128).all(|result| result.is_error));
}

#[test]
fn calls_that_follow_do_not_lift_the_bound_of_a_round() {
    let mut room = opened(&with_box());
    effects(&mut room);
    room.handle(stepped(0, reply(vec![call("box.a")])), START);
    let mut started = 0;
    loop {
        let calls: Vec<CallId> = effects(&mut room)
            .iter()
            .filter(|effect| matches!(effect, Effect::CallTool { .. }))
            .filter_map(Effect::starts)
            .collect();
        if calls.is_empty() {
            break;
        }
        started += calls.len();
        for call in calls {
            let then = vec![self::call("box.a"); 100];
            let answer = Ok(ToolOutcome { follow_up_calls: then, ..ToolOutcome::default() });
            room.handle(Event::ToolAnswered { call, answer, report: CallReport::default() }, START);
        }
    }
    assert_eq!(started, 128);
    let history = room.history(&"desk".into());
    let last =
        history.last().and_then(|message| message.tool_results.last()).expect("there are results");
    assert!(last.is_error, "the agent reads that there were more: {last:?}");
}

#[test]
fn a_strategy_that_waits_for_ever_does_not_hold_the_room_for_ever() {
    let setup = json!({
        "tasks": { "desk": {}, "slow": { "delivery_strategy": "teller" } },
        "plugins": { "desk": { "grants": { "delegate": ["slow"] } }, "teller": { "kinds": ["delivery-strategy"] } },
    });
    let mut room = opened(&setup);
    let delegate = Action::Delegate { agent: String::new(), inputs: Value::Null };
    let background = serde_json::from_value(
        json!({ "action": "delegate_task", "args": { "agent": "slow", "task": "x", "context": {} } }),
    );
    let turn = Turn { action: background.unwrap_or(delegate), ..finish() };
    room.handle(stepped(0, turn), START);
    let mut wakes = 0;
    for round in 0..5_000 {
        for effect in effects(&mut room) {
            let event = match effect {
                Effect::StepAgent { call, .. } if round > 0 => stepped(call.0, finish()),
                Effect::StartBackground { call, .. } => {
                    let ended =
                        conclave_core::types::delivery::EndedTask::interrupted("x".to_owned());
                    Event::BackgroundEnded {
                        call,
                        ended,
                        spent: room.spent(),
                        used: UsedByPlugin::new(),
                    }
                }
                Effect::WakeStrategy { call, .. } => {
                    wakes += 1;
                    let decisions = vec![Decision::Wait { channel: None, timeout_ms: 0 }; 50];
                    Event::StrategyDecided {
                        call,
                        answer: Ok(decisions),
                        report: CallReport::default(),
                    }
                }
                Effect::SetTimer { timer, .. } => Event::TimerFired { timer },
                Effect::StepAgent { call, .. } => stepped(call.0, finish()),
                _ => continue,
            };
            room.handle(event, START);
        }
    }
    assert!(room.outcome().is_some());
    assert_eq!(wakes, 1_000);
}

#[test]
fn a_grant_for_the_whole_run_does_not_start_anew_in_a_child_room() {
    let setup = json!({
        "tasks": { "desk": {}, "slow": {} },
        "plugins": { "desk": { "grants": { "delegate": ["slow"], "at_once": 4, "total": 3 } } },
    });
    let delegate = || {
        let action = serde_json::from_value(
            json!({ "action": "delegate_task", "args": { "agent": "slow", "task": "x", "context": {} } }),
        );
        Turn { action: action.expect("it is an action"), ..finish() }
    };
    let mut room = opened(&setup);
    room.handle(stepped(0, delegate()), START);
    let started = effects(&mut room).into_iter().find_map(|effect| match effect {
        Effect::StartBackground { call, opening, .. } => Some((call, opening)),
        _ => None,
    });
    let (call, opening) = started.expect("one is granted");
    let desk = PluginName::from("desk");
    assert_eq!(
        opening.used.get(&desk).map(|used| used.background),
        Some(1),
        "the child knows of its own start"
    );
    // The child starts two more tasks, and ends.
    let mut used = opening.used.clone();
    used.entry(desk).or_default().background = 3;
    let ended = conclave_core::types::delivery::EndedTask::interrupted("x".to_owned());
    room.handle(Event::BackgroundEnded { call, ended, spent: room.spent(), used }, START);
    let step = room.calls_in_flight().next().expect("the next step");
    room.handle(stepped(step.0, delegate()), START);
    let refused = std::iter::from_fn(|| room.poll_notice())
        .any(|notice| format!("{notice:?}").contains("grants.delegate.total is 3"));
    assert!(refused, "all three were used, two of them below");
}

#[test]
fn a_setup_that_lacks_a_plugin_breaks_nothing() {
    let case = case(&json!({
        "tasks": { "desk": { "subtasks": ["help"] }, "help": {} },
        "plugins": { "desk": { "grants": { "tools": ["*"], "route": ["help"] } }, "box": { "tools": ["a"] } },
    }));
    let mut setup: Setup = case.setup();
    setup.plugins.remove(&PluginName::from("desk"));
    let mut room = Room::new();
    room.handle(
        Event::RoomOpened { setup: setup.into(), opening: case.opening(), secret: SECRET },
        START,
    );
    room.handle(stepped(0, reply(vec![call("box.a")])), START);
    let mut to_help = reply(vec![call("safe.open")]);
    to_help.action =
        Action::Reply(Reply { recipient: Some("help".to_owned()), ..Reply::default() });
    let next = room.calls_in_flight().next().expect("the tool or the next step");
    room.handle(
        Event::ToolAnswered {
            call: next,
            answer: Ok(ToolOutcome::default()),
            report: CallReport::default(),
        },
        START,
    );
    let next = room.calls_in_flight().next().expect("the next step");
    room.handle(stepped(next.0, to_help), START);
    let refused = std::iter::from_fn(|| room.poll_notice())
        .any(|notice| format!("{notice:?}").contains("the config has no plugin desk"));
    assert!(refused, "who is not in the setup has no rights");
}

#[test]
fn what_a_plugin_nests_as_deep_as_it_may_can_be_read_back() {
    let mut deep = json!("core");
    for _ in 0..127 {
        deep = json!([deep]);
    }
    let text = deep.to_string();
    let deep: Value = serde_json::from_str(&text).expect("as deep as a plugin may nest");
    let turn = Turn { action: Action::Finish { outputs: deep }, ..finish() };
    let line = line_of(&record(0, stepped(0, turn)));
    let read = from_lines(&(line.clone() + "\n")).expect("the room can be resumed");
    assert_eq!(line_of(&read[0]), line);
}

#[test]
fn a_record_that_could_not_be_read_again_is_not_written() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let deep = |levels: usize| {
        let opening = RunOpening { inputs: nested(levels), ..RunOpening::default() };
        record(7, Event::RunStarted { setup: None, opening })
    };
    // Two levels belong to the record and its opening.
    let most = JSON_DEPTH_MAX - 2;
    let line = record::to_line(&deep(most)).expect("as deep as a line may be");
    assert!(
        matches!(from_lines(&(line + "\n")), Err(JournalError::Gap { actual: 7, .. })),
        "it is read"
    );
    let refused = record::to_line(&deep(most + 1)).expect_err("it would never be read");
    assert_eq!(refused, RecordTooDeep { seq: 7 });
    assert!(refused.to_string().contains("record_too_deep"), "{refused}");
}

#[test]
fn a_record_that_is_nested_too_deep_is_named_and_not_read() {
    let first_line = line_of(&record(0, stepped(0, finish())));
    for levels in [300, 100_000] {
        let nested = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        let deep = format!(
            r#"{{"seq":1,"at":1,"principal":"x","rules":{RULES},"event":"agent-stepped","call":0,"answer":{nested}}}"#
        );
        let unclosed = format!(
            r#"{{"seq":1,"at":1,"principal":"x","rules":{RULES},"event":{}"#,
            "[".repeat(levels)
        );
        for line in [deep, unclosed] {
            let error = from_lines(&format!("{first_line}\n{line}\n{first_line}\n"))
                .expect_err("nobody wrote this");
            assert!(matches!(error, JournalError::TooDeep { line: 2, seq: 1 }), "{error}");
            assert_eq!(error.code(), "record_too_deep");
            // A torn end was never acknowledged, at any depth.
            assert_eq!(
                from_lines(&format!("{first_line}\n{line}")).map(|read| read.len()).ok(),
                Some(1)
            );
        }
    }
}

#[test]
fn the_secret_of_a_room_is_in_its_journal_and_in_nothing_else_that_is_written_of_it() {
    let case: Case =
        serde_json::from_value(json!({ "name": "by hand", "expect": {} })).expect("a case");
    let opened = record(
        0,
        Event::RoomOpened { setup: case.setup().into(), opening: case.opening(), secret: SECRET },
    );
    let (hex, line) = (SECRET.to_hex(), line_of(&opened));
    assert!(line.contains(&hex));
    assert_eq!(
        from_lines(&(line.clone() + "\n")).expect("it reads"),
        std::slice::from_ref(&opened)
    );
    // Without a secret the journal does not belong to this host.
    let without = line.replace(&format!(",\"secret\":\"{hex}\""), "") + "\n";
    assert!(matches!(from_lines(&without), Err(JournalError::Malformed { .. })));
    let room = record::fold([opened.clone()]);
    assert_eq!(room.secret(), Some(&SECRET));
    let retelling = record::retold([opened.clone()]);
    let written = [
        serde_json::to_string(&opened).expect("a record is JSON"),
        serde_json::to_string(&opened.event).expect("an event is JSON"),
        opened.to_string(),
        format!("{opened:?} {room:?} {retelling:?}"),
        line_of(&std::sync::Arc::new(opened.clone()).without_secret()),
    ];
    let bytes = format!("{:?}", SECRET.as_bytes());
    assert!(
        written
            .iter()
            .all(|text| !text.contains(&hex) && !text.contains(bytes.trim_matches(['[', ']']))),
        "{written:#?}"
    );
}

#[test]
fn numbers_come_back_from_a_journal_to_the_last_digit() {
    let numbers: Vec<f64> = (1..2_000)
        .map(|n| f64::from(n).sqrt() * 1e-7 / 3.0)
        .chain([f64::MAX, f64::MIN_POSITIVE, 9.007_199_254_740_993e15])
        .collect();
    let outputs = json!({ "numbers": numbers, "largest": u64::MAX, "smallest": i64::MIN });
    let event = record(0, stepped(0, Turn { action: Action::Finish { outputs }, ..finish() }));
    assert_eq!(from_lines(&(line_of(&event) + "\n")).expect("it is whole"), vec![event]);
}

#[test]
fn a_torn_last_line_is_left_out_and_any_other_damage_is_reported() {
    let lines: Vec<String> =
        (0..3).map(|seq| line_of(&record(seq, stepped(seq, finish())))).collect();
    let torn = format!("{}\n{}\n{}", lines[0], lines[1], &lines[2][..20]);
    assert_eq!(from_lines(&torn).expect("the rest is whole").len(), 2);
    let broken = format!("{}\n{}\n{}\n", lines[0], &lines[1][..20], lines[2]);
    assert!(matches!(from_lines(&broken), Err(JournalError::Malformed { line: 2, .. })));
    let gap = format!("{}\n{}\n", lines[0], lines[2]);
    assert!(matches!(from_lines(&gap), Err(JournalError::Gap { line: 2, expected: 1, actual: 2 })));
    let twice = format!("{}\n{}\n", lines[0], lines[0]);
    assert!(matches!(from_lines(&twice), Err(JournalError::Gap { line: 2, .. })));
    assert!(matches!(
        from_lines(&format!("{}garbage\n", lines[0])),
        Err(JournalError::Malformed { line: 1, .. })
    ));
}

#[test]
fn other_rules_are_named_also_when_their_events_are_unknown_here() {
    let known = Record { rules: RULES + 1, ..record(0, stepped(0, finish())) };
    assert!(
        matches!(from_lines(&(line_of(&known) + "\n")), Err(JournalError::OtherRules { seq: 0, rules }) if rules == RULES + 1)
    );
    let with_rules = |rules: u32| {
        format!(
            "{{\"seq\":0,\"at\":1,\"principal\":\"x\",\"rules\":{rules},\"event\":\"room-forked\",\"from\":3}}\n"
        )
    };
    let unknown = with_rules(RULES + 1);
    assert!(
        matches!(from_lines(&unknown), Err(JournalError::OtherRules { seq: 0, rules }) if rules == RULES + 1)
    );
    let same_rules = with_rules(RULES);
    assert!(matches!(from_lines(&same_rules), Err(JournalError::Malformed { line: 1, .. })));
}

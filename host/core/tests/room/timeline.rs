//! A run as rows in time: for every case, for arbitrary events, and for one run in detail.

use conclave_core::inspect::prompts::{PromptMessage, prompts};
use conclave_core::inspect::timeline::{Given, RowSubject, Timeline, TimelineFold};
use conclave_core::inspect::{audit, export};
use conclave_core::journal::record::retold;
use conclave_core::protocol::event::{Event, Principal, RULES, Record, RunOpening};
use conclave_core::protocol::notice::SkipReason;
use conclave_core::trajectory::Era;
use conclave_core::types::ids::{Millis, RoomId};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};
use serde_json::{Value, json};

use crate::case::{Case, START};
use crate::properties::answered;
use crate::world::{Order, World};

fn ran(case: &Case) -> Vec<Record> {
    let mut world = World::new(case, Order::First);
    world.run();
    world.records
}

fn case(case: Value) -> Case {
    serde_json::from_value(case).expect("a case of the right form")
}

/// Returns the violated properties of a timeline.
fn problems(timeline: &Timeline) -> Vec<String> {
    let mut problems = Vec::new();
    let mut depth = 0;
    for row in &timeline.rows {
        if row.depth > depth + 1 {
            problems.push(format!("{} is two levels below the row before it", row.seq));
        }
        depth = row.depth;
        if row.end_ms.is_some_and(|end| end < row.start_ms || end > timeline.took_ms) {
            problems.push(format!("{} ends outside the run", row.seq));
        }
        if timeline.ended.is_some() && row.end_ms.is_none() && row.room == timeline.run {
            problems.push(format!("the run is over, and {:?} goes on", row.what));
        }
    }
    problems
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the cases are data beside the tests")]
fn every_case_has_a_timeline_and_it_is_read_back_as_it_is() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/room");
    let mut cases = 0;
    for file in std::fs::read_dir(folder).expect("cases").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("a file of cases");
        for case in serde_json::from_str::<Vec<Case>>(&text).expect("cases") {
            let records = ran(&case);
            let count = records.len() as u64;
            let timeline = Timeline::of([records]).expect("a journal that begins as one does");
            assert_eq!(problems(&timeline), Vec::<String>::new(), "{}", case.name);
            assert_eq!((timeline.totals.records, timeline.rooms[0].records), (count, count));
            let totals = &timeline.totals;
            let counted = [
                totals.steps,
                totals.model_calls,
                totals.tool_calls,
                totals.side_effects,
                totals.approvals,
                totals.denials,
            ];
            let rows =
                |is: &str| timeline.rows.iter().filter(|row| row.what.kind() == is).count() as u64;
            let row_counts =
                ["step", "model", "tool", "side-effect", "approval", "denied"].map(rows);
            assert_eq!(counted, row_counts, "what is summed up is what has a row: {}", case.name);
            let line = serde_json::to_string(&timeline).expect("serialisable");
            assert_eq!(
                serde_json::from_str::<Timeline>(&line).expect("readable"),
                timeline,
                "{}",
                case.name
            );
            cases += 1;
        }
    }
    assert!(cases > 200, "{cases}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the cases are data beside the tests")]
fn the_records_hold_the_prompt_of_each_model_call() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/room");
    let mut count = 0;
    for file in std::fs::read_dir(folder).expect("cases").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("a file of cases");
        for case in serde_json::from_str::<Vec<Case>>(&text).expect("cases") {
            let mut world = World::new(&case, Order::First);
            world.run();
            let mut sent: Vec<&str> =
                world.seen.prompts.iter().filter_map(|sent| sent["last"].as_str()).collect();
            let rebuilt = prompts(world.records.clone());
            let mut last: Vec<&str> = rebuilt.iter().map(|it| it.prompt.last_text()).collect();
            sent.sort_unstable();
            last.sort_unstable();
            assert_eq!(last, sent, "{}", case.name);
            let timeline = Timeline::of([world.records]).expect("a timeline");
            let rows = timeline.rows.iter().filter(|row| row.what.kind() == "model");
            let addresses: Vec<u64> = rows.map(|row| row.seq).collect();
            for prompt in &rebuilt {
                assert!(addresses.contains(&prompt.seq), "{}: {}", case.name, prompt.seq);
                assert!(prompt.call_seq <= prompt.seq && prompt.is_at(prompt.call_seq));
            }
            count += rebuilt.len();
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn a_prompt_is_read_as_the_model_reads_it() {
    let asking = case(json!({
        "name": "a question, and the result of a tool",
        "setup": {
            "models": { "default": {} },
            "plugins": {
                "desk": { "grants": { "tools": ["*"], "model": ["default"] } },
                "box": { "tools": ["a"] },
            },
        },
        "scripts": {
            "agents": { "desk": [
                { "call": [{ "name": "box.a", "id": "1", "arguments": { "n": 1 } }], "ask": [null] },
                { "finish": "end", "ask": [null] },
            ] },
            "tools": { "box.a": ["seven"] },
            "models": ["one", "two"],
        },
        "expect": {},
    }));
    let read: Vec<Vec<(&str, String)>> = prompts(ran(&asking))
        .iter()
        .map(|prompt| {
            let content = |it: PromptMessage| match it.tool_results.as_slice() {
                [result] => (it.role, result.content.clone()),
                _ => (it.role, it.text),
            };
            prompt.messages().into_iter().map(content).collect()
        })
        .collect();
    assert_eq!(read.len(), 2, "{read:?}");
    assert_eq!(read[0][0], ("system", "You are desk.".to_owned()));
    assert!(read[1].contains(&("tool", "seven".to_owned())), "{read:?}");
    let written = prompts(ran(&asking))[1].written();
    assert_eq!(written.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["box.a"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_run_that_is_cut_off_anywhere_has_one_too(row in vec(any::<u16>(), 0..200), at in any::<u16>()) {
        let mut records = answered(&row, 20_000).records;
        let timeline = Timeline::of([records.clone()]).expect("a journal that begins as one does");
        prop_assert!(problems(&timeline).is_empty(), "{:?}", problems(&timeline));
        records.truncate(usize::from(at) % records.len() + 1);
        let part = Timeline::of([records]).expect("the same");
        prop_assert!(problems(&part).is_empty(), "{:?}", problems(&part));
        prop_assert!(part.rows.len() <= timeline.rows.len());
    }
}

/// Returns an agent that calls a tool with an approval.
fn approval() -> Case {
    case(json!({
        "name": "one tool, asked about",
        "setup": {
            "plugins": { "desk": { "grants": { "tools": ["*"] } }, "box": { "tools": ["a"] } },
            "policy": [{ "tool": "box.a", "decide": "ask", "source": "conclave.toml:9" }],
        },
        "scripts": {
            "agents": { "desk": [{ "call": [{ "name": "box.a", "id": "1", "arguments": { "n": 1 } }] }, { "finish": "end" }] },
            "tools": { "box.a": ["seven"] },
            "approvals": [{ "approval": "approved" }],
        },
        "expect": {},
    }))
}

#[test]
fn an_approval_and_the_call_that_it_let_through_are_rows_of_their_task() {
    let mut records = ran(&approval());
    // Half a second between any two.
    records.iter_mut().for_each(|record| record.at = START.plus(500 * record.seq));
    let timeline = Timeline::of([records]).expect("a timeline");
    let kinds: Vec<(&str, u32, u64, Option<u64>)> = timeline
        .rows
        .iter()
        .map(|row| (row.what.kind(), row.depth, row.start_ms, row.end_ms))
        .collect();
    assert_eq!(
        kinds,
        [
            ("task", 0, 0, Some(2_000)),
            ("step", 1, 0, Some(500)),
            ("approval", 1, 500, Some(1_000)),
            ("tool", 1, 1_000, Some(1_500)),
            ("step", 1, 1_500, Some(2_000)),
        ]
    );
    let approval = timeline.rows.iter().find_map(|row| match &row.what {
        RowSubject::Approval { tool, arguments, source, given, .. } => {
            Some((tool.as_str(), arguments.as_str(), source.as_str(), given.clone()))
        }
        _ => None,
    });
    assert_eq!(approval, Some(("box.a", r#"{"n":1}"#, "conclave.toml:9", Some(Given::Approved))));
    assert!(timeline.rows.iter().any(|row| matches!(&row.what, RowSubject::Tool { answer, is_error: false, .. } if answer == "seven")));
    let totals = timeline.totals;
    assert_eq!(
        (totals.steps, totals.tool_calls, totals.approvals, totals.approval_ms),
        (2, 1, 1, 500)
    );
    assert_eq!(timeline.ended.expect("it is over").answer.as_deref(), Some("end"));
}

#[test]
fn calls_side_by_side_have_the_time_of_their_own_report() {
    let call = |id: &str, n: u64| json!({ "name": "box.a", "id": id, "arguments": { "n": n } });
    let mut records = ran(&case(json!({
        "name": "two at once",
        "setup": { "plugins": { "desk": { "grants": { "tools": ["*"] } }, "box": { "tools": ["a"] } } },
        "scripts": {
            "agents": { "desk": [{ "call": [call("1", 1), call("2", 2)] }, { "finish": "end" }] },
            "tools": { "box.a": ["one", "two"] },
        },
        "expect": {},
    })));
    records.iter_mut().for_each(|record| record.at = START.plus(1_000 * record.seq));
    let mut walls = [400_000, 900_000_000].into_iter();
    for record in &mut records {
        if let Event::ToolAnswered { report, .. } = &mut record.event {
            report.wall_us = walls.next().expect("two calls");
        }
    }
    let timeline = Timeline::of([records]).expect("a timeline");
    let tools = timeline.rows.iter().filter(|row| row.what.kind() == "tool");
    let lasted: Vec<u64> =
        tools.map(|row| row.end_ms.expect("it is over") - row.start_ms).collect();
    // The second answer claims more time than had passed: no row ends after its answer.
    assert_eq!(lasted, [400, 2_000]);
}

fn record(seq: u64, at: u64, event: Event) -> Record {
    Record {
        seq,
        at: START.plus(at),
        principal: Principal("tester".into()),
        rules: RULES,
        epoch: 0,
        event,
    }
}

#[test]
fn what_other_processes_said_is_shown_and_exported_once_however_often_it_arrived() {
    let control = |id: &str, message: Event| Event::ControlReceived {
        id: id.into(),
        by: None,
        message: Box::new(message),
    };
    let mut records = ran(&approval());
    // The approval is pending.
    records.truncate(2);
    let hurry =
        Event::UserMessageSent { task: None, text: "hurry".to_owned(), attachments: Vec::new() };
    let pause = Event::Paused { reason: "lunch".to_owned() };
    let stop = Event::Cancelled { reason: "enough".to_owned() };
    for (id, message) in
        [("c1", hurry), ("c2", pause.clone()), ("c3", Event::Unpaused), ("c2", pause), ("c4", stop)]
    {
        for _ in 0..2 {
            let seq = records.len() as u64;
            records.push(record(seq, 100 * seq, control(id, message.clone())));
        }
    }
    let log = export::log(records.clone(), Era::V2024);
    let hurried = log
        .iter()
        .filter(|event| event["source"] == "user" && event["args"]["content"] == "hurry")
        .count();
    assert_eq!(hurried, 1, "{log:?}");
    let entries = audit::entries(&retold(records.clone()));
    let of = |kind: audit::AuditKind| {
        entries
            .iter()
            .filter(|entry| entry.kind == kind)
            .map(|entry| entry.message.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of(audit::AuditKind::Stopped),
        ["the run was paused: lunch", "the run was stopped: enough"]
    );
    assert_eq!(of(audit::AuditKind::Resumed), ["the paused run was resumed"]);
    let timeline = Timeline::of([records]).expect("a timeline");
    let stops = timeline.rows.iter().filter(|row| row.what.kind() == "stopped").count();
    assert_eq!(
        (stops, timeline.ended.map(|ended| ended.reason)),
        (1, Some("enough".to_owned())),
        "{:?}",
        timeline.rows
    );
}

#[test]
fn what_is_under_way_has_no_end_and_the_time_without_a_host_is_left_out() {
    let mut records = ran(&approval());
    // The approval is pending while the host stops for an hour.
    records.truncate(2);
    records[1].at = START.plus(100);
    records.push(record(
        2,
        3_600_100,
        Event::Resumed { down_ms: 3_600_000, is_exact: false, setup: None },
    ));
    let last = records.len() as u64;
    let mut reads = record(
        last,
        3_600_400,
        Event::ReadsRecorded { call: conclave_core::types::ids::CallId(0), reads: Vec::new() },
    );
    reads.seq = last;
    records.push(reads);
    let timeline = Timeline::of([records]).expect("a timeline");
    assert_eq!(timeline.took_ms, 400);
    assert_eq!(
        (timeline.totals.resumed, timeline.totals.down_ms, timeline.totals.approval_ms),
        (1, 3_600_000, 300)
    );
    assert!(timeline.ended.is_none());
    let mut now = timeline.clone();
    now.extend(START.plus(3_601_000));
    assert_eq!((now.took_ms, now.totals.approval_ms), (1_000, 900));
    let at = |is: &str| timeline.rows.iter().position(|row| row.what.kind() == is);
    assert!(at("approval") < at("resumed"), "in the order of time");
    let open: Vec<&str> = timeline
        .rows
        .iter()
        .filter(|row| row.end_ms.is_none())
        .map(|row| row.what.kind())
        .collect();
    assert_eq!(open, ["task", "approval"]);
}

#[test]
fn rows_of_a_background_task_are_below_the_row_that_started_it() {
    let delegating = case(json!({
        "name": "background",
        "setup": { "tasks": { "desk": {}, "slow": {} }, "plugins": { "desk": { "grants": { "delegate": ["slow"] } } } },
        "scripts": { "agents": { "desk": [{ "background": "slow", "task": "x" }, { "finish": "end" }] } },
        "expect": {},
    }));
    let root = ran(&delegating);
    let opening = case(
        json!({ "name": "child", "setup": {}, "scripts": { "agents": { "desk": [{ "finish": "blue" }] } }, "expect": {} }),
    );
    let mut child = ran(&opening);
    let room = RoomId::from(format!("{}/1", opening.opening().room).as_str());
    if let Event::RoomOpened { opening, .. } = &mut child[0].event {
        *opening = RunOpening { room: room.clone(), ..opening.clone() };
    }
    let timeline = Timeline::of([root.clone(), child.clone()]).expect("a timeline");
    // A reader that comes again and again gets the same from the records that were added.
    let (mut fold, root_room) = (TimelineFold::default(), opening.opening().room);
    let mut child = child.into_iter();
    for record in root {
        fold.take(&root_room, record);
        let so_far = fold.timeline().expect("a timeline");
        if so_far.rows.iter().any(|row| matches!(row.what, RowSubject::Background { .. })) {
            child.next().into_iter().for_each(|record| fold.take(&room, record));
        }
    }
    child.for_each(|record| fold.take(&room, record));
    assert_eq!(fold.timeline(), Some(timeline.clone()));
    let started = timeline.rows.iter().position(
        |row| matches!(&row.what, RowSubject::Background { child: of, .. } if *of == room),
    );
    let started = started.unwrap_or_else(|| panic!("a row of the task: {:#?}", timeline.rows));
    let below = &timeline.rows[started + 1];
    assert_eq!(
        (below.room.clone(), below.depth, below.what.kind()),
        (room, timeline.rows[started].depth + 1, "task")
    );
    assert_eq!((timeline.rooms.len(), timeline.totals.background), (2, 1));
    assert_eq!(problems(&timeline), Vec::<String>::new());
}

#[test]
fn a_long_text_is_cut() {
    let long = "é".repeat(1_000);
    let case = case(json!({
        "name": "long",
        "setup": { "limits": { "turns": 60 }, "plugins": { "desk": { "grants": { "tools": ["*"] } }, "box": { "tools": ["a"] } } },
        "scripts": { "agents": { "desk": [{ "call": [{ "name": "box.a", "id": "1", "arguments": { "text": long } }] }] }, "repeat": true },
        "expect": {},
    }));
    let mut world = World::new(&case, Order::First);
    world.run();
    let timeline = Timeline::of([world.records]).expect("a timeline");
    let texts = timeline.rows.iter().filter_map(|row| match &row.what {
        RowSubject::Tool { arguments, .. } => Some(arguments.chars().count()),
        _ => None,
    });
    assert_eq!(texts.max(), Some(conclave_core::inspect::timeline::TEXT + 1));
}

#[test]
fn a_journal_that_does_not_begin_as_one_does_has_no_timeline() {
    assert!(Timeline::of([]).is_none());
    assert!(Timeline::of([Vec::new()]).is_none());
    assert!(
        Timeline::of([vec![record(
            0,
            0,
            Event::Resumed { down_ms: 1, is_exact: false, setup: None }
        )]])
        .is_none()
    );
    assert_eq!(Millis(5).since(Millis(9)), 0);
}

#[test]
fn decisions_of_gates_and_judges_are_entries_of_the_audit() {
    let ruling = |ruling: Value| json!({ "advice": { "advice": "rule", "ruling": ruling } });
    let verdict = |verdict: Value| json!({ "advice": { "advice": "gate", "verdict": verdict } });
    let judged = json!({
        "name": "a judge overrules an answer and replaces the result",
        "setup": { "tasks": { "desk": { "judge": "judge" } }, "plugins": { "judge": { "kinds": ["judge"] } } },
        "scripts": {
            "agents": { "desk": [{ "finish": "no" }, { "finish": "yes" }] },
            "advice": { "judge": [
                ruling(json!({ "valid": false })),
                ruling(json!({})),
                { "advice": { "advice": "conclude", "result": { "text": "YES" } } },
            ] },
        },
        "expect": {},
    });
    let gated = json!({
        "name": "a gate changes a message and blocks its result",
        "setup": {
            "tasks": { "desk": { "subtasks": ["help"] }, "help": { "turns": 1 } },
            "plugins": { "guard": { "kinds": ["gate"] } },
            "gates": [{ "on": "subtask", "plugin": "guard", "deadline_ms": 200 }],
        },
        "scripts": {
            "agents": { "desk": ["go", { "finish": "end" }], "help": ["secret"] },
            "advice": { "guard": [
                verdict(json!({ "gate": "modify", "text": "go slowly" })),
                verdict(json!({ "gate": "block", "reason": "no secrets" })),
            ] },
        },
        "expect": {},
    });
    let decisions = |script: Value| -> Vec<(&str, Option<String>, String)> {
        audit::entries(&retold(ran(&case(script))))
            .into_iter()
            .filter(|entry| !matches!(entry.kind, audit::AuditKind::Granted))
            .map(|entry| {
                (entry.kind.as_str(), entry.plugin.map(|of| of.to_string()), entry.message)
            })
            .collect()
    };
    let row = |kind: &'static str, plugin: &str, message: &str| {
        (kind, Some(plugin.to_owned()), message.to_owned())
    };
    assert_eq!(
        decisions(judged),
        [
            row("answer-overruled", "judge", "overrules an answer of llm in desk: not valid"),
            row("result-replaced", "judge", "replaced the result of desk"),
        ]
    );
    assert_eq!(
        decisions(gated),
        [
            row("gate-modified", "guard", "changed the text (subtask)"),
            row("gate-blocked", "guard", "blocked (subtask): gate guard blocked it: no secrets"),
        ]
    );
}

#[test]
fn a_step_that_passed_a_responder_over_says_so() {
    let passed = |subtasks: Value, help: Value| {
        let records = ran(&case(json!({
            "name": "passed over",
            "setup": { "tasks": { "desk": { "subtasks": subtasks }, "help": {}, "more": {} } },
            "scripts": {
                "agents": { "desk": ["ask", { "finish": "end" }], "help": [help], "more": [{ "finish": "helped" }] },
            },
            "expect": {},
        })));
        let timeline = Timeline::of([records]).expect("a timeline");
        let rows = timeline.rows.into_iter().filter_map(|row| match row.what {
            RowSubject::PassedOver { task, by, skipped } => {
                let skipped =
                    skipped.into_iter().map(|one| (one.responder.into_owned(), one.reason));
                Some((task.to_string(), by, skipped.collect::<Vec<_>>()))
            }
            _ => None,
        });
        rows.collect::<Vec<_>>()
    };
    // What nearly every step passes over is no row.
    assert_eq!(passed(json!(["help"]), json!({ "finish": "helped" })), []);
    let both = passed(json!(["help", "more"]), json!({ "finish": "" }));
    let [(task, by, skipped)] = &both[..] else { panic!("{both:?}") };
    assert_eq!((task.as_str(), by.as_str()), ("desk", "more"));
    assert!(skipped.contains(&("help".to_owned(), SkipReason::NoAnswer)), "{skipped:?}");
}

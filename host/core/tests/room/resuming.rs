//! The setup of a room that is resumed under another config: what the run began with, as far as
//! today's config still allows it, in every room that can be resumed.

use std::sync::Arc;

use conclave_core::inspect::room_row::RoomRowFold;
use conclave_core::journal::recovery::{Resumption, Unfinished};
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, Principal, RULES, Record, RunOpening};
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::setup::plugin_query::{GateVerdict, PluginReply};
use conclave_core::setup::{PluginFacts, Setup};
use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::approval::{Approval, ApprovalAuthor};
use conclave_core::types::denial::Layer;
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::{CallId, ControlId, Millis, PluginName};
use conclave_core::types::limits::RunLimits;
use conclave_core::types::message::ToolCall;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::tool::ToolOutcome;
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};

/// A room with its records, which can be interrupted at any time.
struct Journal {
    room: Room,
    records: Vec<Record>,
    denied: Vec<(String, Layer)>,
}

impl Journal {
    fn begin(setup: &Arc<Setup>, opening: RunOpening) -> Self {
        let mut journal = Self { room: Room::new(), records: Vec::new(), denied: Vec::new() };
        let setup = Arc::clone(setup);
        journal.handle(Event::RoomOpened { setup, opening, secret: SECRET });
        journal
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let at = Millis(START.0 + self.records.len() as u64);
        let seq = self.records.len() as u64;
        self.room.handle(event.clone(), at);
        let principal = Principal("tester".into());
        self.records.push(Record { seq, at, principal, rules: RULES, epoch: 0, event });
        while let Some(notice) = self.room.poll_notice() {
            if let Notice::Denied { record, .. } = notice {
                self.denied.push((record.denial.target.clone(), record.layer));
            }
        }
        std::iter::from_fn(|| self.room.poll_effect()).collect()
    }

    /// Interrupts the room and resumes it under a config. Returns the effects of the resumption.
    fn resume(&mut self, today: &Setup, through_snapshot: bool) -> Vec<Effect> {
        let mut unfinished = Unfinished::fold(self.records.clone());
        if through_snapshot {
            let snapshot = unfinished.to_snapshot().expect("it is written");
            unfinished = Unfinished::from_snapshot(&snapshot).expect("it is read");
        }
        let Resumption { events, setup, .. } =
            unfinished.resumption(Millis(START.0 + 1_000), today);
        let effects = events.into_iter().flat_map(|event| self.handle(event)).collect();
        assert_eq!(*self.room.setup(), setup, "the room has the setup that was promised");
        let folded = Unfinished::fold(self.records.clone());
        assert_eq!(folded.room.setup(), self.room.setup(), "the records hold the setup");
        effects
    }

    /// Does the same. Returns also the effects of the calls that run again.
    fn resume_all(&mut self, today: &Setup) -> Vec<Effect> {
        let unfinished = Unfinished::fold(self.records.clone());
        let restarts = unfinished.resumption(Millis(START.0 + 1_000), today).restarts;
        let mut effects = self.resume(today, true);
        effects.extend(restarts.into_iter().map(|restart| restart.effect));
        effects
    }

    fn step(&mut self, call: u64, tool: &str, arguments: Value) -> Vec<Effect> {
        let call_of = ToolCall { id: "1".to_owned(), ..ToolCall::new(tool, arguments) };
        let turn = Turn {
            action: Action::Reply(Reply { tool_calls: vec![call_of], ..Reply::default() }),
            thought: String::new(),
            wait_for_response: false,
            extra: Vec::new(),
        };
        let report = CallReport::default();
        self.handle(Event::AgentStepped { call: CallId(call), answer: Ok(turn), report })
    }
}

fn case(setup: Value) -> Case {
    serde_json::from_value(json!({ "name": "by hand", "setup": setup, "expect": {} }))
        .expect("a case of the right form")
}

fn setup(change: Value) -> Arc<Setup> {
    let mut setup = json!({
        "models": { "small": {}, "large": {} },
        "tasks": { "desk": {}, "digest": {}, "mail": {} },
        "plugins": {
            "desk": { "grants": { "tools": ["notes.list"], "model": ["small"], "delegate": ["digest"] } },
            "notes": { "tools": ["list", "save"], "sandboxed": true },
        },
        "limits": { "turns": 20, "tool_calls": 10 },
    });
    merge(&mut setup, change);
    case(setup).setup().into()
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

/// The rooms that can be resumed.
fn openings() -> Vec<(&'static str, RunOpening)> {
    let run = case(json!({ "limits": { "turns": 20, "tool_calls": 10 } })).opening();
    vec![
        ("a run", run.clone()),
        ("a child room", RunOpening { depth: 1, ..run.clone() }),
        ("a conversation", RunOpening { persistent: true, ..run }),
    ]
}

/// Configs of a later day, each of which adds, removes, widens or narrows.
fn later() -> Vec<(&'static str, Arc<Setup>)> {
    let grants = |grants: Value| setup(json!({ "plugins": { "desk": { "grants": grants } } }));
    let rule = |decide: &str| json!([{ "tool": "notes.*", "decide": decide, "source": "c:1" }]);
    let only_notes = |grants: Value| {
        let mut all = json!({
            "tasks": { "desk": {} },
            "plugins": { "desk": { "grants": grants } , "notes": { "tools": ["list", "save"], "sandboxed": true } },
        });
        merge(&mut all, json!({ "limits": { "turns": 20, "tool_calls": 10 } }));
        Arc::new(case(all).setup())
    };
    vec![
        ("tools widened", grants(json!({ "tools": ["notes.*"] }))),
        ("tools narrowed", grants(json!({ "tools": [] }))),
        ("model added", grants(json!({ "model": ["small", "large"] }))),
        ("model replaced", grants(json!({ "model": ["large"] }))),
        ("delegate widened", grants(json!({ "delegate": ["digest", "mail"] }))),
        ("delegate removed", grants(json!({ "delegate": [] }))),
        ("all removed", only_notes(json!({}))),
        ("policy denies", setup(json!({ "policy": rule("deny") }))),
        ("policy allows", setup(json!({ "policy": rule("allow") }))),
        (
            "confirm added",
            setup(json!({ "tasks": { "desk": { "confirm": { "policy": "always" } } } })),
        ),
        ("limits narrowed", setup(json!({ "limits": { "turns": 5 } }))),
        ("limits widened", setup(json!({ "limits": { "turns": 90, "tool_calls": 90 } }))),
        ("tool limit", setup(json!({ "plugins": { "desk": { "grants": { "tool_calls": 0 } } } }))),
    ]
}

#[test]
fn every_room_goes_on_with_what_both_its_start_and_today_allow() {
    let initial = setup(json!({}));
    for (room, opening) in openings() {
        for (change, today) in later() {
            for through_snapshot in [false, true] {
                let at = format!("{room}, {change}, snapshot: {through_snapshot}");
                let mut journal = Journal::begin(&initial, opening.clone());
                journal.resume(&today, through_snapshot);
                let effective = initial.narrowed_by(&today);
                assert_eq!(**journal.room.setup(), effective, "{at}");
                assert_eq!(journal.room.begun_setup(), &initial, "{at}");
                journal.resume(&today, through_snapshot);
                assert_eq!(**journal.room.setup(), effective, "{at}: once more");
                journal.resume(&initial, through_snapshot);
                assert_eq!(journal.room.setup(), &initial, "{at}: and back");
            }
        }
    }
}

/// Returns what becomes of a call of `notes.list` after a resumption under this config: whether it
/// started, was asked about, or was denied by a layer.
fn call_after(
    initial: &Arc<Setup>,
    today: &Setup,
    opening: RunOpening,
) -> (bool, bool, Option<Layer>) {
    let mut journal = Journal::begin(initial, opening);
    journal.resume(today, false);
    let effects = journal.step(0, "notes.list", json!({}));
    (
        effects.iter().any(|effect| matches!(effect, Effect::CallTool { .. })),
        effects.iter().any(|effect| matches!(effect, Effect::AskApproval { .. })),
        journal.denied.first().map(|(_, layer)| *layer),
    )
}

#[test]
fn a_call_after_a_resumption_is_decided_by_the_effective_setup() {
    let initial = setup(json!({}));
    let of = |name: &str| {
        later().into_iter().find(|(change, _)| *change == name).expect("there is one").1
    };
    let run = || openings().remove(0).1;
    assert_eq!(call_after(&initial, &initial, run()), (true, false, None));
    assert_eq!(call_after(&initial, &of("tools widened"), run()), (true, false, None));
    assert_eq!(
        call_after(&initial, &of("tools narrowed"), run()),
        (false, false, Some(Layer::Config))
    );
    assert_eq!(
        call_after(&initial, &of("policy denies"), run()),
        (false, false, Some(Layer::Policy))
    );
    assert_eq!(call_after(&initial, &of("confirm added"), run()), (false, true, None));
    assert_eq!(
        call_after(&initial, &of("tool limit"), run()),
        (false, false, Some(Layer::Runtime))
    );
    // A rule that was there at the start holds although today's config lacks it, and the other way
    // round.
    let denied = of("policy denies");
    assert_eq!(call_after(&denied, &initial, run()), (false, false, Some(Layer::Policy)));
    let allowed = of("policy allows");
    assert_eq!(call_after(&allowed, &denied, run()), (false, false, Some(Layer::Policy)));
}

#[test]
fn a_limit_that_was_narrowed_holds_and_one_that_was_widened_does_not() {
    let initial = setup(json!({ "limits": { "turns": 3 } }));
    let ends_after = |today: &Setup| {
        let opening = RunOpening { limits: initial.limits.clone(), ..openings().remove(0).1 };
        let mut journal = Journal::begin(&initial, opening);
        journal.resume(today, false);
        let mut steps = 0;
        while journal.room.outcome().is_none() && steps < 50 {
            let calls: Vec<CallId> = journal.room.calls_in_flight().collect();
            for call in calls {
                steps += 1;
                let answer = Err(Fault::new(FaultKind::Wall, "x"));
                let report = CallReport::default();
                journal.handle(Event::AgentStepped { call, answer, report });
            }
        }
        journal.room.outcome().map(|outcome| outcome.reason.clone()).unwrap_or_default()
    };
    let narrow = setup(json!({ "limits": { "turns": 1 } }));
    let narrowed = initial.narrowed_by(&narrow);
    assert_eq!(narrowed.limits.turns, Some(1));
    assert!(ends_after(&narrow).contains("turns"), "{}", ends_after(&narrow));
    let wide = setup(json!({ "limits": { "turns": 90 } }));
    assert_eq!(initial.narrowed_by(&wide).limits.turns, Some(3));
}

#[test]
fn a_run_that_was_opened_with_its_own_limits_keeps_to_them() {
    let limits = |turns: u64| setup(json!({ "limits": { "turns": turns } }));
    // (the config's at the start, the run's own, today's one after the other, expected)
    for (config, own, today, expected) in [
        (100, 50, &[50, 100][..], 50),
        (100, 50, &[20, 100], 50),
        (100, 50, &[200], 50),
        (100, 100, &[50, 100], 100),
        (100, 100, &[50, 200], 100),
        (50, 80, &[20, 50], 50),
        (100, 7, &[9, 8], 7),
    ] {
        let initial = limits(config);
        let own = RunLimits { turns: Some(own), ..initial.limits.clone() };
        let opening = RunOpening { limits: own.clone(), ..openings().remove(0).1 };
        let mut journal = Journal::begin(&initial, opening);
        for (index, turns) in today.iter().enumerate() {
            journal.resume(&limits(*turns), index % 2 == 1);
        }
        let now = journal.room.limits().turns;
        assert_eq!(now, Some(expected), "{config}, {own:?}, then {today:?}");
    }
}

#[test]
fn the_gates_of_the_start_and_of_today_check() {
    let with = |gates: Value| {
        let mut setup = (*setup(json!({ "gates": gates }))).clone();
        let guard = Arc::clone(&setup.plugins[&PluginName::from("notes")]);
        setup.plugins.insert(PluginName::from("guard"), guard);
        setup
    };
    let gate = |plugin: &str, fails_open: bool| json!({ "on": "delegate", "plugin": plugin, "deadline_ms": 9, "fails_open": fails_open });
    let names = |setup: &Setup| -> Vec<(String, bool)> {
        setup.gates.iter().map(|gate| (gate.plugin.to_string(), gate.fails_open)).collect()
    };
    let initial = setup(json!({ "gates": [gate("notes", true)] }));
    let notes = |fails_open| ("notes".to_owned(), fails_open);
    let guard = || ("guard".to_owned(), false);
    for (today, expected) in [
        (json!([gate("notes", true)]), vec![notes(true)]),
        (json!([gate("notes", false)]), vec![notes(false)]),
        (json!([]), vec![notes(true)]),
        (json!([gate("guard", false), gate("notes", true)]), vec![notes(true), guard()]),
        (json!([gate("guard", false)]), vec![notes(true), guard()]),
    ] {
        let effective = initial.narrowed_by(&with(today));
        assert_eq!(names(&effective), expected);
        let has_guard = effective.plugins.contains_key(&PluginName::from("guard"));
        assert_eq!(has_guard, expected.contains(&guard()), "a new plugin comes as a gate only");
    }
    let strict = setup(json!({ "gates": [gate("notes", false)] }));
    assert_eq!(names(&strict.narrowed_by(&initial)), [notes(false)]);
}

/// The answer of a run waits for gates while the config changes twice.
#[test]
fn a_text_passes_every_gate_of_the_effective_setup_before_it_leaves() {
    let lists: [&[&str]; 8] = [
        &[],
        &["notes"],
        &["guard"],
        &["notes", "guard"],
        &["guard", "notes"],
        &["desk", "notes"],
        &["guard", "desk", "notes"],
        &["notes", "desk"],
    ];
    let with = |gates: &[&str]| {
        let gate = |plugin: &&str| json!({ "on": "outbound", "plugin": plugin, "deadline_ms": 9 });
        let gates: Vec<Value> = gates.iter().map(gate).collect();
        setup(json!({ "plugins": { "guard": { "tools": ["check"] } }, "gates": gates }))
    };
    let report = CallReport::default;
    // The gates that let the text pass, in order, and what asks the gates next.
    let answer = |journal: &mut Journal, effects: Vec<Effect>, passed: &mut Vec<String>| {
        let query = effects.into_iter().find_map(|effect| match effect {
            Effect::QueryPlugin { call, plugin, .. } => Some((call, plugin)),
            _ => None,
        });
        let (call, plugin) = query?;
        passed.push(plugin.to_string());
        let answer = Ok(PluginReply::Gate { verdict: GateVerdict::Allow });
        Some(journal.handle(Event::PluginQueried { call, answer, report: report() }))
    };
    for first in lists {
        for second in lists {
            for third in lists {
                let mut journal = Journal::begin(&with(first), openings().remove(0).1);
                let turn = Turn {
                    action: Action::Finish { outputs: json!("said") },
                    thought: String::new(),
                    wait_for_response: false,
                    extra: Vec::new(),
                };
                let step = |turn| Event::AgentStepped {
                    call: CallId(0),
                    answer: Ok(turn),
                    report: report(),
                };
                let mut passed = Vec::new();
                let mut effects = if first.is_empty() {
                    // It is answered under the second config, whose gates are new.
                    journal.resume(&with(second), false);
                    journal.handle(step(turn))
                } else {
                    let effects = journal.handle(step(turn));
                    answer(&mut journal, effects, &mut passed);
                    if journal.room.outcome().is_some() {
                        continue;
                    }
                    journal.resume_all(&with(second))
                };
                if journal.room.outcome().is_none() {
                    effects = answer(&mut journal, effects, &mut passed).unwrap_or_default();
                }
                if journal.room.outcome().is_none() {
                    drop(effects);
                    effects = journal.resume_all(&with(third));
                }
                while journal.room.outcome().is_none() {
                    let next = answer(&mut journal, effects, &mut passed);
                    effects = next.expect("a gate is asked until the text has passed all");
                }
                let gates = &journal.room.setup().gates;
                let missing = gates.iter().find(|gate| !passed.contains(&gate.plugin.to_string()));
                assert!(missing.is_none(), "{first:?}, {second:?}, {third:?}: {passed:?}");
            }
        }
    }
}

#[test]
fn a_later_run_begins_with_what_is_effective_then() {
    let wide = setup(json!({ "limits": { "turns": 9 } }));
    let narrow = setup(json!({ "limits": { "turns": 2 } }));
    for through_snapshot in [false, true] {
        let mut journal = Journal::begin(&wide, openings().remove(0).1);
        journal.resume(&narrow, through_snapshot);
        journal.handle(Event::Cancelled { reason: "enough".to_owned() });
        let limits = narrow.limits.clone();
        let opening = RunOpening { limits, ..openings().remove(0).1 };
        journal.handle(Event::RunStarted { setup: None, opening });
        assert!(journal.room.outcome().is_none(), "it has begun");
        journal.resume(&wide, through_snapshot);
        assert_eq!(journal.room.limits().turns, Some(2));
        let unfinished = Unfinished::fold(journal.records.clone());
        assert!(unfinished.has_setups_of(&journal.records), "a snapshot of it is used");
    }
}

#[test]
fn a_request_for_more_is_refused_where_today_ends_at_the_limit() {
    let asks = |ask: bool| setup(json!({ "limits": { "turns": 1, "ask": ask } }));
    for (today, is_over) in [(true, false), (false, true)] {
        let initial = asks(true);
        let opening = RunOpening { limits: initial.limits.clone(), ..openings().remove(0).1 };
        let mut journal = Journal::begin(&initial, opening);
        let effects = journal.step(0, "notes.list", json!({}));
        let call = effects.iter().find_map(|effect| match effect {
            Effect::CallTool { call, .. } => Some(*call),
            _ => None,
        });
        let answer = Ok(ToolOutcome::default());
        let report = CallReport::default();
        let call = call.expect("the tool is called");
        let effects = journal.handle(Event::ToolAnswered { call, answer, report });
        let is_asked = |effect: &Effect| matches!(effect, Effect::AskTopUp { .. });
        assert!(effects.iter().any(is_asked), "{effects:?}");
        journal.resume(&asks(today), false);
        assert_eq!(journal.room.outcome().is_some(), is_over, "{today}");
    }
}

/// Returns the setup with another component of `notes`.
fn exchanged(setup: &Setup) -> Setup {
    with_component(setup, "notes")
}

fn with_component(setup: &Setup, plugin: &str) -> Setup {
    let mut setup = setup.clone();
    let plugin = setup.plugins.get_mut(&PluginName::from(plugin)).expect("it is there");
    Arc::make_mut(plugin).facts.sha256 = "ff".repeat(32);
    setup
}

#[test]
fn what_an_approver_is_asked_follows_from_the_records() {
    let ask = json!([{ "tool": "notes.*", "decide": "ask", "source": "c:1" }]);
    let mut journal = Journal::begin(&setup(json!({ "policy": ask })), openings().remove(0).1);
    let effects = journal.step(0, "notes.list", json!({ "of": "today" }));
    let approval = effects.into_iter().find_map(|effect| match effect {
        Effect::AskApproval { call, request } => Some((call, request)),
        _ => None,
    });
    let (call, request) = approval.expect("it is asked about");
    let open = |journal: &Journal, call| {
        let mut fold = RoomRowFold::default();
        fold.extend(journal.records.clone());
        fold.open_approval(call).cloned()
    };
    assert_eq!(open(&journal, call), Some(request));
    assert_eq!(open(&journal, CallId(99)), None);
    let answer = Approval::Approved.by(ApprovalAuthor::Nobody);
    let (approval, author) = (answer.approval, answer.author);
    journal.handle(Event::Decided { call, approval, author, arguments_sha256: None });
    assert_eq!(open(&journal, call), None, "it was decided");
}

#[test]
fn an_approval_does_not_hold_for_an_exchanged_component() {
    let ask = json!([{ "tool": "notes.*", "decide": "ask", "source": "c:1" }]);
    let initial = setup(json!({ "policy": ask }));
    let mut journal = Journal::begin(&initial, openings().remove(0).1);
    let effects = journal.step(0, "notes.list", json!({}));
    let approval_call = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::AskApproval { call, .. } => Some(*call),
            _ => None,
        })
    };
    let first = approval_call(&effects).expect("it is asked about");
    let effects = journal.resume(&exchanged(&initial), false);
    let second = approval_call(&effects).expect("it is asked about again");
    assert_ne!(first, second);
    // An answer to the first question, given before the exchange, decides nothing.
    let approve = |call| Event::Decided {
        call,
        approval: Approval::Approved,
        author: ApprovalAuthor::Program,
        arguments_sha256: None,
    };
    let effects = journal.handle(approve(first));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::CallTool { .. })), "{effects:?}");
    let effects = journal.handle(approve(second));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::CallTool { .. })), "{effects:?}");
}

#[test]
fn an_approval_holds_if_no_component_was_exchanged() {
    let ask = json!([{ "tool": "notes.*", "decide": "ask", "source": "c:1" }]);
    let initial = setup(json!({ "policy": ask }));
    let mut journal = Journal::begin(&initial, openings().remove(0).1);
    let effects = journal.step(0, "notes.list", json!({}));
    let first = effects.iter().find_map(Effect::starts).expect("it is asked about");
    let wider = setup(
        json!({ "policy": ask, "plugins": { "desk": { "grants": { "model": ["large"] } } } }),
    );
    journal.resume(&wider, false);
    let approval = Approval::Approved;
    let author = ApprovalAuthor::Program;
    let effects =
        journal.handle(Event::Decided { call: first, approval, author, arguments_sha256: None });
    assert!(effects.iter().any(|effect| matches!(effect, Effect::CallTool { .. })), "{effects:?}");
}

#[test]
fn a_changed_component_is_named_and_another_plugin_is_refused() {
    let initial = setup(json!({}));
    let changed = initial.changed_components(&exchanged(&initial));
    assert_eq!(changed.len(), 1);
    assert_eq!((changed[0].plugin.as_str(), &changed[0].refusal), ("notes", &None));
    assert!(initial.changed_components(&initial).is_empty());
    let mut other = exchanged(&initial);
    let notes = other.plugins.get_mut(&PluginName::from("notes")).expect("it is there");
    Arc::make_mut(notes).facts.manifest.name = "another".to_owned();
    assert!(initial.changed_components(&other)[0].refusal.is_some());
    let mut other = exchanged(&initial);
    let notes = other.plugins.get_mut(&PluginName::from("notes")).expect("it is there");
    Arc::make_mut(notes).facts.kinds.insert(PluginKind::Agent);
    assert!(initial.changed_components(&other)[0].refusal.is_some());
}

#[test]
fn a_server_is_another_one_if_the_way_to_it_is() {
    let change = |change: fn(&mut PluginFacts)| {
        let mut setup = (*setup(json!({}))).clone();
        let notes = setup.plugins.get_mut(&PluginName::from("notes")).expect("it is there");
        change(&mut Arc::make_mut(notes).facts);
        setup
    };
    let component = setup(json!({}));
    let server = |way: fn(&mut PluginFacts)| {
        let mut setup = change(|facts| (facts.mcp, facts.sha256) = (true, String::new()));
        let notes = setup.plugins.get_mut(&PluginName::from("notes")).expect("it is there");
        way(&mut Arc::make_mut(notes).facts);
        setup
    };
    let (one, two) =
        (server(|facts| facts.server = "aa".into()), server(|facts| facts.server = "bb".into()));
    assert!(one.changed_components(&one).is_empty());
    let changed = &one.changed_components(&two)[0];
    assert_eq!((changed.now.as_deref(), &changed.refusal), (Some("bb"), &None));
    // What ran in a sandbox does not go on outside of one.
    let refused = component.changed_components(&one);
    assert!(refused[0].refusal.as_ref().is_some_and(|why| why.contains("outside any sandbox")));
    let mut without_notes = (*component).clone();
    without_notes.plugins.remove(&PluginName::from("notes"));
    let removal = &component.changed_components(&without_notes)[0];
    assert_eq!((&removal.now, &removal.refusal), (&None, &None));
}

#[test]
fn a_call_that_was_cut_off_is_not_repeated_by_an_exchanged_component() {
    let initial = setup(json!({}));
    let is_called =
        |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::CallTool { .. }));
    for (today, is_repeated) in [((*initial).clone(), true), (exchanged(&initial), false)] {
        let mut journal = Journal::begin(&initial, openings().remove(0).1);
        assert!(is_called(&journal.step(0, "notes.list", json!({}))));
        let unfinished = Unfinished::fold(journal.records.clone());
        let restarts = unfinished.resumption(Millis(START.0 + 1_000), &today).restarts;
        let effects: Vec<Effect> = restarts.into_iter().map(|restart| restart.effect).collect();
        assert_eq!(is_called(&effects), is_repeated);
        journal.resume(&today, false);
    }
}

#[test]
fn the_part_of_a_background_task_becomes_smaller_and_not_larger() {
    let initial = setup(json!({ "limits": { "turns": 20, "tool_calls": 10 } }));
    let opening = |tool_calls| {
        let limits = RunLimits { tool_calls: Some(tool_calls), ..initial.limits.clone() };
        RunOpening { depth: 1, limits, ..openings().remove(1).1 }
    };
    let calls_after = |own: u64, today: u64| {
        let mut journal = Journal::begin(&initial, opening(own));
        journal.resume(&setup(json!({ "limits": { "tool_calls": today } })), false);
        let effects = journal.step(0, "notes.list", json!({}));
        effects.iter().any(|effect| matches!(effect, Effect::CallTool { .. }))
    };
    assert!(calls_after(5, 10) && calls_after(5, 2));
    assert!(!calls_after(5, 0), "today allows none");
    assert!(!calls_after(0, 90), "a part stays what it was");
}

#[test]
fn an_exchanged_component_fails_only_before_its_first_good_answer() {
    let initial = setup(json!({}));
    let fault = Fault::new(FaultKind::Wall, "too slow");
    let step =
        |answer| Event::AgentStepped { call: CallId(0), answer, report: CallReport::default() };
    let turn = || Turn {
        action: Action::Reply(Reply::default()),
        thought: String::new(),
        wait_for_response: false,
        extra: Vec::new(),
    };
    let well = || step(Ok(turn()));
    let failed = || step(Err(fault.clone()));
    let control = |event| {
        let id = ControlId::from("c");
        Event::ControlReceived { id, by: None, message: Box::new(event) }
    };
    let fails = |room: &Room, events: &[Event]| {
        room.failed_exchange(events).map(|(plugin, fault)| (plugin.to_string(), fault.clone()))
    };
    let desk = || Some(("desk".to_owned(), fault.clone()));
    for (component, of_desk) in [("desk", desk()), ("notes", None)] {
        let mut journal = Journal::begin(&initial, openings().remove(0).1);
        assert_eq!(fails(&journal.room, &[failed()]), None, "nothing was exchanged");
        journal.resume(&with_component(&initial, component), false);
        assert_eq!(fails(&journal.room, &[failed()]), of_desk);
        assert_eq!(fails(&journal.room, &[control(failed())]), of_desk);
        assert_eq!(fails(&journal.room, &[well(), failed()]), None);
        // The same after another interruption.
        journal.resume(&with_component(&initial, component), true);
        assert_eq!(fails(&journal.room, &[failed()]), of_desk);
    }
}

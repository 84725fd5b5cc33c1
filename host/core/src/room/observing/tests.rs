use super::super::fixture::context;
use super::*;
use crate::journal::observed::ObservedFold;
use crate::protocol::event::{Event, Principal, RULES, Record, RunOpening};
use crate::types::ids::{Millis, TaskName, TimerId};
use crate::types::message::Role;
use crate::types::request::RoomRequest;
use crate::types::room_secret::RoomSecret;
use crate::types::side_effect::{SideEffect, SideEffectAnswer};
use serde_json::json;

const OBSERVERS: &str = r#"
[plugins.hook]
source = "hook.wasm"
[[observers]]
plugin = "hook"
events = ["task-started", "task-ended"]
attempts = 3
deadline = "2 s"
"#;

/// The room of the observer `hook`, with its output since it was opened.
struct ObserverRoom {
    room: Room,
    now: u64,
    replies: Vec<(u64, Result<RequestReply, RefusalCode>)>,
    calls: Vec<(CallId, Vec<u64>)>,
    timers: Vec<(TimerId, u64)>,
    notices: Vec<Notice>,
    abandoned: Vec<CallId>,
}

impl ObserverRoom {
    fn open() -> Self {
        let setup = context(OBSERVERS).setup.of_observer(&"hook".into()).unwrap();
        let mut open = Self {
            room: Room::new(),
            now: 0,
            replies: Vec::new(),
            calls: Vec::new(),
            timers: Vec::new(),
            notices: Vec::new(),
            abandoned: Vec::new(),
        };
        let opening = RunOpening {
            room: RoomId::from("r/observer-hook"),
            entry: setup.entry.clone(),
            limits: setup.limits.clone(),
            persistent: true,
            ..RunOpening::default()
        };
        open.handle(Event::RoomOpened {
            setup: Arc::new(setup),
            opening,
            secret: RoomSecret::WITHHELD,
        });
        open
    }

    fn handle(&mut self, event: Event) {
        self.room.handle(event, Millis(self.now));
        self.notices.extend(std::iter::from_fn(|| self.room.poll_notice()));
        while let Some(effect) = self.room.poll_effect() {
            match effect {
                Effect::QueryPlugin { call, question: PluginQuery::Observe { events }, .. } => {
                    let seqs = events.iter().map(|event| event.position.seq).collect();
                    self.calls.push((call, seqs));
                }
                Effect::SetTimer { timer, at } => self.timers.push((timer, at.0)),
                Effect::Reply { request, reply } => {
                    self.replies.push((request.0, reply.map_err(|refusal| refusal.error)));
                }
                Effect::AbandonCall { call } => self.abandoned.push(call),
                Effect::Finish { .. } => {}
                effect => panic!("{effect:?}"),
            }
        }
    }

    fn observe(&mut self, request: u64, room: &str, seqs: impl IntoIterator<Item = u64>) {
        let event = |seq| ObservedEvent {
            room: RoomId::from(room),
            position: ObservedPosition { seq, index: 0 },
            time: Millis(0),
            kind: "task-ended".to_owned(),
            task: None,
            details: json!({}),
        };
        let events = Arc::new(seqs.into_iter().map(event).collect());
        let what = RoomRequest::Observe { observer: "hook".into(), events };
        self.handle(Event::Requested { request: RequestId(request), what });
    }

    /// Answers the call that began last.
    fn answer(&mut self, answer: Result<ObserverReply, Fault>) {
        let call = self.calls.last().unwrap().0;
        let answer = answer.map(|reply| PluginReply::Observe { reply });
        self.handle(Event::PluginQueried { call, answer, report: CallReport::default() });
    }

    fn fail(&mut self) {
        self.answer(Err(Fault::new(FaultKind::Trap, "broken")));
    }

    /// Fires the timer that was set last, at its time.
    fn fire(&mut self) {
        let (timer, at) = *self.timers.last().unwrap();
        self.now = at;
        self.handle(Event::TimerFired { timer });
    }

    fn position_in(&self, room: &str) -> Option<ObservedPosition> {
        self.room.observed().get(room).copied()
    }

    fn batches(&self) -> Vec<&[u64]> {
        self.calls.iter().map(|(_, seqs)| &seqs[..]).collect()
    }
}

#[test]
fn one_batch_at_a_time_is_under_way_and_each_gets_a_reply() {
    let mut hook = ObserverRoom::open();
    hook.observe(1, "r", [1, 2]);
    hook.observe(2, "r", [3]);
    assert_eq!(hook.batches(), [&[1, 2][..]]);
    hook.answer(Ok(ObserverReply::Taken));
    hook.answer(Ok(ObserverReply::Taken));
    assert_eq!(hook.batches(), [&[1, 2][..], &[3]]);
    assert_eq!(hook.replies, [(1, Ok(RequestReply::Done)), (2, Ok(RequestReply::Done))]);
    let position = |seq| Some(ObservedPosition { seq, index: 0 });
    assert_eq!(hook.position_in("r"), position(3));
    assert_eq!(hook.position_in("r/1"), None);
}

#[test]
fn events_that_were_taken_are_left_out_of_a_repeated_batch() {
    let mut hook = ObserverRoom::open();
    hook.observe(1, "r", [1, 2]);
    hook.answer(Ok(ObserverReply::Taken));
    hook.observe(2, "r", [1, 2]);
    hook.observe(3, "r", [2, 3]);
    // Positions of another room are its own.
    hook.observe(4, "r/1", [1]);
    hook.answer(Ok(ObserverReply::Taken));
    assert_eq!(hook.batches(), [&[1, 2][..], &[3], &[1]]);
    let requests: Vec<u64> = hook.replies.iter().map(|(request, _)| *request).collect();
    assert_eq!(requests, [1, 2, 3]);
}

#[test]
fn a_failed_call_is_repeated_after_growing_pauses_and_then_the_observer_is_stopped() {
    let mut hook = ObserverRoom::open();
    hook.observe(1, "r", [1]);
    hook.observe(2, "r", [2]);
    for pause in [500, 1_000] {
        let before = hook.now;
        hook.fail();
        hook.fire();
        assert_eq!(hook.now - before, pause);
    }
    assert_eq!(hook.batches(), [&[1][..], &[1], &[1]]);
    assert!(hook.replies.is_empty());
    hook.fail();
    let stopped = Err(RefusalCode::ObserverStopped);
    assert_eq!(hook.replies, [(1, stopped.clone()), (2, stopped)], "nothing overtakes event 1");
    assert!(matches!(hook.notices.last(), Some(Notice::ObserverStopped { attempts: 3, .. })));
    assert_eq!(hook.position_in("r"), None);
    // The count begins anew with the next batch.
    hook.observe(3, "r", [1]);
    hook.fail();
    assert!(matches!(hook.notices.last(), Some(Notice::ObserverRetried { attempts: 1, .. })));
}

#[test]
fn an_unavailable_observer_is_called_no_sooner_than_it_asked_for() {
    for (retry_after_ms, pause) in
        [(None, 500), (Some(100), 500), (Some(7_000), 7_000), (Some(u64::MAX), RETRY_AFTER_MAX_MS)]
    {
        let mut hook = ObserverRoom::open();
        hook.observe(1, "r", [1]);
        hook.answer(Ok(ObserverReply::Unavailable { retry_after_ms }));
        hook.fire();
        assert_eq!((hook.now, hook.calls.len()), (pause, 2));
    }
}

#[test]
fn a_refused_observer_is_stopped_at_once() {
    let mut hook = ObserverRoom::open();
    hook.observe(1, "r", [1]);
    hook.answer(Ok(ObserverReply::Denied));
    assert_eq!(hook.replies, [(1, Err(RefusalCode::ObserverStopped))]);
}

#[test]
fn a_call_past_its_deadline_is_abandoned_and_counts_as_failed() {
    let mut hook = ObserverRoom::open();
    hook.observe(1, "r", [1]);
    let call = hook.calls[0].0;
    hook.fire();
    assert_eq!((hook.now, &hook.abandoned[..]), (2_000, &[call][..]));
    // Its late answer takes nothing.
    hook.answer(Ok(ObserverReply::Taken));
    assert_eq!((hook.position_in("r"), hook.replies.len()), (None, 0));
    hook.fire();
    assert_eq!(hook.batches(), [&[1][..], &[1]]);
}

#[test]
fn a_wrong_answer_is_a_failure() {
    let mut hook = ObserverRoom::open();
    hook.observe(1, "r", [1]);
    let (call, answer) = (hook.calls[0].0, Ok(PluginReply::Memories { memories: Vec::new() }));
    hook.handle(Event::PluginQueried { call, answer, report: CallReport::default() });
    assert!(matches!(
        &hook.notices[..],
        [Notice::PluginFaulted { .. }, Notice::ObserverRetried { attempts: 1, .. }]
    ));
}

#[test]
fn a_stop_refuses_what_is_under_way_and_a_close_waits_for_the_call() {
    let mut hook = ObserverRoom::open();
    hook.observe(1, "r", [1]);
    hook.handle(Event::Cancelled { reason: "enough".to_owned() });
    assert_eq!(hook.replies, [(1, Err(RefusalCode::RoomClosed))]);
    assert!(hook.room.outcome().is_some());

    let close = || RoomRequest::Close { reason: "all is taken".to_owned() };
    let mut hook = ObserverRoom::open();
    hook.observe(1, "r", [1]);
    hook.handle(Event::Requested { request: RequestId(2), what: close() });
    assert!(hook.room.outcome().is_none());
    hook.answer(Ok(ObserverReply::Taken));
    assert!(hook.room.outcome().is_some());

    let mut hook = ObserverRoom::open();
    hook.observe(1, "r", [1]);
    hook.fail();
    hook.handle(Event::Requested { request: RequestId(2), what: close() });
    assert!(hook.room.outcome().is_some(), "no pause keeps a closed room open");
    assert!(hook.replies.contains(&(1, Err(RefusalCode::RoomClosed))));
}

#[test]
fn another_run_in_the_room_goes_on_behind_what_was_taken() {
    let mut hook = ObserverRoom::open();
    hook.observe(1, "r", [1, 2]);
    hook.answer(Ok(ObserverReply::Taken));
    hook.handle(Event::Cancelled { reason: "cut off".to_owned() });
    let opening = RunOpening {
        room: RoomId::from("r/observer-hook"),
        entry: TaskName::from("observe"),
        persistent: true,
        ..RunOpening::default()
    };
    hook.handle(Event::RunStarted { setup: None, opening });
    hook.observe(1, "r", [2, 3]);
    assert_eq!(hook.batches().last(), Some(&&[3][..]));
}

#[test]
fn an_observer_of_another_config_is_refused() {
    let mut hook = ObserverRoom::open();
    let what = RoomRequest::Observe { observer: "other".into(), events: Arc::default() };
    hook.handle(Event::Requested { request: RequestId(1), what });
    assert_eq!(hook.replies, [(1, Err(RefusalCode::BadArguments))]);
}

#[test]
fn side_effects_of_an_observer_are_permitted_as_those_of_any_call() {
    let mut hook = ObserverRoom::open();
    hook.observe(1, "r", [1]);
    let call = hook.calls[0].0;
    let side_effect = SideEffect::DeleteKey { key: "k".to_owned() };
    hook.room.handle(Event::SideEffectAsked { call, ordinal: 0, side_effect }, Millis(0));
    let allowed = std::iter::from_fn(|| hook.room.poll_effect())
        .any(|effect| matches!(effect, Effect::AllowSideEffect { leave: Ok(()), .. }));
    assert!(allowed);
    let answer = SideEffectAnswer::Done { length: 1 };
    hook.room.handle(Event::SideEffectEnded { call, ordinal: 0, answer }, Millis(0));
}

#[test]
fn the_fold_of_a_run_yields_the_kinds_that_its_setup_names() {
    let setup = Arc::clone(&context(OBSERVERS).setup);
    let opening = RunOpening {
        room: RoomId::from("r"),
        entry: setup.entry.clone(),
        content: Some("Hello".to_owned()),
        sender: Some(Role::User),
        limits: setup.limits.clone(),
        ..RunOpening::default()
    };
    let opened = Event::RoomOpened { setup, opening, secret: RoomSecret::WITHHELD };
    let stopped = Event::Cancelled { reason: "enough".to_owned() };
    let events = |observer: &str| {
        let mut fold = ObservedFold::new(observer.into());
        let mut events = Vec::new();
        for (seq, event) in [opened.clone(), stopped.clone()].into_iter().enumerate() {
            events.extend(fold.take(Record {
                seq: seq as u64,
                at: Millis(7),
                principal: Principal("p".into()),
                rules: RULES,
                epoch: 0,
                event,
            }));
        }
        events
    };
    let found = events("hook");
    let kinds: Vec<(&str, u64, Option<&str>)> = found
        .iter()
        .map(|event| (&*event.kind, event.position.seq, event.task.as_ref().map(TaskName::as_str)))
        .collect();
    assert_eq!(kinds, [("task-started", 0, Some("desk")), ("task-ended", 1, Some("desk"))]);
    assert_eq!(found[0].details["notice"], "task-started");
    assert!(events("other").is_empty());
}

//! The cost of the work in flight, and what is dropped from it.

use serde_json::json;

use super::*;
use crate::protocol::call_log::AskedSideEffect;
use crate::protocol::event::{Principal, RULES};
use crate::types::side_effect::SideEffect;

/// A room with `calls` calls in flight, each of which has begun and has a log.
fn busy(calls: u64) -> Unfinished {
    let mut state = serde_json::to_value(Room::new()).expect("a room is serialisable");
    state["cx"]["phase"] = json!({ "Running": { "root": 0 } });
    state["cx"]["calls"] =
        (0..calls).map(|call| (call.to_string(), json!({ "Step": { "frame": 0 } }))).collect();
    let mut unfinished = Unfinished::fold([]);
    unfinished.room = serde_json::from_value(state).expect("it is a room");
    for call in (0..calls).map(CallId) {
        let effect = Effect::StepAgent {
            call,
            frame: crate::types::ids::FrameId(0),
            task: "desk".into(),
            agent: "desk".into(),
        };
        unfinished.in_flight.calls.insert(call, (effect, None));
        unfinished.in_flight.logs.insert(call, CallLog::default());
    }
    unfinished
}

fn record(seq: u64, event: Event) -> Record {
    Record {
        seq,
        at: Millis(seq),
        principal: Principal("tester".into()),
        rules: RULES,
        epoch: 0,
        event,
    }
}

#[test]
fn a_record_costs_the_same_however_many_calls_are_under_way() {
    let visits = |calls: u64| {
        let mut unfinished = busy(calls);
        for seq in 0..1_000 {
            unfinished.take(record(
                seq,
                Event::ReadsRecorded { call: CallId(seq % calls), reads: Vec::new() },
            ));
        }
        let InFlight { calls: open_calls, logs, visited, .. } = unfinished.in_flight;
        assert_eq!((open_calls.len() as u64, logs.len() as u64), (calls, calls));
        visited
    };
    assert_eq!(visits(10), visits(1_000));
    assert!(visits(1_000) <= 2_000, "{}", visits(1_000));
}

#[test]
fn what_has_ended_is_forgotten_however_it_ended() {
    let mut unfinished = busy(100);
    let failed = || Err(Fault::new(FaultKind::Interrupted, "gone"));
    unfinished.take(record(
        0,
        Event::AgentStepped { call: CallId(7), answer: failed(), report: CallReport::default() },
    ));
    // One event for a call that has ended, and one for a call that never began.
    for (seq, call) in [(1, 7), (2, 100_000)] {
        unfinished
            .take(record(seq, Event::ReadsRecorded { call: CallId(call), reads: Vec::new() }));
    }
    let in_flight: BTreeSet<CallId> = unfinished.room.calls_in_flight().collect();
    let InFlight { calls, logs, .. } = &unfinished.in_flight;
    assert!(calls.keys().chain(logs.keys()).all(|call| in_flight.contains(call)));
    unfinished.take(record(3, Event::Cancelled { reason: "enough".to_owned() }));
    let InFlight { calls, logs, .. } = &unfinished.in_flight;
    assert!(calls.is_empty() && logs.is_empty());
}

#[test]
fn a_message_that_may_have_arrived_is_repeated_only_where_its_receiver_recognizes_it() {
    use crate::types::channel::{Binding, ChannelKind};

    // With a plugin the attempt has a request under way, whose end is journalled.
    for (sends_once, has_request) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut unfinished = busy(0);
        let binding = Binding { sends_once, ..Binding::of(ChannelKind::Webhook) };
        let mut state = serde_json::to_value(&unfinished.room).expect("it is serialisable");
        state["channels"]["bindings"] = json!({ "hook": binding });
        unfinished.room = serde_json::from_value(state).expect("it is a room");
        let message = OutgoingMessage {
            channel: "hook".into(),
            text: "hello".to_owned(),
            interrupt: false,
            key: "answer-0-hook".to_owned(),
            tasks: Vec::new(),
        };
        let effect = Effect::Send { call: CallId(7), message: Box::new(message) };
        unfinished.in_flight.calls.insert(CallId(7), (effect, None));
        if has_request {
            let side_effect = SideEffect::DeleteKey { key: "k".to_owned() };
            let request = AskedSideEffect { side_effect, leave: Ok(()), answer: None };
            let side_effects = [(0, Box::new(request))].into();
            let log = CallLog { side_effects, ..CallLog::default() };
            unfinished.in_flight.logs.insert(CallId(7), log);
        }
        let today = Setup::clone(unfinished.room.setup());
        let resumption = unfinished.resumption(Millis(1), &today);
        let is_lost = |event: &Event| matches!(event, Event::Sent { unknown: true, .. });
        assert_eq!(resumption.events.iter().any(is_lost), sends_once);
        assert_eq!(resumption.restarts.len(), usize::from(!sends_once));
        let is_end = |event: &&Event| matches!(event, Event::SideEffectEnded { .. });
        assert_eq!(resumption.events.iter().filter(is_end).count(), usize::from(has_request));
    }
}

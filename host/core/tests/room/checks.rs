//! Invariants of every room, after any events.

use conclave_core::journal::record::{fold, from_lines, to_line};
use conclave_core::protocol::event::{Event, Record};
use conclave_core::room::Room;
use conclave_core::types::usage::Spent;
use serde_json::{Value, json};

/// Returns the violations in the room that these records led to.
pub(crate) fn violations(room: &Room, records: &[Record]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    must(fold(records.iter().cloned()) == *room, "the fold of the events is another room");
    let lines: String =
        records.iter().map(|record| to_line(record).expect("it is not deep") + "\n").collect();
    let read = from_lines(&lines);
    must(
        read.as_ref().is_ok_and(|read| read == records),
        "the records read from their lines are others",
    );
    must(read.is_ok_and(|read| fold(read) == *room), "the fold of the lines is another room");
    must(room.violation().is_none(), &format!("an invariant did not hold: {:?}", room.violation()));
    let state = serde_json::to_value(room).expect("a room is serialisable");
    must(
        serde_json::from_value::<Room>(state.clone()).is_ok_and(|read| read == *room),
        "the room read from its JSON is another",
    );
    must(
        state["frames"]["runnable"] == json!([]) && state["cx"]["effects"] == json!([]),
        "something was left to do",
    );
    let part = |path: &str| state.pointer(path).expect("a room has the part");
    let is_empty = |path: &str| *part(path) == json!([]) || *part(path) == json!({});
    if room.outcome().is_some() {
        for key in [
            "/cx/calls",
            "/cx/timers",
            "/frames/frames",
            "/models/model_calls",
            "/background/tasks",
        ] {
            must(
                is_empty(key),
                &format!("the room is over, and yet there are {key}: {}", part(key)),
            );
        }
        let nothing = serde_json::to_value(Spent::default()).expect("amounts are serialisable");
        must(
            state["budgets"]["reserved"] == nothing,
            &format!("the room is over, and yet it holds back {}", state["budgets"]["reserved"]),
        );
    } else if state["cx"]["phase"] != json!("Unopened") {
        must(
            !is_empty("/cx/calls") || is_waiting(&state) || is_held(&state),
            "the room is not over, and yet it waits for nothing",
        );
    }
    wrong
}

/// Repeats every answer, including late ones to abandoned calls. Returns the first change that this
/// makes; there must be none.
pub(crate) fn changes_when_told_again(room: &Room, records: &[Record]) -> Option<String> {
    let mut replay = room.clone();
    let now = records.last().map(|record| record.at).unwrap_or_default();
    for event in records.iter().map(|record| &record.event).filter(|event| answers(event)) {
        replay.handle(event.clone(), now);
    }
    (replay != *room || replay.poll_effect().is_some())
        .then(|| "an answer that came again changed something".to_owned())
}

fn is_waiting(state: &Value) -> bool {
    state["cx"]["timers"].as_object().is_some_and(|timers| !timers.is_empty())
}

/// Returns whether the room waits for inbound messages.
fn is_held(state: &Value) -> bool {
    state["cx"]["opening"]["persistent"] == json!(true) && state["channels"]["closed"].is_null()
}

fn answers(event: &Event) -> bool {
    !matches!(event, Event::ModelAsked { .. } | Event::Cancelled { .. } | Event::Requested { .. })
}

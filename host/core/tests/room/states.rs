//! The states of a room, of its frames, tool calls, deliveries and questions, as
//! `docs/internals/states.md` draws them. States and their meanings are the variants of the enums
//! and their doc comments; an arrow is a change that a room of the cases, of the corpus or
//! of arbitrary events makes with one event.
//!
//! `UPDATE_DOCS=1 cargo xtask test states_are_drawn` writes the page anew.
#![expect(
    clippy::disallowed_methods,
    reason = "the page is recorded by the test that compares it; the fence is for decisions"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use conclave_core::protocol::event::Record;
use conclave_core::room::Room;
use serde_json::{Value, json};

use crate::arbitrary::{Choices, guarded_case};
use crate::case::Case;
use crate::cases;
use crate::corpus::{recorded_journals, row};
use crate::properties::{Recorded, answered, answered_case, nonsense};
use crate::world::{Order, World};

/// The seeds of arbitrary rooms. More of them add no arrow.
const SEEDS: u64 = 40;

/// The beginning and the end of the things in the drawings.
const OUTSIDE: &str = "[*]";

/// One drawing of the page.
struct Drawing {
    title: &'static str,
    text: &'static str,
    /// The enums of its states: source, name, and the variants; none stands for all.
    enums: &'static [(&'static str, &'static str, &'static [&'static str])],
    /// States that no enum has.
    others: &'static [(&'static str, &'static str)],
    /// Returns the state of each thing in the room, by the thing's name.
    states: fn(&Value) -> BTreeMap<String, String>,
    /// Whether the arrows carry the events.
    names_events: bool,
}

const CONTEXT: &str = include_str!("../../src/room/state/context.rs");
const FRAME_STATE: &str = include_str!("../../src/room/state/frame_state.rs");
const ROUNDS: &str = include_str!("../../src/room/state/rounds.rs");
const DELIVERY: &str = include_str!("../../src/types/delivery.rs");
const CALLS: &str = include_str!("../../src/room/state/calls.rs");

/// The purposes of the calls that wait for people.
const OF_PEOPLE: &[&str] = &["User", "Approval", "HeldTool", "TopUp"];

const DRAWINGS: [Drawing; 5] = [
    Drawing {
        title: "Room",
        text: "`RoomPhase` in `room/state/context.rs`.",
        enums: &[(CONTEXT, "RoomPhase", &[])],
        others: &[],
        states: |room| BTreeMap::from([(String::new(), variant(&room["cx"]["phase"]))]),
        names_events: false,
    },
    Drawing {
        title: "Frame",
        text: "One activation of a task (`FrameState` in `room/state/frame_state.rs`). While a step \
               asks its\nresponders, what it waits for (`FrameWait` there).",
        enums: &[
            (FRAME_STATE, "FrameState", &["Entering", "Checked", "Idle", "Closing"]),
            (FRAME_STATE, "FrameWait", &[]),
        ],
        others: &[],
        states: frames,
        names_events: false,
    },
    Drawing {
        title: "Tool call",
        text: "A slot of the round that a frame waits for in `Tools`: `SlotState` in \
               `room/state/rounds.rs`. The\nround ends when all its slots are `Answered`.",
        enums: &[(ROUNDS, "SlotState", &[])],
        others: &[],
        states: slots,
        names_events: false,
    },
    Drawing {
        title: "Delivery",
        text: "The result of a background task on its way to its reader: `DeliveryState` in \
               `types/delivery.rs`.",
        enums: &[(DELIVERY, "DeliveryState", &[])],
        others: &[],
        states: deliveries,
        names_events: false,
    },
    Drawing {
        title: "Question",
        text: "A call that waits for people: its `Purpose` in `room/state/calls.rs`. An arrow \
               to the end\nnames the events that end it.",
        enums: &[(CALLS, "Purpose", OF_PEOPLE)],
        others: &[],
        states: questions,
        names_events: true,
    },
];

/// Returns the name of a variant in its JSON form.
fn variant(value: &Value) -> String {
    let key = || Some(value.as_object()?.keys().next()?.as_str());
    value.as_str().or_else(key).unwrap_or_else(|| panic!("{value} is no variant")).to_owned()
}

fn frames(room: &Value) -> BTreeMap<String, String> {
    let state = |frame: &Value| match &frame["state"]["Asking"] {
        Value::Null => variant(&frame["state"]),
        attempt => variant(&attempt["wait"]),
    };
    entries(&room["frames"]["frames"]).map(|(id, frame)| (id.clone(), state(frame))).collect()
}

fn slots(room: &Value) -> BTreeMap<String, String> {
    let mut states = BTreeMap::new();
    for (id, frame) in entries(&room["frames"]["frames"]) {
        let round = &frame["state"]["Asking"]["wait"]["Tools"];
        let message = &round["message"]["seq"];
        for (index, slot) in round["slots"].as_array().into_iter().flatten().enumerate() {
            states.insert(format!("{id} {message} {index}"), variant(&slot["state"]));
        }
    }
    states
}

fn deliveries(room: &Value) -> BTreeMap<String, String> {
    let records = entries(&room["background"]["records"]["records"]);
    let state = |record: &Value| pascal(record["delivery"]["state"].as_str().unwrap_or_default());
    records.map(|(number, record)| (number.clone(), state(record))).collect()
}

fn questions(room: &Value) -> BTreeMap<String, String> {
    let calls = entries(&room["cx"]["calls"]);
    let purposes = calls.map(|(call, purpose)| (call.clone(), variant(purpose)));
    purposes.filter(|(_, purpose)| OF_PEOPLE.contains(&purpose.as_str())).collect()
}

fn entries(map: &Value) -> impl Iterator<Item = (&String, &Value)> {
    map.as_object().into_iter().flatten()
}

/// Returns the variant that serde writes in kebab case.
fn pascal(kebab: &str) -> String {
    let part = |part: &str| part[..1].to_uppercase() + &part[1..];
    kebab.split('-').map(part).collect()
}

/// Returns the variants of an enum in a source, with their doc comments.
fn variants(source: &str, name: &str) -> Vec<(String, String)> {
    let (_, body) = source.split_once(&format!("enum {name} {{\n")).expect("the enum is there");
    let (body, _) = body.split_once("\n}").expect("an enum ends");
    let (mut found, mut doc) = (Vec::new(), Vec::new());
    // The lines of a variant's fields are indented once more.
    for line in body.lines().filter_map(|line| line.strip_prefix("    ")) {
        if let Some(text) = line.strip_prefix("/// ") {
            doc.push(text);
        } else if line.starts_with(char::is_uppercase) {
            let name = line.chars().take_while(|letter| letter.is_alphanumeric()).collect();
            found.push((name, std::mem::take(&mut doc).join(" ")));
        }
    }
    found
}

/// The changes of one drawing: from, to, and the events that made them.
type Arrows = BTreeMap<(String, String), BTreeSet<String>>;

/// Returns the arrows of each drawing, as the rooms of the cases, of the corpus's journals and of
/// arbitrary events make them.
fn played() -> [Arrows; DRAWINGS.len()] {
    let mut arrows = DRAWINGS.map(|_| Arrows::new());
    for (_, text) in cases::FILES {
        let cases: Vec<Case> = serde_json::from_str(text).expect("the file holds a list of cases");
        for case in &cases {
            for order in &case.orders {
                let mut world = World::new(case, Order::parse(order));
                world.run();
                play(&mut arrows, &world.records);
            }
        }
    }
    for records in recorded_journals() {
        play(&mut arrows, &records);
    }
    for seed in 0..SEEDS {
        let row = row(seed, 2_000);
        play(&mut arrows, &answered(&row, 40_000).records);
        let mut choices = Choices::new(&row);
        let case = guarded_case(&mut choices);
        play(&mut arrows, &answered_case(&case, &mut choices, 40_000).records);
        let mut arbitrary = Recorded::default();
        for (event, at) in nonsense(&row) {
            arbitrary.handle(event, at);
        }
        play(&mut arrows, &arbitrary.records);
    }
    arrows
}

/// Adds the arrows of one room.
fn play(arrows: &mut [Arrows; DRAWINGS.len()], records: &[Record]) {
    let mut room = Room::new();
    let mut before = DRAWINGS.map(|_| BTreeMap::new());
    look(&room, "", arrows, &mut before);
    for record in records {
        let event = json!(record.event.effective())["event"].clone();
        let event = event.as_str().expect("an event has a name");
        room.handle(record.event.clone(), record.at);
        while room.poll_effect().is_some() || room.poll_notice().is_some() {}
        look(&room, event, arrows, &mut before);
    }
}

/// Adds the arrows of one event, and replaces the states before it by those after it.
fn look(
    room: &Room,
    event: &str,
    arrows: &mut [Arrows; DRAWINGS.len()],
    before: &mut [BTreeMap<String, String>; DRAWINGS.len()],
) {
    let state = serde_json::to_value(room).expect("a room is serialisable");
    for (index, drawing) in DRAWINGS.iter().enumerate() {
        let after = (drawing.states)(&state);
        note(&mut arrows[index], &before[index], &after, event);
        before[index] = after;
    }
}

/// Adds the changes that an event made.
fn note(
    arrows: &mut Arrows,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    event: &str,
) {
    let things: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for thing in things {
        let state = |states: &BTreeMap<String, String>| {
            states.get(thing).map_or(OUTSIDE, String::as_str).to_owned()
        };
        let change = (state(before), state(after));
        if change.0 != change.1 {
            arrows.entry(change).or_default().insert(event.to_owned());
        }
    }
}

/// Returns the section of a drawing.
fn section(drawing: &Drawing, arrows: &Arrows) -> String {
    let mut states: Vec<(String, String)> = Vec::new();
    for (source, name, chosen) in drawing.enums {
        let all = variants(source, name).into_iter();
        states.extend(all.filter(|(name, _)| chosen.is_empty() || chosen.contains(&&**name)));
    }
    let others = drawing.others.iter();
    states.extend(others.map(|(name, meaning)| ((*name).to_owned(), (*meaning).to_owned())));
    let mut text = format!("\n## {}\n\n{}\n\n", drawing.title, drawing.text);
    text += "| state | meaning |\n|---|---|\n";
    for (name, meaning) in &states {
        assert!(!meaning.is_empty(), "`{name}` has no doc comment");
        let is_drawn = arrows.keys().any(|(from, to)| from == name || to == name);
        let within = if is_drawn { "" } else { " *Not seen between two events.*" };
        let _ = writeln!(text, "| `{name}` | {meaning}{within} |");
    }
    text += "\n```mermaid\nstateDiagram-v2\n";
    for ((from, to), events) in arrows {
        for state in [from, to].into_iter().filter(|state| *state != OUTSIDE) {
            let is_known = states.iter().any(|(name, _)| name == state);
            assert!(is_known, "`{state}` is not among the states of {}", drawing.title);
        }
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let label = match drawing.names_events && to == OUTSIDE {
            true => format!(": {}", events.join(", ")),
            false => String::new(),
        };
        let _ = writeln!(text, "    {from} --> {to}{label}");
    }
    text + "```\n"
}

const HEAD: &str = "\
# The states of a room

For people who change the room: what a room, a frame, a tool call, a delivery and a question can be
between two events, and what each can become with one event. [The room for a newcomer](room.md)
explains the words.

A test writes this page (`host/core/tests/room/states.rs`). The states are the variants of the enums
in `host/core/src`. An arrow is there if a room makes this change with one event: a room of the cases
in `tests/data/room`, of the recorded journals in `tests/data/corpus`, or of arbitrary events. A new
state or a new arrow fails the test, and `UPDATE_DOCS=1 cargo xtask test states_are_drawn` draws it.
Read the difference then: an arrow that you did not expect is a finding.
";

#[test]
fn states_are_drawn_as_the_cases_change_them() {
    let arrows = played();
    let sections = DRAWINGS.iter().zip(&arrows).map(|(drawing, arrows)| section(drawing, arrows));
    let page: String = std::iter::once(HEAD.to_owned()).chain(sections).collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/states.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &page).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    let missing: Vec<&str> = page.lines().filter(|line| !written.contains(line)).collect();
    let surplus: Vec<&str> = written.lines().filter(|line| !page.contains(line)).collect();
    assert!(
        written == page,
        "docs/internals/states.md is not what the cases do; UPDATE_DOCS=1 writes it anew.\n\
         not on the page: {missing:#?}\nonly on the page: {surplus:#?}"
    );
}

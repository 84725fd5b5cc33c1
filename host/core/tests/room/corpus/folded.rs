//! The behavior of a room on a journal, step by step, in the hashed form.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use conclave_core::journal::pending_work::WaitChange;
use conclave_core::journal::recovery::Unfinished;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, Record};
use conclave_core::room::Room;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::canon::Canon;

/// The downtime in milliseconds before the room is resumed.
const DOWN_MS: u64 = 1_000_000;

/// The result of one record.
#[derive(Default)]
pub(crate) struct Step {
    event: String,
    effects: String,
    notices: String,
    next: String,
    views: String,
}

/// A way to fold a journal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// One room takes all records.
    Straight,
    /// After some of the records, the room is written as a snapshot and read again.
    ThroughSnapshots,
}

/// The result of a journal.
pub(crate) struct Folded {
    pub(crate) steps: Vec<Step>,
    outcome: String,
    resume: String,
    texts: String,
}

impl Folded {
    pub(crate) fn of(records: &[Record], way: Way) -> Self {
        let (mut canon, mut of_events) = (Canon::default(), Canon::default());
        let mut room = Room::new();
        let mut steps = Vec::with_capacity(records.len());
        let cuts = match way {
            Way::Straight => Vec::new(),
            Way::ThroughSnapshots => vec![records.len() / 3, records.len() * 2 / 3],
        };
        for (index, record) in records.iter().enumerate() {
            if cuts.contains(&index) {
                let read = read_again(&records[..index]).room;
                assert!(read == room, "the room after {index} records is another one");
                room = read;
            }
            let mut step = Step { event: of_events.text(&event(&record.event)), ..Step::default() };
            room.handle(record.event.clone(), record.at);
            let effects: Vec<Effect> = std::iter::from_fn(|| room.poll_effect()).collect();
            for effect in &effects {
                let leaves = effect.leaves(room.setup());
                line(
                    &mut step.effects,
                    &canon.text(&json!({ "effect": effect, "leaves": leaves })),
                );
                if let Some(view) = view(&room, effect) {
                    line(&mut step.views, &canon.text(&view));
                }
            }
            for notice in std::iter::from_fn(|| room.poll_notice()) {
                line(&mut step.notices, &canon.text(&json!(notice)));
            }
            for record in std::iter::from_fn(|| room.poll_task()) {
                line(&mut step.notices, &canon.text(&json!({ "record": record })));
            }
            step.next = canon.text(&next(&room, record, &effects));
            steps.push(step);
        }
        let outcome = canon.text(&json!(room.outcome()));
        let resume = resume(records, way, &mut canon);
        Self { steps, outcome, resume, texts: canon.texts().to_owned() }
    }

    /// Returns the hashes by name.
    pub(crate) fn hashes(&self) -> BTreeMap<&'static str, String> {
        let all = |part: fn(&Step) -> &String| {
            let mut hasher = Sha256::new();
            for step in &self.steps {
                hasher.update(part(step));
                // The separator makes a change visible that moves content from one step to another.
                hasher.update([0]);
            }
            short(hasher)
        };
        let one = |text: &str| short(Sha256::new_with_prefix(text));
        BTreeMap::from([
            ("events", all(|step| &step.event)),
            ("effects", all(|step| &step.effects)),
            ("notices", all(|step| &step.notices)),
            ("next", all(|step| &step.next)),
            ("views", all(|step| &step.views)),
            ("outcome", one(&self.outcome)),
            ("resume", one(&self.resume)),
            ("texts", one(&self.texts)),
            ("steps", self.steps.iter().map(Step::digest).collect()),
        ])
    }

    /// Returns the whole hashed text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (number, step) in self.steps.iter().enumerate() {
            text += &step.text(number);
        }
        text + &format!("outcome\n{}\nresume\n{}\ntexts\n{}", self.outcome, self.resume, self.texts)
    }
}

impl Step {
    pub(crate) fn text(&self, number: usize) -> String {
        let Self { event, effects, notices, next, views } = self;
        format!(
            "step {number}: {event}\neffects\n{effects}notices\n{notices}next\n{next}\nviews\n{views}"
        )
    }

    /// Returns two digits: enough to find the step that differs.
    fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for part in [&self.event, &self.effects, &self.notices, &self.next, &self.views] {
            digest.update(part);
            digest.update([0]);
        }
        short(digest)[..2].to_owned()
    }
}

fn line(to: &mut String, text: &str) {
    to.push_str(text);
    to.push('\n');
}

fn short(digest: Sha256) -> String {
    digest.finalize().iter().take(8).fold(String::new(), |mut hash, byte| {
        write!(hash, "{byte:02x}").expect("a string takes it");
        hash
    })
}

/// Returns an event without its setup, whose form is no behavior.
fn event(event: &Event) -> Value {
    match event {
        Event::RoomOpened { opening, .. } => json!({ "event": "room-opened", "opening": opening }),
        Event::RunStarted { opening, setup } => {
            json!({ "event": "run-started", "opening": opening, "with_setup": setup.is_some() })
        }
        event => json!(event),
    }
}

/// Returns the view of the plugin behind an effect; `None` if it sees nothing but the effect.
fn view(room: &Room, effect: &Effect) -> Option<Value> {
    let call = effect.starts()?;
    let view = match effect {
        Effect::StepAgent { .. } | Effect::AskResponder { .. } | Effect::QueryPlugin { .. } => {
            json!(room.agent_view(call))
        }
        Effect::WakeStrategy { .. } => json!(room.delivery_view(call)),
        Effect::CallTool { .. } => Value::Null,
        _ => return None,
    };
    Some(json!({ "view": view, "scratch": String::from_utf8_lossy(&room.scratch(call)) }))
}

/// Returns the pending work of the room, and the part of it that the record began and ended.
fn next(room: &Room, record: &Record, effects: &[Effect]) -> Value {
    let effect_changes = effects.iter().filter_map(WaitChange::of_effect);
    let changes: Vec<Value> =
        WaitChange::of_event(&record.event).into_iter().chain(effect_changes).map(change).collect();
    json!({
        "calls": room.calls_in_flight().collect::<Vec<_>>(),
        "ended": room.ended_calls(),
        "changes": changes,
        "status": room.status().as_str(),
        "paused": room.paused(),
        "closed": room.closed(),
        "handed_to": room.handed_to(),
        "bindings": room.bindings(),
        "spent": room.spent(),
    })
}

fn change(change: WaitChange) -> Value {
    match change {
        WaitChange::Begun(wait) => json!({ "begun": wait }),
        WaitChange::Over(key) => json!({ "over": key }),
        WaitChange::Abandoned(call) => json!({ "abandoned": call }),
        WaitChange::Finished => json!("finished"),
    }
}

/// Returns how the room is resumed in the middle and at the end, unless it has ended.
fn resume(records: &[Record], way: Way, canon: &mut Canon) -> String {
    let mut text = String::new();
    for cut in [records.len().div_ceil(2), records.len()] {
        let mut unfinished = Unfinished::fold(records[..cut].iter().cloned());
        if way == Way::ThroughSnapshots {
            let snapshot = unfinished.to_snapshot().expect("it is written");
            let (before, behind) = records[..cut].split_at(cut * 2 / 3);
            unfinished = read_again(before);
            unfinished.extend(behind.iter().cloned());
            assert!(
                unfinished.to_snapshot().expect("it is written") == snapshot,
                "the work in flight after {cut} records is another one"
            );
        }
        let Some(last) = records[..cut].last().filter(|_| unfinished.room.outcome().is_none())
        else {
            continue;
        };
        let resumption = unfinished.resumption(last.at.plus(DOWN_MS), unfinished.room.setup());
        for resumed in &resumption.events {
            line(&mut text, &canon.text(&event(resumed)));
        }
        for restart in &resumption.restarts {
            line(&mut text, &canon.text(&json!(restart.effect)));
        }
    }
    text
}

/// Folds the records, writes a snapshot and reads it.
fn read_again(records: &[Record]) -> Unfinished {
    let unfinished = Unfinished::fold(records.iter().cloned());
    let text = unfinished.to_snapshot().expect("it is written");
    let mut read = Unfinished::from_snapshot(&text).expect("it is read");
    let reads = read.in_flight.read_records();
    read.restore_reads(records.iter().filter(|record| reads.contains(&record.seq)).cloned());
    read
}

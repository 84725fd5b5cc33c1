//! The checks at the end of a soak: what the store has, what the world has seen, and what workers
//! and the office were promised.

use std::collections::{BTreeMap, BTreeSet};

use conclave_core::journal::record::fold;
use conclave_core::protocol::event::{Event, Record};
use conclave_core::types::ids::RoomId;
use conclave_core::types::outcome::{Outcome, Status};
use conclave_core::types::tool::ToolError;
use conclave_runtime::store::{ControlCommand, ControlMessage};

use super::work::{self, Act, Kind, Script};
use crate::check::is_interrupted;
use crate::kept::digest;
use crate::world::Counts;

/// Everything that is known when all runs should have ended.
#[derive(Clone, Default)]
pub(super) struct Evidence {
    pub(super) rooms: BTreeMap<RoomId, Vec<Record>>,
    /// What the store's own checks found.
    pub(super) store_problems: Vec<String>,
    /// The digests of the records that workers acknowledged.
    pub(super) acknowledged: BTreeMap<(RoomId, u64), u64>,
    pub(super) counts: Counts,
    /// The runs that the store acknowledged.
    pub(super) ordered: BTreeSet<RoomId>,
    /// The messages that the store acknowledged.
    pub(super) sent: Vec<ControlMessage>,
    /// The messages that are still in the store.
    pub(super) pending: Vec<ControlMessage>,
    /// The rooms that the store says wait for something, and for what.
    pub(super) waits: Vec<(RoomId, String)>,
}

/// Returns everything that is wrong, each in a text that names the run.
pub(super) fn judge(evidence: &Evidence) -> Vec<String> {
    let mut problems = evidence.store_problems.clone();
    for run in &evidence.ordered {
        if !evidence.rooms.contains_key(run) {
            problems.push(format!("{run}: its order was acknowledged, and it is not there"));
        }
    }
    problems.extend(acknowledged(evidence));
    for (room, records) in &evidence.rooms {
        let of_room = journal(records)
            .or_else(|| end(room, records))
            .map_or_else(|| work_done(evidence, room, records), |problem| vec![problem]);
        problems.extend(of_room.into_iter().map(|problem| format!("{room}: {problem}")));
    }
    problems.extend(effects(evidence));
    problems.extend(messages(evidence));
    problems.extend(deliveries(evidence));
    for (room, wait) in &evidence.waits {
        problems.push(format!("{room}: the store says that it waits for {wait}"));
    }
    problems
}

/// Checks that no acknowledged record is missing or another.
fn acknowledged(evidence: &Evidence) -> Vec<String> {
    let mut problems = Vec::new();
    for ((room, seq), expected) in &evidence.acknowledged {
        let records = evidence.rooms.get(room);
        let record = records.and_then(|records| records.iter().find(|record| record.seq == *seq));
        match record {
            Some(record) if digest(record) == *expected => {}
            Some(record) => problems.push(format!(
                "{room}: record {seq} is not what was acknowledged, but of epoch {}",
                record.epoch
            )),
            None => problems.push(format!("{room}: record {seq} was acknowledged and is lost")),
        }
    }
    problems
}

/// Checks that the records are one history.
fn journal(records: &[Record]) -> Option<String> {
    let mut epoch = 0;
    for (index, record) in records.iter().enumerate() {
        if record.seq != index as u64 {
            return Some(format!("its journal has a gap before record {}", record.seq));
        }
        let owned = match &record.event {
            Event::Owned { epoch, .. } => Some(*epoch),
            _ => None,
        };
        if record.epoch < epoch {
            return Some(format!("record {index} is of epoch {}, after {epoch}", record.epoch));
        }
        if record.epoch > epoch && index > 0 && owned != Some(record.epoch) {
            return Some(format!("epoch {} begins without a take-over", record.epoch));
        }
        epoch = record.epoch;
    }
    None
}

fn outcome_of(records: &[Record]) -> Option<Outcome> {
    fold(records.iter().cloned()).outcome().map(|outcome| (**outcome).clone())
}

fn is_done(records: &[Record]) -> bool {
    outcome_of(records).is_some_and(|outcome| outcome.status == Status::Done)
}

/// Checks that the room has ended once, as expected.
fn end(room: &RoomId, records: &[Record]) -> Option<String> {
    let Some(outcome) = outcome_of(records) else {
        let last = records.last().map(|record| format!("{:?}", record.event)).unwrap_or_default();
        let last: String = last.chars().take(80).collect();
        return Some(format!("it has not ended; the last of {} records: {last}", records.len()));
    };
    // A host that takes the run over also takes a room that has ended, if the run does not know it.
    let is_owned = |record: &Record| matches!(record.event, Event::Owned { .. });
    let last = records.iter().rposition(|record| !is_owned(record)).unwrap_or_default();
    if outcome_of(&records[..last]).is_some() {
        let last = format!("{:?}", records[last].event).chars().take(120).collect::<String>();
        return Some(format!("it has records after its end: {last}"));
    }
    let is_expected =
        outcome.status == Status::Done || work::is_stopped(room) && outcome.status == Status::Kill;
    (!is_expected).then(|| format!("it ended as {:?}: {}", outcome.status, outcome.reason))
}

/// Checks the acts of a room that has ended.
fn work_done(evidence: &Evidence, room: &RoomId, records: &[Record]) -> Vec<String> {
    let mut problems = Vec::new();
    let is_done = is_done(records);
    let content = outcome_of(records).and_then(|outcome| outcome.content);
    if is_done && content != Some(work::result(room)) {
        problems.push("its result is another one".to_owned());
    }
    let (mut answers, mut settled) = (BTreeMap::<_, u32>::new(), BTreeMap::new());
    let (mut confirmed, mut unknown) = (BTreeSet::new(), 0);
    for record in records {
        match record.event.effective() {
            Event::ToolAnswered { call, answer, .. } => {
                *answers.entry((*call, "call")).or_default() += 1;
                match answer {
                    Ok(outcome) => confirmed.extend(
                        outcome.content.as_deref().and_then(|text| text.strip_prefix("ok ")),
                    ),
                    Err(ToolError::Fault { .. }) if is_interrupted(&record.event) => unknown += 1,
                    Err(_) => {}
                }
            }
            Event::BackgroundEnded { call, .. } => {
                *answers.entry((*call, "background task")).or_default() += 1;
            }
            _ => {}
        }
        if let Some(call) = record.event.settled_call() {
            // The first one counts; the approver that waits beside it breaks off afterwards.
            settled.entry(call).or_insert(&record.event);
        }
    }
    for ((call, what), count) in &answers {
        if *count > 1 {
            problems.push(format!("the {what} {call:?} was answered {count} times"));
        }
    }
    if !is_done {
        return problems;
    }
    let script = Script::of(room);
    let count = |name: &str| evidence.counts.effects.get(name).copied().unwrap_or_default();
    let mut unconfirmed = 0;
    for act in &script.acts {
        let name = match act {
            Act::Effect(name) => work::effect(room, name),
            Act::Pay if script.kind == Kind::Approved => work::effect(room, "pay"),
            Act::Repeatable => work::effect(room, "many.do"),
            Act::Pay | Act::Lapse => {
                let name = work::effect(room, if *act == Act::Pay { "pay" } else { "lapse" });
                if count(&name) > 0 {
                    problems.push(format!("the effect {name} was not allowed, and happened"));
                }
                continue;
            }
            Act::Delegate | Act::Ask => continue,
        };
        match (confirmed.contains(name.as_str()), count(&name)) {
            (true, 0) => problems.push(format!("the effect {name} was answered, and is lost")),
            (true, _) => {}
            (false, _) => unconfirmed += 1,
        }
    }
    if unconfirmed > unknown {
        problems.push(format!(
            "{unconfirmed} effects have no answer, and {unknown} were reported as interrupted"
        ));
    }
    problems.extend(decision(room, script.kind, settled.values().copied()));
    let children = records
        .iter()
        .filter(|record| matches!(record.event, Event::BackgroundEnded { .. }))
        .count();
    let delegations = script.acts.iter().filter(|act| **act == Act::Delegate).count();
    // A stop ends the background task of a run that is about to end.
    if children != delegations && !work::is_stopped(room) {
        problems.push(format!("{children} of {delegations} background tasks have an end"));
    }
    problems
}

/// Checks that the office has decided or answered, where it should.
fn decision<'a>(
    room: &RoomId,
    kind: Kind,
    mut settled: impl Iterator<Item = &'a Event>,
) -> Option<String> {
    // A user who says something else meanwhile answers the question, too.
    let expected = match kind {
        Kind::Approved | Kind::Refused => true,
        Kind::Asking => !work::is_told(room),
        Kind::Plain | Kind::Lapsed => false,
    };
    let by_office = settled.any(|event| matches!(event, Event::ControlReceived { .. }));
    match (expected, by_office) {
        (true, false) => Some("nobody has answered what it asked".to_owned()),
        (false, true) if kind != Kind::Asking => Some("a decision came by itself".to_owned()),
        _ => None,
    }
}

/// Checks that no effect happened twice.
fn effects(evidence: &Evidence) -> Vec<String> {
    let twice = |(id, count): &(&String, &u64)| **count > 1 && !id.ends_with("many.do");
    let twice = evidence.counts.effects.iter().filter(twice);
    twice
        .map(|(id, count)| {
            let run = id.split('/').next().unwrap_or_default();
            format!("{run}: the effect {id} happened {count} times")
        })
        .collect()
}

/// Checks that each message is journalled once, or was sent to a run that has ended.
fn messages(evidence: &Evidence) -> Vec<String> {
    let mut problems = Vec::new();
    for message in &evidence.sent {
        let records = evidence.rooms.get(&message.room).map_or(&[][..], Vec::as_slice);
        let is_it = |record: &&Record| matches!(&record.event, Event::ControlReceived { id, .. } if *id == message.id);
        let count = records.iter().filter(is_it).count();
        let is_pending = evidence.pending.iter().any(|pending| pending.id == message.id);
        // An ended run reads nothing; its host takes a stop as done.
        let is_over = outcome_of(records).is_some();
        let may_be_gone = is_over && matches!(message.word, ControlCommand::Stop { .. });
        match count {
            0 if !is_pending && !may_be_gone => {
                problems.push(format!("{}: the message {} is lost", message.room, message.id));
            }
            0 | 1 => {}
            count => problems.push(format!(
                "{}: the message {} was taken {count} times",
                message.room, message.id
            )),
        }
    }
    problems
}

/// Checks that the result of each background task was delivered once: attempts have the same key.
fn deliveries(evidence: &Evidence) -> Vec<String> {
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for spoken in evidence.counts.spoken.keys() {
        let Ok((key, text)) = serde_json::from_str::<(String, String)>(spoken) else { continue };
        keys.entry(text).or_default().insert(key);
    }
    let mut problems = Vec::new();
    for (room, records) in evidence.rooms.iter().filter(|(room, _)| work::is_child(room)) {
        let result = work::result(room);
        let of_room = keys.iter().filter(|(text, _)| text.contains(&result));
        let count: usize = of_room.map(|(_, keys)| keys.len()).sum();
        let parent = evidence.rooms.get(&room.run()).map_or(&[][..], Vec::as_slice);
        if count > 1 {
            problems.push(format!("{room}: its result was delivered {count} times"));
        } else if count == 0 && is_done(records) && is_done(parent) {
            problems.push(format!("{room}: its result was not delivered"));
        }
    }
    problems
}

/// What is falsified, and how.
type Forgery = (&'static str, fn(&mut Evidence));

/// Ways to falsify evidence, to show that the checks find each.
pub(super) const FORGERIES: [Forgery; 9] = [
    ("an acknowledged record is lost", |evidence| {
        if let Some(records) = some_run(evidence) {
            records.pop();
        }
    }),
    ("an acknowledged record is another one", |evidence| {
        if let Some(expected) = evidence.acknowledged.values_mut().next() {
            *expected ^= 1;
        }
    }),
    ("a journal has a gap", |evidence| {
        if let Some(records) = some_run(evidence) {
            records.remove(2);
        }
        evidence.acknowledged.clear();
    }),
    ("a host that lost a run has written to it", |evidence| {
        if let Some(records) = some_run(evidence) {
            records[1].epoch = u64::MAX;
        }
        evidence.acknowledged.clear();
    }),
    ("a run has not ended", |evidence| {
        if let Some(records) = some_run(evidence) {
            records.truncate(3);
        }
        evidence.acknowledged.clear();
    }),
    ("an effect happened twice", |evidence| {
        let effects = evidence.counts.effects.iter_mut();
        for (_, count) in effects.filter(|(id, _)| !id.ends_with("many.do")).take(1) {
            *count += 1;
        }
    }),
    ("an answered effect never happened", |evidence| evidence.counts.effects.clear()),
    ("a message is lost", |evidence| {
        let room = evidence.rooms.keys().next().cloned().unwrap_or_else(|| RoomId::from("run0"));
        let word = ControlCommand::Tell { task: None, text: "lost".to_owned() };
        evidence.sent.push(ControlMessage::new(room, word));
    }),
    ("a result was delivered twice", |evidence| {
        let mut spoken = evidence.counts.spoken.keys();
        let children = evidence.rooms.keys().filter(|room| work::is_child(room));
        let results: Vec<String> = children.map(work::result).collect();
        let is_result = |text: &&String| results.iter().any(|result| text.contains(result));
        let first = spoken.find(is_result).cloned().unwrap_or_default();
        if let Ok((_, text)) = serde_json::from_str::<(String, String)>(&first) {
            let again = serde_json::json!(["another key", text]).to_string();
            evidence.counts.spoken.insert(again, 1);
        }
    }),
];

/// Returns the records of a run that has ended.
fn some_run(evidence: &mut Evidence) -> Option<&mut Vec<Record>> {
    evidence.rooms.iter_mut().find(|(room, _)| !work::is_child(room)).map(|(_, records)| records)
}

/// The number of rooms in which evidence is falsified. All would take minutes.
const SOME: usize = 20;

/// Returns the forgeries that the checks do not find.
pub(super) fn unnoticed(evidence: &Evidence) -> Vec<&'static str> {
    let mut evidence = evidence.clone();
    if let Some(first) = evidence.rooms.keys().nth(SOME).cloned() {
        evidence.rooms.split_off(&first);
    }
    evidence.acknowledged.retain(|(room, _), _| evidence.rooms.contains_key(room));
    let before: BTreeSet<String> = judge(&evidence).into_iter().collect();
    let is_unnoticed = |forge: fn(&mut Evidence)| {
        let mut forged = evidence.clone();
        forge(&mut forged);
        judge(&forged).iter().all(|problem| before.contains(problem))
    };
    FORGERIES.iter().filter(|(_, forge)| is_unnoticed(*forge)).map(|(name, _)| *name).collect()
}

//! The parent's checks: the stored state after each kill, and the end state of all work.

use std::collections::{BTreeMap, BTreeSet};

use conclave_core::journal::record::fold;
use conclave_core::protocol::event::{Event, Record};
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::types::fault::FaultKind;
use conclave_core::types::ids::RoomId;
use conclave_core::types::outcome::Status;
use conclave_core::types::side_effect::{FailureCause, SideEffectAnswer};
use conclave_core::types::tool::ToolError;
use serde_json::Value;

use crate::child::Clockwork;
use crate::kept::{Kept, digest};
use crate::totals::Totals;
use crate::world::Counts;

/// The records that the children acknowledged, which must be stored.
pub(crate) type Acknowledged = BTreeMap<(RoomId, u64), u64>;

/// The parent's knowledge of a round.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) acknowledged: Acknowledged,
    /// Journalled replies, and how often each had been bought by then.
    journalled: BTreeMap<String, u64>,
    pub(crate) totals: Totals,
}

impl Known {
    /// Checks the state after a kill.
    pub(crate) fn look(&mut self, kept: &Kept, counts: &Counts) -> Vec<String> {
        let mut problems = kept.problems.clone();
        for ((room, seq), digest_told) in &self.acknowledged {
            let record = kept
                .rooms
                .get(room)
                .and_then(|records| records.get(usize::try_from(*seq).unwrap_or(usize::MAX)));
            match record {
                Some(record) if digest(record) == *digest_told => {}
                Some(_) => problems.push(format!("{room}:{seq} is not what was acknowledged")),
                None => {
                    self.totals.lost += 1;
                    problems.push(format!("{room}:{seq} was acknowledged and is lost"));
                }
            }
        }
        for (room, records) in &kept.rooms {
            if let Some(gap) =
                records.iter().enumerate().find(|(index, record)| record.seq != *index as u64)
            {
                problems.push(format!("{room} has a gap before {}", gap.0));
            }
        }
        problems.extend(self.effects(counts));
        for (key, before) in &self.journalled {
            let now = counts.bought.get(key).copied().unwrap_or_default();
            if now > *before {
                problems.push(format!("the reply {key} was journalled, and was bought again"));
            }
        }
        problems
    }

    /// Registers the stored replies, which must not be bought again.
    pub(crate) fn note(&mut self, kept: &Kept, counts: &Counts) {
        for key in replies(kept) {
            let count = counts.bought.get(&key).copied().unwrap_or_default();
            self.journalled.entry(key).or_insert(count);
        }
    }

    fn effects(&mut self, counts: &Counts) -> Vec<String> {
        let twice = |(id, count): &(&String, &u64)| **count > 1 && !id.ends_with("many.do");
        let twice: Vec<_> = counts.effects.iter().filter(twice).collect();
        self.totals.duplicates = twice.len() as u64;
        twice
            .into_iter()
            .map(|(id, count)| format!("the effect {id} happened {count} times"))
            .collect()
    }

    /// Checks the state after all work has ended.
    pub(crate) fn judge(
        &mut self,
        kept: &Kept,
        counts: &Counts,
        runs: u32,
        clockwork: Clockwork,
    ) -> Vec<String> {
        let mut problems = self.look(kept, counts);
        let totals = &mut self.totals;
        totals.runs += u64::from(runs);
        totals.effects += counts.effects.values().sum::<u64>();
        totals.bought_again +=
            counts.bought.values().map(|count| count.saturating_sub(1)).sum::<u64>();
        totals.said_again +=
            counts.spoken.values().map(|count| count.saturating_sub(1)).sum::<u64>();
        totals.acknowledged += self.acknowledged.len() as u64;
        for records in kept.rooms.values() {
            totals.records += records.len() as u64;
            totals.resumed += records
                .iter()
                .filter(|record| matches!(record.event, Event::Resumed { .. }))
                .count() as u64;
            totals.interrupted +=
                records.iter().filter(|record| is_interrupted(&record.event)).count() as u64;
        }
        for (room, records) in &kept.rooms {
            problems.extend(
                judge_room(room, records, counts, clockwork)
                    .into_iter()
                    .map(|problem| format!("{room}: {problem}")),
            );
        }
        let roots = kept.rooms.keys().filter(|room| !room.as_str().contains('/')).count();
        if roots != runs as usize {
            problems.push(format!("{roots} of {runs} runs are there"));
        }
        problems
    }
}

/// Returns the keys of all journalled replies.
fn replies(kept: &Kept) -> BTreeSet<String> {
    let key = |record: &Record| match &record.event {
        Event::ModelAnswered { answer: Ok(completion), .. } => {
            completion.id.split('#').next().map(str::to_owned)
        }
        _ => None,
    };
    kept.rooms.values().flatten().filter_map(key).collect()
}

pub(crate) fn is_interrupted(event: &Event) -> bool {
    match event {
        Event::ToolAnswered { answer: Err(ToolError::Fault { fault }), .. } => {
            fault.kind == FaultKind::Interrupted
        }
        Event::SideEffectEnded { answer: SideEffectAnswer::Failed { cause, .. }, .. } => {
            *cause == FailureCause::Interrupted
        }
        _ => false,
    }
}

fn judge_room(
    room: &RoomId,
    records: &[Record],
    counts: &Counts,
    clockwork: Clockwork,
) -> Vec<String> {
    let mut problems = Vec::new();
    let folded = fold(records.iter().cloned());
    let Some(outcome) = folded.outcome() else { return vec!["it has not ended".to_owned()] };
    let is_child = room.as_str().contains('/');
    match (outcome.status, clockwork) {
        (Status::Done, _) => {}
        // The clock jumped a day forward, but a run may take only twenty minutes.
        (Status::Timeout | Status::Kill, Clockwork::Forward) => return problems,
        (status, _) => return vec![format!("it ended as {status:?}: {}", outcome.reason)],
    }
    let notes = outcome
        .content
        .as_deref()
        .and_then(|content| serde_json::from_str::<Value>(content).ok())
        .unwrap_or_default();
    let Some(notes) = notes.as_object() else {
        return vec![format!("its result is no list of notes: {:?}", outcome.content)];
    };
    let id = if is_child {
        format!("{}/child", room.as_str().split('/').next().unwrap_or_default())
    } else {
        room.to_string()
    };
    let effect =
        |name: &str| counts.effects.get(&format!("{id}/{name}")).copied().unwrap_or_default();
    let done = [
        ("fetch", "fetch"),
        ("once.do", "once.do"),
        ("probe.run", "probe"),
        ("many.do", "many.do"),
        ("pay.do", "pay.do"),
    ];
    for (note, name) in done.into_iter().take(if is_child { 1 } else { 5 }) {
        let said = notes.get(note).and_then(Value::as_str).unwrap_or_default();
        let is_ok = said.starts_with("ok")
            || said.contains("\"status\":200")
            || said.contains("\"status\": 200");
        match (is_ok, said.contains("interrupted"), effect(name)) {
            (true, false, count) if count >= 1 => {}
            // An interrupted effect may have happened or not.
            (false, true, _) if note != "many.do" => {}
            (_, _, count) => {
                problems.push(format!("`{note}` was told {said:?}, and happened {count} times"))
            }
        }
    }
    for note in ["model-0", "model-1"] {
        if !notes.get(note).and_then(Value::as_str).is_some_and(|said| said.starts_with("ok said"))
        {
            problems.push(format!("`{note}` was told {:?}", notes.get(note)));
        }
    }
    problems.extend(results(records));
    problems.extend(spent(records, outcome.spent.tokens));
    problems
}

/// Checks that the result of each background task reached its parent once.
fn results(records: &[Record]) -> Vec<String> {
    let mut ended: BTreeMap<_, u32> = BTreeMap::new();
    for record in records {
        if let Event::BackgroundEnded { call, .. } = &record.event {
            *ended.entry(*call).or_default() += 1;
        }
    }
    let twice = ended.iter().filter(|(_, count)| **count > 1);
    twice.map(|(call, count)| format!("the result of {call:?} came {count} times")).collect()
}

/// Checks the spent amount of the outcome: the cost of its answers, its children and its lost
/// attempts.
fn spent(records: &[Record], tokens: u64) -> Option<String> {
    let cost = |record: &Record| match &record.event {
        Event::ModelAnswered { answer: Ok(completion), .. } => {
            completion.usage.input_tokens + completion.usage.output_tokens
        }
        Event::BackgroundEnded { spent, .. } => spent.tokens,
        _ => 0,
    };
    let (answered, mut lost, mut room) = (records.iter().map(cost).sum::<u64>(), 0, Room::new());
    for record in records {
        room.handle(record.event.clone(), record.at);
        while room.poll_effect().is_some() {}
        while let Some(notice) = room.poll_notice() {
            if let Notice::AttemptLost { input_tokens, .. } = notice {
                lost += input_tokens;
            }
        }
    }
    (answered + lost != tokens)
        .then(|| format!("its outcome says that {tokens} tokens were spent, its answers {answered}, and lost attempts {lost}"))
}

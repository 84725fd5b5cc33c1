//! The condensing of histories (O-123…O-125): when a condenser is asked, and how its answer is
//! applied. `setup::plugin_query` decides what it may do to a history; the
//! log keeps everything.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::queries::consult;
use super::state::frame_state::FrameWait;
use super::{Dialogue, Histories, QueryPurpose, RoomContext, RunControl, StepLoop};
use crate::protocol::notice::Notice;
use crate::setup::CondenseRules;
use crate::setup::plugin_query::{
    Condensation, CondenseReason, Condensed, PluginQuery, PluginReply, RetainedEntries, Summary,
};
use crate::tool_calls::truncate::{self, MIN_OUTPUT};
use crate::types::action::Observation;
use crate::types::fault::{Fault, FaultKind};
use crate::types::ids::{FrameId, PluginName, TaskName};
use crate::types::message::{Label, SUMMARY_BY};

/// Entries that a history must grow by before its condenser is asked again after an insufficient
/// answer (O-159).
const LEAST_GROWTH: u64 = 8;

/// The condensing state of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Condensing {
    /// True if the agent asked for it and no condenser was asked since (O-123: an unhandled
    /// request).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_wanted: bool,
    /// Range of history lengths in which asking again is useless: from the length at the last try
    /// to the length that it must reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_no_use: Option<(u64, u64)>,
    /// Length of the history, and the number of its last entry, when the condenser was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_with: Option<(u64, Option<u64>)>,
    /// Length of the history when the model last refused it as too long, until a step succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused_with: Option<u64>,
}

impl Condensing {
    /// Whether there is nothing to serialize.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

impl Dialogue<'_> {
    /// Requests a shorter history before the agent's next step (O-123).
    ///
    /// # Errors
    /// If the task has no condenser.
    pub(super) fn condense_requested(&mut self, id: FrameId) -> Result<Observation, String> {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            return Err("the task is over".to_owned());
        };
        let name = frame.task.clone();
        if task.condense.is_none() {
            return Err(format!("The history stays as it is: the task {name} has no condenser."));
        }
        self.histories.memory(self.cx, &name).condensing.is_wanted = true;
        let content = "The history is condensed before the next step.".to_owned();
        Ok(Observation::Custom {
            name: "condense".to_owned(),
            content,
            extras: serde_json::json!({}),
        })
    }

    /// Asks the task's condenser after the model refused the prompt as too long, so that the step
    /// can be repeated. `None` without a condenser, or if the history is no shorter than at the
    /// last such refusal.
    pub(super) fn condense_refused(&mut self, id: FrameId) -> Option<FrameWait> {
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        task.condense.as_ref()?;
        let name = frame.task.clone();
        let memory = self.histories.memory(self.cx, &name);
        let entries = memory.history().len() as u64;
        if memory.condensing.refused_with.is_some_and(|before| entries >= before) {
            return None;
        }
        // Wanted like an agent's own request, to which the growth limit does not apply.
        memory.condensing.refused_with = Some(entries);
        memory.condensing.is_wanted = true;
        self.condense_first(id)
    }

    /// The agent's step succeeded, so a later refusal is a new one.
    pub(super) fn forget_refusal(&mut self, id: FrameId) {
        let Some(frame) = self.frames.get(&id) else { return };
        if let Some(memory) = self.histories.memories.get_mut(&frame.task) {
            memory.condensing.refused_with = None;
        }
    }

    /// Asks the task's condenser before a step if the history is too long. `None` if the step can
    /// begin.
    pub(super) fn condense_first(&mut self, id: FrameId) -> Option<FrameWait> {
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        let rules = task.condense.clone()?;
        let name = frame.task.clone();
        let reason = self.histories.must_condense(self.cx, &name, &rules)?;
        let memory = self.histories.memory(self.cx, &name);
        let asked_with =
            (memory.history().len() as u64, memory.history().last().map(|last| last.seq));
        // Cleared at the query, so that a failing condenser is not asked again at once.
        memory.condensing.is_wanted = false;
        memory.condensing.asked_with = Some(asked_with);
        let call = consult(
            self.frames,
            self.cx,
            id,
            &rules.plugin,
            PluginQuery::Condense { reason },
            QueryPurpose::Condense,
        )?;
        Some(FrameWait::Call(call))
    }
}

impl Histories {
    fn must_condense(
        &self,
        cx: &RoomContext,
        name: &TaskName,
        rules: &CondenseRules,
    ) -> Option<CondenseReason> {
        let memory = self.memories.get(name)?;
        let entries = memory.history().len() as u64;
        // An agent's own request is not subject to the growth limit.
        if memory.condensing.is_wanted {
            return Some(match memory.condensing.refused_with {
                Some(_) => CondenseReason::Overflow,
                None => CondenseReason::Requested,
            });
        }
        if memory
            .condensing
            .of_no_use
            .is_some_and(|(tried, retry_at)| (tried..retry_at).contains(&entries))
        {
            return None;
        }
        if entries > rules.over {
            return Some(CondenseReason::Size);
        }
        self.overflows(cx, name).then_some(CondenseReason::Overflow)
    }

    /// Whether the history exceeds the model's context, so that a prompt would be cut (L-180).
    fn overflows(&self, cx: &RoomContext, name: &TaskName) -> bool {
        let Some((memory, task)) = self.memories.get(name).zip(cx.setup.tasks.get(name)) else {
            return false;
        };
        let model = cx
            .setup
            .rights_in(&task.agent, name)
            .and_then(|rights| rights.may_use_model(None).ok().cloned());
        let Some(setup) = model.and_then(|model| cx.setup.models.get(&model)) else {
            return false;
        };
        // The system text and the shortest answer have to fit too.
        let least = setup
            .min_output
            .unwrap_or(MIN_OUTPUT)
            .saturating_add(truncate::tokens_of(&task.system, task.bytes_per_token));
        setup.context.is_some_and(|context| memory.tokens().saturating_add(least) > context)
    }

    fn too_long(&self, cx: &RoomContext, name: &TaskName, rules: &CondenseRules) -> bool {
        self.memories.get(name).is_some_and(|memory| memory.history().len() as u64 > rules.over)
            || self.overflows(cx, name)
    }
}

impl RunControl<'_> {
    /// Applies a condenser's answer, as far as it is allowed.
    ///
    /// # Errors
    /// If the answer does not fit this history. Nothing is changed then.
    pub(super) fn condensed(
        &mut self,
        id: FrameId,
        answer: Result<PluginReply, Fault>,
        removals: &[Vec<usize>],
    ) -> Result<(), Fault> {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else { return Ok(()) };
        let (name, pending, rules) = (
            frame.task.clone(),
            frame.turn().pending.as_ref().map(|pending| pending.seq),
            task.condense.clone(),
        );
        let memory = self.histories.memory(self.cx, &name);
        let asked_with = memory.condensing.asked_with.take();
        // Entries cut for a model meanwhile are not a rewind.
        let removed_count = removals.iter().map(Vec::len).sum::<usize>() as u64;
        let is_as_asked = (
            memory.history().len() as u64 + removed_count,
            memory.history().last().map(|last| last.seq),
        );
        let condensation = match answer {
            // Another agent rewound the history meanwhile, so the answer refers to entries that are
            // gone.
            Ok(_) if asked_with.is_some_and(|asked_with| asked_with != is_as_asked) => Ok(None),
            Ok(PluginReply::Condense { condensation }) => Ok(condensation),
            // The fault was already reported.
            Ok(_) | Err(_) => Ok(None),
        };
        let checked: Result<Option<Condensed>, Fault> = condensation.and_then(|condensation| {
            let Some(condensation) =
                condensation.map(|condensation| as_now(condensation, removals))
            else {
                return Ok(None);
            };
            let retained_entries = RetainedEntries { pending, open_calls: &memory.open_calls };
            let condensed = condensation.held_against(memory.history(), retained_entries);
            condensed.map(Some).map_err(|bad| {
                Fault::new(
                    FaultKind::BadAnswer,
                    format!("the condensation was not carried out: {bad}"),
                )
            })
        });
        if let (Ok(Some(condensed)), Some(rules)) = (&checked, &rules)
            && !condensed.is_nothing()
        {
            self.carry_out_condensation(id, (&name, &rules.plugin), condensed);
        }
        // O-159: the condenser is not asked again until the history has grown.
        let is_too_long =
            rules.is_some_and(|rules| self.histories.too_long(self.cx, &name, &rules));
        let memory = self.histories.memory(self.cx, &name);
        let entries = memory.history().len() as u64;
        let over = self
            .cx
            .setup
            .tasks
            .get(&name)
            .and_then(|task| task.condense.as_ref())
            .map_or(0, |rules| rules.over);
        // A tenth of a large limit, or a long history would be tried again every few entries.
        let retry_at = entries.saturating_add(LEAST_GROWTH.max(over / 10));
        self.histories.memory(self.cx, &name).condensing.of_no_use =
            is_too_long.then_some((entries, retry_at));
        checked.map(drop)
    }

    fn carry_out_condensation(
        &mut self,
        id: FrameId,
        (name, by): (&TaskName, &PluginName),
        condensed: &Condensed,
    ) {
        let memory = self.histories.memory(self.cx, name);
        // Masks refer to the old places, so they come first; the summary has a new one.
        for (place, entry) in &condensed.masked {
            memory.set(*place, Arc::new(entry.clone()));
        }
        self.dialogue().remove_entries(name, &condensed.forget);
        if let Some(Summary { place, text, is_untrusted }) = &condensed.summary {
            // The host inserts the summary, so models read it at any position. The condenser wrote
            // it, so they read it inside a fence.
            let mut message = self.frames.host_message(self.cx, id, text.clone());
            message.sender_name = format!("{SUMMARY_BY}{by}");
            message.labels.extend(is_untrusted.then_some(Label::Untrusted));
            message.labels.push(Label::Tool);
            self.dialogue().insert_entry(name, *place, &Arc::new(message));
        }
        self.cx.notify(Notice::HistoryCondensed {
            task: name.clone(),
            forgotten: condensed.forget.len() as u64,
            masked: condensed.masked.len() as u64,
            summarised: condensed.summary.is_some(),
        });
        self.watch_condensed(id);
    }
}

impl StepLoop<'_> {
    /// Resumes the step that waited for a shorter history.
    pub(super) fn resume_step(&mut self, id: FrameId) {
        let Some(wait) = self.start_step(id) else { return };
        // The condensation may have ended the activation. A replayed step is ready at once, so the
        // frame must become runnable.
        if self.frames.contains_key(&id) {
            self.frames.set_wait(self.cx, id, wait);
            self.frames.runnable.push_back(id);
        }
    }
}

/// The condensation with current places. The history may have been cut for a model while the
/// condenser ran.
fn as_now(mut condensation: Condensation, removals: &[Vec<usize>]) -> Condensation {
    if removals.is_empty() {
        return condensation;
    }
    // A span stays with its remaining entries; a mask is dropped with its only one.
    let moved = |place: u64| {
        removals.iter().fold(place, |place, removal| {
            place - removal.partition_point(|index| (*index as u64) < place) as u64
        })
    };
    let is_there = |place: u64| {
        let step = |place: Option<u64>, removal: &Vec<usize>| {
            let place =
                place.filter(|place| removal.iter().all(|index| *index as u64 != *place))?;
            Some(place - removal.partition_point(|index| (*index as u64) < place) as u64)
        };
        removals.iter().fold(Some(place), step)
    };
    condensation
        .forget
        .iter_mut()
        .for_each(|span| (span.start, span.end) = (moved(span.start), moved(span.end)));
    // All its entries are gone already.
    condensation.forget.retain(|span| span.start != span.end);
    condensation.mask = condensation
        .mask
        .into_iter()
        .filter_map(|mask| {
            is_there(mask.index).map(|index| crate::setup::plugin_query::Masked { index, ..mask })
        })
        .collect();
    condensation
}

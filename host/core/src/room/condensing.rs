//! What plugins are consulted about, and histories that are to be condensed (O-123…O-125): when a
//! condenser is asked, and what becomes of its answer. What it may do to a history is decided in
//! `consult`; the log keeps everything.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::frame::FrameWait;
use super::{Purpose, QueryPurpose, Room};
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::setup::CondenseRules;
use crate::setup::plugin_query::{
    Condensation, CondenseReason, Condensed, PluginQuery, PluginReply, RetainedEntries, Summary,
};
use crate::tool_calls::truncate::{self, MIN_OUTPUT};
use crate::types::action::Observation;
use crate::types::fault::{CallReport, Fault, FaultKind};
use crate::types::ids::{CallId, FrameId, PluginName, TaskName};
use crate::types::message::{Label, Message, SUMMARY_BY};

/// Entries that a history must grow by, at least, before a condenser that did not make it short
/// enough is asked again (O-159).
const LEAST_GROWTH: u64 = 8;

/// What is known of condensing a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Condensing {
    /// The agent asked for it, and nobody was asked since (O-123: an unhandled request).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_wanted: bool,
    /// It is no use to ask again between these numbers of entries: the first when it was tried
    /// last, the second what it must grow to.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_no_use: Option<(u64, u64)>,
    /// Entries, and the number of the last of them, when the condenser was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_with: Option<(u64, Option<u64>)>,
}

impl Condensing {
    /// Nothing to write down.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

impl Room {
    /// Asks a plugin something on behalf of a frame; its answer comes to `consulted`. None: the
    /// frame is over.
    pub(super) fn consult(
        &mut self,
        id: FrameId,
        plugin: &PluginName,
        question: PluginQuery,
        about: QueryPurpose,
    ) -> Option<CallId> {
        let task = self.frames.get(&id)?.task.clone();
        let plugin = plugin.clone();
        let call = self.next_call(Purpose::Consult { frame: id, plugin: plugin.clone(), about });
        self.effects.push_back(Effect::Consult { call, task, plugin, question });
        Some(call)
    }

    pub(super) fn consulted(
        &mut self,
        call: CallId,
        answer: Result<PluginReply, Fault>,
        report: &CallReport,
    ) {
        let (frame, plugin, about) = match self.calls.get(&call).cloned() {
            Some(Purpose::Consult { frame, plugin, about }) => (frame, plugin, about),
            Some(Purpose::Gate { plugin, number }) => {
                return self.gate_answered(call, &plugin, number, answer, report);
            }
            _ => return,
        };
        let lost = self.lost.get(&call).cloned().unwrap_or_default();
        let answer = answer.and_then(|advice| {
            if answers(&about, &advice) { Ok(advice) } else { Err(another_question()) }
        });
        self.end_call(call, answer.is_ok(), report);
        if let Err(fault) = &answer {
            self.tell(Notice::PluginFaulted { call, plugin: plugin.clone(), fault: fault.clone() });
        }
        match about {
            QueryPurpose::Memories { slot } => self.recalled(frame, slot, answer),
            QueryPurpose::Risk { slot } => self.assessed(frame, slot, answer),
            QueryPurpose::Condense => {
                if let Err(fault) = self.condensed(frame, answer, &lost) {
                    self.tell(Notice::PluginFaulted { call, plugin, fault });
                }
                self.resume_stepping(frame);
            }
        }
    }

    /// An agent asks for a shorter history: it has one before its next step (O-123).
    ///
    /// # Errors
    /// When nobody is there to condense it.
    pub(super) fn condense_requested(&mut self, id: FrameId) -> Result<Observation, String> {
        let Some((frame, task)) = self.task_of(id) else {
            return Err("the task is over".to_owned());
        };
        let name = frame.task.clone();
        if task.condense.is_none() {
            return Err(format!("The history stays as it is: the task {name} has no condenser."));
        }
        self.memory(&name).condensing.is_wanted = true;
        let content = "The history is condensed before the next step.".to_owned();
        Ok(Observation::Custom {
            name: "condense".to_owned(),
            content,
            extras: serde_json::json!({}),
        })
    }

    /// Before a step: asks the task's condenser where the history is too long. None: the step can
    /// begin.
    pub(super) fn condense_first(&mut self, id: FrameId) -> Option<FrameWait> {
        let (frame, task) = self.task_of(id)?;
        let rules = task.condense.clone()?;
        let name = frame.task.clone();
        let reason = self.must_condense(&name, &rules)?;
        let memory = self.memory(&name);
        let asked_with =
            (memory.history().len() as u64, memory.history().last().map(|last| last.seq));
        memory.condensing.is_wanted = false;
        memory.condensing.asked_with = Some(asked_with);
        let call = self.consult(
            id,
            &rules.plugin,
            PluginQuery::Condense { reason },
            QueryPurpose::Condense,
        )?;
        Some(FrameWait::Call(call))
    }

    fn must_condense(&self, name: &TaskName, rules: &CondenseRules) -> Option<CondenseReason> {
        let memory = self.memories.get(name)?;
        let entries = memory.history().len() as u64;
        if memory.condensing.is_wanted {
            return Some(CondenseReason::Requested);
        }
        if memory
            .condensing
            .of_no_use
            .is_some_and(|(tried, again)| (tried..again).contains(&entries))
        {
            return None;
        }
        if entries > rules.over {
            return Some(CondenseReason::Size);
        }
        self.overflows(name).then_some(CondenseReason::Overflow)
    }

    /// The history would not fit into the model that the task's agent has, and a prompt would be
    /// cut (L-180).
    fn overflows(&self, name: &TaskName) -> bool {
        let Some((memory, task)) = self.memories.get(name).zip(self.setup.tasks.get(name)) else {
            return false;
        };
        let model = self
            .setup
            .rights_in(&task.agent, name)
            .and_then(|rights| rights.may_use_model(None).ok().cloned());
        let Some(setup) = model.and_then(|model| self.setup.models.get(&model)) else {
            return false;
        };
        let least = setup
            .min_output
            .unwrap_or(MIN_OUTPUT)
            .saturating_add(truncate::tokens_of(&task.system, task.bytes_per_token));
        setup.context.is_some_and(|context| memory.tokens().saturating_add(least) > context)
    }

    /// Does what a condenser wants, as far as it may.
    ///
    /// # Errors
    /// When what it wants is not about this history. Nothing is done then.
    fn condensed(
        &mut self,
        id: FrameId,
        answer: Result<PluginReply, Fault>,
        lost: &[Vec<usize>],
    ) -> Result<(), Fault> {
        let Some((frame, task)) = self.task_of(id) else { return Ok(()) };
        let (name, pending, rules) = (
            frame.task.clone(),
            frame.pending.as_ref().map(|pending| pending.seq),
            task.condense.clone(),
        );
        let memory = self.memory(&name);
        let asked_with = memory.condensing.asked_with.take();
        let gone = lost.iter().map(Vec::len).sum::<usize>() as u64;
        let is_as_asked =
            (memory.history().len() as u64 + gone, memory.history().last().map(|last| last.seq));
        let wanted = match answer {
            // Another agent has rewound it meanwhile: the advice is about what is no longer there.
            Ok(_) if asked_with.is_some_and(|asked_with| asked_with != is_as_asked) => Ok(None),
            Ok(PluginReply::Condense { condensation }) => Ok(condensation),
            // It was told already.
            Ok(_) | Err(_) => Ok(None),
        };
        let checked: Result<Option<Condensed>, Fault> = wanted.and_then(|wanted| {
            let Some(wanted) = wanted.map(|wanted| as_now(wanted, lost)) else { return Ok(None) };
            let kept = RetainedEntries { pending, open_calls: &memory.open_calls };
            let held = wanted.held_against(memory.history(), kept);
            held.map(Some).map_err(|bad| {
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
        // O-159: it is asked once, not until it does what is hoped for.
        let is_too_long = rules.is_some_and(|rules| self.too_long(&name, &rules));
        let memory = self.memory(&name);
        let entries = memory.history().len() as u64;
        let over = self
            .setup
            .tasks
            .get(&name)
            .and_then(|task| task.condense.as_ref())
            .map_or(0, |rules| rules.over);
        let again = entries.saturating_add(LEAST_GROWTH.max(over / 10));
        self.memory(&name).condensing.of_no_use = is_too_long.then_some((entries, again));
        checked.map(drop)
    }

    fn too_long(&self, name: &TaskName, rules: &CondenseRules) -> bool {
        self.memories.get(name).is_some_and(|memory| memory.history().len() as u64 > rules.over)
            || self.overflows(name)
    }

    fn carry_out_condensation(
        &mut self,
        id: FrameId,
        (name, by): (&TaskName, &PluginName),
        condensed: &Condensed,
    ) {
        let memory = self.memory(name);
        for (place, entry) in &condensed.masked {
            memory.set(*place, Arc::new(entry.clone()));
        }
        self.lose(name, &condensed.forget);
        if let Some(Summary { place, text, is_untrusted }) = &condensed.summary {
            // The host puts it in, so models read it wherever it stands; the condenser wrote it, so
            // they read it in a fence.
            let mut message = Message::clone(&self.host_message(id, text.clone()));
            message.sender_name = format!("{SUMMARY_BY}{by}");
            message.labels.extend(is_untrusted.then_some(Label::Untrusted));
            message.labels.push(Label::Tool);
            self.put_in(name, *place, &Arc::new(message));
        }
        self.tell(Notice::HistoryCondensed {
            task: name.clone(),
            forgotten: condensed.forget.len() as u64,
            masked: condensed.masked.len() as u64,
            summarised: condensed.summary.is_some(),
        });
        self.watch_condensed(id);
    }

    /// Goes on with the step that waited for a shorter history.
    fn resume_stepping(&mut self, id: FrameId) {
        let Some(wait) = self.start_step(id) else { return };
        // What the condenser took away may have ended the activation. A step of a replay is ready
        // at once, so the activation must run on.
        if self.frames.contains_key(&id) {
            self.put_wait(id, wait);
        }
    }
}

/// The places of a wish as they are now: a history may have been cut for a model while its
/// condenser thought.
fn as_now(mut wanted: Condensation, lost: &[Vec<usize>]) -> Condensation {
    if lost.is_empty() {
        return wanted;
    }
    let moved = |place: u64| {
        lost.iter().fold(place, |place, lost| {
            place - lost.partition_point(|gone| (*gone as u64) < place) as u64
        })
    };
    let is_there = |place: u64| {
        let step = |place: Option<u64>, lost: &Vec<usize>| {
            let place = place.filter(|place| lost.iter().all(|gone| *gone as u64 != *place))?;
            Some(place - lost.partition_point(|gone| (*gone as u64) < place) as u64)
        };
        lost.iter().fold(Some(place), step)
    };
    wanted
        .forget
        .iter_mut()
        .for_each(|span| (span.start, span.end) = (moved(span.start), moved(span.end)));
    // All that was in it is gone already.
    wanted.forget.retain(|span| span.start != span.end);
    wanted.mask = wanted
        .mask
        .into_iter()
        .filter_map(|mask| {
            is_there(mask.index).map(|index| crate::setup::plugin_query::Masked { index, ..mask })
        })
        .collect();
    wanted
}

fn answers(about: &QueryPurpose, advice: &PluginReply) -> bool {
    matches!(
        (about, advice),
        (QueryPurpose::Memories { .. }, PluginReply::Memories { .. })
            | (QueryPurpose::Risk { .. }, PluginReply::Risk { .. })
            | (QueryPurpose::Condense, PluginReply::Condense { .. })
    )
}

fn another_question() -> Fault {
    Fault::new(FaultKind::BadAnswer, "it answered another question than the one that it was asked")
}

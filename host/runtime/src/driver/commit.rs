//! The commit of events: the room handles each, the journal gets their records in one append, and
//! the output that must not precede the records is held until they are durable.

use std::sync::Arc;

use conclave_core::journal::admission::Admission;
use conclave_core::journal::pending_work::WaitChange;
use conclave_core::journal::recovery::Start;
use conclave_core::protocol::control::ControlCommand;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, RULES, Record};
use conclave_core::protocol::notice::Notice;
use conclave_core::types::ids::{CallId, ControlId, Millis};
use conclave_core::types::observed::ObservedPosition;

use super::held::HeldOutput;
use super::pausing::PauseChange;
use super::{CLEAN_AT, Driver, UnderWay};
use crate::driver::observing::QueuedEvent;
use crate::observe::subscribe::RunEvent;
use crate::storage::journal::{JournalBatch, JournalFailure, Keeping};
use crate::support::fail_points::kill_point;

/// The records of the events that are committed together, and the room's output after them.
struct Commit {
    /// The epoch of the records.
    epoch: u64,
    /// Whether the journal stores records.
    is_kept: bool,
    /// Whether the room's events have subscribers.
    is_followed: bool,
    records: Vec<Arc<Record>>,
    waits: Vec<WaitChange>,
    output: Vec<HeldOutput>,
    /// Control messages that took effect before.
    repeated: Vec<HeldOutput>,
    /// Pauses for the child rooms.
    pauses: Vec<ControlCommand>,
    /// Whether the bindings of channels may be others now.
    changes_channels: bool,
}

impl Driver {
    /// Commits events: passes them to the room, appends their records and queues the output. Returns
    /// true if all output must wait until the records are durable.
    pub(super) fn commit(&mut self, events: &mut Vec<Event>) -> Result<bool, JournalFailure> {
        let (now, next) = (self.now(), self.seq);
        let was_over = self.room.outcome().is_some();
        let journal = self.journal()?;
        let mut commit = Commit {
            epoch: journal.epoch(),
            is_kept: journal.keeps(),
            is_followed: !self.shared.subscribers.is_empty(),
            records: Vec::new(),
            waits: Vec::new(),
            output: std::mem::take(&mut self.output),
            repeated: Vec::new(),
            pauses: Vec::new(),
            changes_channels: false,
        };
        for event in events.drain(..) {
            match Admission::of(&event, &self.room) {
                Admission::Admitted => self.apply(event, now, &mut commit),
                Admission::Repeated(id) => commit.repeated.push(HeldOutput::Control(id)),
                Admission::Late => {
                    if let Some(id) = control_of(&event) {
                        // Unconfirmed: its sender learns that the run has ended.
                        drop(self.clients.controls.take(&id));
                    }
                }
            }
        }
        if self.seq == next {
            // No event was admitted, so there is nothing to append.
            self.output = commit.output;
            self.hold_repeated(commit.repeated)?;
            return Ok(false);
        }
        if commit.changes_channels {
            self.clients.view.bind(Arc::clone(self.room.bindings()));
        }
        let keeping = self.append(&commit, was_over)?;
        self.keep_snapshot();
        // After the append: a child must not record a pause before its parent does.
        self.report_children(std::mem::take(&mut commit.pauses));
        self.hold(commit, keeping)
    }

    /// Lets the room handle an event, and adds its record and its output to the commit.
    fn apply(&mut self, event: Event, now: Millis, commit: &mut Commit) {
        let seq = self.seq;
        self.seq += 1;
        self.only_computes &= event.only_computes();
        let control = control_of(&event);
        // Before the room handles the event: afterwards the call is no longer in flight.
        let decides = event.settled_call().filter(|call| self.room.is_in_flight(*call));
        let over = WaitChange::of_event(&event).filter(|_| commit.is_kept);
        commit.changes_channels |= may_change_channels(&event);
        let pause = PauseChange::of(&event);
        if let Event::BackgroundEnded { call, .. } = &event {
            // The child's own loop has ended already, so its lease is not awaited again.
            self.children.remove(call);
        }
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.begin_event(seq, &event);
        }
        if commit.is_kept || commit.is_followed {
            let principal = self.shared.principal.clone();
            let record = Arc::new(Record {
                seq,
                at: now,
                principal,
                rules: RULES,
                epoch: commit.epoch,
                event,
            });
            if commit.is_followed {
                let record = Arc::clone(&record).without_secret();
                let recorded = Box::new(RunEvent::Recorded { record });
                commit.output.push(HeldOutput::Publish(Some(seq), recorded));
            }
            self.room.handle(record.event.clone(), now);
            commit.records.push(record);
        } else {
            self.room.handle(event, now);
        }
        commit.pauses.extend(pause.and_then(|change| self.note_pause(change)));
        match decides {
            // An invalid decision leaves its question open, so it closes no wait.
            Some(call) if self.room.is_in_flight(call) => {}
            decided => {
                commit.waits.extend(over);
                // One approval decides the call, so the other approver is no longer needed.
                decided.into_iter().for_each(|call| self.let_go(call));
            }
        }
        commit.output.extend(control.map(HeldOutput::Control));
        self.end_answered();
        self.drain(seq, now, commit);
    }

    /// Adds the room's output after an event to the commit.
    fn drain(&mut self, seq: u64, now: Millis, commit: &mut Commit) {
        for index in 0.. {
            let Some(notice) = self.room.poll_notice() else { break };
            if let Some(event) = self.observed_event(ObservedPosition { seq, index }, now, &notice)
            {
                commit.output.push(HeldOutput::Observe(Box::new(event)));
            }
            if commit.is_followed {
                let what = RunEvent::Notice { notice };
                commit.output.push(HeldOutput::Publish(Some(seq), Box::new(what)));
            }
        }
        while let Some(task) = self.room.poll_task() {
            commit.output.push(HeldOutput::Task(task));
        }
        while let Some(effect) = self.room.poll_effect() {
            if commit.is_kept {
                commit.waits.extend(WaitChange::of_effect(&effect));
            }
            // Computed from the room's present state, which a replayed call starts from too.
            let start = Start::of(&effect, &self.room).map(Box::new);
            if let Some(in_flight) = &mut self.in_flight {
                in_flight.begin(&effect, start.as_deref(), &self.room);
            }
            commit.output.push(HeldOutput::Effect(Box::new(effect), start));
        }
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.end_event(&self.room);
        }
    }

    /// A notice as an event for the observers that receive it; `None` if none does.
    fn observed_event(
        &self,
        position: ObservedPosition,
        time: Millis,
        notice: &Notice,
    ) -> Option<QueuedEvent> {
        let observers = &self.shared.observers;
        if observers.is_empty() {
            return None;
        }
        let receivers = observers.receivers(self.room.setup(), notice.kind());
        let (room, notice) = (self.id.clone(), notice.clone());
        let event = QueuedEvent { room, position, time, notice, receivers };
        (!event.receivers.is_empty()).then_some(event)
    }

    /// Appends the records of a commit to the journal, with the outcome if the run has just ended.
    fn append(&mut self, commit: &Commit, was_over: bool) -> Result<Keeping, JournalFailure> {
        // A run of a room that had one before can end with the record that begins it.
        let begins = |record: &Record| matches!(record.event, Event::RunStarted { .. });
        let is_new = !was_over || commit.records.iter().any(|record| begins(record));
        let outcome = self.room.outcome().filter(|_| is_new).map(Arc::clone);
        let entry = JournalBatch {
            records: &commit.records,
            waits: &commit.waits,
            outcome: outcome.as_ref(),
            spent: self.room.spent(),
        };
        kill_point!("before-append");
        let keeping = self.journal()?.append(&entry)?;
        kill_point!("after-append");
        Ok(keeping)
    }

    /// Queues the output of a commit behind its records. Returns true if all of it must wait until
    /// the records are durable.
    fn hold(&mut self, mut commit: Commit, keeping: Keeping) -> Result<bool, JournalFailure> {
        let (durable, first) = match keeping {
            Keeping::Kept => (None, false),
            Keeping::Soon(durable) => (Some(durable), false),
            Keeping::First(durable) => (Some(durable), true),
        };
        let setup = self.room.setup();
        let may_go = |effect: &Effect| !first && !effect.leaves(setup);
        if self.buffer.add(&mut commit.output, durable, may_go) {
            self.journal()?.hurry();
        }
        self.output = commit.output;
        self.hold_repeated(commit.repeated)?;
        Ok(first)
    }

    /// Confirms repeated control messages once every earlier commit is durable.
    fn hold_repeated(&mut self, repeated: Vec<HeldOutput>) -> Result<(), JournalFailure> {
        if !repeated.is_empty() {
            self.buffer.add_after_all(repeated);
            self.journal()?.hurry();
        }
        Ok(())
    }

    /// Removes the entries of calls that have been answered.
    fn end_answered(&mut self) {
        if self.under_way.len() > self.clean_at {
            let room = &self.room;
            self.under_way.retain(|call, _| room.is_in_flight(*call));
            // Searched only when the map has doubled, because thousands of calls may be in flight.
            self.clean_at = CLEAN_AT.max(2 * self.under_way.len());
        }
    }

    /// Aborts the approver or the channel of a call that was settled elsewhere.
    fn let_go(&mut self, call: CallId) {
        if let Some(UnderWay::Work(work)) = self.under_way.remove(&call) {
            work.abort();
        }
    }
}

/// The id of a control message.
fn control_of(event: &Event) -> Option<ControlId> {
    if let Event::ControlReceived { id, .. } = event { Some(id.clone()) } else { None }
}

/// Whether the bindings of channels may be others after the event.
fn may_change_channels(event: &Event) -> bool {
    matches!(
        event.effective(),
        Event::RoomOpened { .. } | Event::RunStarted { .. } | Event::Requested { .. }
    )
}

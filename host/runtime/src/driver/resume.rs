//! The resumption of an interrupted room: its journal is replayed, and its pending work is started
//! again. The core decides which calls can be repeated.

use std::sync::Arc;

use conclave_core::journal::ownership::OneHistory;
use conclave_core::journal::recovery::{InFlight, Restart, Resumption, Unfinished};
use conclave_core::protocol::call_log::CallLog;
use conclave_core::protocol::control::SentCommand;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::setup::{ChangedComponent, Setup};
use conclave_core::types::ids::{CallId, RoomId};

use super::{Driver, Inlet, RoomJournal, RunContext, draw_secret};
use crate::storage::journal::JournalFailure;

impl Driver {
    /// Returns the room from its journal; `None` if it has no journal.
    ///
    /// # Errors
    /// Fails when the journal cannot be read.
    pub(crate) async fn reopen(
        shared: Arc<RunContext>,
        id: &RoomId,
    ) -> Result<Option<Self>, JournalFailure> {
        let inlet = Inlet::new(&shared, id.clone());
        Ok(Self::reopening(shared, inlet).await?.ok())
    }

    /// Does the same with an existing inlet, which is returned if there is no such room.
    pub(super) async fn reopening(
        shared: Arc<RunContext>,
        inlet: Inlet,
    ) -> Result<Result<Self, Inlet>, JournalFailure> {
        let Some(reopened) = shared.journals.reopen(&inlet.id, shared.clock.now()).await? else {
            return Ok(Err(inlet));
        };
        let last_at = reopened.last_at();
        let (unfinished, journal, messages) = reopened.folded();
        // Without the difference, a clock that was set back would delay every deadline until it has
        // caught up.
        let ahead_ms = unfinished.room.now().max(last_at).since(shared.clock.now());
        let now = shared.clock.now().plus(ahead_ms);
        let setup = Arc::clone(unfinished.room.setup());
        // A room that was never opened has no secret yet.
        let secret =
            unfinished.room.secret().cloned().map_or_else(|| draw_secret(&inlet.id), Ok)?;
        let mut driver =
            Self::with(shared, Arc::clone(&setup), inlet, secret, RoomJournal::Open(journal));
        if let RoomJournal::Open(journal) = &mut driver.journal {
            driver.loss = journal.watch_loss();
        }
        driver.seq = unfinished.next;
        driver.ahead_ms = ahead_ms;
        driver.paused = unfinished.room.paused().map(str::to_owned);
        driver.clients.view.set_pause(driver.paused.clone());
        // A journal without events has nothing to resume; the run begins like any other.
        driver.opened = (unfinished.next > 0).then_some(setup);
        driver.resumption = (unfinished.next > 0 && unfinished.room.outcome().is_none())
            .then(|| unfinished.resumption(now, &driver.shared.admitted));
        *driver.room = unfinished.room;
        // Changes that the replay reports again; all tasks follow below.
        while driver.room.poll_task().is_some() {}
        driver.room.tasks().for_each(|task| driver.clients.view.put(Arc::clone(task)));
        driver.clients.view.bind(Arc::clone(driver.room.bindings()));
        driver.clients.requests.resume_from(unfinished.in_flight.next_request());
        driver.track(unfinished.in_flight);
        if driver.is_cut_off() {
            driver.clients.open();
            driver.messages = messages;
        }
        Ok(Ok(driver))
    }

    /// Follows the work in flight from now on, if the journal keeps snapshots.
    pub(super) fn track(&mut self, in_flight: InFlight) {
        if let RoomJournal::Open(journal) = &self.journal {
            self.in_flight = journal.snapshot_due().map(|_| in_flight.without_reads());
        }
    }

    /// Gives the journal a snapshot of the room when one is due. Called after the append of the
    /// records that led to it.
    pub(super) fn keep_snapshot(&mut self) {
        let (RoomJournal::Open(journal), Some(in_flight)) = (&mut self.journal, &self.in_flight)
        else {
            return;
        };
        if journal.snapshot_due().is_some_and(|due| self.seq >= due) {
            let history = OneHistory::after(journal.epoch());
            journal.keep_snapshot(Unfinished::of(&self.room, in_flight, history, self.seq));
        }
    }

    /// Ends a background task that was cancelled before the host was interrupted: its room gets the
    /// end that it had no time for.
    fn end_child(&mut self, effect: &Effect) {
        let Effect::StartBackground { opening, .. } = effect else { return };
        let (shared, room) = (Arc::clone(&self.shared), opening.room.clone());
        // Beside the loop, because the journal must be read; the run awaits it at its end.
        self.ends.spawn(async move {
            match Self::reopen(shared, &room).await {
                Ok(Some(mut child)) if child.is_cut_off() => {
                    child.give_up("its parent stopped it").await
                }
                // One that no host can read stays interrupted.
                Err(failure) if failure.cause.kind() != std::io::ErrorKind::InvalidData => {
                    Err(failure)
                }
                _ => Ok(()),
            }
        });
    }

    /// Whether the room was opened before and its run has not ended.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.resumption.is_some()
    }

    /// The first plugin whose component is another one now, so that the run cannot be resumed: one
    /// of its calls would be run again, or it is another plugin under the same name.
    pub(crate) fn changed_plugin(&self) -> Option<&ChangedComponent> {
        let resumption = self.resumption.as_ref()?;
        let restarted = resumption.plugins();
        let is_in_the_way = |changed: &&ChangedComponent| {
            changed.refusal.is_some() || restarted.contains(&changed.plugin)
        };
        resumption.changed.iter().find(is_in_the_way)
    }

    /// The plugins of an interrupted run whose components are other ones now.
    pub(crate) fn changed_components(&self) -> &[ChangedComponent] {
        self.resumption.as_ref().map(|it| &it.changed[..]).unwrap_or_default()
    }

    /// The effective setup of an interrupted run.
    pub(crate) fn effective_setup(&self) -> &Arc<Setup> {
        self.resumption.as_ref().map_or(&self.setup, |resumption| &resumption.setup)
    }

    /// Fails before the first fault of an exchanged component is journalled, so that the run stays
    /// interrupted and can be resumed with the former component. After one successful call, faults
    /// of the component are journalled as usual.
    pub(super) fn check_exchanged(&mut self, events: &[Event]) -> Result<(), JournalFailure> {
        let failed = self.room.failed_exchange(events).filter(|_| self.checks_exchanged);
        let Some((plugin, fault)) = failed else { return Ok(()) };
        self.failed_exchange = Some((plugin, fault.message.clone()));
        Err(self.abandoned_run())
    }

    /// Replaces the event that would end the run for lack of a model, and those after it, by a
    /// record of the failed request. The run stays interrupted, and asks again when it is resumed.
    /// Returns false if the run is not to be left.
    pub(super) fn leave_without_model(&mut self, events: &mut Vec<Event>) -> bool {
        let is_kept = matches!(&self.journal, RoomJournal::Open(journal) if journal.keeps());
        if !self.shared.leaves_without_model || !is_kept {
            return false;
        }
        let Some(missing) = self.room.lacks_model(events) else { return false };
        let (position, event) = (missing.position, missing.event());
        self.missing_model = Some((missing.model.clone(), missing.reason.to_owned()));
        events.truncate(position);
        events.push(event);
        true
    }

    /// The error that stops the loop of a run that is left as it is. The session replaces it
    /// by the reason.
    pub(super) fn abandoned_run(&self) -> JournalFailure {
        let cause = std::io::Error::other("the run was left as it is");
        JournalFailure::new(self.id.clone(), "its journal".to_owned(), cause)
    }

    /// Returns the events that arrived meanwhile and are to be handled next.
    pub(super) async fn resume(
        &mut self,
        resumption: Resumption,
    ) -> Result<Vec<Event>, JournalFailure> {
        let Resumption { mut events, restarts, setup: _, changed: _ } = resumption;
        // The events below may hold answers to calls that run again only after them.
        for Restart { effect, trace, .. } in &restarts {
            effect.starts().into_iter().for_each(|call| self.expect(call, trace));
        }
        self.commit_and_perform(&mut events).await?;
        // Not before: the events above hold the faults of interrupted calls, which no component has
        // caused.
        self.checks_exchanged = true;
        // Child rooms, approvers and the next run see the effective setup from here on.
        self.setup = Arc::clone(self.room.setup());
        self.opened = Some(Arc::clone(&self.setup));
        // The steps below build on these events, so their records come first.
        self.hurry_all().await?;
        self.perform_free();
        // Events that arrived before the resumption, such as an approval from another process, are
        // handled before any approver is asked again. Requests wait, because they may refer to
        // background tasks that are started again below.
        let messages = std::mem::take(&mut self.messages);
        let messages = messages.into_iter().map(SentCommand::into_event);
        let mut received: Vec<Event> = self
            .second
            .take()
            .into_iter()
            .chain(messages)
            .chain(std::iter::from_fn(|| self.events.try_recv()))
            .collect();
        let requests =
            received.iter().position(|event| matches!(event.effective(), Event::Requested { .. }));
        let later = requests.map_or_else(Vec::new, |at| received.split_off(at));
        self.commit_and_perform(&mut received).await?;
        self.lift_handover().await?;
        for Restart { effect, start, trace } in restarts {
            if self.room.outcome().is_some() || !self.is_wanted(&effect) {
                self.end_child(&effect);
                effect.starts().into_iter().for_each(|call| self.waiting.forget(call));
                continue;
            }
            match effect {
                Effect::StartBackground { call, id, opening } => {
                    self.start_background(call, id, opening, true)
                }
                effect => {
                    if let Some(call) = effect.starts() {
                        self.traces.insert(call, trace);
                    }
                    self.perform(effect, start);
                }
            }
        }
        self.poll_begun();
        Ok(later)
    }

    /// Registers the answers that can arrive before their call runs again.
    fn expect(&self, call: CallId, trace: &CallLog) {
        let open = trace.models.iter().filter(|(_, request)| request.answer.is_none());
        open.for_each(|(ordinal, _)| self.waiting.models.expect(call, *ordinal));
        let open = trace.tools.iter().filter(|(_, request)| request.answer.is_none());
        open.for_each(|(ordinal, _)| self.waiting.tools.expect(call, *ordinal));
    }
}

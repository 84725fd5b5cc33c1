//! The background tasks of a room: each is a child room with its own loop, passed to the task
//! runner. The permissions of a task and the delivery of its result belong to the core.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use conclave_core::protocol::event::{Event, RunOpening};
use conclave_core::setup::Setup;
use conclave_core::types::delivery::EndedTask;
use conclave_core::types::ids::{BackgroundId, CallId, ControlId};
use conclave_core::types::usage::{Spent, UsedByPlugin};

use super::pausing::pause_as;
use super::{Driver, Inlet, RunContext, UnderWay};
use crate::driver::runner::{Child, EndReporter, Lease, Progressing, Submission, TaskEnd};
use crate::storage::journal::JournalFailure;
use crate::support::fail_points::kill_point;

impl Driver {
    /// Opens a child room. If `is_restart` is set, the host was restarted: the room may exist
    /// already and is then resumed.
    pub(super) fn start_background(
        &mut self,
        call: CallId,
        id: BackgroundId,
        opening: Box<RunOpening>,
        is_restart: bool,
    ) {
        kill_point!("before-child-opened");
        let (lease, mut leased) = Lease::new();
        let (events, is_awaited) = (self.sender.clone(), lease.is_awaited());
        let place =
            EndReporter::new(opening.limits.as_spent(), move |TaskEnd { task, spent, used }| {
                kill_point!("after-child-ended");
                if is_awaited.load(Ordering::Relaxed) {
                    // The parent may be over too.
                    let _ = events.send(Event::BackgroundEnded { call, ended: task, spent, used });
                }
            });
        let progressing = Progressing::default();
        let inlet = Inlet::new(&self.shared, opening.room.clone());
        let handle = inlet.handle();
        // A resumed child gets its pause state from `pause_as`, once its journal is read.
        if let (Some(reason), false) = (&self.paused, is_restart) {
            handle.pause(reason);
        }
        self.under_way.insert(call, UnderWay::Child(handle.clone()));
        self.children.insert(call, lease);
        let beginning = Beginning {
            shared: Arc::clone(&self.shared),
            setup: Arc::clone(&self.setup),
            opening: RunOpening::clone(&opening),
            is_restart,
            paused: self.paused.clone(),
            progressing: progressing.clone(),
        };
        let run = Box::pin(async move {
            let broke_off = |reason, spent| TaskEnd {
                task: EndedTask::interrupted(reason),
                spent,
                used: UsedByPlugin::new(),
            };
            let given_up =
                || broke_off("the room above it was given up".to_owned(), Spent::default());
            // Without a journal the room's usage is unknown, so its whole reservation counts.
            let limits = beginning.opening.limits.as_spent();
            let mut child = tokio::select! {
                biased;
                child = beginning.child(inlet) => match child {
                    Ok(child) => child,
                    Err(reason) => return broke_off(reason, limits),
                },
                () = leased.given_up() => return given_up(),
            };
            // The end first: a child that has ended is not given up.
            let ran = tokio::select! {
                biased;
                ran = child.run() => ran,
                () = leased.given_up() => return given_up(),
            };
            match ran {
                Ok(outcome) => TaskEnd {
                    task: EndedTask::from_outcome(&outcome),
                    spent: outcome.spent,
                    used: outcome.used.clone(),
                },
                Err(failure) => broke_off(failure.to_string(), child.room.spent()),
            }
        });
        let parent = self.id.clone();
        self.shared.runner.submit(Submission::new(
            Child { parent, id, opening, handle, progressing },
            run,
            place,
        ));
    }

    pub(super) fn report_child(&self, call: CallId, id: &ControlId, text: &str) {
        if let Some(UnderWay::Child(child)) = self.under_way.get(&call) {
            // The task may have ended; its end is then on the way to the parent.
            self.shared.runner.message(child.room(), id, text);
        }
    }

    /// Detaches a child room: it runs on under the runner, and only its own journal gets its end.
    pub(super) fn detach_child(&mut self, call: CallId) {
        if let Some(UnderWay::Child(child)) = self.under_way.remove(&call) {
            self.shared.runner.detach(child.room());
            self.shared.rooms.detach(child.room());
        }
        if let Some(lease) = self.children.remove(&call) {
            lease.detach();
        }
    }
}

/// The parameters of a child room that is about to begin or to be resumed.
struct Beginning {
    shared: Arc<RunContext>,
    setup: Arc<Setup>,
    opening: RunOpening,
    /// Whether the host was restarted, so that the room may exist already.
    is_restart: bool,
    /// The reason why the parent room is paused.
    paused: Option<String>,
    progressing: Progressing,
}

impl Beginning {
    /// Returns the child room with its journal, or the reason why it cannot be opened. The parent's
    /// loop runs meanwhile.
    async fn child(self, inlet: Inlet) -> Result<Box<Driver>, String> {
        let text = |failure: JournalFailure| failure.to_string();
        let inlet = match self.is_restart {
            true => Driver::reopening(Arc::clone(&self.shared), inlet).await.map_err(text)?,
            false => Err(inlet),
        };
        let mut child = Box::new(match inlet {
            Ok(child) => child,
            Err(inlet) => {
                Driver::opening(Arc::clone(&self.shared), self.setup, inlet).map_err(text)?
            }
        });
        if let Some(changed) = child.changed_plugin() {
            let reason = format!(
                "the component of the plugin `{}` is not what it was when the host stopped",
                changed.plugin
            );
            child.give_up(&reason).await.map_err(text)?;
            return Err(reason);
        }
        if self.is_restart {
            child.second = pause_as(self.paused.as_deref(), child.paused.is_some());
        }
        child.progressing = Some(self.progressing);
        if child.opened.is_none() {
            child.begin_with(self.opening);
        }
        Ok(child)
    }
}

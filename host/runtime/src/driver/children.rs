//! The background tasks of a room: each is a child room with its own loop, passed to the task
//! runner. The permissions of a task and the delivery of its result belong to the core.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conclave_core::protocol::event::{Event, RunOpening};
use conclave_core::setup::Setup;
use conclave_core::types::delivery::EndedTask;
use conclave_core::types::ids::{BackgroundId, CallId, ControlId, ModelName, PluginName};
use conclave_core::types::usage::{Spent, UsedByPlugin};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::pausing::pause_as;
use super::{Driver, Inlet, RunContext, UnderWay};
use crate::driver::runner::{Child, EndReporter, Lease, Leased, Progressing, Submission, TaskEnd};
use crate::storage::journal::JournalFailure;
use crate::support::fail_points::kill_point;

/// A child room that stopped without an end: its journal failed, or it is left to be resumed. The
/// rooms above it stop without an end too, so that whoever resumes the run resumes the child. A
/// result in its place would say that it has ended.
pub(super) struct LeftRoom {
    failure: JournalFailure,
    failed_exchange: Option<(PluginName, String)>,
    missing_model: Option<(ModelName, String)>,
}

/// The way to a room from its children that stopped without an end. It is made with the first
/// child, because most rooms have none.
#[derive(Default)]
pub(super) struct LeftChildren(Option<LeftRooms>);

type LeftRooms = (UnboundedSender<Box<LeftRoom>>, UnboundedReceiver<Box<LeftRoom>>);

impl LeftChildren {
    fn sender(&mut self) -> UnboundedSender<Box<LeftRoom>> {
        self.0.get_or_insert_with(unbounded_channel).0.clone()
    }

    /// Waits until a child has stopped without an end. The future is cancel-safe.
    pub(super) async fn next(&mut self) -> Box<LeftRoom> {
        if let Some((_, rooms)) = &mut self.0
            && let Some(room) = rooms.recv().await
        {
            return room;
        }
        std::future::pending().await
    }
}

/// The way of a child room to its parent, if it stops without an end.
struct Leaving {
    parent: UnboundedSender<Box<LeftRoom>>,
    /// Whether it was not detached from its parent.
    is_awaited: Arc<AtomicBool>,
}

impl Leaving {
    /// Stops the parent, unless the child was detached. The returned end is only for those who wait
    /// at the runner.
    fn leave(self, room: LeftRoom, spent: Spent) -> TaskEnd {
        let reason = room.failure.to_string();
        if self.is_awaited.swap(false, Ordering::Relaxed) {
            // The parent may be over.
            let _ = self.parent.send(Box::new(room));
        }
        interrupted(reason, spent)
    }
}

/// The end of a task that did not come to its own.
fn interrupted(reason: String, spent: Spent) -> TaskEnd {
    TaskEnd { task: EndedTask::interrupted(reason), spent, used: UsedByPlugin::new() }
}

/// The reason why a child room does not begin.
enum NotBegun {
    /// It ends as interrupted, and its parent goes on.
    Interrupted(String),
    /// Its journal failed.
    Left(JournalFailure),
}

impl From<JournalFailure> for NotBegun {
    fn from(failure: JournalFailure) -> Self {
        match failure.cause.kind() {
            // So it is on every host, and the run would never come to its end.
            ErrorKind::InvalidData | ErrorKind::AlreadyExists | ErrorKind::NotFound => {
                Self::Interrupted(failure.to_string())
            }
            _ => Self::Left(failure),
        }
    }
}

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
        let (lease, leased) = Lease::new();
        let (events, is_awaited) = (self.sender.clone(), lease.is_awaited());
        let leaving =
            Leaving { parent: self.left_children.sender(), is_awaited: lease.is_awaited() };
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
        let run = Box::pin(beginning.run(inlet, leased, leaving));
        let parent = self.id.clone();
        self.shared.runner.submit(Submission::new(
            Child { parent, id, opening, handle, progressing },
            run,
            place,
        ));
    }

    /// Returns the failure that stops this room, because a child room stopped without an end.
    pub(super) fn leave_with(&mut self, child: LeftRoom) -> JournalFailure {
        let LeftRoom { failure, failed_exchange, missing_model } = child;
        (self.failed_exchange, self.missing_model) = (failed_exchange, missing_model);
        failure
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
    /// Runs the child room to its end.
    async fn run(self, inlet: Inlet, mut leased: Leased, leaving: Leaving) -> TaskEnd {
        let given_up =
            || interrupted("the room above it was given up".to_owned(), Spent::default());
        // Without a journal the room's usage is unknown, so its whole reservation counts.
        let limits = self.opening.limits.as_spent();
        let mut child = tokio::select! {
            biased;
            child = self.child(inlet) => match child {
                Ok(child) => child,
                Err(NotBegun::Interrupted(reason)) => return interrupted(reason, limits),
                Err(NotBegun::Left(failure)) => {
                    let room = LeftRoom { failure, failed_exchange: None, missing_model: None };
                    return leaving.leave(room, limits);
                }
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
            Err(failure) => {
                let room = LeftRoom {
                    failure,
                    failed_exchange: child.failed_exchange.take(),
                    missing_model: child.missing_model.take(),
                };
                let spent = child.room.spent();
                // First, so that its journal is closed when the run is given back.
                drop(child);
                leaving.leave(room, spent)
            }
        }
    }

    /// Returns the child room with its journal. The parent's loop runs meanwhile.
    async fn child(self, inlet: Inlet) -> Result<Box<Driver>, NotBegun> {
        let inlet = match self.is_restart {
            true => Driver::reopening(Arc::clone(&self.shared), inlet).await?,
            false => Err(inlet),
        };
        let mut child = Box::new(match inlet {
            Ok(child) => child,
            Err(inlet) => Driver::opening(Arc::clone(&self.shared), self.setup, inlet)?,
        });
        if let Some(changed) = child.changed_plugin() {
            let reason = format!(
                "the component of the plugin `{}` is not what it was when the host stopped",
                changed.plugin
            );
            child.give_up(&reason).await?;
            return Err(NotBegun::Interrupted(reason));
        }
        if self.is_restart {
            child.second = pause_as(self.paused.as_deref(), child.paused.as_deref());
        }
        child.progressing = Some(self.progressing);
        if child.opened.is_none() {
            child.begin_with(self.opening);
        }
        Ok(child)
    }
}

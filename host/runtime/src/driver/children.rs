//! Background tasks of a room: each is a child room with a loop of its own, handed to the task runner. Not what a task may do, nor what
//! becomes of its result, which are the core's.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use conclave_core::delivery::EndedTask;
use conclave_core::event::{Event, Opening, Spent, UsedByPlugin};
use conclave_core::ids::{BackgroundId, CallId};

use super::{Driver, UnderWay};
use crate::kill_points::kill_point;
use crate::runner::{Child, Ended, Lease, Place, Progressing, Submission};

impl Driver {
    /// Opens a child room; when the host goes on after it had stopped, the room may be there already, and then goes on too.
    pub(super) fn start_background(&mut self, call: CallId, id: BackgroundId, opening: Box<Opening>, again: bool) {
        kill_point!("before-child-opened");
        let (lease, mut leased) = Lease::new();
        let (events, is_awaited) = (self.sender.clone(), lease.is_awaited());
        let place = Place::new(opening.limits.as_spent(), move |Ended { task, spent, used }| {
            kill_point!("after-child-ended");
            if is_awaited.load(Ordering::Relaxed) {
                // The parent may be over too.
                let _ = events.send(Event::BackgroundEnded { call, ended: task, spent, used });
            }
        });
        let progressing = Progressing::default();
        let mut child = match self.child(&opening, again) {
            Ok(child) => child,
            Err(reason) => return place.break_off(reason),
        };
        child.progressing = Some(progressing.clone());
        self.pause_as_here(child.paused.is_some(), &child.sender());
        let (room, events) = (child.id.clone(), child.sender());
        self.under_way.insert(call, UnderWay::Child { room, events: events.clone() });
        self.children.insert(call, lease);
        let run = Box::pin(async move {
            let ran = tokio::select! {
                biased;
                ran = child.run() => Some(ran),
                () = leased.given_up() => None,
            };
            let broke_off = |reason, spent| Ended { task: EndedTask::interrupted(reason), spent, used: UsedByPlugin::new() };
            match ran {
                Some(Ok(outcome)) => Ended { task: EndedTask::from_outcome(&outcome), spent: outcome.spent, used: outcome.used.clone() },
                Some(Err(failure)) => broke_off(failure.to_string(), child.room.spent()),
                None => broke_off("the room above it was given up".to_owned(), Spent::default()),
            }
        });
        let parent = self.id.clone();
        self.shared.runner.submit(Submission::new(Child { parent, id, opening, events, progressing }, run, place));
    }

    /// The child room of a background task; why there is none.
    fn child(&self, opening: &Opening, again: bool) -> Result<Self, String> {
        let reopened = match again {
            true => Self::reopen(Arc::clone(&self.shared), &opening.room).map_err(|failure| failure.to_string())?,
            false => None,
        };
        let mut child = match reopened {
            Some(child) => child,
            None => {
                Self::new(Arc::clone(&self.shared), Arc::clone(&self.setup), opening.room.clone()).map_err(|failure| failure.to_string())?
            }
        };
        if let Some(plugin) = child.changed_plugin(&self.shared.admitted) {
            let reason = format!("the plugin `{plugin}` is not what it was when the host stopped in the middle of one of its calls");
            child.give_up(&reason).map_err(|failure| failure.to_string())?;
            return Err(reason);
        }
        if child.opened.is_none() {
            child.begin(opening.clone());
        }
        Ok(child)
    }

    pub(super) fn tell_child(&self, call: CallId, text: &str) {
        if let Some(UnderWay::Child { room, .. }) = self.under_way.get(&call) {
            // It may be over; then its parent has its end on the way.
            self.shared.runner.message(room, text);
        }
    }

    /// It goes on alone, under the runner: its end is in its own journal, and nobody waits for it.
    pub(super) fn detach_child(&mut self, call: CallId) {
        if let Some(UnderWay::Child { room, .. }) = self.under_way.remove(&call) {
            self.shared.runner.detach(&room);
            self.shared.everything.detach(&room);
        }
        if let Some(lease) = self.children.remove(&call) {
            lease.detach();
        }
    }
}

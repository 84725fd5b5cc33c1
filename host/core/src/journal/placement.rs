//! Whether a run needs a host now. A run that only waits for a time or a person is given back to
//! the store, which brings it to a host when it can go on.

use std::collections::BTreeSet;

use crate::journal::pending_work::PendingWork;
use crate::types::ids::{Millis, RoomId};

/// The rest of a run that needs no host until a time, or until a message arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// The time of its earliest timer; `None` if only a message wakes it.
    pub wakes_at: Option<Millis>,
}

impl Sleep {
    /// The sleep of a run with this pending work, listed with the room that waits; `None` if the
    /// run needs a host. `waits` are those of the run's root room and of all rooms below it,
    /// without timers that a room has dropped.
    ///
    /// A run without pending work is about to go on or to end, and needs a host for that.
    #[must_use]
    pub fn of<'a>(
        waits: impl IntoIterator<Item = (&'a RoomId, &'a PendingWork)>,
        now: Millis,
    ) -> Option<Self> {
        let waits: Vec<(&RoomId, &PendingWork)> = waits.into_iter().collect();
        let waiting: BTreeSet<&str> = waits.iter().map(|(room, _)| room.as_str()).collect();
        let sleeps = |work: &PendingWork| match work.kind.as_str() {
            // A timer that is due is work.
            "timer" => work.at.is_some_and(|at| at > now),
            "approval" | "top-up" | "user" => true,
            // A background task sleeps if its own room does. A room that waits for nothing is about
            // to answer.
            "background" => waiting.contains(work.target.as_str()),
            _ => false,
        };
        let is_asleep = !waits.is_empty() && waits.iter().all(|(_, work)| sleeps(work));
        let wakes_at = waits.iter().filter_map(|(_, work)| work.at).min();
        is_asleep.then_some(Self { wakes_at })
    }

    /// The sleep of a run that a person paused; `None` while a call is in progress. Only a message
    /// wakes it: a timer that fires in a pause has no effect before the pause ends.
    #[must_use]
    pub fn of_paused<'a>(waits: impl IntoIterator<Item = &'a PendingWork>) -> Option<Self> {
        let is_idle = waits.into_iter().all(|work| !work.is_call());
        is_idle.then_some(Self { wakes_at: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::pending_work::WaitKey;
    use crate::types::ids::{CallId, TimerId};

    const NOW: Millis = Millis(1_000);

    fn work(kind: &str, target: &str) -> PendingWork {
        let key = WaitKey::Call(CallId(1));
        PendingWork {
            key,
            kind: kind.to_owned(),
            target: target.to_owned(),
            at: None,
            request: None,
        }
    }

    fn timer(at: u64) -> PendingWork {
        let key = WaitKey::Timer(TimerId(1));
        PendingWork { key, at: Some(Millis(at)), ..work("timer", "") }
    }

    /// Returns the time at which a run with this work wakes, if it sleeps; `child` is the work of a
    /// child room.
    fn wake_time(root: &[PendingWork], child: &[PendingWork]) -> Option<Option<u64>> {
        let (root_room, child_room) = (RoomId::from("a"), RoomId::from("a/1"));
        let waits = root.iter().map(|work| (&root_room, work));
        let waits = waits.chain(child.iter().map(|work| (&child_room, work)));
        Sleep::of(waits, NOW).map(|sleep| sleep.wakes_at.map(|at| at.0))
    }

    #[test]
    fn only_timers_and_people_let_a_run_sleep() {
        for kind in ["approval", "top-up", "user"] {
            assert_eq!(wake_time(&[work(kind, "x")], &[]), Some(None), "{kind}");
        }
        for kind in [
            "step",
            "respond",
            "tool",
            "model",
            "strategy",
            "message",
            "background",
            "risk",
            "judge",
            "a-later-kind",
        ] {
            assert_eq!(wake_time(&[work(kind, "x")], &[]), None, "{kind}");
            assert_eq!(wake_time(&[work("user", "x"), timer(9_000), work(kind, "x")], &[]), None);
        }
    }

    #[test]
    fn a_run_wakes_with_its_earliest_timer() {
        assert_eq!(
            wake_time(&[timer(5_000), work("user", "x"), timer(3_000)], &[]),
            Some(Some(3_000))
        );
        assert_eq!(wake_time(&[timer(5_000), timer(1_000)], &[]), None, "one is due");
        assert_eq!(wake_time(&[], &[]), None, "nothing is pending");
    }

    #[test]
    fn a_paused_run_sleeps_until_a_message_once_its_calls_have_ended() {
        let until_a_message = Some(Sleep { wakes_at: None });
        assert_eq!(Sleep::of_paused(&[]), until_a_message, "its next step is held");
        let waits = [work("approval", "x"), work("background", "a/1"), timer(500), timer(5_000)];
        assert_eq!(Sleep::of_paused(&waits), until_a_message);
        assert_eq!(Sleep::of_paused(&[work("tool", "x")]), None);
    }

    #[test]
    fn a_parent_sleeps_if_its_background_task_does() {
        let parent = [work("background", "a/1")];
        assert_eq!(wake_time(&parent, &[timer(2_000)]), Some(Some(2_000)));
        assert_eq!(wake_time(&parent, &[work("approval", "x")]), Some(None));
        assert_eq!(wake_time(&parent, &[work("tool", "x")]), None);
        assert_eq!(wake_time(&parent, &[]), None, "it begins, or its end is on the way");
    }
}

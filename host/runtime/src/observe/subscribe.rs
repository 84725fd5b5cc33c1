//! The one interface on which everybody who follows a run lives: the command line, the server, logs
//! and traces.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::protocol::event::Record;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::ids::{CallId, Millis, PluginName, RoomId};
use serde::Serialize;

use crate::support::clock::Clock;

/// What the prompts of a model that the program speaks to itself can reach: the host cannot know.
pub(crate) const OWN_CLIENT: &str = "wherever this program's client sends it";

/// How important a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// Something that a follower may want to know.
#[derive(Clone, Debug, Serialize)]
pub struct Published {
    pub room: RoomId,
    pub at: Millis,
    /// The number of the journal's record that it follows from: with the room, its address in the
    /// journal, `3f2a91c0:17`. None beside the journal, and of a record itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    #[serde(flatten)]
    pub what: RunEvent,
}

/// What happened.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum RunEvent {
    /// An event was journalled.
    Recorded { record: Arc<Record> },
    /// Something that follows from the events.
    Told { told: Notice },
    /// A line of a plugin's log. Beside the journal.
    Logged { call: CallId, plugin: PluginName, level: Level, message: String },
    /// How far a call has come. Beside the journal.
    Progressed { call: CallId, plugin: PluginName, done: u64, total: Option<u64>, message: String },
    /// Text that a model says while it says it; the completion is journalled when it ends. Beside
    /// the journal.
    Streamed { call: CallId, ordinal: u32, text: String },
}

/// Gets everything that happens. It is called inside the run, so it must not block.
///
/// What is recorded and told comes in order from the loop of its room. What is logged, progressed
/// and streamed comes from where the plugin or the model's client runs, behind the notice that its
/// call began and before the record of its answer; so a subscriber can be called by several threads
/// at once. Every kind, with an example of each: `docs/embed/events.md`.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use conclave_runtime::RunOptions;
/// use conclave_runtime::notice::Notice;
/// use conclave_runtime::subscribe::{Published, Subscriber, Subscribers, RunEvent};
///
/// /// Remembers which tools were called.
/// #[derive(Default)]
/// struct Called(Mutex<Vec<String>>);
///
/// impl Subscriber for Called {
///     fn on(&self, happening: &Published) {
///         if let RunEvent::Told { told: Notice::ToolCalled { name, .. } } = &happening.what {
///             self.0.lock().unwrap().push(name.clone());
///         }
///     }
/// }
///
/// let called = Arc::new(Called::default());
/// let options = RunOptions { subscribers: Subscribers::new([Arc::clone(&called) as Arc<dyn Subscriber>]), ..RunOptions::default() };
/// # drop(options);
/// ```
pub trait Subscriber: Send + Sync + 'static {
    fn on(&self, happening: &Published);

    /// The run with this root room is over, or was dropped, and with it the rooms below, whose
    /// names are its own, `/`, and more; a session is over when it is dropped. For subscribers that
    /// keep something for a run. A plugin that was stopped with a dropped run may still log a line
    /// afterwards.
    fn over(&self, _room: &RoomId) {}
}

/// The subscribers of a run.
#[derive(Clone, Default)]
pub struct Subscribers(Arc<[Arc<dyn Subscriber>]>);

impl Subscribers {
    /// These, called in this order.
    pub fn new(subscribers: impl IntoIterator<Item = Arc<dyn Subscriber>>) -> Self {
        Self(subscribers.into_iter().collect())
    }

    /// Nobody follows: nothing need be made up for them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These and one more, which is called last.
    #[must_use]
    pub fn with(&self, subscriber: Arc<dyn Subscriber>) -> Self {
        Self(self.0.iter().cloned().chain([subscriber]).collect())
    }

    pub(crate) fn report_over(&self, room: &RoomId) {
        self.0.iter().for_each(|subscriber| subscriber.over(room));
    }

    pub(crate) fn tell(&self, happening: &Published) {
        for subscriber in self.0.iter() {
            subscriber.on(happening);
        }
    }
}

/// Tells the followers of a run what happens in one of its rooms. Where nobody follows, nothing is
/// made up.
#[derive(Clone)]
pub(crate) struct Publisher {
    subscribers: Subscribers,
    room: RoomId,
    clock: Arc<dyn Clock>,
}

impl Publisher {
    pub(crate) fn new(subscribers: Subscribers, room: RoomId, clock: Arc<dyn Clock>) -> Self {
        Self { subscribers, room, clock }
    }

    pub(crate) fn tell(&self, what: impl FnOnce() -> RunEvent) {
        self.report_of(None, what);
    }

    /// Tells what follows from a record of this number.
    pub(crate) fn report_of(&self, seq: Option<u64>, what: impl FnOnce() -> RunEvent) {
        if !self.subscribers.is_empty() {
            self.subscribers.tell(&Published {
                room: self.room.clone(),
                at: self.clock.now(),
                seq,
                what: what(),
            });
        }
    }
}

/// Tells what calls say of themselves while they run, behind the notices that they began: a call
/// begins while its record is still being written, and nobody is told of it before that is kept.
pub(crate) struct FollowGate {
    teller: Publisher,
    waiting: Mutex<SubscriberQueue>,
}

#[derive(Default)]
struct SubscriberQueue {
    /// The batch of records up to which all was told.
    told: u64,
    /// What was said in calls of later batches.
    said: VecDeque<(u64, RunEvent)>,
}

impl FollowGate {
    pub(crate) fn new(teller: Publisher) -> Self {
        Self { teller, waiting: Mutex::default() }
    }

    /// Tells what a call says that a batch of records began, once that batch was told.
    pub(crate) fn tell(&self, batch: u64, what: impl FnOnce() -> RunEvent) {
        if self.teller.subscribers.is_empty() {
            return;
        }
        // Held while subscribers are called, so that what waited is not overtaken.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if batch <= waiting.told {
            self.teller.tell(what)
        } else {
            waiting.said.push_back((batch, what()))
        }
    }

    /// All that came of the batches up to this one was told.
    pub(crate) fn told_through(&self, batch: u64) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.told = waiting.told.max(batch);
        let (now, later) = std::mem::take(&mut waiting.said)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(of, _)| *of <= batch);
        waiting.said = later;
        now.into_iter().for_each(|(_, what)| self.teller.tell(|| what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::clock::SystemClock;

    /// Remembers the messages that were logged.
    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Subscriber for Heard {
        fn on(&self, happening: &Published) {
            if let RunEvent::Logged { message, .. } = &happening.what {
                self.0.lock().unwrap().push(message.clone());
            }
        }
    }

    #[test]
    fn a_call_is_heard_of_behind_its_beginning() {
        let heard = Arc::new(Heard::default());
        let subscribers = Subscribers::new([Arc::clone(&heard) as Arc<dyn Subscriber>]);
        let gate = FollowGate::new(Publisher::new(
            subscribers,
            RoomId::from("3f2a"),
            Arc::new(SystemClock),
        ));
        let log = |batch, message: &str| {
            let (plugin, message) = (PluginName::from("p"), message.to_owned());
            gate.tell(batch, || RunEvent::Logged {
                call: CallId(1),
                plugin,
                level: Level::Info,
                message,
            });
        };
        log(2, "second");
        log(1, "first");
        assert!(heard.0.lock().unwrap().is_empty());
        gate.told_through(1);
        assert_eq!(*heard.0.lock().unwrap(), ["first"]);
        gate.told_through(2);
        log(2, "third");
        assert_eq!(*heard.0.lock().unwrap(), ["first", "second", "third"]);
    }
}

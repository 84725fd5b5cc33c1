//! The interface for following a run, which the command line, the server, logs and traces share.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::protocol::event::Record;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::ids::{CallId, Millis, ModelName, PluginName, RoomId};
use serde::Serialize;

use crate::support::clock::Clock;

/// The destination of prompts when the program brings its own model client, whose target is unknown
/// to the host.
pub(crate) const OWN_CLIENT: &str = "wherever this program's client sends it";

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Single steps, for tracing one problem.
    Trace,
    /// Details for developers of the plugin.
    Debug,
    /// Normal operation.
    Info,
    /// A problem that does not stop the call.
    Warn,
    /// A failure.
    Error,
}

/// A published event of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Published {
    /// The room in which the event happened.
    pub room: RoomId,
    /// The time of publication by the run's clock.
    pub at: Millis,
    /// The number of the journal record that this is, or follows from. With the room it is an
    /// address in the journal, `3f2a91c0:17`. `None` for events that are not journalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The event itself; its `type` is its kind in kebab case.
    #[serde(flatten)]
    pub what: RunEvent,
}

/// An event of a run.
#[expect(
    clippy::large_enum_variant,
    reason = "most events are notices, and each event is made once and borrowed by its subscribers"
)]
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum RunEvent {
    /// An event was journalled.
    Recorded {
        /// The record as it is journalled, without the room's secret.
        record: Arc<Record>,
    },
    /// A notice that follows from the journalled events.
    Notice {
        /// The notice, derived by the core.
        notice: Notice,
    },
    /// A line of a plugin's log. Not journalled.
    Logged {
        /// The call that logs.
        call: CallId,
        /// The plugin's name in the config.
        plugin: PluginName,
        /// The severity that the plugin chose.
        level: Level,
        /// The text of the line.
        message: String,
    },
    /// The progress of a call. Not journalled.
    Progressed {
        /// The call that reports its progress.
        call: CallId,
        /// The plugin's name in the config.
        plugin: PluginName,
        /// The amount of completed work, in units of the plugin's own.
        #[serde(rename = "done")]
        completed: u64,
        /// The total amount of work; `None` if the plugin does not know it.
        total: Option<u64>,
        /// A description of the current work, for display.
        message: String,
    },
    /// The queue of an observer is full, and the run waits for it. Not journalled.
    ObserverQueueFull {
        /// The observer's name in the config.
        observer: PluginName,
        /// The number of events that wait for it.
        queued: u64,
    },
    /// The run no longer waits for the observer. Not journalled.
    ObserverQueueFree {
        /// The observer's name in the config.
        observer: PluginName,
    },
    /// An observer gets no more events of this run, unless the run is resumed. Not journalled.
    ObserverStopped {
        /// The observer's name in the config.
        observer: PluginName,
        /// The number of events that wait for it. Later ones are not counted.
        undelivered: u64,
        /// The reason, for display.
        reason: String,
    },
    /// A part of a model's answer while it streams. Not journalled; the completion is journalled at
    /// its end.
    Streamed {
        /// The call that sent the request.
        call: CallId,
        /// The number of the request within its call, from 0.
        ordinal: u32,
        /// The part of the text that follows the parts before.
        text: String,
    },
    /// The client of a model waits before it sends the request again: the server loads its model,
    /// is busy, or broke off. Not journalled.
    ModelWaiting {
        /// The call that sent the request.
        call: CallId,
        /// The number of the request within its call, from 0.
        ordinal: u32,
        /// The model's name in the config.
        model: ModelName,
        /// The reason and the time, for display.
        reason: String,
    },
}

/// Receives every event of a run. It is called inside the run, so it must not block.
///
/// Records and notices come in order from the loop of their room. Log lines, progress and streamed
/// text come from the task of the plugin or the model client. They come after the notice that their
/// call began and before the record of its answer. A subscriber can therefore be called by several
/// threads at once. `docs/embed/events.md` lists every kind with an example.
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
///         if let RunEvent::Notice { notice: Notice::ToolCalled { name, .. } } = &happening.what {
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
    /// Called for each event.
    fn on(&self, happening: &Published);

    /// Whether it shows a model's text while it is generated. If no subscriber does, a request that
    /// breaks off in the middle of the text is sent again.
    fn shows_text(&self) -> bool {
        true
    }

    /// Called when the run with this root room is over or was dropped, so that subscribers can
    /// release its state. The rooms below it end too; their names begin with its name and `/`. A
    /// session is over when it is dropped. A plugin that was stopped with a dropped run may still
    /// log a line afterwards.
    fn over(&self, _room: &RoomId) {}
}

/// The subscribers of a run.
#[derive(Clone, Default)]
pub struct Subscribers(Arc<[Arc<dyn Subscriber>]>);

impl Subscribers {
    /// These subscribers, called in this order.
    pub fn new(subscribers: impl IntoIterator<Item = Arc<dyn Subscriber>>) -> Self {
        Self(subscribers.into_iter().collect())
    }

    /// Whether there are no subscribers, so that events need not be built.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These subscribers and one more, which is called last.
    #[must_use]
    pub fn with(&self, subscriber: Arc<dyn Subscriber>) -> Self {
        Self(self.0.iter().cloned().chain([subscriber]).collect())
    }

    fn show_text(&self) -> bool {
        self.0.iter().any(|subscriber| subscriber.shows_text())
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

/// Publishes the events of one room to the subscribers. Without subscribers no event is built.
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

    /// Whether a subscriber shows a model's text while it is generated.
    pub(crate) fn shows_text(&self) -> bool {
        self.subscribers.show_text()
    }

    pub(crate) fn tell(&self, what: impl FnOnce() -> RunEvent) {
        self.report_of(None, what);
    }

    /// Publishes an event that follows from the record of this number.
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

/// Delays the events of running calls until their start was published. A call starts while its
/// record is still being written, and the record must be durable before it is published.
pub(crate) struct FollowGate {
    publisher: Publisher,
    waiting: Mutex<SubscriberQueue>,
}

#[derive(Default)]
struct SubscriberQueue {
    /// The last commit of records that was published.
    published: u64,
    /// Events of calls of later commits.
    events: VecDeque<(u64, RunEvent)>,
}

impl FollowGate {
    pub(crate) fn new(publisher: Publisher) -> Self {
        Self { publisher, waiting: Mutex::default() }
    }

    /// Publishes an event of a call once the commit of records that began the call is published.
    pub(crate) fn tell(&self, commit: u64, what: impl FnOnce() -> RunEvent) {
        if self.publisher.subscribers.is_empty() {
            return;
        }
        // Held while subscribers run, so that a later event cannot overtake a queued one.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if commit <= waiting.published {
            self.publisher.tell(what)
        } else {
            waiting.events.push_back((commit, what()))
        }
    }

    /// Marks the commits up to this one as published, and publishes the events that waited for
    /// them.
    pub(crate) fn told_through(&self, commit: u64) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.published = waiting.published.max(commit);
        let (now, later) = std::mem::take(&mut waiting.events)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(of, _)| *of <= commit);
        waiting.events = later;
        // Still under the lock, so that no newer event overtakes these.
        now.into_iter().for_each(|(_, what)| self.publisher.tell(|| what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::clock::SystemClock;

    /// Collects logged messages.
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
        let subscriber = Arc::new(Heard::default());
        let subscribers = Subscribers::new([Arc::clone(&subscriber) as Arc<dyn Subscriber>]);
        let gate = FollowGate::new(Publisher::new(
            subscribers,
            RoomId::from("3f2a"),
            Arc::new(SystemClock),
        ));
        let log = |commit, message: &str| {
            let (plugin, message) = (PluginName::from("p"), message.to_owned());
            gate.tell(commit, || RunEvent::Logged {
                call: CallId(1),
                plugin,
                level: Level::Info,
                message,
            });
        };
        log(2, "second");
        log(1, "first");
        assert!(subscriber.0.lock().unwrap().is_empty());
        gate.told_through(1);
        assert_eq!(*subscriber.0.lock().unwrap(), ["first"]);
        gate.told_through(2);
        log(2, "third");
        assert_eq!(*subscriber.0.lock().unwrap(), ["first", "second", "third"]);
    }
}

//! The one interface on which everybody who follows a run lives: the command line, the server, logs and traces.

use std::sync::Arc;

use conclave_core::event::Record;
use conclave_core::grant::DenialRecord;
use conclave_core::ids::{CallId, Millis, PluginName, RoomId};
use conclave_core::notice::Notice;
use serde::Serialize;

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
pub struct Happening {
    pub room: RoomId,
    pub at: Millis,
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum What {
    /// An event was journalled.
    Recorded { record: Arc<Record> },
    /// Something that follows from the events.
    Told { told: Notice },
    /// A line of a plugin's log. Beside the journal.
    Logged { call: CallId, plugin: PluginName, level: Level, message: String },
    /// How far a call has come. Beside the journal.
    Progressed { call: CallId, plugin: PluginName, done: u64, total: Option<u64>, message: String },
    /// An import refused something.
    Denied { call: CallId, plugin: PluginName, record: DenialRecord },
}

/// Gets everything, in order, one room at a time. Called on the room's own loop, so it must not block.
pub trait Subscriber: Send + Sync + 'static {
    fn on(&self, happening: &Happening);
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

    pub(crate) fn tell(&self, happening: &Happening) {
        for subscriber in self.0.iter() {
            subscriber.on(happening);
        }
    }
}

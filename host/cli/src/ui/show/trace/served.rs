//! The trace of a server: one for each of its conversations, so that the lines of one cannot be
//! taken for those of another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::setup::Setup;
use conclave_core::types::ids::RoomId;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};

use super::TracePrinter;
use crate::ui::screen::Screen;

/// Conversations whose traces are remembered. One beyond them begins anew, which loses only the
/// names of its open calls.
const REMEMBERED: usize = 1_000;

/// Prints the conversations of a server to stderr.
pub(crate) struct ServedTrace {
    screen: Arc<Screen>,
    verbose: bool,
    /// The setup of the start, for conversations that go on without naming theirs.
    setup: Arc<Setup>,
    traces: Mutex<BTreeMap<RoomId, Arc<TracePrinter>>>,
}

impl ServedTrace {
    pub(crate) fn new(screen: Arc<Screen>, verbose: bool, setup: Arc<Setup>) -> Self {
        Self { screen, verbose, setup, traces: Mutex::default() }
    }

    /// The trace of a conversation. A record that names its setup, as after the config was read
    /// again, begins the trace anew.
    fn of(&self, room: &RoomId, setup: Option<&Arc<Setup>>) -> Arc<TracePrinter> {
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        if traces.len() >= REMEMBERED && !traces.contains_key(room) {
            traces.clear();
        }
        if setup.is_some() {
            traces.remove(room);
        }
        let trace = traces.entry(room.clone()).or_insert_with(|| {
            let (screen, setup) = (Arc::clone(&self.screen), setup.unwrap_or(&self.setup));
            Arc::new(TracePrinter::of_served(screen, self.verbose, setup, room))
        });
        Arc::clone(trace)
    }
}

impl Subscriber for ServedTrace {
    fn on(&self, happening: &Published) {
        let run = happening.room.run();
        let setup = match &happening.what {
            // A child room has the setup of its run.
            RunEvent::Recorded { record } if happening.room == run => record.event.setup(),
            _ => None,
        };
        self.of(&run, setup).on(happening);
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::ui::screen::Verbosity;

    fn setup(entry: &str) -> Arc<Setup> {
        Arc::new(Setup::empty(entry.into()))
    }

    #[test]
    fn a_conversation_is_traced_by_the_setup_with_which_it_began() {
        let served = ServedTrace::new(Screen::new(Verbosity::Silent), false, setup("before"));
        let entry = |room: &str, setup: Option<&Arc<Setup>>| {
            let trace = served.of(&RoomId::from(room), setup);
            trace.layout.entry_task().map(ToString::to_string).unwrap_or_default()
        };
        assert_eq!(entry("a", None), "before");
        assert_eq!(entry("b", Some(&setup("after"))), "after", "the config was read again");
        assert_eq!((entry("a", None), entry("b", None)), ("before".into(), "after".into()));
    }
}

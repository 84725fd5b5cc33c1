//! The trace of a server: one for each of its conversations, so that the lines of one cannot be
//! taken for those of another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::setup::Setup;
use conclave_core::types::ids::RoomId;
use conclave_runtime::subscribe::{Published, Subscriber};

use super::TracePrinter;
use crate::ui::screen::Screen;

/// Conversations whose traces are remembered. One beyond them begins anew, which loses only the
/// names of its open calls.
const REMEMBERED: usize = 1_000;

/// Prints the conversations of a server to stderr.
pub(crate) struct ServedTrace {
    screen: Arc<Screen>,
    verbose: bool,
    setup: Arc<Setup>,
    traces: Mutex<BTreeMap<RoomId, Arc<TracePrinter>>>,
}

impl ServedTrace {
    pub(crate) fn new(screen: Arc<Screen>, verbose: bool, setup: Arc<Setup>) -> Self {
        Self { screen, verbose, setup, traces: Mutex::default() }
    }

    fn of(&self, room: &RoomId) -> Arc<TracePrinter> {
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        if traces.len() >= REMEMBERED && !traces.contains_key(room) {
            traces.clear();
        }
        let trace = traces.entry(room.clone()).or_insert_with(|| {
            let screen = Arc::clone(&self.screen);
            Arc::new(TracePrinter::of_served(screen, self.verbose, &self.setup, room))
        });
        Arc::clone(trace)
    }
}

impl Subscriber for ServedTrace {
    fn on(&self, happening: &Published) {
        self.of(&happening.room.run()).on(happening);
    }
}

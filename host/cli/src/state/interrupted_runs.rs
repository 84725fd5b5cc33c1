//! Interrupted runs: their list, the report about them, and the ones that are given up. `resume`
//! resumes the others.

use std::path::Path;

use conclave_core::types::ids::RoomId;
use conclave_core::types::observed::observer_of_room;
use conclave_runtime::store::{RunFilter, RunRow, RunState, Store, StoreAddress, StoreReader};

use crate::args::OutputArgs;
use crate::state::stores::{OpenStores, is_interrupted};
use crate::ui::show::{ODD, plural};
use crate::ui::stderr;

/// Runs that are listed by name.
const SHOWN: usize = 3;
/// The command under which calls of clients are stored. No client waits for an interrupted call.
pub(crate) const CLIENT: &str = "mcp";
/// The command under which conversations are stored.
pub(crate) const CONVERSATION: &str = "chat";

/// The interrupted runs of this config that can be resumed, newest first, in the named store or else
/// in those of the state folder. Empty if only results are wanted.
pub(crate) fn interrupted_with(
    store: Option<&StoreAddress>,
    (command, config): (&str, &Path),
    output: OutputArgs,
) -> Vec<RunRow> {
    if output.result_only() {
        return Vec::new();
    }
    let stores = store.cloned().map_or_else(OpenStores::of_state_folder, OpenStores::only);
    let mut runs = interrupted_in(&stores);
    let config = std::path::absolute(config).ok();
    // Runs of other projects, and conversations beside runs, are reported by the command that would
    // resume them.
    runs.retain(|run| run.config.is_some() && run.config == config && run.command == command);
    runs
}

/// The same for any config and output.
pub(crate) fn interrupted_in(stores: &OpenStores) -> Vec<RunRow> {
    let mut runs = stores.interrupted();
    runs.retain(|run| run.command != CLIENT);
    runs
}

/// Reports on stderr which runs were interrupted.
pub(crate) fn report_interrupted(runs: &[RunRow]) {
    let Some(newest) = runs.first() else { return };
    let names: Vec<String> = runs.iter().take(SHOWN).map(|run| run.run.to_string()).collect();
    let more = if runs.len() > SHOWN { ", …" } else { "" };
    let one = if runs.len() == 1 { format!(" {}", newest.run) } else { String::new() };
    let count = plural(runs.len() as u64, "run", "runs");
    let line =
        format!("{count} interrupted: {}{more} (`conclave resume{one}` resumes)", names.join(", "));
    stderr::styled(ODD, line);
}

/// Ends interrupted calls of clients, whose client has gone with its process. To be called before
/// the first run of this process.
pub(crate) fn give_up_calls(store: &Store) {
    let Ok(reader) = StoreReader::open(store.address()) else { return };
    // This process holds the store and has not begun a run yet, so each open one was interrupted.
    let runs = reader.runs(&interrupted_only()).unwrap_or_default();
    for run in runs.iter().filter(|run| run.command == CLIENT) {
        // A call that cannot be ended now is found again at the next start.
        let _ = store.give_up(&run.run, "its client has disconnected");
    }
}

/// Ends interrupted child rooms whose run is over. The store belongs to this process, so nothing of
/// that run is in progress.
pub(crate) fn close_orphans(store: &Store, run: &RoomId) {
    let Ok(reader) = StoreReader::open(store.address()) else { return };
    for room in reader.rooms(run).unwrap_or_default() {
        // An observer's room may still deliver the last events.
        let is_observer = observer_of_room(&room.room).is_some();
        if room.room != *run && !is_observer && !matches!(room.state, RunState::Ended(_)) {
            let _ = store.give_up(&room.room, "its run has ended");
        }
    }
}

/// Whether the room waits for its user, with nothing else in progress.
pub(crate) fn waits_for_user(store: &Store, room: &RoomId) -> bool {
    let waits = StoreReader::open(store.address())
        .and_then(|reader| reader.waits(Some(room)))
        .unwrap_or_default();
    waits.iter().any(|row| row.room == *room && row.wait.kind == "user")
}

fn interrupted_only() -> RunFilter {
    RunFilter { status: Some("interrupted".to_owned()), ..RunFilter::default() }
}

impl OpenStores {
    /// The interrupted runs, newest first. Stores that cannot be read are skipped.
    pub(crate) fn interrupted(&self) -> Vec<RunRow> {
        let filter = interrupted_only();
        let runs = self.readers_quietly().filter_map(|reader| reader.runs(&filter).ok());
        let mut runs: Vec<RunRow> = runs.flatten().filter(is_interrupted).collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.started));
        runs
    }
}

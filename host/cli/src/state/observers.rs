//! The observers of a run after its end: their last events are waited for, and what they did not
//! take is reported with the command that delivers it.

use std::collections::BTreeMap;
use std::time::Duration;

use conclave_core::journal::observed;
use conclave_core::types::ids::{PluginName, RoomId};
use conclave_core::types::observed::observer_of_room;
use conclave_runtime::store::{RunRow, RunState, StoreReader};
use conclave_runtime::{Host, ObserverBacklog};
use serde_json::json;

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::ui::interrupt::Interrupts;
use crate::ui::show::{ODD, one_line, plural};
use crate::ui::{stderr, stdout};

/// The wait for observers after a run. Its result is shown before.
const AT_MOST: Duration = Duration::from_secs(5);
/// Characters of the reason why an observer was stopped.
const REASON: usize = 300;

/// Waits for the observers of ended runs, at most until Ctrl-C, and reports undelivered events.
pub(crate) async fn drain(
    host: &Host,
    is_stored: bool,
    output: OutputArgs,
    interrupts: &Interrupts,
) -> Result<(), CliError> {
    let mut interrupts = interrupts.clone();
    let backlogs = tokio::select! {
        backlogs = host.drain_observers(AT_MOST) => backlogs,
        () = interrupts.next() => host.drain_observers(Duration::ZERO).await,
    };
    for backlog in backlogs {
        if output.json {
            stdout::json(json!({
                "type": "observer-backlog", "room": backlog.run, "observer": backlog.observer,
                "undelivered": backlog.undelivered, "reason": backlog.stopped, "is_stored": is_stored,
            }))?;
        } else {
            let line = words(&backlog, is_stored);
            stderr::styled(ODD, line);
        }
    }
    Ok(())
}

/// The number of events of an ended run that each observer did not take. An observer has a room
/// once it was called, so only runs with such a room are read.
pub(crate) fn undelivered(reader: &StoreReader, run: &RunRow) -> BTreeMap<PluginName, u64> {
    let is_ended = matches!(run.state, RunState::Ended(_));
    let rooms = reader.rooms(&run.run).ok().filter(|_| is_ended).unwrap_or_default();
    if !rooms.iter().any(|row| observer_of_room(&row.room).is_some()) {
        return BTreeMap::new();
    }
    // Records that cannot be read are reported by the commands that show them.
    let records = rooms.iter().map(|row| reader.records(&row.room)).collect::<Result<Vec<_>, _>>();
    records.map(|rooms| observed::undelivered(&rooms)).unwrap_or_default()
}

/// The events that an observer did not take, and the command that delivers them.
pub(crate) fn undelivered_line(run: &RoomId, observer: &PluginName, count: u64) -> String {
    let count = plural(count, "event", "events");
    format!("observer {observer} did not take {count}; `conclave resume {run}` delivers them")
}

fn words(backlog: &ObserverBacklog, is_stored: bool) -> String {
    let ObserverBacklog { run, observer, undelivered, is_catching_up, stopped } = backlog;
    let why = match stopped {
        Some(reason) => format!(": {}", one_line(reason, REASON)),
        None if *is_catching_up => ": it still gets earlier events".to_owned(),
        None => ": it needs more time".to_owned(),
    };
    let then = if is_stored {
        format!("`conclave resume {run}` delivers them")
    } else {
        "they are lost, because the run was not stored".to_owned()
    };
    let count = plural(*undelivered, "event", "events");
    format!("observer {observer} did not take {count} of {run}{why}; {then}")
}

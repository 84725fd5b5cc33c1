//! What is said to a run that another process has under way: put into the mail of its store, and heard or taken back. Nothing is left there
//! that somebody would hear long afterwards.

use std::time::{Duration, Instant};

use conclave_core::event::Event;
use conclave_core::ids::RoomId;
use conclave_runtime::store::{Mail, Reader, RunRow, Standing, Store, Word};
use serde_json::json;

use crate::args::Output;
use crate::error::CliError;
use crate::show::printable;
use crate::stdout;
use crate::stores::{InStore, unusable};

/// How often it is looked whether it was heard.
const EVERY: Duration = Duration::from_millis(100);

/// The run as it is now, which must go on somewhere. `what` is what is to be done with it, such as `pause`.
///
/// # Errors
/// When it has ended, or was cut off.
pub(crate) fn under_way(found: &InStore, what: &str) -> Result<RunRow, CliError> {
    let row = found.row()?;
    match row.standing {
        Standing::Running => Ok(row),
        Standing::Ended(status) => {
            Err(CliError::usage(format!("the run {} has ended ({}): there is nothing to {what}", row.run, status.as_str())))
        }
        Standing::CutOff => Err(CliError::usage(format!("the run {} was cut off: nothing of it goes on that one could {what}", row.run))
            .hint(format!("conclave resume {} goes on with it, conclave stop {} ends it", row.run, row.run))),
    }
}

/// Says it, and waits until it was heard.
///
/// # Errors
/// When nobody heard it in that time, or the run's process ended before: then the word was taken back.
pub(crate) async fn say(row: &RunRow, word: Word, most: Duration) -> Result<(), CliError> {
    let mail = Mail { room: row.run.clone(), word };
    mail.send(&row.store).map_err(|error| unusable(&error))?;
    let until = Instant::now() + most;
    loop {
        let pending = Mail::pending(&row.store).map_err(|error| unusable(&error))?;
        if !pending.contains(&mail) {
            return Ok(());
        }
        // A store that can be opened is nobody's: its process has ended.
        let is_over = Store::open(&row.store).is_ok();
        if is_over || Instant::now() >= until {
            let taken = Mail::take_back(&row.store, |other| *other == mail).map_err(|error| unusable(&error))?;
            if taken.is_empty() {
                return Ok(());
            }
            return Err(match is_over {
                true => CliError::usage(format!("the process of {} ended before it heard it; the word was taken back", row.run))
                    .hint(format!("conclave show {} says how it stands", row.run)),
                false => CliError::internal(format!(
                    "the process of {} did not hear it within {} s; the word was taken back",
                    row.run,
                    most.as_secs()
                ))
                .hint("say it again with a longer --wait, or end that process"),
            });
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Waits until it is so, or for as long as that.
pub(crate) async fn until(most: Duration, is_so: impl Fn() -> bool) {
    let end = Instant::now() + most;
    while !is_so() && Instant::now() < end {
        tokio::time::sleep(EVERY).await;
    }
}

/// Tells what came of it: with `--json` as an object of this type.
pub(crate) fn tell(row: &RunRow, kind: &str, what: &str, output: Output) -> Result<(), CliError> {
    if output.json {
        return stdout::line(json!({ "type": kind, "run": row.run, "what": what }));
    }
    if output.quiet {
        return Ok(());
    }
    stdout::line(printable(&format!("{} {what}", row.run)))
}

/// Why a run is paused; none when it is not, or when that cannot be read.
pub(crate) fn paused(reader: &Reader, run: &RoomId) -> Option<String> {
    let mut paused = None;
    for record in reader.records(run).ok()? {
        match record.event {
            Event::Paused { reason } => paused = Some(reason),
            Event::Unpaused | Event::RunStarted { .. } => paused = None,
            _ => {}
        }
    }
    paused
}

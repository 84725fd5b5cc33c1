//! `conclave pause RUN`: work in progress runs to its end, and nothing new starts until `conclave
//! resume RUN`. A run that waits for a worker is paused before one begins it.

use std::time::Duration;

use conclave_runtime::store::ControlCommand;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control::{Delivery, pause_reason, report, send, until};
use crate::state::stored_run::StoredRun;

pub(crate) async fn pause(args: &args::Pause, output: OutputArgs) -> Result<u8, CliError> {
    let found = StoredRun::resolve(Some(&args.run), args.store.as_ref())?;
    let row = found.in_progress("pausing")?;
    if pause_reason(&found.reader, &row.run)?.is_some() {
        report(&row, "paused", "was already paused", output)?;
        return Ok(exit::OK);
    }
    let most = Duration::from_secs(args.wait);
    let sent = send(&row, ControlCommand::Pause { reason: args.reason.clone() }, most).await?;
    let resumed = format!("`conclave resume {}` resumes it", row.run);
    if sent == Delivery::Waiting {
        report(&row, "paused", &format!("is paused; no host has it; {resumed}"), output)?;
        return Ok(exit::OK);
    }
    // Any process that looks at the run next, or resumes it, must find it paused.
    let found = until(found, most, |found| {
        found.row().map_or(true, |row| !row.state.goes_on())
            || matches!(pause_reason(&found.reader, &found.run()), Ok(Some(_)))
    });
    found.await?.in_progress("pausing")?;
    let what = format!("is paused; calls in progress run to their end; {resumed}");
    report(&row, "paused", &what, output)?;
    Ok(exit::OK)
}

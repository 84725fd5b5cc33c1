//! `conclave pause RUN`: work in progress runs to its end, and nothing new starts until `conclave
//! resume RUN`.

use std::time::Duration;

use conclave_runtime::store::ControlCommand;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control::{pause_reason, report, send, until};
use crate::state::stored_run::StoredRun;

pub(crate) async fn pause(args: &args::Pause, output: OutputArgs) -> Result<u8, CliError> {
    let found = StoredRun::resolve(Some(&args.run), args.store.as_ref())?;
    let row = found.in_progress("pausing")?;
    if pause_reason(&found.reader, &row.run)?.is_some() {
        report(&row, "paused", "was already paused", output)?;
        return Ok(exit::OK);
    }
    let most = Duration::from_secs(args.wait);
    send(&row, ControlCommand::Pause { reason: args.reason.clone() }, most).await?;
    // Any process that looks at the run next, or resumes it, must find it paused.
    let is_over = || found.row().map_or(true, |row| !row.state.goes_on());
    let is_paused = || matches!(pause_reason(&found.reader, &row.run), Ok(Some(_)));
    until(most, || is_over() || is_paused()).await;
    found.in_progress("pausing")?;
    let what = format!(
        "is paused; calls in progress run to their end; `conclave resume {}` resumes it",
        row.run
    );
    report(&row, "paused", &what, output)?;
    Ok(exit::OK)
}

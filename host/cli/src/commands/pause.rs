//! `conclave pause RUN`: work in progress runs to its end, and nothing new starts until `conclave
//! resume RUN`.

use std::time::Duration;

use conclave_runtime::store::{ControlCommand, RunState};

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control::{paused, say, tell, under_way, until};
use crate::state::stores::OpenStores;

pub(crate) async fn pause(args: &args::Pause, output: OutputArgs) -> Result<u8, CliError> {
    let found = OpenStores::of(args.store.as_deref()).find(&args.run)?;
    let row = under_way(&found, "pause")?;
    if paused(&found.reader, &row.run).is_some() {
        tell(&row, "paused", "was paused before", output)?;
        return Ok(exit::OK);
    }
    let most = Duration::from_secs(args.wait);
    say(&row, ControlCommand::Pause { reason: args.reason.clone() }, most).await?;
    // Any process that looks at the run next, or resumes it, must find it paused.
    let is_over = || found.row().map_or(true, |row| row.standing != RunState::Running);
    until(most, || is_over() || paused(&found.reader, &row.run).is_some()).await;
    under_way(&found, "pause")?;
    let what = format!(
        "is paused: what it has under way goes on to its end; conclave resume {} lets it go on",
        row.run
    );
    tell(&row, "paused", &what, output)?;
    Ok(exit::OK)
}

//! `conclave pause RUN`: work in progress runs to its end, and nothing new starts until `conclave
//! resume RUN`. A run that waits for a worker is paused before one begins it.

use std::time::Duration;

use conclave_runtime::steering::{self, Paused};
use conclave_runtime::store::{ControlCommand, ControlMessage};

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control::{blocking, report};
use crate::state::stored_run::StoredRun;

pub(crate) async fn pause(args: &args::Pause, output: OutputArgs) -> Result<u8, CliError> {
    let found = StoredRun::resolve(Some(&args.run), args.store.as_ref())?;
    let row = found.in_progress("pausing")?;
    let most = Duration::from_secs(args.wait);
    let command = ControlCommand::Pause { reason: args.reason.clone() };
    let message = ControlMessage::new(row.run.clone(), command);
    let paused = blocking(move || {
        let paused = steering::pause(&found.reader, &message, most)
            .map_err(|error| found.not_in_progress(error, "pausing"))?;
        Ok(paused)
    });
    let resumed = format!("`conclave resume {}` resumes it", row.run);
    let what = match paused.await? {
        Paused::Before => "was already paused".to_owned(),
        Paused::WithoutHost => format!("is paused; no host has it; {resumed}"),
        Paused::InProcess => format!("is paused; calls in progress run to their end; {resumed}"),
    };
    report(&row, "paused", &what, output)?;
    Ok(exit::OK)
}

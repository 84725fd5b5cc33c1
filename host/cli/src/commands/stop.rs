//! `conclave stop RUN`: ends a run of another process, or an interrupted one.

use std::time::Duration;

use conclave_runtime::steering::{self, SteeringError, Stopped};
use conclave_runtime::store::{ControlCommand, ControlMessage, RunState};
use serde_json::json;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control::blocking;
use crate::state::stored_run::StoredRun;
use crate::state::stores::open;
use crate::ui::show::printable;
use crate::ui::stdout;

pub(crate) async fn stop(args: &args::StopArgs, output: OutputArgs) -> Result<u8, CliError> {
    let found = StoredRun::resolve(Some(&args.run), args.store.as_ref())?;
    let (run, most) = (found.run(), Duration::from_secs(args.wait));
    let command = ControlCommand::Stop { reason: args.reason.clone() };
    let message = ControlMessage::new(run.clone(), command);
    let stopping = blocking(move || {
        let address = found.reader.address().clone();
        Ok(steering::stop(&found.reader, &message, &|| open(&address, "stop"), most))
    });
    let stopped = match stopping.await? {
        Err(error @ SteeringError::NotReceived { .. }) => {
            return Err(CliError::from(error).hint("end that process, and try again"));
        }
        stopped => stopped?,
    };
    let what = match stopped {
        Stopped::Before(status) => format!("had already ended: {}", status.as_str()),
        Stopped::Ended(status) => format!("has ended: {}", status.as_str()),
        Stopped::GivenUp(None) => "is damaged, and is now ended".to_owned(),
        Stopped::GivenUp(Some(RunState::Queued | RunState::Asleep)) => {
            "had no host, and is now ended".to_owned()
        }
        Stopped::GivenUp(Some(_)) => "was interrupted, and is now ended".to_owned(),
    };
    stdout::report(
        output,
        json!({ "type": "stopped", "run": run, "message": what }),
        printable(&format!("{run} {what}")),
    )?;
    Ok(exit::OK)
}

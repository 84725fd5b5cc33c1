//! `conclave tell RUN TEXT`: sends a text to a run in progress. The agent reads it in its next
//! step.

use std::time::Duration;

use conclave_core::types::ids::TaskName;
use conclave_runtime::steering::{self, TextPlace};
use conclave_runtime::store::{ControlCommand, ControlMessage, RunState};

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control::{self, blocking, message_text};
use crate::state::interrupted_runs::CONVERSATION;
use crate::state::stored_run::StoredRun;
use crate::ui::show::run_state::{SERVED, continued_by};

/// What is not possible if the run is not there to receive it.
const SENDING: &str = "sending a message";

pub(crate) async fn tell(args: &args::Tell, output: OutputArgs) -> Result<u8, CliError> {
    let text = message_text(&args.text, "conclave tell RUN \"TEXT\"")?;
    let found = StoredRun::resolve(Some(&args.run), args.store.as_ref())?;
    let row = found.row()?;
    // Between two turns of a conversation no agent reads a text.
    let is_conversation = [CONVERSATION, SERVED].contains(&row.command.as_str());
    let row = match row.state {
        RunState::Interrupted if !is_conversation => row,
        _ => found.in_progress(SENDING)?,
    };
    let task = args.task.as_deref().map(TaskName::from);
    let whom = task.as_ref().map_or_else(|| row.entry.clone(), ToString::to_string);
    let message = ControlMessage::new(row.run.clone(), ControlCommand::Tell { task, text });
    let most = Duration::from_secs(args.wait);
    let sent = blocking(move || {
        steering::tell(&found.reader, &message, most)
            .map_err(|error| found.not_in_progress(error, SENDING))
    });
    let what = match sent.await? {
        TextPlace::Recorded => {
            format!("received the message; the agent of {whom} reads it in its next step")
        }
        TextPlace::WaitsForWorker => format!(
            "has the message, and no host has the run; the agent of {whom} reads it when a worker takes it"
        ),
        TextPlace::WaitsForResume => format!(
            "has the message; it was interrupted, and the agent of {whom} reads it when it is continued: {}",
            continued_by(&row)
        ),
    };
    control::report(&row, "sent", &what, output)?;
    Ok(exit::OK)
}

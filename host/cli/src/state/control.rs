//! Commands to runs from this terminal, through [`steering`]: their texts and their remedies.

use std::io::Read;
use std::time::Duration;

use conclave_core::types::ids::RoomId;
use conclave_runtime::steering::{self, Delivery, SteeringError};
use conclave_runtime::store::{ControlCommand, ControlMessage, RunRow};
use serde_json::json;

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::state::stored_run::has_ended;
use crate::state::stores;
use crate::ui::show::printable;
use crate::ui::stdout;

/// Bytes of a text. A message in the mail may have 1 MiB, and JSON can make six bytes of one.
const MESSAGE_MAX: usize = 128 << 10;

/// Returns a message as written, or from stdin; `usage` is the form of the command.
pub(crate) fn message_text(argument: &str, usage: &str) -> Result<String, CliError> {
    let text = if argument == "-" {
        let mut text = String::new();
        // A byte more than allowed, so that a longer text is refused and not cut.
        let read = std::io::stdin().take(MESSAGE_MAX as u64 + 1).read_to_string(&mut text);
        read.map_err(|error| {
            CliError::usage(format!("the message could not be read from stdin: {error}"))
        })?;
        text.trim_end().to_owned()
    } else {
        argument.to_owned()
    };
    match text.len() {
        0 => Err(CliError::usage("the message is empty").hint(format!("write it as {usage}"))),
        length if length > MESSAGE_MAX => {
            Err(CliError::usage(format!("the message is longer than {MESSAGE_MAX} bytes"))
                .hint("put it into a file that the agent may read"))
        }
        _ => Ok(text),
    }
}

/// Sends a command to a run, and waits until its journal holds it; see [`steering::send`].
///
/// # Errors
/// As that.
pub(crate) async fn send(
    row: &RunRow,
    word: ControlCommand,
    most: Duration,
) -> Result<Delivery, CliError> {
    let message = ControlMessage::new(row.run.clone(), word);
    let address = row.store.clone();
    blocking(move || Ok(steering::send(&stores::read(&address)?, &message, most)?)).await
}

/// Runs what reads a store on a thread that may block: a database may take long to answer.
pub(crate) async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<T, CliError> {
    match tokio::task::spawn_blocking(read).await {
        Ok(result) => result,
        Err(broken) => std::panic::resume_unwind(broken.into_panic()),
    }
}

/// Reports the result; with `--json` as an object of this type.
pub(crate) fn report(
    row: &RunRow,
    kind: &str,
    what: &str,
    output: OutputArgs,
) -> Result<(), CliError> {
    stdout::report(
        output,
        json!({ "type": kind, "run": row.run, "message": what }),
        printable(&format!("{} {what}", row.run)),
    )
}

impl From<SteeringError> for CliError {
    fn from(error: SteeringError) -> Self {
        let show = |run: &RoomId| format!("`conclave show {run}` shows the state of the run");
        let what = error.to_string();
        match error {
            SteeringError::Store(error) => error.into(),
            SteeringError::Unconfirmed { run, error } => Self::from(error).hint(format!(
                "what was sent may still take effect; `conclave show {run}` shows whether it did"
            )),
            SteeringError::Unknown { .. } => Self::usage(what),
            SteeringError::Ended { run, status } => has_ended(&run, status, "it has no effect"),
            SteeringError::Interrupted { run } => Self::usage(what)
                .hint(format!("`conclave resume {run}` resumes it, `conclave stop {run}` ends it")),
            SteeringError::UnknownTask { run, task, known } => {
                let name = task.as_str();
                Self::usage(format!("the run {run} has no task {}", printable(name))).known(
                    name,
                    "its tasks are",
                    known.iter().map(String::as_str),
                )
            }
            SteeringError::Unreadable { .. } => Self::internal(what)
                .hint("check whether that process runs another version of conclave"),
            SteeringError::NotReceived { .. } => {
                Self::internal(what).hint("try again with a longer --wait, or end that process")
            }
            SteeringError::NotRecorded { run, .. } => Self::internal(what).hint(show(&run)),
            SteeringError::NotEnded { .. } => Self::internal(what)
                .hint("wait for it to end, or end its process; `conclave runs` shows its state"),
            SteeringError::Dropped { run, .. } => {
                Self::usage(what).hint(format!("{}; begin another one with the text", show(&run)))
            }
            SteeringError::ReceiverEnded { run } => Self::usage(what).hint(show(&run)),
            // Commands that decide calls have words of their own for these.
            error => Self::usage(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use conclave_runtime::store::StoreError;

    use super::*;

    #[test]
    fn a_lost_answer_of_the_store_is_no_promise_that_nothing_happens() {
        let store = || std::path::Path::new("/nowhere").into();
        let failure = || StoreError::Unreachable { store: store(), what: "it is gone".to_owned() };
        let error = SteeringError::Unconfirmed { run: "3f2a91c0".into(), error: failure() };
        let (what, hint) = CliError::from(error).into_texts();
        assert_eq!(what, CliError::from(failure()).into_texts().0);
        let hint = hint.expect("it says what may happen");
        assert!(hint.contains("may still take effect"), "{hint}");
        assert!(hint.contains("conclave show 3f2a91c0"), "{hint}");
    }

    #[test]
    fn an_empty_or_oversized_message_is_refused() {
        assert_eq!(message_text("look into /docs", "").unwrap(), "look into /docs");
        assert!(message_text("", "").unwrap_err().to_string().contains("is empty"));
        assert!(
            message_text(&"x".repeat(MESSAGE_MAX + 1), "")
                .unwrap_err()
                .to_string()
                .contains("131072 bytes")
        );
    }
}

//! `conclave tell RUN TEXT`: sends a text to a run in progress. The agent reads it in its next
//! step.

use std::time::Duration;

use conclave_core::journal::record::{ReplayedRecord, retold, setup_in_force};
use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::ids::{ControlId, TaskName};
use conclave_runtime::store::ControlCommand;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control::{self, Delivery, message_text, send};
use crate::state::stored_run::StoredRun;
use crate::ui::show::printable;

pub(crate) async fn tell(args: &args::Tell, output: OutputArgs) -> Result<u8, CliError> {
    let text = message_text(&args.text, "conclave tell RUN \"TEXT\"")?;
    let found = StoredRun::resolve(Some(&args.run), args.store.as_ref())?;
    let row = found.in_progress("sending a message")?;
    let task = args.task.as_deref().map(|task| task_of(&found, task)).transpose()?;
    let whom = task.as_ref().map_or_else(|| row.entry.clone(), ToString::to_string);
    let message = ControlCommand::Tell { task, text: text.clone() };
    let sent = send(&row, message, Duration::from_secs(args.wait)).await?;
    let Delivery::Recorded(id) = sent else {
        let what = format!(
            "has the message, and no host has the run; the agent of {whom} reads it when a worker takes it"
        );
        control::report(&row, "sent", &what, output)?;
        return Ok(exit::OK);
    };
    if let Some(why) = dropped(&found, &id, &text)? {
        let what = format!("{} received the message, and no agent reads it: {why}", row.run);
        return Err(CliError::usage(what).hint(format!(
            "`conclave show {}` shows the state of the run; begin another one with the text",
            row.run
        )));
    }
    control::report(
        &row,
        "sent",
        &format!("received the message; the agent of {whom} reads it in its next step"),
        output,
    )?;
    Ok(exit::OK)
}

/// Returns why the message reached no agent; `None` if one reads it, or may still.
fn dropped(found: &StoredRun, id: &ControlId, text: &str) -> Result<Option<String>, CliError> {
    let records = found.reader.records(&found.run())?;
    Ok(why_dropped(&retold(records), id, text))
}

fn why_dropped(retold: &[ReplayedRecord], id: &ControlId, text: &str) -> Option<String> {
    let is_receipt = |entry: &&ReplayedRecord| matches!(&entry.record.event, Event::ControlReceived { id: received, .. } if received == id);
    // Only what follows the receipt: an earlier message may have had the same text.
    let from = retold.iter().position(|entry| is_receipt(&entry))?;
    retold[from..].iter().flat_map(|entry| &entry.notices).find_map(|notice| match notice {
        Notice::UserMessageDropped { text: dropped, reason, .. } if dropped == text => {
            Some(reason.clone())
        }
        _ => None,
    })
}

/// Returns a task of the run's config.
fn task_of(found: &StoredRun, name: &str) -> Result<TaskName, CliError> {
    let records = found.reader.records(&found.run())?;
    let task = TaskName::from(name);
    match setup_in_force(&records) {
        Some(setup) if !setup.tasks.contains_key(&task) => {
            let known = setup.tasks.keys().map(TaskName::as_str);
            Err(CliError::usage(format!("the run {} has no task {}", found.run(), printable(name)))
                .known(name, "its tasks are", known))
        }
        _ => Ok(task),
    }
}

//! `conclave tell RUN TEXT`: sends a text to a run in progress. The agent reads it in its next
//! step.

use std::io::Read;
use std::time::Duration;

use conclave_core::protocol::event::Event;
use conclave_core::types::ids::TaskName;
use conclave_runtime::store::ControlCommand;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control;
use crate::state::control::{say, under_way};
use crate::state::stores::{InStore, OpenStores, unusable};
use crate::ui::show::printable;

/// Bytes of a text. A message in the mail may have 1 MiB, and JSON can make six bytes of one.
const MOST: usize = 128 << 10;

pub(crate) async fn tell(args: &args::Tell, output: OutputArgs) -> Result<u8, CliError> {
    let text = text(&args.text)?;
    let found = OpenStores::of(args.store.as_deref()).find(&args.run)?;
    let row = under_way(&found, "tell something")?;
    let task = args.task.as_deref().map(|task| task_of(&found, task)).transpose()?;
    let whom = task.as_ref().map_or_else(|| row.entry.clone(), ToString::to_string);
    say(&row, ControlCommand::Tell { task, text }, Duration::from_secs(args.wait)).await?;
    control::tell(
        &row,
        "told",
        &format!("was told; the agent of {whom} reads it in its next step"),
        output,
    )?;
    Ok(exit::OK)
}

fn text(given: &str) -> Result<String, CliError> {
    let text = if given == "-" {
        let mut text = String::new();
        let read = std::io::stdin().take(MOST as u64 + 1).read_to_string(&mut text);
        read.map_err(|error| {
            CliError::usage(format!("the text could not be read from stdin: {error}"))
        })?;
        text.trim_end().to_owned()
    } else {
        given.to_owned()
    };
    match text.len() {
        0 => Err(CliError::usage("there is nothing to tell").hint("conclave tell RUN \"TEXT\"")),
        length if length > MOST => {
            Err(CliError::usage(format!("the text has more than {MOST} bytes"))
                .hint("put it into a file that the agent may read"))
        }
        _ => Ok(text),
    }
}

/// Returns a task of the run's config.
fn task_of(found: &InStore, name: &str) -> Result<TaskName, CliError> {
    let records = found.reader.records(&found.run()).map_err(|error| unusable(&error))?;
    let mut setup = None;
    for record in records {
        match record.event {
            Event::RoomOpened { setup: opened, .. } => setup = Some(opened),
            Event::RunStarted { setup: Some(changed), .. } => setup = Some(changed),
            _ => {}
        }
    }
    let task = TaskName::from(name);
    match setup {
        Some(setup) if !setup.tasks.contains_key(&task) => {
            let known: Vec<String> = setup.tasks.keys().map(ToString::to_string).collect();
            Err(CliError::usage(format!("the run {} has no task {}", found.run(), printable(name)))
                .hint(format!("these are there: {}", known.join(", "))))
        }
        _ => Ok(task),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_says_something_and_fits_into_the_mail() {
        assert_eq!(text("look into /docs").unwrap(), "look into /docs");
        assert!(text("").unwrap_err().to_string().contains("nothing to tell"));
        assert!(text(&"x".repeat(MOST + 1)).unwrap_err().to_string().contains("131072 bytes"));
    }
}

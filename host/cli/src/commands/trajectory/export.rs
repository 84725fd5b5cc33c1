//! `conclave trajectory export RUN`: writes a run as a log in the format of OpenHands.

use std::io::ErrorKind;
use std::path::Path;

use conclave_core::inspect::export;
use conclave_runtime::durable_file::{self, FileAccess};
use serde_json::{Value, json};

use crate::args::{OutputArgs, TrajectoryExport};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::stored_run::StoredRun;
use crate::ui::show::{foreign, plural, printable, show_path};
use crate::ui::{stderr, stdout};

pub(super) fn export(args: &TrajectoryExport, output: OutputArgs) -> Result<u8, CliError> {
    let found = StoredRun::resolve(Some(&args.run), args.store.as_ref())?;
    let records = found.reader.records(&found.room)?;
    let events = export::log(records, args.era.into());
    if events.is_empty() {
        return Err(CliError::usage(format!("{} has no events yet", found.room)));
    }
    let Some(file) = &args.output else {
        // Stdout may be a terminal; a parser reads the same values from the escapes.
        stdout::write(&foreign::escape_json(&text(&events)))?;
        return Ok(exit::OK);
    };
    write_private(file, &text(&events))?;
    if output.json {
        stdout::json(
            json!({ "type": "trajectory", "file": file, "run": found.room, "events": events.len() }),
        )?;
    } else if !output.quiet {
        let count = plural(events.len() as u64, "event", "events");
        stderr::line(format_args!(
            "wrote {}: {count} of {}",
            printable(&file.display().to_string()),
            found.room
        ));
    }
    Ok(exit::OK)
}

/// A JSON array with one event a line.
fn text(events: &[Value]) -> String {
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

/// Writes a file that only its owner can read, since a log holds the run's messages. An existing
/// file is not overwritten.
fn write_private(file: &Path, text: &str) -> Result<(), CliError> {
    let written = durable_file::create(file, text.as_bytes(), &FileAccess::Private);
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => CliError::usage(format!("{} already exists", show_path(file)))
            .hint("name another file with -o"),
        _ => CliError::usage(format!("{} could not be written: {error}", show_path(file))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exported_log_loads_again() {
        let message = json!({ "id": 0, "source": "user", "action": "message", "args": { "content": "a\nb" } });
        let loaded = conclave_core::trajectory::load(&text(&[message.clone(), message]));
        assert_eq!((loaded.events.len(), loaded.problems.len()), (2, 0), "{:?}", loaded.problems);
    }

    #[test]
    fn an_existing_file_is_not_overwritten() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("log.json");
        write_private(&file, "[]").unwrap();
        assert!(write_private(&file, "[]").unwrap_err().to_string().contains("already exists"));
    }
}

//! The input of a run as the command line gives it, and the room that it begins in.

use std::collections::VecDeque;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::sync::Arc;

use conclave_core::config::replace_run_limits;
use conclave_core::setup::{NoTool, Setup, TaskSetup};
use conclave_core::types::ids::{RoomId, TaskName};
use conclave_runtime::RunInput;
use conclave_runtime::ids::{Ids, RandomIds};
use conclave_runtime::store::{RunState, StoreAddress, StoreError, StoreReader};
use serde_json::{Map, Value};

use crate::args::{Keep, RunInputArgs};
use crate::program::error::CliError;
use crate::program::json_object::json_object;
use crate::program::shell::shell;
use crate::state::stores::room_folder;
use crate::ui::show::show_path;

/// The most bytes of a file with inputs or answers.
const FILE_MAX: u64 = 16 << 20;

/// Returns the message of the command line. `-`, or no text with a piped stdin, reads stdin.
pub(super) fn message(argument: Option<String>) -> Result<Option<String>, CliError> {
    let piped = argument.is_none() && !std::io::stdin().is_terminal();
    if argument.as_deref() != Some("-") && !piped {
        return Ok(argument.filter(|text| !text.trim().is_empty()));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| {
        CliError::usage(format!("the message could not be read from stdin: {error}"))
            .hint("pass it as an argument: conclave run [CONFIG] \"TEXT\"")
    })?;
    // Most programs end their output with a line feed that is no part of the message.
    let text = text.trim_end().to_owned();
    Ok(if text.is_empty() { None } else { Some(text) })
}

/// Returns the input of a run. `is_stored` means that its room exists already.
///
/// # Errors
/// If there is no such task, a limit or the inputs are wrong, the task needs a message and there is
/// none, or answers are given beside a simulated user.
pub(super) fn input(
    args: &RunInputArgs,
    message: Option<String>,
    setup: &Setup,
    is_stored: bool,
) -> Result<RunInput, CliError> {
    let entry = args.task.as_deref().map(|name| task(setup, name)).transpose()?;
    let begins_with = entry.as_ref().unwrap_or(&setup.entry);
    check_message(setup, begins_with, message.as_deref(), is_stored)?;
    check_answers(setup, begins_with, args.answers.as_deref())?;
    let limits = (!args.limit.is_empty())
        .then(|| replace_run_limits(&setup.limits, &args.limit))
        .transpose()
        .map_err(|problems| {
            let what = format!("a limit cannot be replaced\n\n{}", problems.to_string().trim_end());
            CliError::usage(what).with_problems(&problems)
        })?;
    let inputs = args.inputs.as_deref().map(inputs).transpose()?;
    let turns = args.turns;
    let recipient = args.recipient.clone();
    let of_message = RunInput::from(message);
    let inputs = inputs.map_or_else(|| of_message.inputs.clone(), Value::Object);
    Ok(RunInput { entry, turns, inputs, recipient, limits, ..of_message })
}

fn task(setup: &Setup, name: &str) -> Result<TaskName, CliError> {
    let known = setup.tasks.keys();
    known.clone().find(|task| task.as_str() == name).cloned().ok_or_else(|| {
        let what = format!("the config has no task {}", shell(name));
        CliError::usage(what).known(name, "the tasks are", known.map(TaskName::as_str))
    })
}

/// Checks that a task has a message to answer. A task with a `user_message` or a kept history, and
/// an interactive task, can begin without one.
fn check_message(
    setup: &Setup,
    task: &TaskName,
    message: Option<&str>,
    is_stored: bool,
) -> Result<(), CliError> {
    let begins = |task: &Arc<TaskSetup>| {
        task.interactive || task.user_message.is_some() || (is_stored && !task.restart)
    };
    if message.is_some() || setup.tasks.get(task).is_some_and(begins) {
        return Ok(());
    }
    Err(CliError::usage(format!("the task {task} needs a message")).hint(format!(
        "pass one: conclave run [CONFIG] \"TEXT\"; or write `user_message` in [tasks.{task}]"
    )))
}

/// Refuses answers for a run whose questions a simulated user answers: no person is asked, and the
/// file would have no effect.
fn check_answers(setup: &Setup, task: &TaskName, answers: Option<&Path>) -> Result<(), CliError> {
    let simulated = setup.tasks.get(task).and_then(|task| task.simulated_user.as_ref());
    let (Some(file), Some(user)) = (answers, simulated) else { return Ok(()) };
    let asks_a_person = |task: &Arc<TaskSetup>| {
        task.simulated_user.is_none() && (task.interactive || task.no_tool == NoTool::User)
    };
    if setup.tasks.values().any(asks_a_person) {
        return Ok(());
    }
    let file = show_path(file);
    Err(CliError::usage(format!(
        "--answers {file} would have no effect: the simulated user {user} answers the questions of {task}"
    ))
    .hint(format!("leave out --answers, or remove `simulated_user` from [tasks.{task}]")))
}

/// Reads a JSON object, or a file with one after `@`.
fn inputs(argument: &str) -> Result<Map<String, Value>, CliError> {
    let (text, from) = match argument.strip_prefix('@') {
        Some(file) => (read(Path::new(file))?, show_path(Path::new(file))),
        None => (argument.to_owned(), "--inputs".to_owned()),
    };
    let wrong = |what: String| {
        CliError::usage(format!("{from} is {what}"))
            .hint(r#"write one: --inputs '{"language": "Gaelic"}', or a file: --inputs @FILE"#)
    };
    match json_object(&text) {
        Ok(Value::Object(inputs)) => Ok(inputs),
        Ok(_) => Err(wrong("not a JSON object".to_owned())),
        Err(why) => Err(wrong(why)),
    }
}

/// Reads the answers of a file: a line each. A line that is a JSON text stands for that text, which
/// may have several rows.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn answers(file: &Path) -> Result<VecDeque<String>, CliError> {
    let answer = |line: &str| {
        let quoted = line.starts_with('"').then(|| serde_json::from_str(line).ok()).flatten();
        quoted.unwrap_or_else(|| line.to_owned())
    };
    Ok(read(file)?.lines().map(answer).collect())
}

fn read(file: &Path) -> Result<String, CliError> {
    let failed = |why: String| CliError::usage(format!("{} {why}", show_path(file)));
    let mut text = String::new();
    let opened = std::fs::File::open(file).and_then(|open| {
        // A folder can be opened, and not be read.
        open.take(FILE_MAX + 1).read_to_string(&mut text)
    });
    match opened {
        Ok(length) if length as u64 > FILE_MAX => {
            Err(failed(format!("is larger than {} MiB", FILE_MAX >> 20)))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(failed(format!("cannot be read: {error}"))),
    }
}

/// The room of a run.
pub(super) struct RunRoom {
    pub(super) id: RoomId,
    /// Where the run is stored.
    pub(super) keep: Keep,
    /// Whether the room is stored already, and is run once more.
    pub(super) is_stored: bool,
}

impl RunRoom {
    /// Returns the room with this name, or a new one with a random name.
    ///
    /// # Errors
    /// If a run in the room is in progress or was interrupted, if the room belongs to another
    /// config, or if its store cannot be read.
    pub(super) fn find(name: Option<&str>, keep: &Keep, config: &Path) -> Result<Self, CliError> {
        let Some(name) = name else {
            return Ok(Self { id: RandomIds.run(), keep: keep.clone(), is_stored: false });
        };
        let keep_store = keep.store.clone();
        let of_room = || room_folder(name).map(StoreAddress::from);
        let store = keep_store.clone().or_else(of_room).ok_or_else(|| {
            CliError::internal("a room with a name needs a store, and no state folder is known")
                .hint("set HOME or CONCLAVE_STATE, or name a store with --store")
        })?;
        let keep = Keep { store: Some(store.clone()), ..keep.clone() };
        let id = RoomId::from(name);
        let is_given = keep_store.is_some();
        let is_stored = match StoreReader::open(&store) {
            Ok(reader) => is_free(&reader, (&id, is_given), config)?,
            Err(StoreError::Missing { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        Ok(Self { id, keep, is_stored })
    }
}

/// Whether the room is stored, and may be run once more.
fn is_free(
    reader: &StoreReader,
    (room, is_given): (&RoomId, bool),
    config: &Path,
) -> Result<bool, CliError> {
    let row = reader.run(room)?;
    let Some(row) = row else { return Ok(false) };
    // As the row of a stored run has it.
    let config = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
    if row.command != "run" || row.config.as_ref() != Some(&config) {
        let of = row.config.as_deref().map_or_else(|| "no config".to_owned(), show_path);
        let what = format!("the room {room} belongs to `conclave {}` of {of}", row.command);
        return Err(
            CliError::usage(what).hint("choose another name, or another store: --store STORE")
        );
    }
    let address = reader.address().to_string();
    let store = if is_given { format!(" --store {}", shell(&address)) } else { String::new() };
    let (what, hint) = match row.state {
        RunState::Ended(_) => return Ok(true),
        RunState::Running | RunState::Queued | RunState::Asleep => {
            ("is in progress", format!("end it: conclave stop {room}{store}"))
        }
        RunState::Interrupted => (
            "was interrupted",
            format!(
                "bring it to its end: conclave resume {room}{store}, or conclave stop {room}{store}"
            ),
        ),
    };
    Err(CliError::usage(format!("the last run in the room {room} {what}")).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_an_object_or_a_file_with_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"{"days": 3}"#).unwrap();
        let at = format!("@{}", file.path().display());
        for argument in [r#"{"days": 3}"#, &at] {
            assert_eq!(inputs(argument).unwrap()["days"], 3);
        }
        for (argument, says) in [
            ("[1]", "is not a JSON object"),
            ("{", "EOF"),
            ("@/nowhere", "/nowhere cannot be read"),
            ("@/", "cannot be read"),
        ] {
            let error = inputs(argument).unwrap_err().to_string();
            assert!(error.contains(says), "{argument}: {error}");
        }
    }

    #[test]
    fn answers_are_lines_or_json_texts() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "yes\n\n\"one\\ntwo\"\n\"unfinished\n").unwrap();
        let all: Vec<String> = answers(file.path()).unwrap().into();
        assert_eq!(all, ["yes", "", "one\ntwo", "\"unfinished"]);
    }
}

//! `conclave wait [RUN]`: waits for the end of a run that another process has in progress, on this
//! machine or on another, and prints its answer as `conclave run` does.

use std::time::{Duration, Instant};

use anstyle::Style;
use conclave_core::inspect::room_row::RoomRowFold;
use conclave_core::types::outcome::Outcome;
use conclave_runtime::steering::pause_reason;
use conclave_runtime::store::RunState;
use serde_json::json;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit::{self, RunIncidents};
use crate::session::ending::{ending, result};
use crate::state::control::blocking;
use crate::state::stored_run::StoredRun;
use crate::ui::interrupt::Interrupts;
use crate::ui::show::run_state::run_state;
use crate::ui::show::{BAD, FAINT, ODD, paint};
use crate::ui::{stderr, stdout};

/// The interval between two looks into the store.
const EVERY: Duration = Duration::from_millis(300);
/// The time for which a store may be out of reach.
const SILENT: Duration = Duration::from_secs(60);

pub(crate) async fn wait(
    args: &args::Wait,
    output: OutputArgs,
    mut interrupts: Interrupts,
) -> Result<u8, CliError> {
    let mut found = StoredRun::resolve(args.run.as_deref(), args.store.as_ref())?;
    let until = args.timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut last_state, mut silent_since) = (None, None);
    interrupts.run_begins();
    loop {
        // On another thread, so that Ctrl-C ends the wait for a database that does not answer.
        let look = blocking(move || {
            let row = found.row();
            let is_asleep = row.as_ref().is_ok_and(|row| row.state == RunState::Asleep);
            let is_paused =
                is_asleep && matches!(pause_reason(&found.reader, &found.run()), Ok(Some(_)));
            Ok((found, row, is_paused))
        });
        let (row, is_paused);
        (found, row, is_paused) = tokio::select! {
            looked = look => looked?,
            () = interrupts.next() => return Ok(exit::INTERRUPTED),
        };
        let row = match row {
            Ok(row) => row,
            // A database comes back, perhaps on another server.
            Err(error) if found.reader.folder().is_none() => {
                let since = *silent_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= SILENT || until.is_some_and(|until| Instant::now() >= until) {
                    return Err(error);
                }
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => continue,
                    () = interrupts.next() => return Ok(exit::INTERRUPTED),
                }
            }
            Err(error) => return Err(error),
        };
        silent_since = None;
        match row.state {
            RunState::Ended(_) => return report(&found, output),
            RunState::Interrupted => {
                let run = &row.run;
                let what = format!("the run {run} was interrupted, and nothing continues it");
                return Err(CliError::usage(what).hint(format!(
                    "`conclave resume {run}` resumes it, `conclave stop {run}` ends it"
                )));
            }
            RunState::Running | RunState::Queued | RunState::Asleep => {}
        }
        if last_state != Some(row.state) && !output.result_only() {
            let (style, word) = run_state(row.state, &row.command);
            let what = match row.state {
                RunState::Queued => " for a worker: `conclave workers` lists them",
                RunState::Asleep if is_paused => ": it is paused (`conclave resume`)",
                RunState::Asleep => {
                    ": it waits for a time or a person (`conclave approvals`, `conclave answer`)"
                }
                _ => "",
            };
            stderr::line(format_args!("{} is {}{what}", row.run, paint(style, word)));
            last_state = Some(row.state);
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            let what = format!("the run {} has not ended within the time", row.run);
            return Err(CliError::internal(what)
                .hint(format!("`conclave show {}` shows how far it is", row.run)));
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = interrupts.next() => return Ok(exit::INTERRUPTED),
        }
    }
}

/// Prints the answer of an ended run, and returns the exit code of its end.
fn report(found: &StoredRun, output: OutputArgs) -> Result<u8, CliError> {
    let run = found.run();
    let mut fold = RoomRowFold::default();
    found.reader.records(&run)?.into_iter().for_each(|record| fold.take(record));
    let Some(outcome) = fold.outcome() else {
        let what = format!("the end of {run} cannot be read");
        return Err(
            CliError::internal(what).hint(format!("`conclave show {run}` shows its records"))
        );
    };
    let code =
        exit::of(outcome.status, RunIncidents { cause: outcome.cause, ..RunIncidents::default() });
    if output.json {
        let line = json!({ "type": "result", "run": run, "exit_code": code, "outcome": outcome });
        return stdout::json(line).map(|()| code);
    }
    print(outcome, output)?;
    if !output.quiet {
        stderr::line(paint(FAINT, format_args!("\n`conclave show {run}` shows its steps")));
    }
    Ok(code)
}

fn print(outcome: &Outcome, output: OutputArgs) -> Result<(), CliError> {
    let style: Style = if outcome.status.is_success() { ODD } else { BAD };
    match result(outcome).filter(|_| outcome.status.is_success()) {
        Some(text) => stdout::line(stdout::safe(&text)),
        None => {
            if !output.quiet || !outcome.status.is_success() {
                stderr::line(ending(style, outcome));
            }
            Ok(())
        }
    }
}

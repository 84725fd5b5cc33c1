//! `conclave resume [RUN]`: resumes interrupted runs. Answered requests are not sent again, and
//! side effects that may have happened are not repeated; the core decides both.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use conclave_runtime::ResumeError;
use conclave_runtime::store::{
    ControlCommand, Durability, RunFilter, RunOrigin, RunRow, RunState, Store, StoreError,
};
use serde_json::json;

use super::run::{Manner, Stage};
use crate::args::{self, OutputArgs};
use crate::commands::batch::results::worst;
use crate::commands::chat;
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control::{paused, say, tell, until};
use crate::state::interrupted_runs::{
    CLIENT, CONVERSATION, close_orphans, give_up_calls, left_in, report_left,
};
use crate::state::journals::RunStorage;
use crate::state::setup;
use crate::state::stores::{OpenStores, unusable};
use crate::ui::interrupt::Interrupts;
use crate::ui::show::{BAD, FAINT, ODD, head, one_line, paint, plural, printable};
use crate::ui::stdout;

/// How long to wait until the process of a paused run has received the resume.
const HEARD: Duration = Duration::from_secs(30);
/// Characters of a run's message that identify it.
const SHOWN: usize = 60;

pub(crate) async fn resume(
    args: &args::Resume,
    output: OutputArgs,
    interrupts: Interrupts,
) -> Result<u8, CliError> {
    args.trace.detail(output)?;
    let stores = OpenStores::of(args.store.as_deref());
    let Some(name) = &args.run else { return all(&stores, args, output, &interrupts).await };
    let found = stores.find(name)?;
    let row = found.row()?;
    if let RunState::Ended(status) = row.standing {
        let what = format!(
            "the run {} has ended ({}): there is nothing to go on with",
            row.run,
            status.as_str()
        );
        return Err(
            CliError::usage(what).hint(format!("conclave show {} says what happened", row.run))
        );
    }
    match Store::open(&row.store) {
        Ok(store) => resume_now(&store, &row, args, output, &interrupts).await,
        Err(StoreError::InUse { .. })
            if row.standing == RunState::Running && paused(&found.reader, &row.run).is_some() =>
        {
            say(&row, ControlCommand::Unpause, HEARD).await?;
            until(HEARD, || paused(&found.reader, &row.run).is_none()).await;
            tell(&row, "unpaused", "goes on in its process", output)?;
            Ok(exit::OK)
        }
        Err(error) => Err(in_use(&error, &row)),
    }
}

/// Resumes the runs of every store that no other process writes, oldest first.
async fn all(
    stores: &OpenStores,
    args: &args::Resume,
    output: OutputArgs,
    interrupts: &Interrupts,
) -> Result<u8, CliError> {
    let mut runs = stores.cut_off();
    runs.reverse();
    let (mut codes, mut done) = (Vec::new(), 0);
    let says = |what: String| {
        if !output.quiet && !output.json {
            let _ = writeln!(crate::ui::output::stderr(), "{}", paint(FAINT, what));
        }
    };
    let mut folders: Vec<PathBuf> = runs.iter().map(|run| run.store.clone()).collect();
    folders.sort();
    folders.dedup();
    for folder in folders {
        let (here, rest) = runs.into_iter().partition::<Vec<RunRow>, _>(|run| run.store == folder);
        runs = rest;
        let store = match Store::open(&folder) {
            Ok(store) => store,
            Err(error) => {
                let _ = writeln!(
                    crate::ui::output::stderr(),
                    "{} {}",
                    paint(ODD, "warning:"),
                    printable(&error.to_string())
                );
                codes.push(exit::FAILED);
                continue;
            }
        };
        give_up_calls(&store);
        for row in here.iter().filter(|row| row.command != CLIENT) {
            if row.command == CONVERSATION {
                says(format!(
                    "{} is a conversation; resume it by itself: conclave resume {}",
                    row.run, row.run
                ));
                continue;
            }
            says(format!("\n{} · “{}”", row.run, one_line(&row.text, SHOWN)));
            let code = match resume_now(&store, row, args, output, interrupts).await {
                Ok(code) => {
                    done += 1;
                    code
                }
                Err(error) => {
                    let _ = writeln!(
                        crate::ui::output::stderr(),
                        "{} {}",
                        paint(BAD, "error:"),
                        printable(&error.to_string())
                    );
                    error.code()
                }
            };
            codes.push(code);
            if code == exit::INTERRUPTED {
                if !output.quiet && !output.json {
                    report_left(&left_in(stores));
                }
                return Ok(code);
            }
        }
        close_all_orphans(&store);
    }
    if codes.is_empty() {
        says("no run was interrupted".to_owned());
    } else {
        let failed = codes.len() - done;
        let not = if failed == 0 { String::new() } else { format!(", {failed} not: see above") };
        says(format!("\n{} resumed{not}", plural(done as u64, "run", "runs")));
    }
    Ok(worst_of(codes))
}

/// Returns the worst code. A run that failed to resume counts as much as one without an answer.
fn worst_of(codes: Vec<u8>) -> u8 {
    let is_usage = codes.contains(&exit::USAGE);
    match worst(codes) {
        exit::OK | exit::FAILED if is_usage => exit::USAGE,
        worst => worst,
    }
}

async fn resume_now(
    store: &Store,
    row: &RunRow,
    args: &args::Resume,
    output: OutputArgs,
    interrupts: &Interrupts,
) -> Result<u8, CliError> {
    let loading = Instant::now();
    let file = config_of(row, args.config.as_deref())?;
    let (models, locked) = (args.model.models()?, row.locked || args.locked.locked);
    let about =
        RunOrigin { config: std::path::absolute(&file).ok(), command: row.command.clone(), locked };
    let kept = RunStorage::in_store(
        store.clone(),
        Durability::of_word(&row.durability).unwrap_or_default(),
        about,
    );
    let host = Arc::new(setup::open_host_keeping(&file, &kept)?);
    let prepared = setup::prepare_with(&host, &file, &models, locked, output).await?;
    if row.command == CONVERSATION {
        let setting = chat::InterruptedChat {
            room: row.run.clone(),
            file,
            trace: args.trace,
            verbose: args.verbose,
        };
        return chat::resume(
            setting,
            &host,
            prepared.for_chat(),
            &kept,
            output,
            interrupts.clone(),
        )
        .await;
    }
    let manner =
        Manner { output, trace: args.trace, verbose: args.verbose, approvals: args.approvals };
    let stage = Stage::new(&prepared, &file, &kept, manner, interrupts)?;
    let mut session = prepared
        .reopen(&row.run, stage.options(&kept))
        .await
        .map_err(|error| unresumable(&error))?;
    if session.paused().is_some() && args.run.is_none() {
        // A pause is deliberate, so `--all` does not resume it.
        let what = format!("{} is paused: conclave resume {} goes on with it", row.run, row.run);
        return if output.json {
            stdout::json(json!({ "type": "left", "run": row.run, "what": what })).map(|()| exit::OK)
        } else {
            let _ = writeln!(crate::ui::output::stderr(), "{}", paint(FAINT, what));
            Ok(exit::OK)
        };
    }
    if !session.is_cut_off() {
        return Err(CliError::usage(format!(
            "the run {} was never begun, or has ended: there is nothing to go on with",
            row.run
        )));
    }
    if output.json {
        stdout::json(json!({ "type": "resumed", "run": row.run }))?;
    } else if !output.quiet {
        head::print(&prepared, Some(&row.run), loading.elapsed());
    }
    stage.legend();
    let began = Instant::now();
    interrupts.run_begins();
    let attending = stage.attend_resumed(store, &host).await;
    let handle = session.handle();
    if session.paused().is_some() {
        // An explicit resume also lifts a pause.
        handle.unpause();
    }
    let outcome = stage.follow(handle, session.resume(), (&row.run, &kept)).await;
    drop(attending);
    let outcome = outcome?;
    drop(session);
    close_orphans(store, &row.run);
    stage.end(&outcome, began, None)
}

/// Returns the config that the run was started with, unless another is named.
pub(crate) fn config_of(row: &RunRow, given: Option<&Path>) -> Result<PathBuf, CliError> {
    let file = given.map(Path::to_owned).or_else(|| row.config.clone());
    let elsewhere = format!("conclave resume {} --config FILE", row.run);
    let Some(file) = file else {
        return Err(CliError::usage(format!(
            "it is not known with which config {} was started",
            row.run
        ))
        .hint(elsewhere));
    };
    if !file.is_file() {
        let what = format!("the config of {} is not there any more: {}", row.run, file.display());
        return Err(CliError::usage(what).hint(format!("if it has moved: {elsewhere}")));
    }
    Ok(file)
}

fn in_use(error: &StoreError, row: &RunRow) -> CliError {
    match error {
        StoreError::InUse { .. } if row.standing == RunState::Running => {
            CliError::usage(format!("the run {} goes on in another process", row.run))
                .hint(format!("conclave stop {} ends it", row.run))
        }
        error => unusable(error),
    }
}

pub(crate) fn unresumable(error: &ResumeError) -> CliError {
    match error {
        ResumeError::Unknown { .. } => CliError::usage(error.to_string()),
        ResumeError::Changed { .. } => CliError::plugin(error.to_string()),
        ResumeError::Journal(_) => CliError::internal(error.to_string()),
    }
}

/// Closes the interrupted child rooms of runs that are over.
fn close_all_orphans(store: &Store) {
    let Ok(reader) = conclave_runtime::store::StoreReader::open(store.folder()) else { return };
    let runs = reader.runs(&RunFilter::default()).unwrap_or_default();
    let over =
        runs.iter().filter(|run| run.rooms > 1 && matches!(run.standing, RunState::Ended(_)));
    over.for_each(|run| close_orphans(store, &run.run));
}

//! `conclave resume [RUN]`: resumes interrupted runs. Answered requests are not sent again, and
//! side effects that may have happened are not repeated; the core decides both.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use conclave_core::setup::Setup;
use conclave_core::types::ids::{PluginName, RoomId};
use conclave_runtime::steering::{self, Unpaused, pause_reason};
use conclave_runtime::store::{
    ControlCommand, ControlMessage, Durability, RunFilter, RunOrigin, RunRow, RunState, Store,
    StoreAddress, StoreError, StoreReader,
};
use conclave_runtime::{Host, Prepared, RunOptions};
use serde_json::json;

use crate::args::{self, OutputArgs, choice_of};
use crate::commands::chat;
use crate::program::error::CliError;
use crate::program::exit::{self, worst};
use crate::session::context::{RunContext, RunStyle};
use crate::state::control::{blocking, report};
use crate::state::interrupted_runs::{
    CLIENT, CONVERSATION, close_orphans, give_up_calls, interrupted_in, report_interrupted,
};
use crate::state::journals::RunStorage;
use crate::state::setup::{self, EngineStart};
use crate::state::stored_run::{StoredRun, has_ended};
use crate::state::stores::{OpenStores, open};
use crate::ui::interrupt::Interrupts;
use crate::ui::show::component::changed_lines;
use crate::ui::show::run_state::{CLOSED, SERVED, continued_by};
use crate::ui::show::{ODD, head, one_line, plural, printable, show_path};
use crate::ui::{stderr, stdout};

/// The command, as other hosts read it.
const RESUME: &str = "resume";
/// How long to wait until the process of a paused run has received the resume.
const RECEIVED: Duration = Duration::from_secs(30);
/// The interval between two looks at the lease of a host.
#[cfg(feature = "postgres")]
const LEASE_LOOK: Duration = Duration::from_millis(500);
/// Characters of a run's message that identify it.
const SHOWN: usize = 60;
/// Characters of the reason why an observer was stopped.
const REASON: usize = 300;

pub(crate) async fn resume(
    args: &args::Resume,
    output: OutputArgs,
    interrupts: Interrupts,
) -> Result<u8, CliError> {
    args.trace.detail(output)?;
    let stores = OpenStores::of(args.store.as_ref())?;
    let Some(name) = &args.run else { return all(&stores, args, output, &interrupts).await };
    let found = stores.find(name)?;
    let row = found.row()?;
    // Before the end is an error: an ended run may still owe events to its observers.
    let observers = observers_of(&found.reader, &row.run);
    if matches!(row.state, RunState::Ended(_)) && !observers.is_empty() {
        return deliver_missed(&row, &observers, args, output).await;
    }
    if let RunState::Ended(status) = row.state {
        return Err(has_ended(&row.run, status, "it cannot be resumed"));
    }
    if row.command == SERVED && row.state == RunState::Interrupted {
        let what = format!("{} is a conversation of browsers, which is {CLOSED}", row.run);
        return Err(
            CliError::usage(what).hint(format!("its server continues it: {}", continued_by(&row)))
        );
    }
    if row.store.folder().is_none() && is_paused(&found, &row)? {
        return unpause(found, &row, output).await;
    }
    #[cfg(feature = "postgres")]
    let found = outlast_host(found, output).await?;
    // Opening takes the lock of a folder, so success means that no process has the run in progress.
    // In a database, the run itself is taken when its room is reopened.
    match open(&row.store, RESUME) {
        Ok(store) => {
            let code = resume_now(&store, &row, &observers, args, output, &interrupts).await?;
            Ok(code.unwrap_or(exit::OK))
        }
        Err(StoreError::InUse { .. }) if is_paused(&found, &row)? => {
            unpause(found, &row, output).await
        }
        Err(error) => Err(in_use(error, &row)),
    }
}

/// Whether a run is paused that a process or its next worker would bring forward.
fn is_paused(found: &StoredRun, row: &RunRow) -> Result<bool, StoreError> {
    Ok(row.state.goes_on() && pause_reason(&found.reader, &row.run)?.is_some())
}

/// Lifts the pause of a run in another process, or of one that waits for a worker.
async fn unpause(found: StoredRun, row: &RunRow, output: OutputArgs) -> Result<u8, CliError> {
    let message = ControlMessage::new(row.run.clone(), ControlCommand::Unpause);
    let unpaused =
        blocking(move || Ok(steering::unpause(&found.reader, &message, RECEIVED)?)).await?;
    let what = match unpaused {
        Unpaused::WithoutHost => "is paused no more; it continues when a worker takes it",
        Unpaused::Before | Unpaused::InProcess => "continues in its process",
    };
    report(row, "resumed", what, output)?;
    Ok(exit::OK)
}

/// Waits until the lease of the host that has a run is over, so that the run can be taken here.
///
/// # Errors
/// If the host gives a sign of life, so that the run continues there.
#[cfg(feature = "postgres")]
async fn outlast_host(mut found: StoredRun, output: OutputArgs) -> Result<StoredRun, CliError> {
    let mut silent_ms = None;
    loop {
        let looked = blocking(move || {
            let host = found.reader.host_of(&found.run())?;
            Ok((found, host))
        });
        let host;
        (found, host) = looked.await?;
        let run = found.run();
        let Some(host) = host.filter(|host| host.is_live) else { return Ok(found) };
        let (name, silent) = (printable(&host.host), host.silent_ms);
        match silent_ms {
            Some(before) if silent < before => {
                let what = format!("the run {run} is in progress at {name}, which is there");
                return Err(CliError::usage(what).hint(format!(
                    "`conclave show {run}` shows how far it is, `conclave stop {run}` stops it"
                )));
            }
            None if !output.result_only() => {
                let ends = host.lease_ends_in_ms().div_ceil(1_000);
                stderr::note(format!(
                    "{name} has {run} and was heard of {} s ago; if it is lost, its lease ends in {ends} s: waiting",
                    silent / 1_000
                ));
            }
            _ => {}
        }
        silent_ms = Some(silent);
        tokio::time::sleep(LEASE_LOOK).await;
    }
}

/// Resumes the runs of every store that no other process writes, oldest first.
async fn all(
    stores: &OpenStores,
    args: &args::Resume,
    output: OutputArgs,
    interrupts: &Interrupts,
) -> Result<u8, CliError> {
    // The interrupted runs of those are unknown.
    let unreadable = stores.report_unreadable()?;
    let mut runs = stores.interrupted();
    runs.reverse();
    let (mut codes, mut counts) = (Vec::new(), ResumeCounts::default());
    let says = |what: String| {
        if !output.result_only() {
            stderr::note(what);
        }
    };
    let mut addresses: Vec<StoreAddress> = runs.iter().map(|run| run.store.clone()).collect();
    addresses.sort();
    addresses.dedup();
    for address in addresses {
        let (here, rest) = runs.into_iter().partition::<Vec<RunRow>, _>(|run| run.store == address);
        runs = rest;
        // Each store is opened once for all of its runs.
        let store = match open(&address, RESUME) {
            Ok(store) => store,
            Err(error) => {
                stderr::warning(printable(&error.to_string()));
                // A broken store must not keep the runs of the others from their end.
                codes.push(exit::FAILED);
                continue;
            }
        };
        give_up_calls(&store);
        // The calls of clients were just ended: nobody waits for their answers.
        for row in here.iter().filter(|row| row.command != CLIENT) {
            if row.command == CONVERSATION {
                counts.conversations += 1;
                says(format!(
                    "{} is a conversation; resume it on its own: conclave resume {}",
                    row.run, row.run
                ));
                continue;
            }
            says(format!("\n{} · “{}”", row.run, one_line(&row.message, SHOWN)));
            let observers =
                stores.find(row.run.as_str()).map(|found| observers_of(&found.reader, &row.run));
            let observers = observers.unwrap_or_default();
            let code = match resume_now(&store, row, &observers, args, output, interrupts).await {
                Ok(Some(code)) => {
                    counts.resumed += 1;
                    code
                }
                Ok(None) => {
                    counts.paused += 1;
                    continue;
                }
                Err(error) => {
                    stderr::error(&error);
                    error.code()
                }
            };
            codes.push(code);
            // Ctrl-C is meant for the whole command, not only for the run in progress.
            if code == exit::INTERRUPTED {
                if !output.result_only() {
                    report_interrupted(&interrupted_in(stores));
                }
                return Ok(code);
            }
        }
        close_all_orphans(&store);
    }
    counts.failed = codes.len() - counts.resumed;
    says(counts.summary(unreadable));
    if unreadable > 0 {
        codes.push(exit::FAILED);
    }
    Ok(worst_of(codes))
}

/// What became of the interrupted runs.
#[derive(Clone, Copy, Debug, Default)]
struct ResumeCounts {
    resumed: usize,
    failed: usize,
    /// Runs that stay paused.
    paused: usize,
    /// Conversations, each of which is resumed on its own.
    conversations: usize,
}

impl ResumeCounts {
    fn summary(self, unreadable: usize) -> String {
        let runs = |count: usize| plural(count as u64, "run", "runs");
        let part = |count: usize, text: String| (count > 0).then_some(text);
        let skipped = plural(self.conversations as u64, "conversation was", "conversations were");
        let parts = [
            part(self.resumed + self.failed, format!("{} resumed", runs(self.resumed))),
            part(self.failed, format!("{} failed to resume (see above)", self.failed)),
            part(self.paused, format!("{} paused and skipped", self.paused)),
            part(self.conversations, format!("{skipped} skipped")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let stores = plural(unreadable as u64, "store", "stores");
        match (parts.as_slice(), unreadable) {
            ([], 0) => "no run was interrupted".to_owned(),
            ([], _) => {
                format!("no interrupted run was found, and {stores} cannot be read (see above)")
            }
            (parts, 0) => format!("\n{}", parts.join(", ")),
            (parts, _) => {
                format!("\n{}, and {stores} cannot be read (see above)", parts.join(", "))
            }
        }
    }
}

/// The worst code. A run that failed to resume counts as much as one without an answer.
fn worst_of(codes: Vec<u8>) -> u8 {
    let is_usage = codes.contains(&exit::USAGE);
    match worst(codes) {
        exit::OK | exit::FAILED if is_usage => exit::USAGE,
        worst => worst,
    }
}

/// Resumes a run, and returns the exit code of its end. `None` if it is paused and was skipped.
async fn resume_now(
    store: &Store,
    row: &RunRow,
    observers: &BTreeSet<PluginName>,
    args: &args::Resume,
    output: OutputArgs,
    interrupts: &Interrupts,
) -> Result<Option<u8>, CliError> {
    let loading = Instant::now();
    let reopened = ReopenedRun::open(store.clone(), row, observers, args, output).await?;
    let ReopenedRun { file, storage, host, prepared } = reopened;
    if row.command == CONVERSATION {
        let setting = chat::InterruptedChat {
            room: row.run.clone(),
            file,
            trace: args.trace,
            verbose: args.verbose,
        };
        let resumed =
            chat::resume(setting, &host, prepared.for_chat(), &storage, output, interrupts.clone());
        return resumed.await.map(Some);
    }
    // A forgotten flag must not refuse the calls that wait, nor ask elsewhere.
    let approvals = args.approvals.or(choice_of(&row.approvals)).unwrap_or_default();
    let questions = args.questions.or(choice_of(&row.questions)).unwrap_or_default();
    let style = RunStyle { output, trace: args.trace, verbose: args.verbose, approvals, questions };
    let context = RunContext::new(&prepared, &file, &storage, style, interrupts)?
        .resuming(&row.run, &storage);
    let mut session = prepared.reopen(&row.run, context.options(&storage)).await?;
    if session.paused().is_some() && args.run.is_none() {
        // A pause is deliberate, so `--all` does not resume it.
        let what = format!(
            "{} is paused, so it was skipped; `conclave resume {}` resumes it",
            row.run, row.run
        );
        return if output.json {
            stdout::json(json!({ "type": "skipped", "run": row.run, "message": what }))
                .map(|()| None)
        } else {
            stderr::note(what);
            Ok(None)
        };
    }
    if !session.is_cut_off() {
        return Err(CliError::usage(format!(
            "the run {} never started or has ended, so it cannot be resumed",
            row.run
        )));
    }
    if output.json {
        stdout::json(json!({ "type": "resumed", "run": row.run }))?;
    } else if !output.quiet {
        let rights = (&prepared, session.effective_setup().as_ref());
        head::print_effective(rights, Some(&row.run), loading.elapsed());
        for line in changed_lines(session.changed_components()) {
            stderr::line(line);
        }
    }
    context.legend();
    let began = Instant::now();
    interrupts.run_begins();
    let handle = session.handle();
    if session.paused().is_some() {
        // An explicit resume also lifts a pause.
        handle.unpause();
    }
    let outcome = context.follow(handle, session.resume(), (&row.run, &storage, &host)).await?;
    drop(session);
    close_orphans(store, &row.run);
    context.conclude(&outcome, began, (&row.run, &storage, &host)).await.map(Some)
}

/// A stored run with the host of its config.
struct ReopenedRun {
    /// The config.
    file: PathBuf,
    storage: RunStorage,
    host: Arc<Host>,
    prepared: Prepared,
}

impl ReopenedRun {
    /// Opens the host, and reports the observers that the config does not name any more.
    async fn open(
        store: Store,
        row: &RunRow,
        observers: &BTreeSet<PluginName>,
        args: &args::Resume,
        output: OutputArgs,
    ) -> Result<Self, CliError> {
        let file = config_of(row, args.config.as_deref())?;
        // A run that was begun with --locked stays so.
        let (models, locked) = (args.model.models()?, row.locked || args.locked.locked);
        let origin = origin_of(row, &file, locked);
        let config = setup::read_config(&file, &models)?;
        let engine = EngineStart::begin();
        let durability = Durability::of_word(&row.durability).unwrap_or_default();
        let storage = RunStorage::in_store(store, durability, origin);
        let host = Arc::new(setup::open_host_keeping(&file, &storage, engine)?);
        let prepared = setup::prepare_with(&host, (&file, &config), locked, output).await?;
        report_unnamed(observers, prepared.setup(), &row.run, output)?;
        Ok(Self { file, storage, host, prepared })
    }
}

/// The origin of a run that is resumed with this config.
fn origin_of(row: &RunRow, file: &Path, locked: bool) -> RunOrigin {
    RunOrigin {
        config: std::path::absolute(file).ok(),
        command: row.command.clone(),
        locked,
        approvals: row.approvals.clone(),
        questions: row.questions.clone(),
        pool: None,
    }
}

/// The observers that the configs of a run named.
fn observers_of(reader: &StoreReader, run: &RoomId) -> BTreeSet<PluginName> {
    let records = reader.records(run).unwrap_or_default();
    let setups = records.iter().filter_map(|record| record.event.setup());
    setups.flat_map(|setup| &setup.observers).map(|rule| rule.plugin.clone()).collect()
}

/// Reports each observer of a run that its config does not name any more.
fn report_unnamed(
    observers: &BTreeSet<PluginName>,
    setup: &Setup,
    run: &RoomId,
    output: OutputArgs,
) -> Result<(), CliError> {
    let is_named = |name: &PluginName| setup.observers.iter().any(|rule| rule.plugin == *name);
    for observer in observers.iter().filter(|name| !is_named(name)) {
        if output.json {
            stdout::json(json!({ "type": "observer-unnamed", "room": run, "observer": observer }))?;
        } else {
            let line = format!(
                "observer {observer} of {run} is not in the config any more; the events that it did \
                 not take stay in the journal until [[observers]] names it again"
            );
            stderr::styled(ODD, line);
        }
    }
    Ok(())
}

/// Delivers the events of an ended run that its observers did not take.
async fn deliver_missed(
    row: &RunRow,
    observers: &BTreeSet<PluginName>,
    args: &args::Resume,
    output: OutputArgs,
) -> Result<u8, CliError> {
    let store = open(&row.store, RESUME).map_err(|error| in_use(error, row))?;
    let reopened = ReopenedRun::open(store, row, observers, args, output).await?;
    let options = RunOptions { journals: reopened.storage.journals(), ..RunOptions::default() };
    let reports = reopened.prepared.deliver_missed(&row.run, options).await;
    let mut code = exit::OK;
    for report in &reports {
        if report.stopped.is_some() {
            code = exit::FAILED;
        }
        if output.json {
            stdout::json(json!({
                "type": "observer-delivery", "room": row.run, "observer": report.observer,
                "delivered": report.delivered, "reason": report.stopped,
            }))?;
        } else if !output.quiet || report.stopped.is_some() {
            let count = plural(report.delivered, "event", "events");
            let rest = report.stopped.as_ref().map_or_else(String::new, |reason| {
                format!("; others are left: {}", one_line(reason, REASON))
            });
            let line = format!("observer {} took {count} of {}{rest}", report.observer, row.run);
            stderr::note(line);
        }
    }
    if reports.is_empty() {
        let what = format!("the config of {} has no observers any more", row.run);
        return Err(CliError::usage(what)
            .hint("the events stay in the journal; name the observer in the config again"));
    }
    Ok(code)
}

/// Returns the config that the run was started with, unless another is named.
pub(crate) fn config_of(row: &RunRow, named_config: Option<&Path>) -> Result<PathBuf, CliError> {
    let file = named_config.map(Path::to_owned).or_else(|| row.config.clone());
    let command = format!("conclave resume {} --config FILE", row.run);
    let Some(file) = file else {
        return Err(CliError::usage(format!(
            "the config with which {} was started is unknown",
            row.run
        ))
        .hint(format!("name it: {command}")));
    };
    if !file.is_file() {
        let what = format!("the config of {} no longer exists: {}", row.run, show_path(file));
        return Err(CliError::usage(what).hint(format!("if it was moved: {command}")));
    }
    Ok(file)
}

fn in_use(error: StoreError, row: &RunRow) -> CliError {
    match error {
        StoreError::InUse { .. } if row.state == RunState::Running && row.command == SERVED => {
            CliError::usage(format!("{} is open in its server", row.run))
                .hint("it goes on there: write to it in the browser, or with `conclave tell`")
        }
        StoreError::InUse { .. } if row.state == RunState::Running => {
            CliError::usage(format!("the run {} is running in another process", row.run))
                .hint(format!("`conclave stop {}` stops it", row.run))
        }
        error => error.into(),
    }
}

/// Closes the interrupted child rooms of runs that are over.
fn close_all_orphans(store: &Store) {
    let Ok(reader) = StoreReader::open(store.address()) else { return };
    let runs = reader.runs(&RunFilter::default()).unwrap_or_default();
    let over = runs.iter().filter(|run| run.rooms > 1 && matches!(run.state, RunState::Ended(_)));
    over.for_each(|run| close_orphans(store, &run.run));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_skipped_was_not_resumed() {
        let counts = ResumeCounts::default();
        assert_eq!(counts.summary(0), "no run was interrupted");
        let paused = ResumeCounts { paused: 1, ..counts };
        assert_eq!(paused.summary(0), "\n1 paused and skipped");
        let all = ResumeCounts { resumed: 2, failed: 1, conversations: 3, ..counts };
        assert_eq!(
            all.summary(1),
            "\n2 runs resumed, 1 failed to resume (see above), 3 conversations were skipped, and 1 store cannot be read (see above)"
        );
    }
}

//! `conclave batch FILE`: runs the entry task on every line of a file. Results go to stdout in the
//! order of the lines, everything else to stderr.

mod input;
mod progress;
pub(crate) mod results;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use conclave_core::types::ids::{ChannelId, RoomId, TaskName};
use conclave_runtime::batch::{Batch, OnError, room_of, run_all, verdict};
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::ids::{Ids, RandomIds};
use conclave_runtime::journal::Journals;
use conclave_runtime::subscribe::{Subscriber, Subscribers};
use conclave_runtime::{Prepared, RoomHandle, RunOptions};

use crate::approve::{PendingLine, RequestContext, TerminalApprover};
use crate::args::{self, Approvals, Detail, OutputArgs};
use crate::commands::batch::input::BatchInput;
use crate::commands::batch::progress::BatchCounter;
use crate::commands::batch::results::{ResultRow, Results, Staged, label, put};
use crate::program::error::CliError;
use crate::program::exit::{self, RunIncidents, worst};
use crate::session::ending::interactive_help;
use crate::state::control_inbox::ControlListener;
use crate::state::interrupted_runs;
use crate::state::journals::{RunCommand, RunStorage};
use crate::state::observers;
use crate::state::setup::{self, EngineStart};
use crate::state::store_address::with_named_store;
use crate::state::telemetry;
use crate::ui::interrupt::Interrupts;
use crate::ui::screen::{Screen, Verbosity, total_columns};
use crate::ui::show::columns::width;
use crate::ui::show::steps::Steps;
use crate::ui::show::tally::RunTally;
use crate::ui::show::trace::TracePrinter;
use crate::ui::show::usage;
use crate::ui::show::{FAINT, foreign, head, paint, plural, show_path, time};
use crate::ui::terminal::is_terminal;
use crate::ui::user::TerminalUser;
use crate::ui::{stderr, stdout};

pub(crate) async fn batch(
    args: args::BatchArgs,
    output: OutputArgs,
    mut interrupts: Interrupts,
) -> Result<u8, CliError> {
    let loading = Instant::now();
    let detail = args.trace.detail(output)?;
    let inputs = Arc::new(input::read(&args.file)?);
    check_output(&args)?;
    let (models, locked) = (args.model.models()?, args.locked.locked);
    let engine = EngineStart::begin();
    let config = setup::read_config(&args.config, &models)?;
    let keep = with_named_store(&args.keep, &config)?;
    let interrupted =
        interrupted_runs::interrupted_with(keep.store.as_ref(), ("batch", &args.config), output);
    let storage = RunStorage::open(
        &keep,
        RunCommand::bulk("batch", &args.config, &config, locked).with_approvals(args.approvals),
    )?;
    let host = Arc::new(setup::open_host_keeping(&args.config, &storage, engine)?);
    let prepared = setup::prepare_with(&host, (&args.config, &config), locked, output).await?;
    check_entry(&prepared, &args.config)?;
    let screen = Screen::of_batch(if output.quiet { Verbosity::Quiet } else { Verbosity::Normal });
    // After all that can refuse the batch: it empties the file of an earlier one.
    let mut results = Results::new(
        Arc::clone(&inputs),
        Arc::clone(&screen),
        args.output.as_deref(),
        output.json,
    )?;
    let room = RandomIds.run();
    interrupted_runs::report_interrupted(&interrupted);
    if !output.result_only() {
        head::print(&prepared, Some(&room), loading.elapsed());
    }
    let attending = storage.store().map(|store| ControlListener::begin(store, &host, &screen));
    let tracing = detail.map(|detail| BatchTrace::of(detail, &inputs));
    if let Some(tracing) = &tracing {
        tracing.steps(&screen, &prepared, "item").legend();
    }
    let runner = BatchRunner::new(
        &args,
        prepared,
        &storage,
        &screen,
        &interrupts,
        (room, results.staged(), tracing),
    );
    let progress = BatchCounter::begin(Arc::clone(&screen), inputs.len());
    let options = batch_options(&args);
    interrupts.run_begins();
    let mut unwritten = None;
    let ended = {
        let jobs = (0..inputs.len()).map(|index| {
            let (runner, input) = (Arc::clone(&runner), inputs.get(index).cloned());
            move || async move {
                match input {
                    Some(input) => runner.run(index, &input).await,
                    None => Ok(None),
                }
            }
        });
        let on_progress = |ended: &conclave_runtime::batch::BatchProgress<'_, (), ()>| {
            progress.set(ended.completed, ended.failed);
            if let Err(error) = results.take(ended.index) {
                runner.stop("the results could not be written");
                unwritten.get_or_insert(error);
            }
        };
        let mut running = std::pin::pin!(run_all(jobs.collect(), &options, on_progress));
        let mut redraw = std::pin::pin!(progress.keep_shown());
        let mut is_unread = false;
        loop {
            tokio::select! {
                ended = &mut running => break ended,
                () = interrupts.next() => runner.stop("Ctrl-C"),
                // The end of the reader lasts, so without the guard this branch would spin.
                () = stdout::is_gone(), if !is_unread => {
                    is_unread = true;
                    runner.stop("stdout was closed");
                }
                () = &mut redraw => {}
            }
        }
    };
    drop(attending);
    screen.clear_status();
    runner.user.leave();
    results.write_rest(&runner.why_cancelled(ended.ended_by, &results))?;
    if let Some(error) = unwritten {
        return Err(error);
    }
    let code = runner.code(&options, ended.ended_by, &results);
    runner.approver.report_missing();
    if !output.quiet {
        let summary = runner.summary(&args, &progress, &results);
        stderr::line(format_args!("\n{}", paint(FAINT, summary)));
    }
    observers::drain(&host, storage.store().is_some(), output, &interrupts).await.map(|()| code)
}

/// The rules by which runs of the batch begin and stop.
fn batch_options(args: &args::BatchArgs) -> Batch {
    Batch {
        concurrency: usize::from(args.concurrency),
        on_error: args.on_error.into(),
        stop_on_first: args.stop_on_first,
        ..Batch::default()
    }
}

/// Checks that the results do not overwrite the inputs.
fn check_output(args: &args::BatchArgs) -> Result<(), CliError> {
    let canonicalize = |path: &Path| path.canonicalize().ok();
    let Some(output) = &args.output else { return Ok(()) };
    if canonicalize(output).is_some()
        && [&args.file, &args.config].iter().any(|file| canonicalize(file) == canonicalize(output))
    {
        return Err(CliError::usage(format!("--output would overwrite {}", show_path(output)))
            .hint("name another file with --output"));
    }
    Ok(())
}

/// Checks that the entry task asks no user: with many runs, an answer could not be matched to one
/// of them.
fn check_entry(prepared: &Prepared, file: &Path) -> Result<(), CliError> {
    let setup = prepared.setup();
    let entry = &setup.entry;
    if !setup.tasks.get(entry).is_some_and(|task| task.interactive) {
        return Ok(());
    }
    let what = format!("the task {entry} asks its user after each answer, and a batch has no user");
    Err(CliError::usage(what).hint(interactive_help(entry, file)))
}

/// The state that the runs of a batch share: how they are started, and how all of them are stopped.
struct BatchRunner {
    prepared: Prepared,
    room: RoomId,
    turns: Option<u32>,
    journals: Arc<dyn Journals>,
    has_journal: bool,
    approvals: Approvals,
    screen: Arc<Screen>,
    user: Arc<TerminalUser>,
    approver: Arc<TerminalApprover>,
    tally: Arc<RunTally>,
    staged: Staged,
    tracing: Option<BatchTrace>,
    is_stopping: AtomicBool,
    /// The reason why all runs were stopped, if they were.
    stopped_for: Mutex<Option<String>>,
    /// The handles of the runs in progress.
    handles: Mutex<BTreeMap<usize, RoomHandle>>,
}

impl BatchRunner {
    fn new(
        args: &args::BatchArgs,
        prepared: Prepared,
        storage: &RunStorage,
        screen: &Arc<Screen>,
        interrupts: &Interrupts,
        (room, staged, tracing): (RoomId, Staged, Option<BatchTrace>),
    ) -> Arc<Self> {
        let user = TerminalUser::new(Arc::clone(screen), None, None);
        let about = RequestContext::new(&prepared, &args.config);
        Arc::new(Self {
            prepared,
            room,
            turns: args.turns,
            journals: storage.journals(),
            has_journal: storage.is_kept(),
            approvals: args.approvals,
            screen: Arc::clone(screen),
            approver: TerminalApprover::new(
                Arc::clone(&user),
                interrupts.clone(),
                about,
                args.approvals,
            ),
            user,
            tally: Arc::new(RunTally::default()),
            staged,
            tracing,
            is_stopping: AtomicBool::new(false),
            stopped_for: Mutex::default(),
            handles: Mutex::default(),
        })
    }

    fn handles(&self) -> MutexGuard<'_, BTreeMap<usize, RoomHandle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the runs in progress and starts no others.
    fn stop(&self, reason: &str) {
        // The first reason is the cause; later ones follow from it.
        self.stopped_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(|| reason.to_owned());
        // Set before the handles are looked at: a run that begins meanwhile finds it set.
        self.is_stopping.store(true, Ordering::SeqCst);
        self.handles().values().for_each(|handle| handle.stop(reason));
    }

    /// Runs the config on one input, and stores the result.
    async fn run(&self, index: usize, input: &BatchInput) -> Result<Option<()>, ()> {
        if self.is_stopping.load(Ordering::SeqCst) {
            return Ok(None);
        }
        let tally = Arc::new(RunTally::default());
        let mut session = match self.prepared.session(self.options(
            index,
            label(index, input.id.as_ref()),
            &tally,
        )) {
            Ok(session) => session,
            Err(failure) => return self.failed(index, input, failure.to_string()),
        };
        let handle = session.handle();
        let running = session.run(input.ask(self.turns));
        self.handles().insert(index, handle.clone());
        // A stop after the check above found no handle of this run.
        if self.is_stopping.load(Ordering::SeqCst) {
            handle.stop("the batch was stopped");
        }
        let ended = running.await;
        self.handles().remove(&index);
        match ended {
            Ok(outcome) => {
                let code = exit::of(
                    outcome.status,
                    RunIncidents {
                        trouble: tally.trouble(),
                        // The approver is shared by all runs and cannot tell whom it refused, so
                        // `code` counts it once for the whole batch.
                        nobody_to_ask: false,
                        cause: outcome.cause,
                    },
                );
                put(&self.staged, ResultRow::ended(index, input, &outcome, code));
                verdict(outcome).map(|result| result.map(drop)).map_err(drop)
            }
            Err(failure) => self.failed(index, input, failure.to_string()),
        }
    }

    fn failed(&self, index: usize, input: &BatchInput, why: String) -> Result<Option<()>, ()> {
        put(&self.staged, ResultRow::failed(index, input, why));
        Err(())
    }

    fn options(&self, index: usize, label: String, tally: &Arc<RunTally>) -> RunOptions {
        let mut subscribers: Vec<Arc<dyn Subscriber>> =
            // The first knows the failure of this run alone, the second sums up the batch.
            vec![Arc::clone(tally) as _, Arc::clone(&self.tally) as _];
        if let Some(tracing) = &self.tracing {
            let trace =
                TracePrinter::of_run(Arc::clone(&self.screen), false, self.prepared.setup())
                    .with_addresses(self.has_journal);
            subscribers.push(Arc::new(trace.with_steps(Some(tracing.steps(
                &self.screen,
                &self.prepared,
                &label,
            )))));
        }
        if self.approvals == Approvals::Wait {
            subscribers
                .push(Arc::new(PendingLine { screen: Arc::clone(&self.screen), is_run: false }));
        }
        telemetry::add(&mut subscribers);
        RunOptions {
            ids: Arc::new(room_of(&self.room, index)),
            channels: Arc::new(BatchChannel { screen: Arc::clone(&self.screen), label }),
            approver: Arc::clone(&self.approver) as _,
            journals: Arc::clone(&self.journals),
            subscribers: Subscribers::new(subscribers),
            ..RunOptions::default()
        }
    }

    /// The exit code.
    fn code(&self, policy: &Batch, ended_by: Option<usize>, results: &Results) -> u8 {
        let refused =
            if self.approver.has_refused_without_user() { exit::POLICY } else { exit::OK };
        let first = ended_by.and_then(|first| results.rows().find(|row| row.index == first));
        match policy.on_error {
            // A reader that leaves early, such as `head`, is no failure.
            _ if stdout::has_gone() => exit::OK,
            _ if self.is_stopping.load(Ordering::SeqCst) => exit::INTERRUPTED,
            // The one requested result has arrived.
            _ if policy.stop_on_first && first.is_some_and(|row| row.code == exit::OK) => refused,
            OnError::Null => refused,
            OnError::Stop | OnError::Report => {
                worst(results.rows().map(|row| row.code).chain([refused]))
            }
        }
    }

    /// The reason for inputs whose runs did not end.
    fn why_cancelled(&self, ended_by: Option<usize>, results: &Results) -> String {
        if let Some(why) = self.stopped_for.lock().unwrap_or_else(PoisonError::into_inner).as_ref()
        {
            return format!("the batch was stopped: {why}");
        }
        let Some(row) = ended_by.and_then(|first| results.rows().find(|row| row.index == first))
        else {
            return "the batch was stopped".to_owned();
        };
        let (label, why) = (
            label(row.index, row.id.as_ref()),
            if row.error.is_some() { "failed" } else { "returned a result" },
        );
        format!("{label} {why}, which ended the batch")
    }

    fn summary(
        &self,
        args: &args::BatchArgs,
        progress: &BatchCounter,
        results: &Results,
    ) -> String {
        let counts = self.tally.counts();
        let (came, total, failed) = (results.rows().count(), results.total(), progress.failed());
        let mut parts = vec![format!(
            "{} of {} in {}",
            came,
            plural(total as u64, "input", "inputs"),
            time(progress.took())
        )];
        // The row of a failed run has an error too, and is counted as failed.
        let without =
            results.rows().filter(|row| row.error.is_some()).count().saturating_sub(failed);
        let amounts = [
            (without, "without a result"),
            (failed, "failed"),
            (total.saturating_sub(came), "cancelled"),
        ];
        parts.extend(
            amounts
                .iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| format!("{count} {what}")),
        );
        if counts.denials > 0 {
            parts.push(plural(counts.denials, "denial", "denials"));
        }
        parts.push(usage::spent(counts));
        if let Some(folder) = &args.keep.journal {
            parts.push(format!("journals: {}", show_path(folder)));
        }
        if let Some(file) = &args.output {
            parts.push(format!("results: {}", show_path(file)));
        }
        parts.join(" · ")
    }
}

/// The display of the runs' steps.
struct BatchTrace {
    detail: Detail,
    /// Columns of the widest label.
    columns: usize,
}

impl BatchTrace {
    fn of(detail: Detail, inputs: &[BatchInput]) -> Self {
        let labels =
            inputs.iter().enumerate().map(|(index, input)| width(&label(index, input.id.as_ref())));
        Self { detail, columns: labels.fold(0, usize::max) }
    }

    fn steps(&self, screen: &Arc<Screen>, prepared: &Prepared, label: &str) -> Steps {
        Steps::of_item(
            Arc::clone(screen),
            self.detail,
            prepared.setup(),
            label.to_owned(),
            self.columns,
        )
    }
}

/// A channel that asks nothing and shows the messages.
struct BatchChannel {
    screen: Arc<Screen>,
    label: String,
}

impl Channels for BatchChannel {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        Box::pin(std::future::ready(None))
    }

    fn serves(&self, channel: &ChannelId) -> bool {
        is_terminal(channel)
    }

    fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        let says = paint(FAINT, format_args!("{:>4}  says", self.label));
        let text = foreign::block(message.text.trim(), FAINT, 6, total_columns());
        self.screen.agent_text(format!("{says}\n{text}"));
        Box::pin(std::future::ready(Ok(())))
    }
}

//! The participants of a run at the terminal, new or resumed: its channel, its observers, and the
//! handling of Ctrl-C.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use conclave_core::types::delegation::OnClose;
use conclave_core::types::ids::{RoomId, TaskName};
use conclave_core::types::outcome::Outcome;
use conclave_runtime::runner::{LocalRunner, TaskRunner};
use conclave_runtime::subscribe::{Published, Subscriber, Subscribers};
use conclave_runtime::{Host, Prepared, RoomHandle, RunOptions, SessionError};

use super::ending::{EndContext, finish, result};
use super::failure::broken_off;
use crate::approve::{PendingLine, RequestContext, TerminalApprover};
use crate::args::{Approvals, OutputArgs, Questions, TraceChoice};
use crate::program::error::CliError;
use crate::program::exit::{self, RunIncidents};
use crate::program::shell::shell;
use crate::state::control_inbox::ControlListener;
use crate::state::journals::RunStorage;
use crate::state::{observers, telemetry};
use crate::ui::interrupt::Interrupts;
use crate::ui::screen::{Screen, Verbosity};
use crate::ui::show::steps::Steps;
use crate::ui::show::tally::RunTally;
use crate::ui::show::trace::TracePrinter;
use crate::ui::show::{BAD, FAINT, paint, printable};
use crate::ui::terminal::Terminal;
use crate::ui::user::TerminalUser;
use crate::ui::{stderr, stdout};

/// How a run is shown, and who is asked.
#[derive(Clone, Copy)]
pub(crate) struct RunStyle {
    pub(crate) output: OutputArgs,
    pub(crate) trace: TraceChoice,
    pub(crate) verbose: bool,
    pub(crate) approvals: Approvals,
    pub(crate) questions: Questions,
}

/// The channel and the observers of one run.
pub(crate) struct RunContext {
    pub(crate) screen: Arc<Screen>,
    user: Arc<TerminalUser>,
    /// The answers to the next questions, which the user is not asked.
    answers: Arc<Mutex<VecDeque<String>>>,
    answers_given: usize,
    tally: Arc<RunTally>,
    approver: Arc<TerminalApprover>,
    trace: Option<Arc<TracePrinter>>,
    interrupts: Interrupts,
    style: RunStyle,
    /// The config of the run.
    file: PathBuf,
    /// The tasks that ask their user after each answer.
    interactive: BTreeSet<TaskName>,
    /// Whether a background task may outlive the run.
    lingers: bool,
    /// Whether another process began the run.
    is_resumed: bool,
    runner: Arc<LocalRunner>,
}

impl RunContext {
    pub(crate) fn new(
        prepared: &Prepared,
        file: &Path,
        storage: &RunStorage,
        style: RunStyle,
        interrupts: &Interrupts,
    ) -> Result<Self, CliError> {
        let RunStyle { output, trace, verbose, approvals, .. } = style;
        let screen = Screen::new(Verbosity::of(output));
        let user = TerminalUser::new(Arc::clone(&screen), None, None);
        let approver = TerminalApprover::new(
            Arc::clone(&user),
            interrupts.clone(),
            RequestContext::new(prepared, file),
            approvals,
        );
        let steps = trace
            .detail(output)?
            .map(|detail| Steps::of_run(Arc::clone(&screen), detail, prepared.setup()));
        let trace = (steps.is_some() || !output.result_only()).then(|| {
            Arc::new(
                TracePrinter::of_run(Arc::clone(&screen), verbose, prepared.setup())
                    .with_addresses(storage.is_kept())
                    .with_steps(steps),
            )
        });
        let interrupts = interrupts.clone();
        let tasks = prepared.setup().tasks.iter().filter(|(_, task)| task.interactive);
        let interactive = tasks.map(|(name, _)| name.clone()).collect();
        let lingers = prepared.setup().tasks.values().any(|task| task.on_close != OnClose::Cascade);
        // The time limit after Ctrl-C would cut off detached tasks, which live in this process.
        if lingers {
            interrupts.lingers();
        }
        let runner = Arc::new(LocalRunner::new());
        Ok(Self {
            screen,
            user,
            answers: Arc::default(),
            answers_given: 0,
            tally: Arc::default(),
            approver,
            trace,
            interrupts,
            style,
            file: file.to_owned(),
            interactive,
            lingers,
            is_resumed: false,
            runner,
        })
    }

    /// Answers the next questions of tasks with these texts.
    pub(crate) fn answering(self, answers: VecDeque<String>) -> Self {
        Self { answers_given: answers.len(), answers: Arc::new(Mutex::new(answers)), ..self }
    }

    /// Takes what the run did before it was interrupted, which its summary and the numbers of its
    /// steps include.
    pub(crate) fn resuming(self, run: &RoomId, storage: &RunStorage) -> Self {
        if let Some(trace) = &self.trace {
            trace.resume_from(run, |room| storage.records(room));
        }
        Self { is_resumed: true, ..self }
    }

    /// Returns the run's options, without its name.
    pub(crate) fn options(&self, storage: &RunStorage) -> RunOptions {
        let mut subscribers: Vec<Arc<dyn Subscriber>> = vec![Arc::clone(&self.tally) as _];
        if self.style.output.json {
            subscribers.push(Arc::new(JsonLinesOnStdout));
        }
        subscribers.extend(self.trace.clone().map(|trace| trace as _));
        if self.style.approvals == Approvals::Wait && !self.style.output.json {
            subscribers
                .push(Arc::new(PendingLine { screen: Arc::clone(&self.screen), is_run: true }));
        }
        let (user, screen, interrupts) =
            (Arc::clone(&self.user), Arc::clone(&self.screen), self.interrupts.clone());
        let (answers, answers_given) = (Arc::clone(&self.answers), self.answers_given);
        telemetry::add(&mut subscribers);
        RunOptions {
            channels: Arc::new(Terminal {
                user,
                answers,
                answers_given,
                waits: self.style.questions == Questions::Wait,
                screen,
                interrupts,
            }),
            approver: Arc::clone(&self.approver) as _,
            journals: storage.journals(),
            subscribers: Subscribers::new(subscribers),
            runner: Arc::clone(&self.runner) as _,
            // Only a store can resume the run.
            leaves_without_model: storage.store().is_some(),
            ..RunOptions::default()
        }
    }

    /// Prints the columns of the steps.
    pub(crate) fn legend(&self) {
        if let Some(trace) = &self.trace {
            trace.legend();
        }
    }

    /// Waits for the end, and receives messages from other terminals meanwhile. Ctrl-C stops the run,
    /// and ends the program if that takes too long.
    pub(crate) async fn follow<E: Into<SessionError>>(
        &self,
        run: RoomHandle,
        outcome: impl Future<Output = Result<Arc<Outcome>, E>>,
        (room, storage, host): (&RoomId, &RunStorage, &Arc<Host>),
    ) -> Result<Arc<Outcome>, CliError> {
        let _attending =
            storage.store().map(|store| ControlListener::begin(store, host, &self.screen));
        let mut interrupts = self.interrupts.clone();
        let mut outcome = std::pin::pin!(outcome);
        // Without a loop: a second Ctrl-C does not come here, it ends the program.
        let ended = tokio::select! {
            outcome = &mut outcome => outcome,
            () = interrupts.next() => {
                run.stop("Ctrl-C");
                if self.lingers {
                    let text = "  waiting for detached background tasks; Ctrl-C again ends them";
                    self.screen.notice(paint(FAINT, text));
                }
                outcome.await
            }
        };
        self.let_detached_end().await;
        self.user.leave();
        ended.map_err(|failure| broken_off(&failure.into(), room, storage))
    }

    /// Waits for detached tasks, which live in this process and would end with it.
    async fn let_detached_end(&self) {
        let mut is_reported = false;
        while let Some(task) = self.runner.list().into_iter().find(|task| task.is_detached) {
            if !std::mem::replace(&mut is_reported, true) && !self.style.output.quiet {
                let text =
                    format!("  waiting for the detached task {}; Ctrl-C ends it", task.worker);
                self.screen.notice(paint(FAINT, printable(&text)));
            }
            // The task's own journal records how it ended.
            let _ = self.runner.wait(&task.room, None).await;
        }
    }

    /// Reports the end, and waits for the observers. Returns the exit code.
    pub(crate) async fn conclude(
        &self,
        outcome: &Outcome,
        began: Instant,
        (room, storage, host): (&RoomId, &RunStorage, &Host),
    ) -> Result<u8, CliError> {
        let output = self.style.output;
        let is_stored = storage.store().is_some();
        // As JSON, the result is the last line.
        if output.json {
            observers::drain(host, is_stored, output, &self.interrupts).await?;
            return self.end(outcome, began, (room, storage));
        }
        let code = self.end(outcome, began, (room, storage))?;
        observers::drain(host, is_stored, output, &self.interrupts).await?;
        Ok(code)
    }

    /// Reports the end, and returns the exit code.
    pub(crate) fn end(
        &self,
        outcome: &Outcome,
        began: Instant,
        (room, storage): (&RoomId, &RunStorage),
    ) -> Result<u8, CliError> {
        let output = self.style.output;
        let nobody_to_ask = self.approver.has_refused_without_user();
        let met =
            RunIncidents { trouble: self.tally.trouble(), nobody_to_ask, cause: outcome.cause };
        let code = exit::of(outcome.status, met);
        if let Some(why) = self
            .tally
            .why_no_answer()
            .filter(|_| output.quiet && !output.json && !outcome.status.is_success())
        {
            // Any other failure was reported when it happened.
            stderr::line(format_args!("{} {}", paint(BAD, "model:"), printable(why.trim())));
        }
        if let Some(trace) = &self.trace {
            trace.end(result(outcome).as_deref());
        }
        let context = EndContext {
            code,
            output,
            took: began.elapsed(),
            tally: &self.tally,
            journal: journal(storage),
            run: room,
            pending_changes: storage.pending_changes(room),
            why: storage.is_kept().then(|| why(room, storage)),
            file: &self.file,
            interactive: &self.interactive,
            is_resumed: self.is_resumed,
            has_written: self.screen.has_written(),
        };
        finish(outcome, &context)?;
        self.approver.report_missing();
        Ok(code)
    }
}

/// The command that lists the refusals of a run, without `conclave`.
fn why(room: &RoomId, storage: &RunStorage) -> String {
    let folder = journal(storage).map(|folder| shell(&folder.display().to_string()));
    let option = folder.map(|folder| format!(" --journal {folder}")).unwrap_or_default();
    format!("why {room}{option}")
}

/// The folder of `--journal`.
fn journal(storage: &RunStorage) -> Option<&Path> {
    storage.folder().filter(|_| storage.store().is_none())
}

/// Writes the event stream to stdout as NDJSON.
pub(crate) struct JsonLinesOnStdout;

impl Subscriber for JsonLinesOnStdout {
    fn on(&self, happening: &Published) {
        if let Ok(line) = serde_json::to_string(happening) {
            // The final result takes the same way, and reports an stdout that cannot be written.
            let _ = stdout::queue_json(line);
        }
    }
}

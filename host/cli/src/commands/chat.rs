//! `conclave chat [CONFIG] [TEXT]`: a conversation with the entry task. The agent's text goes to
//! stdout, everything else to stderr.

pub(crate) mod command;
pub(crate) mod conversation;
pub(crate) mod stream;
pub(crate) mod transcript;
pub(crate) mod user_channel;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anstyle::Style;
use conclave_core::setup::Setup;
use conclave_core::types::ids::{RoomId, TaskName};
use conclave_core::types::outcome::{Outcome, Status};
use conclave_runtime::channel::HumanAnswer;
use conclave_runtime::ids::{Ids, RandomIds};
use conclave_runtime::subscribe::{Subscriber, Subscribers};
use conclave_runtime::{Host, Prepared, RoomHandle, RunInput, RunOptions, SessionError};
use tokio::sync::Notify;

use crate::approve::{RequestContext, TerminalApprover};
use crate::args::{self, Approvals, Detail, OutputArgs, TraceChoice};
use crate::commands::chat::conversation::TerminalChat;
use crate::commands::chat::user_channel::{ChannelState, UserChannel, keep_status};
use crate::program::error::CliError;
use crate::program::exit::{self, RunIncidents};
use crate::session::context::JsonLinesOnStdout;
use crate::session::ending::{changes_line, ending, limit_hint, unread_line};
use crate::session::failure::{broken_off, unkept};
use crate::state::attach;
use crate::state::control_inbox::ControlListener;
use crate::state::interrupted_runs::{self, CONVERSATION};
use crate::state::journals::{RunCommand, RunStorage};
use crate::state::observers;
use crate::state::setup::{self, EngineStart};
use crate::state::state_folder::state_folder;
use crate::state::store_address::with_named_store;
use crate::state::telemetry;
use crate::state::watch;
use crate::ui::interrupt::Interrupts;
use crate::ui::screen::{Screen, Verbosity, total_columns};
use crate::ui::show::amounts::took_for;
use crate::ui::show::component::changed_lines;
use crate::ui::show::steps::Steps;
use crate::ui::show::tally::RunTally;
use crate::ui::show::trace::TracePrinter;
use crate::ui::show::usage;
use crate::ui::show::{BAD, FAINT, ODD, foreign, head, paint};
use crate::ui::stdout;
use crate::ui::user::{Stops, TerminalUser};

/// The interval between two checks of a turn's duration.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) async fn chat(
    args: args::Chat,
    output: OutputArgs,
    interrupts: Interrupts,
) -> Result<u8, CliError> {
    let loading = Instant::now();
    let (file, text) = args.target.resolve()?;
    let detail = args.trace.detail(output)?;
    let (models, locked) = (args.model.models()?, args.locked.locked);
    let engine = EngineStart::begin();
    let config = setup::read_config(&file, &models)?;
    let keep = with_named_store(&args.keep, &config)?;
    let interrupted =
        interrupted_runs::interrupted_with(keep.store.as_ref(), (CONVERSATION, &file), output);
    let storage = RunStorage::open(&keep, RunCommand::new(CONVERSATION, &file, &config, locked))?;
    let host = Arc::new(setup::open_host_keeping(&file, &storage, engine)?);
    let prepared = setup::prepare_with(&host, (&file, &config), locked, output).await?.for_chat();
    let attachments = attach::all(&**host.blobs(), &args.attach)?;
    let talk = ChatSession::new(
        RandomIds.run(),
        (&file, args.no_history),
        output,
        &host,
        &prepared,
        interrupts,
    );
    talk.channel.attach(attachments);
    interrupted_runs::report_interrupted(&interrupted);
    talk.greet((&prepared, prepared.setup()), loading, output);
    let steps = talk.steps(detail, &prepared);
    let start = Instant::now();
    let Some(message) = talk.first_message(text).await else {
        talk.user.leave();
        return Ok(exit::OK);
    };
    talk.interrupts.chat_begins();
    let text = message.text.clone();
    let _hushed = talk.user.hush();
    let options = talk.options(steps, &storage, args.verbose, output);
    let input = RunInput { attachments: message.attachments, ..RunInput::from(text) };
    let run =
        prepared.start(input, options).map_err(|failure| unkept(&failure, &talk.room, &storage))?;
    let watched = args
        .watch
        .then(|| watch::rebuilt_components(&prepared, run.handle(), Arc::clone(&talk.screen)));
    let wall = prepared.turn_wall();
    let ended = talk.follow(run.handle(), run.outcome(), wall, (&storage, &host)).await;
    drop(watched);
    talk.conclude(ended, start, (&storage, &host), output).await
}

/// An interrupted conversation.
pub(crate) struct InterruptedChat {
    pub(crate) room: RoomId,
    pub(crate) file: PathBuf,
    pub(crate) trace: TraceChoice,
    pub(crate) verbose: bool,
}

/// Resumes the conversation: with the interrupted turn, or with the user's next message.
pub(crate) async fn resume(
    cut: InterruptedChat,
    host: &Arc<Host>,
    prepared: Prepared,
    storage: &RunStorage,
    output: OutputArgs,
    interrupts: Interrupts,
) -> Result<u8, CliError> {
    let (loading, detail) = (Instant::now(), cut.trace.detail(output)?);
    let talk = ChatSession::new(cut.room, (&cut.file, false), output, host, &prepared, interrupts);
    let talk = ChatSession { is_resumed: true, ..talk };
    let steps = talk.steps(detail, &prepared);
    if let Some(steps) = &steps {
        steps.resume_from(&talk.room, |room| storage.records(room));
    }
    let options = talk.options(steps, storage, cut.verbose, output);
    let mut session = prepared.reopen(&talk.room, options).await?;
    talk.greet((&prepared, session.effective_setup()), loading, output);
    if !output.result_only() {
        for line in changed_lines(session.changed_components()) {
            talk.screen.line(line);
        }
    }
    let last_message = session
        .history(&talk.entry)
        .iter_newest_first()
        .find(|message| !message.text().trim().is_empty())
        .cloned();
    if let Some(last_message) = last_message {
        let block = foreign::block(last_message.text().trim(), Style::new(), 0, total_columns());
        talk.screen.line(format_args!("{}\n{block}\n", paint(FAINT, "last message:")));
    }
    // A room that does not wait for its user continues the interrupted turn.
    if !storage.store().is_some_and(|store| interrupted_runs::waits_for_user(store, &talk.room)) {
        talk.conversation.turn_is_open();
        talk.interrupts.turn_begins();
    }
    talk.interrupts.chat_begins();
    let (start, _hushed) = (Instant::now(), talk.user.hush());
    let (handle, wall) = (session.handle(), prepared.turn_wall());
    let ended = talk.follow(handle, session.resume(), wall, (storage, host)).await;
    talk.conclude(ended, start, (storage, host), output).await
}

/// The parts of a conversation.
struct ChatSession {
    room: RoomId,
    entry: TaskName,
    setup: Arc<Setup>,
    screen: Arc<Screen>,
    tally: Arc<RunTally>,
    conversation: Arc<TerminalChat>,
    user: Arc<TerminalUser>,
    channel: UserChannel,
    approver: Arc<TerminalApprover>,
    interrupts: Interrupts,
    /// Whether another process began the conversation.
    is_resumed: bool,
    /// Notified when a program at the other end of the pipe stops the turn.
    stops: Arc<Notify>,
}

impl ChatSession {
    fn new(
        room: RoomId,
        (file, no_history): (&Path, bool),
        output: OutputArgs,
        host: &Host,
        prepared: &Prepared,
        interrupts: Interrupts,
    ) -> Self {
        let (entry, screen) = (prepared.setup().entry.clone(), Screen::new(Verbosity::of(output)));
        let tally = Arc::new(RunTally::default());
        let conversation = TerminalChat::new(
            Arc::clone(&screen),
            Arc::clone(&tally),
            Arc::clone(prepared.setup()),
            room.clone(),
        );
        let (conversation, stops) = (Arc::new(conversation), Arc::new(Notify::new()));
        let (at_work, stopping) = (Arc::clone(&conversation), Arc::clone(&stops));
        let on_stop: Stops = Arc::new(move || {
            // Without a turn in progress there is nothing to stop, now or later.
            if at_work.is_at_work() {
                stopping.notify_one();
            }
        });
        let user = TerminalUser::new(
            Arc::clone(&screen),
            history_file(no_history),
            output.json.then_some(on_stop),
        );
        let channel = UserChannel::new(ChannelState {
            user: Arc::clone(&user),
            screen: Arc::clone(&screen),
            conversation: Arc::clone(&conversation),
            tally: Arc::clone(&tally),
            interrupts: interrupts.clone(),
            blobs: Arc::clone(host.blobs()),
            attachments: Mutex::default(),
            entry: entry.clone(),
            rights: head::table(prepared),
            json: output.json,
            has_ended: AtomicBool::new(false),
            stops_background: AtomicBool::new(false),
            handle: OnceLock::new(),
        });
        let approver = TerminalApprover::new(
            Arc::clone(&user),
            interrupts.clone(),
            RequestContext::new(prepared, file),
            Approvals::Prompt,
        );
        let setup = Arc::clone(prepared.setup());
        Self {
            room,
            entry,
            setup,
            screen,
            tally,
            conversation,
            user,
            channel,
            approver,
            interrupts,
            is_resumed: false,
            stops,
        }
    }

    fn greet(&self, rights: (&Prepared, &Setup), loading: Instant, output: OutputArgs) {
        if output.result_only() {
            return;
        }
        head::print_effective(rights, Some(&self.room), loading.elapsed());
        if self.user.is_there() {
            self.screen.line(paint(
                FAINT,
                "Alt-Enter starts a new line · Ctrl-C stops the agent · Ctrl-D ends · /help\n",
            ));
        }
    }

    fn steps(&self, detail: Option<Detail>, prepared: &Prepared) -> Option<Steps> {
        let steps = Steps::of_run(Arc::clone(&self.screen), detail?, prepared.setup());
        steps.legend();
        Some(steps)
    }

    /// Returns the message of the command line, or the first one that is typed. `None` if the input
    /// ends first.
    async fn first_message(&self, argument: Option<String>) -> Option<HumanAnswer> {
        match argument {
            Some(message) => {
                self.conversation.begin_turn(&message);
                self.interrupts.turn_begins();
                Some(HumanAnswer {
                    text: message,
                    attachments: self.channel.take_attachments(),
                    ..HumanAnswer::default()
                })
            }
            None => self.channel.next_message().await,
        }
    }

    fn options(
        &self,
        steps: Option<Steps>,
        storage: &RunStorage,
        verbose: bool,
        output: OutputArgs,
    ) -> RunOptions {
        let trace = TracePrinter::of_chat(
            Arc::clone(&self.screen),
            verbose,
            &self.setup,
            self.room.clone(),
            self.entry.clone(),
        )
        .with_addresses(storage.is_kept())
        .with_steps(steps);
        let mut subscribers: Vec<Arc<dyn Subscriber>> = vec![
            Arc::clone(&self.tally) as _,
            Arc::clone(&self.conversation) as _,
            Arc::new(trace),
        ];
        if output.json {
            subscribers.push(Arc::new(JsonLinesOnStdout));
        }
        telemetry::add(&mut subscribers);
        RunOptions {
            ids: Arc::new(self.room.clone()),
            channels: Arc::new(self.channel.clone()),
            approver: Arc::clone(&self.approver) as _,
            journals: storage.journals(),
            subscribers: Subscribers::new(subscribers),
            ..RunOptions::default()
        }
    }

    /// Waits for the end, and receives messages from other terminals meanwhile. Ctrl-C stops a turn;
    /// once the user has ended the conversation, it stops everything.
    async fn follow<E: Into<SessionError>>(
        &self,
        run: RoomHandle,
        outcome: impl Future<Output = Result<Arc<Outcome>, E>>,
        turn_wall: Option<Duration>,
        (storage, host): (&RunStorage, &Arc<Host>),
    ) -> Result<Arc<Outcome>, CliError> {
        let _attending =
            storage.store().map(|store| ControlListener::begin(store, host, &self.screen));
        self.channel.open(run.clone());
        let mut interrupts = self.interrupts.clone();
        // Once the user has left, no turn is worth returning to.
        let stop_turn = |reason: &str| {
            self.conversation.stop_begins();
            if self.channel.has_ended() { run.stop(reason) } else { run.stop_turn(reason) }
        };
        let mut is_unread = false;
        let mut outcome = std::pin::pin!(outcome);
        let mut status = std::pin::pin!(keep_status(&self.conversation));
        let mut too_long = std::pin::pin!(self.turn_takes_too_long(turn_wall));
        loop {
            tokio::select! {
                outcome = &mut outcome => return outcome.map_err(|failure| broken_off(&failure.into(), &self.room, storage)),
                () = interrupts.next() => stop_turn("Ctrl-C"),
                () = self.stops.notified() => stop_turn("/stop"),
                // The end of the reader lasts, so without the guard this branch would spin.
                () = stdout::is_gone(), if !is_unread => {
                    is_unread = true;
                    run.stop("stdout was closed");
                }
                () = &mut too_long => {
                    stop_turn("the turn took longer than limits.run.wall");
                    self.screen.notice(paint(ODD, "  the turn took longer than limits.run.wall"));
                    // A future that has resolved must not be polled again.
                    too_long.set(self.turn_takes_too_long(turn_wall));
                }
                () = &mut status => {}
                () = self.channel.let_go() => run.stop("the conversation has ended"),
            }
        }
    }

    /// Resolves when a turn has taken this long, without the time spent waiting for the user.
    async fn turn_takes_too_long(&self, wall: Option<Duration>) {
        let Some(wall) = wall else { return std::future::pending().await };
        let (mut turn, mut worked, mut before) = (None, Duration::ZERO, Instant::now());
        // Added up in small steps, and not read off the turn's start: the time in which a question
        // is open does not count.
        while worked <= wall {
            tokio::time::sleep(LOOK).await;
            let (now, current) = (Instant::now(), self.conversation.turn());
            if current != turn {
                (turn, worked) = (current, Duration::ZERO);
            } else if turn.is_some() && !self.user.is_asked() {
                worked += now - before;
            }
            before = now;
        }
    }

    /// Reports the end, and waits for the observers. Returns the exit code.
    async fn conclude(
        &self,
        ended: Result<Arc<Outcome>, CliError>,
        start: Instant,
        (storage, host): (&RunStorage, &Host),
        output: OutputArgs,
    ) -> Result<u8, CliError> {
        let code = self.close(ended, start, storage, output)?;
        observers::drain(host, storage.store().is_some(), output, &self.interrupts).await?;
        Ok(code)
    }

    /// Restores the terminal and prints the summary.
    fn close(
        &self,
        ended: Result<Arc<Outcome>, CliError>,
        start: Instant,
        storage: &RunStorage,
        output: OutputArgs,
    ) -> Result<u8, CliError> {
        self.conversation.end_turn();
        self.screen.end_text();
        self.screen.clear_status();
        self.user.leave();
        // Lines typed ahead were meant for the agent; the shell would run them.
        if !self.channel.has_ended() {
            self.user.forget_typed();
        }
        let outcome = ended?;
        let code = self.finish(&outcome, output)?;
        self.approver.report_missing();
        let counts = self.tally.counts();
        let in_all = usage::in_all(&outcome.spent, counts)
            .filter(|_| self.is_resumed)
            .map(|all| format!(" · {all}"))
            .unwrap_or_default();
        self.screen.line(paint(
            FAINT,
            format_args!("{} in {}{in_all}", usage::spent(counts), took_for(start.elapsed())),
        ));
        if let Some(line) = changes_line(&self.room, storage.pending_changes(&self.room)) {
            self.screen.line(paint(ODD, line));
        }
        if let Some(line) = unread_line(&self.room, self.tally.unread()) {
            self.screen.line(paint(ODD, line));
        }
        Ok(code)
    }

    /// Returns the exit code. A conversation that the user ends is a success. In a pipe, it is a
    /// failure if the last message got no answer.
    fn finish(&self, outcome: &Outcome, output: OutputArgs) -> Result<u8, CliError> {
        let nobody_to_ask = self.approver.has_refused_without_user();
        let met =
            RunIncidents { trouble: self.tally.trouble(), nobody_to_ask, cause: outcome.cause };
        let ended_well =
            self.channel.has_ended() || stdout::has_gone() || outcome.status.is_success();
        let code = match (ended_well, self.user.is_there()) {
            // A reader that leaves early, such as `head`, is no failure.
            _ if stdout::has_gone() => exit::OK,
            (true, true) => exit::OK,
            (true, false) if met.nobody_to_ask => exit::POLICY,
            (true, false) => self.conversation.failure().unwrap_or(exit::OK),
            (false, _) => exit::of(outcome.status, met),
        };
        if output.json {
            stdout::json(
                serde_json::json!({ "type": "result", "exit_code": code, "outcome": outcome }),
            )?;
        } else if !ended_well {
            self.screen.notice(format_args!("\n{}", ending(BAD, outcome)));
            if let Some(hint) = limit_hint(outcome, false) {
                self.screen.notice(paint(FAINT, hint));
            }
        } else if !(self.channel.has_ended()
            || stdout::has_gone()
            || outcome.status == Status::UserQuit)
        {
            // It succeeded, but the user did not end it.
            self.screen.notice(format_args!("\n{}", ending(ODD, outcome)));
        }
        Ok(code)
    }
}

/// `chat-history` in the state folder. `None` without a state folder, or if nothing is to be
/// stored.
fn history_file(nothing: bool) -> Option<PathBuf> {
    state_folder().filter(|_| !nothing).map(|folder| folder.join("chat-history"))
}

//! Sessions: one room for several runs, with histories that persist and one journal. Runs belong to
//! the core, the format of exported histories to `history_file`.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use conclave_core::protocol::event::{Event, HistoryChange, RoleCall, RunOpening};
use conclave_core::setup::{ChangedComponent, ReturnType, Setup};
use conclave_core::types::action::Turn;
use conclave_core::types::channel::{Binding, ChannelAccess};
use conclave_core::types::history::History;
use conclave_core::types::ids::{ChannelId, ModelName, PluginName, RoomId, TaskName};
use conclave_core::types::limits::RunLimits;
use conclave_core::types::message::{Blob, Role, ToolCall};
use conclave_core::types::observed::ObservedPosition;
use conclave_core::types::outcome::Outcome;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::calls::Plugins;
use crate::driver::channel::Channels;
use crate::driver::outgoing::ChannelEndpoints;
use crate::driver::registry::RoomRegistry;
use crate::driver::room_handle::RoomHandle;
use crate::driver::{Driver, Models, RunContext};
use crate::host::observers::Observers;
use crate::host::prepared::{Prepared, Run, RunOptions};
use crate::host::simulated_channel::SimulatedVoice;
use crate::observe::subscribe::Subscribers;
use crate::storage::history_file::{self, HistoryFileError};
use crate::storage::journal::JournalFailure;

/// The channel that asks the user of a run.
const USER_CHANNEL: &str = "terminal";
/// The recorded reason for a run whose future was dropped.
const GIVEN_UP: &str = "nobody waits for this run any more";

/// The input of one run. The default is no message to the config's entry task.
///
/// ```
/// use conclave_runtime::RunInput;
///
/// let ask = RunInput { turns: Some(3), ..RunInput::from("When was Skerryvore lit?") };
/// assert_eq!(ask.content.as_deref(), Some("When was Skerryvore lit?"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RunInput {
    /// The task that gets the message. `None` means the task that the conversation was handed to,
    /// else the config's `entry`.
    pub entry: Option<TaskName>,
    /// The message; `None` starts the task from its system message alone.
    pub content: Option<String>,
    /// The attachments of the message.
    pub attachments: Vec<Blob>,
    /// A JSON object for the entry agent's `inputs`.
    pub inputs: Value,
    /// The recipient of the message. The run ends at once if it is not the entry task (L-050d).
    pub recipient: Option<String>,
    /// The tool calls that come with the message.
    pub tools: Vec<ToolCall>,
    /// The number of steps of the entry task, instead of its own setting (L-050f).
    pub turns: Option<u32>,
    /// The sender of the message instead of the user; the message then counts as the program's own.
    pub sender: Option<Role>,
    /// The number of steps of the entry task after which the run is killed; for inspecting a run
    /// step by step.
    pub kill_after: Option<u32>,
    /// The type of the result, instead of the task's own.
    pub returns: Option<ReturnType>,
    /// Turns that replace the entry agent's first steps and are carried out again: a replayed run
    /// (O-119).
    pub replay: Vec<Turn>,
    /// The only responder of the entry task that is asked.
    pub role_call: Option<RoleCall>,
    /// The limits of the run, instead of the config's.
    pub limits: Option<RunLimits>,
    /// Whether the room stays open while idle, and accepts messages on its channels until it is
    /// closed.
    pub persistent: bool,
    /// The channel on which tasks ask their user; `None` means `terminal`.
    pub channel: Option<ChannelId>,
    /// The metadata of the room: a JSON object, or null. The value under `_child_metadata` is
    /// passed to all rooms below (R-025).
    pub metadata: Value,
}

impl Default for RunInput {
    fn default() -> Self {
        Self {
            entry: None,
            content: None,
            attachments: Vec::new(),
            inputs: json!({}),
            recipient: None,
            tools: Vec::new(),
            turns: None,
            sender: None,
            kill_after: None,
            returns: None,
            replay: Vec::new(),
            role_call: None,
            limits: None,
            persistent: false,
            channel: None,
            metadata: Value::Null,
        }
    }
}

impl From<&str> for RunInput {
    fn from(content: &str) -> Self {
        Self::from(content.to_owned())
    }
}

impl From<Option<String>> for RunInput {
    fn from(content: Option<String>) -> Self {
        Self { content, ..Self::default() }
    }
}

impl From<String> for RunInput {
    fn from(content: String) -> Self {
        Self { content: Some(content), ..Self::default() }
    }
}

/// The reason why a session could not do as requested.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The config has no such task; nothing was started.
    #[error("there is no task `{task}`; these are there: {}", .known.join(", "))]
    UnknownTask {
        /// The requested task.
        task: TaskName,
        /// The tasks of the config, in order.
        known: Vec<String>,
    },
    /// An exported history cannot be imported; nothing was changed.
    #[error(transparent)]
    History(#[from] HistoryFileError),
    /// The journal failed; nothing more was performed, and the session is unusable.
    #[error(transparent)]
    Journal(#[from] JournalFailure),
    /// There is no run to resume.
    #[error("the room {room} has no run to go on with")]
    NotBegun {
        /// The root room of the session.
        room: RoomId,
    },
    /// The executor of the program was shut down while the room was open; the room can be resumed
    /// from its journal.
    #[error("the room {room} was cut off: the program's executor was shut down while it was open")]
    Interrupted {
        /// The root room of the session.
        room: RoomId,
    },
    /// A component that was exchanged before the resumption failed at its first call. The run was
    /// left as it was, and can be resumed.
    #[error(
        "the component of the plugin `{plugin}` was exchanged since room {room} was cut off, and failed at its first call: {fault}. \
         The run stays as it was: install the former component again, or mend this one, and resume it: conclave resume {room}"
    )]
    FailedExchange {
        /// The root room of the session.
        room: RoomId,
        /// The plugin, by its name in the config.
        plugin: PluginName,
        /// The fault of its call.
        fault: String,
    },
    /// A model was not available for the run's step, also when it was asked again. The run was left
    /// before the step's end, and asks again when it is resumed.
    #[error("the model `{model}` did not answer, so room {room} was left as it is: {reason}")]
    NoModel {
        /// The root room of the session.
        room: RoomId,
        /// The model, by its name in the config.
        model: ModelName,
        /// The server concerned, and a remedy.
        reason: String,
    },
    /// The room's last run was interrupted, so no other can begin; nothing was started.
    #[error("the last run of room {room} was interrupted, and has to be resumed or stopped first")]
    Unfinished {
        /// The root room of the session.
        room: RoomId,
    },
    /// The journal failed before, so nothing can be recorded now.
    #[error("the journal of room {room} has failed before; what is to go on needs another session")]
    Broken {
        /// The root room of the session.
        room: RoomId,
    },
}

/// The reason why a room cannot be resumed.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The journals hold no such room, or cannot be read again.
    #[error("no room {room} is kept here")]
    Unknown {
        /// The requested room.
        room: RoomId,
    },
    /// An interrupted call would have to be run again by a different component.
    #[error(
        "the plugin `{plugin}` is not what it was when room {room} was cut off in the middle of one of its calls; build or install the \
         same component again, or end the run: conclave stop {room}"
    )]
    Changed {
        /// The requested room.
        room: RoomId,
        /// The first plugin that differs, by its name in the config.
        plugin: PluginName,
    },
    /// Another plugin stands under the name of one that the run began with.
    #[error(
        "the plugin `{plugin}` is another one than when room {room} began: {reason}; build or install the former component again, \
         or end the run: conclave stop {room}"
    )]
    OtherPlugin {
        /// The requested room.
        room: RoomId,
        /// The first such plugin, by its name in the config.
        plugin: PluginName,
        /// What differs.
        reason: String,
    },
    /// The journal of the room cannot be read or continued.
    #[error(transparent)]
    Journal(#[from] JournalFailure),
}

/// The parts of a config that a room's runs need.
#[derive(Clone)]
pub(crate) struct SessionParts {
    pub(crate) setup: Arc<Setup>,
    pub(crate) plugins: Arc<dyn Plugins>,
    pub(crate) models: Arc<Models>,
    pub(crate) rooms: Arc<RoomRegistry>,
    /// The channels that the host serves itself.
    pub(crate) endpoints: Arc<ChannelEndpoints>,
}

/// A room for several runs, one at a time. Its agents keep their histories, unless a task's
/// `restart` resets them. The limits of a run, and per-run limits of grants, begin anew with each
/// run.
///
/// Dropping it stops an active run at once, without an end in the journal.
pub struct Session {
    room: RoomId,
    pub(crate) driver: Driver,
    is_broken: bool,
    /// The observers of the room's runs; dropping them ends their queues.
    pub(crate) observers: Observers,
    /// Dropped last, so that nothing is published afterwards.
    _over: Over,
}

/// A room whose loop runs beside the program. Dropping it stops the room and its work.
#[derive(Debug)]
pub struct RoomGuard {
    running: JoinHandle<Result<Arc<Outcome>, SessionError>>,
    handle: RoomHandle,
    stop: LoopStop,
}

/// Stops the loop of a room as a crash would: the journal has no end, and another host resumes the
/// room.
#[derive(Clone, Debug, Default)]
pub struct LoopStop(Arc<Notify>);

impl LoopStop {
    /// Stops the loop. [`RoomGuard::closed`] then returns `Interrupted`, once nothing of the loop
    /// works any more.
    pub fn stop(&self) {
        self.0.notify_one();
    }

    /// Whether nobody waits for the room any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl RoomGuard {
    /// Waits until the room was closed and all its work is over.
    ///
    /// # Errors
    /// As [`Session::run`], and `Interrupted`.
    ///
    /// # Panics
    /// Panics if the loop panicked.
    pub async fn closed(mut self) -> Result<Arc<Outcome>, SessionError> {
        match (&mut self.running).await {
            Ok(outcome) => outcome,
            Err(broken) if broken.is_panic() => std::panic::resume_unwind(broken.into_panic()),
            Err(_) => Err(SessionError::Interrupted { room: self.handle.room().clone() }),
        }
    }

    /// A handle to the room.
    #[must_use]
    pub fn handle(&self) -> &RoomHandle {
        &self.handle
    }

    /// Stops the loop when the program ends but the room does not.
    #[must_use]
    pub fn loop_stop(&self) -> LoopStop {
        self.stop.clone()
    }

    /// Whether the room is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.running.is_finished()
    }
}

impl Drop for RoomGuard {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Reports the end of a room's runs to the subscribers when it is dropped.
struct Over {
    room: RoomId,
    subscribers: Subscribers,
}

impl Drop for Over {
    fn drop(&mut self) {
        self.subscribers.report_over(&self.room);
    }
}

impl Session {
    pub(crate) fn open(parts: SessionParts, options: RunOptions) -> Result<Self, JournalFailure> {
        let room = options.ids.run();
        let observers = Observers::new(&parts, &options, &room, false);
        let (shared, over) = shared(parts, options, &room, &observers);
        let setup = Arc::clone(&shared.admitted);
        let driver = Driver::new(shared, setup, room.clone())?;
        Ok(Self { room, driver, is_broken: false, observers, _over: over })
    }

    /// Returns the session of a room from its journal.
    pub(crate) async fn reopen(
        parts: SessionParts,
        options: RunOptions,
        room: &RoomId,
    ) -> Result<Self, ResumeError> {
        let observers = Observers::new(&parts, &options, room, true);
        let (shared, over) = shared(parts, options, room, &observers);
        let Some(driver) = Driver::reopen(shared, room).await? else {
            return Err(ResumeError::Unknown { room: room.clone() });
        };
        match driver.changed_plugin().cloned() {
            Some(ChangedComponent { plugin, refusal: Some(reason), .. }) => {
                Err(ResumeError::OtherPlugin { room: room.clone(), plugin, reason })
            }
            Some(ChangedComponent { plugin, refusal: None, .. }) => {
                Err(ResumeError::Changed { room: room.clone(), plugin })
            }
            None => {
                let room = room.clone();
                let mut session = Self { room, driver, is_broken: false, observers, _over: over };
                if session.is_cut_off() {
                    // Observers, too, get what both the start of the run and today's config grant.
                    session.observers.narrow(session.driver.effective_setup());
                } else {
                    session.driver.renew();
                }
                Ok(session)
            }
        }
    }

    /// Returns the session of an observer's room; `None` if it has no journal. A run that was
    /// interrupted is ended: its events are delivered again as a whole, so its call is not resumed.
    /// If the observed run `is_same` as before, the observer has what both its start and today's
    /// config grant.
    pub(crate) async fn reopen_observer(
        parts: SessionParts,
        options: RunOptions,
        room: &RoomId,
        is_same: bool,
    ) -> Result<Option<Self>, JournalFailure> {
        let observers = Observers::default();
        let (shared, over) = shared(parts, options, room, &observers);
        let Some(mut driver) = Driver::reopen(shared, room).await? else { return Ok(None) };
        driver.give_up_interrupted("the host stopped during the run").await?;
        if is_same {
            driver.renew_within()
        } else {
            driver.renew()
        }
        let room = room.clone();
        Ok(Some(Self { room, driver, is_broken: false, observers, _over: over }))
    }

    /// The last event of each room that an observer took in this one.
    pub(crate) fn observed(&self) -> &BTreeMap<RoomId, ObservedPosition> {
        self.driver.observed()
    }

    /// Whether the last run was interrupted; [`resume`](Self::resume) brings it to its end.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.driver.is_cut_off()
    }

    /// The reason why the run is paused; `None` if it is not. A run that was interrupted while
    /// paused stays paused on resumption, until its handle unpauses it.
    #[must_use]
    pub fn paused(&self) -> Option<&str> {
        self.driver.paused()
    }

    /// Brings an interrupted run to its end. Returns the outcome of the last run if none was
    /// interrupted.
    ///
    /// # Errors
    /// `Journal` if the journal fails, `Broken` if it did before, `NotBegun` if the room never had
    /// a run.
    pub async fn resume(&mut self) -> Result<Arc<Outcome>, SessionError> {
        self.check(None)?;
        if !self.is_cut_off() {
            return self
                .driver
                .outcome()
                .cloned()
                .ok_or_else(|| SessionError::NotBegun { room: self.room.clone() });
        }
        self.observers.begin();
        let mut going = RunGuard(Some(self));
        let outcome = going.outcome().await;
        // Taken out of the guard, whose drop would give the run up.
        if let Some(session) = going.0.take() {
            session.is_broken = outcome.is_err();
            let ended = session.end(outcome);
            // Later runs begin with today's config, and not with the narrowed one of this run.
            session.driver.renew();
            return ended;
        }
        Ok(outcome?)
    }

    /// Returns how a run ended, with the reason if it was left as it is: an exchanged component that
    /// failed, or a model that was not available.
    pub(crate) fn end(
        &mut self,
        outcome: Result<Arc<Outcome>, JournalFailure>,
    ) -> Result<Arc<Outcome>, SessionError> {
        let room = self.room.clone();
        if let Some((plugin, fault)) = self.driver.failed_exchange.take() {
            return Err(SessionError::FailedExchange { room, plugin, fault });
        }
        if let Some((model, reason)) = self.driver.missing_model.take() {
            return Err(SessionError::NoModel { room, model, reason });
        }
        Ok(outcome?)
    }

    /// The setup that an interrupted run goes on with: what it began with, as far as today's
    /// config still allows it. After a run, the setup of the next one.
    #[must_use]
    pub fn effective_setup(&self) -> &Arc<Setup> {
        self.driver.effective_setup()
    }

    /// The plugins of an interrupted run whose components are other ones now.
    #[must_use]
    pub fn changed_components(&self) -> &[ChangedComponent] {
        self.driver.changed_components()
    }

    /// The root room's id.
    #[must_use]
    pub fn room(&self) -> &RoomId {
        &self.room
    }

    /// A handle to the room; it has no effect between two runs.
    #[must_use]
    pub fn handle(&self) -> RoomHandle {
        self.driver.handle()
    }

    /// Runs the room once more to the end of the run, background tasks included. Dropping the
    /// future stops the run, and another one can begin.
    ///
    /// # Errors
    /// `UnknownTask` if `ask.entry` names no task, `Unfinished` if the last run was interrupted and
    /// not resumed, `Journal` if the journal fails, `Broken` if it did before.
    pub fn run(
        &mut self,
        ask: impl Into<RunInput>,
    ) -> impl Future<Output = Result<Arc<Outcome>, SessionError>> + Send {
        let ask = ask.into();
        // Begun here, not at the first poll, so that a stop from now on applies to this run.
        let guard = self.check_begin(&ask).map(|()| {
            self.begin(ask);
            RunGuard(Some(self))
        });
        async move {
            let guard = guard?;
            guard.begin_observers();
            guard.into_end().await
        }
    }

    /// Consumes the session, and starts a run in its room.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn start(mut self, input: impl Into<RunInput>) -> Result<Run, SessionError> {
        let input = input.into();
        self.check_begin(&input)?;
        self.begin(input);
        Ok(Run(Box::new(self)))
    }

    /// The interrupted run as a run of its own. Unlike the future of [`resume`](Self::resume) it can
    /// be dropped without an end in the journal, so that another host resumes it.
    #[must_use]
    pub fn into_run(self) -> Run {
        Run(Box::new(self))
    }

    /// Runs the room once more and keeps it open until it is closed, beginning with `input`. The
    /// loop runs on the executor that this is called on.
    #[must_use = "the room is stopped when its `RoomGuard` is dropped"]
    pub fn open_room(mut self, input: RunInput) -> (RoomHandle, RoomGuard) {
        let start = self.check_begin(&input).map(|()| {
            self.begin(RunInput { persistent: true, ..input });
        });
        self.run_beside(start)
    }

    /// Opens the room of an observer. With `keeps_usage` the limits of its grants include what its
    /// earlier runs in the room used.
    pub(crate) fn open_observer_room(mut self, keeps_usage: bool) -> (RoomHandle, RoomGuard) {
        let input = RunInput { persistent: true, ..RunInput::default() };
        let start = self.check_begin(&input).map(|()| {
            let mut opening = self.opening(input);
            if keeps_usage {
                opening.used.clone_from(self.driver.used());
            }
            self.driver.begin(opening);
        });
        self.run_beside(start)
    }

    /// Resumes a room that was interrupted while open, like [`open_room`](Self::open_room). Without
    /// an interrupted run the room is over, with the outcome of its last run.
    #[must_use = "the room is stopped when its `RoomGuard` is dropped"]
    pub fn resume_room(self) -> (RoomHandle, RoomGuard) {
        let start = self.check(None);
        self.run_beside(start)
    }

    fn run_beside(mut self, start: Result<(), SessionError>) -> (RoomHandle, RoomGuard) {
        let (handle, stop) = (self.handle(), LoopStop::default());
        let stopping = stop.clone();
        let running = tokio::spawn(async move {
            start?;
            self.observers.begin();
            if let Some(outcome) = self.driver.outcome().filter(|_| !self.driver.is_begun()) {
                return Ok(Arc::clone(outcome));
            }
            let room = self.room.clone();
            let run = RunGuard(Some(&mut self));
            let stopped = run.into_end_unless(stopping.0.notified()).await;
            stopped.unwrap_or(Err(SessionError::Interrupted { room }))
        });
        (handle.clone(), RoomGuard { running, handle, stop })
    }

    /// Changes the history of a task's agent.
    ///
    /// # Errors
    /// `UnknownTask`, `Journal` and `Broken`, as [`run`](Self::run).
    pub async fn change_history(
        &mut self,
        task: &TaskName,
        change: HistoryChange,
    ) -> Result<(), SessionError> {
        self.check(Some(task))?;
        let result =
            self.driver.take_now(Event::HistoryChanged { task: task.clone(), change }).await;
        self.is_broken = result.is_err();
        Ok(result?)
    }

    /// The history of a task's agent; empty if there is none, or no such task.
    #[must_use]
    pub fn history(&self, task: &TaskName) -> History {
        self.driver.history(task)
    }

    /// The history as text for [`import_history`](Self::import_history), here or in another session
    /// (L-183).
    #[must_use]
    pub fn export_history(&self, task: &TaskName) -> String {
        history_file::to_text(&self.history(task))
    }

    /// Replaces a task's history with an exported one. The blobs that its messages refer to must be
    /// in this host's store to be readable.
    ///
    /// # Errors
    /// `History` if the text is no exported history, with the position; otherwise as
    /// [`change_history`](Self::change_history).
    pub async fn import_history(
        &mut self,
        task: &TaskName,
        text: &str,
    ) -> Result<(), SessionError> {
        let messages = history_file::from_text(text)?;
        self.change_history(task, HistoryChange::Import { messages }).await
    }

    /// Replaces the config for later runs: tasks, plugins and models. Histories stay with the tasks
    /// that keep their names.
    pub fn reconfigure(&mut self, prepared: &Prepared) {
        let SessionParts { setup, plugins, models, rooms: _, endpoints } = prepared.parts();
        let setup = with_served_channels(setup, self.driver.channels(), &endpoints);
        self.driver.reconfigure(setup, plugins, models_of_session(models), endpoints);
    }

    /// Checks that a run can begin with this input.
    fn check_begin(&self, input: &RunInput) -> Result<(), SessionError> {
        self.check(input.entry.as_ref())?;
        if self.is_cut_off() {
            return Err(SessionError::Unfinished { room: self.room.clone() });
        }
        Ok(())
    }

    fn check(&self, task: Option<&TaskName>) -> Result<(), SessionError> {
        let setup = self.driver.setup();
        if self.is_broken {
            return Err(SessionError::Broken { room: self.room.clone() });
        }
        unknown_task(setup, task)
    }

    /// Prepares a run; nothing happens before the driver runs.
    pub(crate) fn begin(&mut self, ask: RunInput) {
        self.observers.run_begins();
        let opening = self.opening(ask);
        self.driver.begin(opening);
    }

    fn opening(&self, ask: RunInput) -> RunOpening {
        let setup = self.driver.setup();
        let limits = ask.limits.unwrap_or_else(|| setup.limits.clone());
        RunOpening {
            room: self.room.clone(),
            entry: ask
                .entry
                .or_else(|| self.driver.handed_to())
                .unwrap_or_else(|| setup.entry.clone()),
            content: ask.content,
            attachments: ask.attachments,
            recipient: ask.recipient,
            tools: ask.tools,
            turns: ask.turns,
            sender: ask.sender,
            kill_after: ask.kill_after,
            returns: ask.returns,
            replay: ask.replay,
            role_call: ask.role_call,
            inputs: ask.inputs,
            persistent: ask.persistent,
            metadata: ask.metadata,
            // By the room's time, which may be ahead of the clock.
            deadline: limits.wall_ms.map(|wall| self.driver.now().plus(wall)),
            limits,
            channel: ask.channel.unwrap_or_else(|| ChannelId::from(USER_CHANNEL)),
            ..RunOpening::default()
        }
    }
}

/// Returns an error if the setup has no such task.
pub(super) fn unknown_task(setup: &Setup, task: Option<&TaskName>) -> Result<(), SessionError> {
    match task.filter(|task| !setup.tasks.contains_key(*task)) {
        Some(task) => Err(SessionError::UnknownTask {
            task: task.clone(),
            known: setup.tasks.keys().map(ToString::to_string).collect(),
        }),
        None => Ok(()),
    }
}

fn shared(
    parts: SessionParts,
    options: RunOptions,
    room: &RoomId,
    observers: &Observers,
) -> (Arc<RunContext>, Over) {
    let over = Over { room: room.clone(), subscribers: options.subscribers.clone() };
    // A steady clock, so that a change of the system time fires no deadline.
    let clock = options.clock.steady().unwrap_or(options.clock);
    let channels = SimulatedVoice::around(options.channels, &clock, &parts.setup);
    let shared = RunContext {
        admitted: with_served_channels(parts.setup, &*channels, &parts.endpoints),
        plugins: parts.plugins,
        models: models_of_session(parts.models),
        channels,
        endpoints: parts.endpoints,
        runner: options.runner,
        approver: options.approver,
        clock,
        overlays: OnceLock::new(),
        journals: options.journals,
        subscribers: options.subscribers,
        observers: observers.queues().clone(),
        principal: options.principal,
        rooms: parts.rooms,
        leaves_without_model: options.leaves_without_model,
    };
    (Arc::new(shared), over)
}

/// The setup in which the channels that nobody serves here have no access, so that strategies see
/// at once that they lead to nobody.
fn with_served_channels(
    setup: Arc<Setup>,
    served: &dyn Channels,
    endpoints: &ChannelEndpoints,
) -> Arc<Setup> {
    let serves = |channel: &ChannelId| endpoints.serves(channel) || served.serves(channel);
    if setup.channels.keys().all(serves) {
        return setup;
    }
    let channels = setup.channels.iter().map(|(channel, binding)| {
        let access = if serves(channel) { binding.access } else { ChannelAccess::None };
        (channel.clone(), Binding { access, ..binding.clone() })
    });
    let channels = Arc::new(channels.collect());
    Arc::new(Setup { channels, ..Setup::clone(&setup) })
}

/// The models with a client of its own for each that needs one in every session.
fn models_of_session(models: Arc<Models>) -> Arc<Models> {
    let own =
        models.iter().filter_map(|(name, client)| Some((name.clone(), client.for_session()?)));
    let own: Vec<_> = own.collect();
    if own.is_empty() {
        return models;
    }
    let mut of_session = Models::clone(&models);
    of_session.extend(own);
    Arc::new(of_session)
}

/// A run that is awaited. Dropping it before its end stops the run.
struct RunGuard<'a>(Option<&'a mut Session>);

impl RunGuard<'_> {
    fn begin_observers(&self) {
        if let Some(session) = &self.0 {
            session.observers.begin();
        }
    }

    async fn outcome(&mut self) -> Result<Arc<Outcome>, JournalFailure> {
        match &mut self.0 {
            Some(session) => session.driver.run().await,
            None => std::future::pending().await,
        }
    }
}

impl RunGuard<'_> {
    /// Returns the run's outcome and releases the session. Once `stop` is ready, the session is
    /// released without one.
    async fn into_end_unless(
        mut self,
        stop: impl Future<Output = ()>,
    ) -> Option<Result<Arc<Outcome>, SessionError>> {
        let outcome = tokio::select! {
            outcome = self.outcome() => outcome,
            () = stop => {
                self.0 = None;
                return None;
            }
        };
        Some(self.end(outcome))
    }

    /// Returns the run's outcome and releases the session.
    async fn into_end(mut self) -> Result<Arc<Outcome>, SessionError> {
        let outcome = self.outcome().await;
        self.end(outcome)
    }

    fn end(
        mut self,
        outcome: Result<Arc<Outcome>, JournalFailure>,
    ) -> Result<Arc<Outcome>, SessionError> {
        // Taken out, because the drop would give the run up.
        let Some(session) = self.0.take() else { return Ok(outcome?) };
        session.is_broken = outcome.is_err();
        session.end(outcome)
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            // Blocking is unavoidable here, because a drop cannot await. The journal completes the
            // wait by itself, without the executor.
            let given_up = session.driver.give_up(GIVEN_UP);
            session.is_broken =
                futures_executor::block_on(tokio::task::unconstrained(given_up)).is_err();
        }
    }
}

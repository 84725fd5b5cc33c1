//! One room for run after run: what its agents remember stays, and one journal holds all of it. Not
//! what a run does, which is the core's, and not how a kept history is written, which is
//! `history_file`'s.

use std::future::Future;
use std::sync::Arc;

use conclave_core::protocol::event::{Event, HistoryChange, RunOpening, SeatCall};
use conclave_core::setup::{ReturnType, Setup};
use conclave_core::types::action::Turn;
use conclave_core::types::history::History;
use conclave_core::types::ids::{ChannelId, PluginName, RoomId, TaskName};
use conclave_core::types::limits::RunLimits;
use conclave_core::types::message::{Blob, Entity, ToolCall};
use conclave_core::types::outcome::Outcome;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::calls::Plugins;
use crate::driver::registry::RoomRegistry;
use crate::driver::room_handle::RoomHandle;
use crate::driver::{Driver, Models, RunContext};
use crate::host::prepared::{Prepared, RunOptions, Stopper};
use crate::host::simulated_channel::SimulatedVoice;
use crate::observe::subscribe::Subscribers;
use crate::storage::history_file::{self, HistoryFileError};
use crate::storage::journal::JournalFailure;

/// The channel on which the user of a run is asked.
const USER_CHANNEL: &str = "terminal";
/// What the journal says of a run whose future was dropped.
const GIVEN_UP: &str = "nobody waits for this run any more";

/// What one run is asked. The default is no message to the config's entry task.
///
/// ```
/// use conclave_runtime::RunInput;
///
/// let ask = RunInput { turns: Some(3), ..RunInput::from("When was Skerryvore lit?") };
/// assert_eq!(ask.content.as_deref(), Some("When was Skerryvore lit?"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RunInput {
    /// The task that gets the message; none: the one that the conversation was handed to, else the
    /// config's `entry`.
    pub entry: Option<TaskName>,
    /// None: the task starts from its system message alone.
    pub content: Option<String>,
    /// What goes with the message.
    pub attachments: Vec<Blob>,
    /// A JSON object for the entry agent's `inputs`.
    pub inputs: Value,
    /// Whom the message is for; the run is over at once when it is not the entry task (L-050d).
    pub recipient: Option<String>,
    /// Calls that come with the message.
    pub tools: Vec<ToolCall>,
    /// Steps of the entry task, in the place of its own number (L-050f).
    pub turns: Option<u32>,
    /// The seat that the message is taken to come from, instead of the user's; then it counts as
    /// the program's own word.
    pub sender: Option<Entity>,
    /// The run is killed once its entry task has made so many steps: for whoever looks into it step
    /// by step.
    pub kill_after: Option<u32>,
    /// What the result is to be, in the place of what the task says.
    pub returns: Option<ReturnType>,
    /// Turns that are taken in the place of the entry agent's first steps, carried out anew: a run
    /// that is played again (O-119).
    pub replay: Vec<Turn>,
    /// Only this seat of the entry task is asked.
    pub seat: Option<SeatCall>,
    /// In the place of the config's.
    pub limits: Option<RunLimits>,
    /// The room stays open when nobody is at work in it, and takes what comes in on its channels,
    /// until it is closed.
    pub hold: bool,
    /// What is known of the room: a JSON object, null when there is nothing. What it holds under
    /// `_child_metadata` goes to all rooms below (R-025).
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
            seat: None,
            limits: None,
            hold: false,
            metadata: Value::Null,
        }
    }
}

impl From<&str> for RunInput {
    fn from(content: &str) -> Self {
        Self::from(content.to_owned())
    }
}

impl From<String> for RunInput {
    fn from(content: String) -> Self {
        Self { content: Some(content), ..Self::default() }
    }
}

/// Why a session could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The config has no task of that name; nothing was started.
    #[error("there is no task `{task}`; these are there: {}", .known.join(", "))]
    UnknownTask { task: TaskName, known: Vec<String> },
    /// A history that was kept cannot be taken; nothing was changed.
    #[error(transparent)]
    History(#[from] HistoryFileError),
    /// The journal failed; nothing more was performed, and nothing more can be.
    #[error(transparent)]
    Journal(#[from] JournalFailure),
    /// There is nothing to go on with.
    #[error("the room {room} has no run to go on with")]
    NotBegun { room: RoomId },
    /// The executor of the program was shut down while the room was open; what its journal holds
    /// can be gone on with.
    #[error("the room {room} was cut off: the program's executor was shut down while it was open")]
    CutOff { room: RoomId },
    /// The journal failed before, so what comes now could not be kept.
    #[error("the journal of room {room} has failed before; what is to go on needs another session")]
    Broken { room: RoomId },
}

/// Why a room cannot be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    #[error("no room {room} is kept here")]
    Unknown { room: RoomId },
    /// A call of it was cut off, and would have to be run again by a component that may do
    /// something else.
    #[error(
        "the plugin `{plugin}` is not what it was when room {room} was cut off in the middle of one of its calls; build or install the \
         same component again, or end the run: conclave stop {room}"
    )]
    Changed { room: RoomId, plugin: PluginName },
    #[error(transparent)]
    Journal(#[from] JournalFailure),
}

/// What a room's runs go on with.
#[derive(Clone)]
pub(crate) struct SessionParts {
    pub(crate) setup: Arc<Setup>,
    pub(crate) plugins: Arc<dyn Plugins>,
    pub(crate) models: Arc<Models>,
    pub(crate) everything: Arc<RoomRegistry>,
}

/// A room that run after run happens in, one at a time. Its agents remember, unless a task's
/// `restart` has each run begin anew. The limits of a run, and what grants allow for a whole run,
/// begin anew with each.
///
/// Dropping it stops what goes on, at once and without an ending in the journal.
pub struct Session {
    room: RoomId,
    pub(crate) driver: Driver,
    is_broken: bool,
    /// Dropped last, so that nothing is told afterwards.
    _over: Over,
}

/// A room whose loop runs beside the program. Dropping it stops the room and what goes on in it.
#[derive(Debug)]
pub struct Hosted {
    running: JoinHandle<Result<Arc<Outcome>, SessionError>>,
    handle: RoomHandle,
    stopper: Stopper,
}

impl Hosted {
    /// Waits until the room was closed and all that it waits for is over.
    ///
    /// # Errors
    /// As [`Session::run`], and `CutOff`.
    ///
    /// # Panics
    /// When the loop did.
    pub async fn closed(mut self) -> Result<Arc<Outcome>, SessionError> {
        match (&mut self.running).await {
            Ok(outcome) => outcome,
            Err(broken) if broken.is_panic() => std::panic::resume_unwind(broken.into_panic()),
            Err(_) => Err(SessionError::CutOff { room: self.handle.room().clone() }),
        }
    }

    /// What speaks to the room.
    #[must_use]
    pub fn handle(&self) -> &RoomHandle {
        &self.handle
    }

    /// A handle that stops it, pauses it, and decides what waits for an approval.
    #[must_use]
    pub fn stopper(&self) -> &Stopper {
        &self.stopper
    }

    /// The room is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.running.is_finished()
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Tells the subscribers that a room's runs are over, however they came to their end.
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
        let setup = Arc::clone(&parts.setup);
        let (shared, over) = shared(parts, options, &room);
        let driver = Driver::new(shared, setup, room.clone())?;
        Ok(Self { room, driver, is_broken: false, _over: over })
    }

    /// The room of that name, as its journal has it.
    pub(crate) async fn reopen(
        parts: SessionParts,
        options: RunOptions,
        room: &RoomId,
    ) -> Result<Self, ResumeError> {
        let setup = Arc::clone(&parts.setup);
        let (shared, over) = shared(parts, options, room);
        let Some(driver) = Driver::reopen(shared, room).await? else {
            return Err(ResumeError::Unknown { room: room.clone() });
        };
        match driver.changed_plugin(&setup) {
            Some(plugin) => Err(ResumeError::Changed { room: room.clone(), plugin }),
            None => {
                let mut session =
                    Self { room: room.clone(), driver, is_broken: false, _over: over };
                if !session.is_cut_off() {
                    session.driver.renew();
                }
                Ok(session)
            }
        }
    }

    /// Its last run was cut off, and [`go_on`](Self::go_on) brings it to its end.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.driver.is_cut_off()
    }

    /// Why its run is paused; none when it is not. One that was paused and cut off is paused when
    /// it is gone on with, until a [`Stopper`] lets it go on.
    #[must_use]
    pub fn paused(&self) -> Option<&str> {
        self.driver.paused()
    }

    /// Brings the run that was cut off to its end; the outcome of the last run when none was.
    ///
    /// # Errors
    /// `Journal` when the journal fails, `Broken` when it did before, `NotBegun` when the room
    /// never had a run.
    pub async fn resume(&mut self) -> Result<Arc<Outcome>, SessionError> {
        self.check(None)?;
        if !self.is_cut_off() {
            return self
                .driver
                .outcome()
                .cloned()
                .ok_or_else(|| SessionError::NotBegun { room: self.room.clone() });
        }
        let mut going = RunGuard(Some(self));
        let outcome = going.outcome().await;
        if let Some(session) = going.0.take() {
            session.is_broken = outcome.is_err();
            session.driver.renew();
        }
        Ok(outcome?)
    }

    /// The root room's id.
    #[must_use]
    pub fn room(&self) -> &RoomId {
        &self.room
    }

    /// Who speaks to the room while it is open.
    #[must_use]
    pub fn handle(&self) -> RoomHandle {
        self.driver.handle()
    }

    /// A handle that stops the run that goes on; between two runs it does nothing.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.driver.sender())
    }

    /// Runs the room once more, to the end of the run, background tasks included. Dropping the
    /// future stops the run, and the next one can begin.
    ///
    /// # Errors
    /// `UnknownTask` when `ask.entry` names none, `Journal` when the journal fails, `Broken` when
    /// it did before.
    pub fn run(
        &mut self,
        ask: impl Into<RunInput>,
    ) -> impl Future<Output = Result<Arc<Outcome>, SessionError>> + Send {
        let ask = ask.into();
        // Here and not when it is first polled: whoever stops it from now on means this run.
        let begun = self.check(ask.entry.as_ref()).map(|()| {
            self.begin(ask);
            RunGuard(Some(self))
        });
        async move { Ok(begun?.into_end().await?) }
    }

    /// Runs the room once more, and holds it open until it is closed; `hold` is what it begins
    /// with, if it has a message. The loop runs beside the caller, on the executor that this is
    /// called on.
    #[must_use = "the room is stopped when its `Hosted` is dropped"]
    pub fn host(mut self, hold: RunInput) -> (RoomHandle, Hosted) {
        let begun =
            self.check(hold.entry.as_ref()).map(|()| self.begin(RunInput { hold: true, ..hold }));
        self.run_beside(begun)
    }

    /// Goes on with a room that was cut off while it was held open, as [`host`](Self::host). One
    /// that was not cut off is over, and its outcome is that of its last run.
    #[must_use = "the room is stopped when its `Hosted` is dropped"]
    pub fn host_on(self) -> (RoomHandle, Hosted) {
        let begun = self.check(None);
        self.run_beside(begun)
    }

    fn run_beside(mut self, begun: Result<(), SessionError>) -> (RoomHandle, Hosted) {
        let (handle, stopper) = (self.handle(), self.stopper());
        let running = tokio::spawn(async move {
            begun?;
            if let Some(outcome) = self.driver.outcome().filter(|_| !self.driver.is_begun()) {
                return Ok(Arc::clone(outcome));
            }
            Ok(RunGuard(Some(&mut self)).into_end().await?)
        });
        (handle.clone(), Hosted { running, handle, stopper })
    }

    /// Changes what a task's agent remembers.
    ///
    /// # Errors
    /// `UnknownTask`, `Journal` and `Broken`, as [`run`](Self::run).
    pub async fn change_history(
        &mut self,
        task: &TaskName,
        change: HistoryChange,
    ) -> Result<(), SessionError> {
        self.check(Some(task))?;
        let taken =
            self.driver.take_now(Event::HistoryChanged { task: task.clone(), change }).await;
        self.is_broken = taken.is_err();
        Ok(taken?)
    }

    /// What a task's agent remembers; empty when it remembers nothing, or there is no such task.
    #[must_use]
    pub fn history(&self, task: &TaskName) -> History {
        self.driver.history(task)
    }

    /// The same as text that [`import_history`](Self::import_history) takes, here or in another
    /// session (L-183).
    #[must_use]
    pub fn export_history(&self, task: &TaskName) -> String {
        history_file::to_text(&self.history(task))
    }

    /// Puts a history that was exported in the place of a task's. What its messages refer to must
    /// be among this host's blobs to be read.
    ///
    /// # Errors
    /// `History` when the text is no such history, and where; else as
    /// [`change_history`](Self::change_history).
    pub async fn import_history(
        &mut self,
        task: &TaskName,
        text: &str,
    ) -> Result<(), SessionError> {
        let messages = history_file::from_text(text)?;
        self.change_history(task, HistoryChange::Import { messages }).await
    }

    /// Later runs go on with this config: its tasks, plugins and models. What was remembered stays
    /// with the tasks that have the same name.
    pub fn reconfigure(&mut self, prepared: &Prepared) {
        let SessionParts { setup, plugins, models, everything: _ } = prepared.parts();
        self.driver.reconfigure(setup, plugins, models);
    }

    fn check(&self, task: Option<&TaskName>) -> Result<(), SessionError> {
        let setup = self.driver.setup();
        if self.is_broken {
            return Err(SessionError::Broken { room: self.room.clone() });
        }
        match task.filter(|task| !setup.tasks.contains_key(*task)) {
            Some(task) => Err(SessionError::UnknownTask {
                task: task.clone(),
                known: setup.tasks.keys().map(ToString::to_string).collect(),
            }),
            None => Ok(()),
        }
    }

    /// Nothing happens before the driver runs.
    pub(crate) fn begin(&mut self, ask: RunInput) {
        let setup = self.driver.setup();
        let limits = ask.limits.unwrap_or_else(|| setup.limits.clone());
        let opening = RunOpening {
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
            seat: ask.seat,
            inputs: ask.inputs,
            hold: ask.hold,
            metadata: ask.metadata,
            deadline: limits.wall_ms.map(|wall| self.driver.now().plus(wall)),
            limits,
            channel: ChannelId::from(USER_CHANNEL),
            ..RunOpening::default()
        };
        self.driver.begin(opening);
    }
}

fn shared(parts: SessionParts, options: RunOptions, room: &RoomId) -> (Arc<RunContext>, Over) {
    let over = Over { room: room.clone(), subscribers: options.subscribers.clone() };
    let clock = options.clock.steady().unwrap_or(options.clock);
    let shared = RunContext {
        plugins: parts.plugins,
        models: parts.models,
        channels: SimulatedVoice::around(options.channels, &clock, &parts.setup),
        runner: options.runner,
        approver: options.approver,
        clock,
        journals: options.journals,
        subscribers: options.subscribers,
        principal: options.principal,
        everything: parts.everything,
        admitted: parts.setup,
    };
    (Arc::new(shared), over)
}

/// A run that is waited for. Dropped before its end, it is stopped.
struct RunGuard<'a>(Option<&'a mut Session>);

impl RunGuard<'_> {
    async fn outcome(&mut self) -> Result<Arc<Outcome>, JournalFailure> {
        match &mut self.0 {
            Some(session) => session.driver.run().await,
            None => std::future::pending().await,
        }
    }
}

impl RunGuard<'_> {
    /// The run's outcome; the session is as it was.
    async fn into_end(mut self) -> Result<Arc<Outcome>, JournalFailure> {
        let outcome = self.outcome().await;
        if let Some(session) = self.0.take() {
            session.is_broken = outcome.is_err();
        }
        outcome
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            // The one place that waits where it stands: a drop cannot await. The journal ends the
            // wait by itself, without the executor.
            let given_up = session.driver.give_up(GIVEN_UP);
            session.is_broken =
                futures_executor::block_on(tokio::task::unconstrained(given_up)).is_err();
        }
    }
}

//! A config that is ready to run, and its runs.

mod call_tool;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use conclave_core::config::Problems;
use conclave_core::protocol::event::{Event, Principal};
use conclave_core::setup::{NoTool, Setup};
use conclave_core::types::action::Turn;
use conclave_core::types::approval::{Approval, ApprovalAuthor};
use conclave_core::types::ids::{CallId, PluginName, RoomId, TaskName};
use conclave_core::types::message::Blob;
use conclave_core::types::outcome::Outcome;
use conclave_core::types::request::{RequestId, RoomRequest};
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;

use crate::calls::Plugins;
use crate::driver::Models;
use crate::driver::approve::{Approver, NoApprover};
use crate::driver::channel::{Channels, UnattendedChannel};
use crate::driver::registry::RoomRegistry;
use crate::driver::room_handle::RoomHandle;
use crate::driver::runner::{LocalRunner, TaskRunner};
use crate::host::reload::{Rebuilt, Reloader};
use crate::host::session::{Hosted, ResumeError, RunInput, Session, SessionParts};
use crate::observe::subscribe::Subscribers;
use crate::storage::journal::{JournalFailure, Journals, NoJournals};
use crate::support::clock::{Clock, SystemClock};
use crate::support::ids::{Ids, RandomIds};

pub use call_tool::{CallToolError, Caller, ToolCalling, ToolRun};

/// A plugin as it was loaded.
#[derive(Clone, Debug)]
pub struct PluginInfo {
    pub name: PluginName,
    pub from_cache: bool,
    /// In bytes; 0 for a native one.
    pub size: u64,
    /// It is the program's own, and runs in no sandbox.
    pub is_native: bool,
}

/// A config whose plugins are loaded and admitted. Cheap to run many times.
pub struct Prepared {
    pub(crate) setup: Arc<Setup>,
    pub(crate) calls: Arc<dyn Plugins>,
    pub(crate) plugins: Vec<PluginInfo>,
    pub(crate) models: Arc<Models>,
    pub(crate) sources: BTreeMap<PluginName, String>,
    pub(crate) warnings: Problems,
    pub(crate) rebuilt: Rebuilt,
    /// In a conversation.
    pub(crate) turn_wall: Option<Duration>,
    pub(crate) everything: Arc<RoomRegistry>,
}

/// Who takes part in a run besides its plugins. The default: nobody is there, nothing is kept,
/// nobody follows.
///
/// ```
/// use std::sync::Arc;
///
/// use conclave_runtime::RunOptions;
/// use conclave_runtime::journal::MemoryJournals;
/// use serde_json::json;
///
/// let journals = MemoryJournals::default();
/// let options = RunOptions { inputs: json!({ "language": "Gaelic" }), journals: Arc::new(journals.clone()), ..RunOptions::default() };
/// # drop(options);
/// ```
#[derive(Clone)]
pub struct RunOptions {
    /// What the run is called; a [`RoomId`] is always that one.
    pub ids: Arc<dyn Ids>,
    /// On whose behalf it runs.
    pub principal: Principal,
    /// A JSON object for the entry agent's `inputs`; in a session and a batch each [`RunInput`] brings
    /// its own.
    pub inputs: serde_json::Value,
    /// What goes with the message; likewise.
    pub attachments: Vec<Blob>,
    /// Turns that are taken in the place of the entry agent's first steps; likewise (O-119).
    pub replay: Vec<Turn>,
    pub channels: Arc<dyn Channels>,
    /// Runs the background tasks.
    pub runner: Arc<dyn TaskRunner>,
    /// Decides about tool calls that a rule asks about.
    pub approver: Arc<dyn Approver>,
    pub clock: Arc<dyn Clock>,
    pub journals: Arc<dyn Journals>,
    pub subscribers: Subscribers,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            ids: Arc::new(RandomIds),
            principal: Principal("operator".into()),
            inputs: json!({}),
            attachments: Vec::new(),
            replay: Vec::new(),
            channels: Arc::new(UnattendedChannel),
            runner: Arc::new(LocalRunner::new()),
            approver: Arc::new(NoApprover),
            clock: Arc::new(SystemClock),
            journals: Arc::new(NoJournals),
            subscribers: Subscribers::default(),
        }
    }
}

/// A run that goes on: a session of one. Dropping it stops its sandboxes.
pub struct Run(Session);

/// Stops a run from elsewhere, pauses it, and says something to it.
///
/// ```
/// use conclave_runtime::native::{Failure, Plugin};
/// use conclave_runtime::{Host, HostOptions, RunOptions, config::Config, outcome::Status};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let slow = Plugin::agent("slow", |_| std::future::pending::<Result<String, Failure>>());
/// let host = Host::new(HostOptions { native: vec![slow], ..HostOptions::default() })?;
/// let config = Config::parse("slow.toml", "", "entry = 'a'\n[plugins.a]\nsource = 'native:slow'\n[tasks.a]\nagent = 'a'\n")?;
/// let run = host.load(&config).await?.start(Some("Think.".to_owned()), RunOptions::default())?;
/// let stopper = run.stopper();
/// let running = tokio::spawn(run.outcome());
/// stopper.stop("that is enough");
/// let outcome = running.await??;
/// assert_eq!((outcome.status, outcome.reason.as_str()), (Status::Kill, "that is enough"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Stopper(pub(crate) UnboundedSender<Event>);

impl Stopper {
    /// Stops it, also inside a step; nothing happens when it is over.
    pub fn stop(&self, reason: &str) {
        let _ = self.0.send(Event::Cancelled { reason: reason.to_owned() });
    }

    /// Stops what the entry task is doing now. An interactive task then asks its user; another
    /// ends.
    pub fn stop_turn(&self, reason: &str) {
        let _ = self.0.send(Event::TurnStopped { reason: reason.to_owned() });
    }

    /// Stops one task, wherever in the run it is at work, and what it had others do: a sub-task's
    /// caller goes on with what it had, a background task ends as cancelled. The entry task is the
    /// run.
    pub fn kill_task(&self, task: &TaskName, reason: &str) {
        let _ = self.0.send(Event::TaskKilled { task: task.clone(), reason: reason.to_owned() });
    }

    /// Decides about a call that waits for an approval, in the place of the approver; nothing
    /// happens when it waits no more.
    pub fn decide(&self, call: CallId, approval: Approval) {
        let _ = self.0.send(Event::Decided { call, approval, author: ApprovalAuthor::Program });
    }

    /// Pauses it, background tasks included: what is under way goes on to its end, and nothing new
    /// begins (O-122).
    pub fn pause(&self, reason: &str) {
        let _ = self.0.send(Event::Paused { reason: reason.to_owned() });
    }

    /// Lets it go on; nothing happens when it is not paused.
    pub fn unpause(&self) {
        let _ = self.0.send(Event::Unpaused);
    }

    /// Says something to a task while the run is at work; its agent reads it in its next step
    /// (O-053). None: the entry task.
    pub fn tell(&self, task: Option<&TaskName>, text: &str) {
        let _ = self.0.send(Event::UserSaid {
            task: task.cloned(),
            text: text.to_owned(),
            attachments: Vec::new(),
        });
    }

    /// Asks something of the room, and waits for no reply; [`RoomHandle`](crate::RoomHandle) does.
    pub fn request(&self, what: RoomRequest) {
        let _ = self.0.send(Event::Requested { request: RequestId::NO_REPLY, what });
    }

    /// Has the journal say that calls from here on go to a component that was built anew.
    pub fn note_replaced(&self, plugin: &PluginName, sha256: &str) {
        let _ = self
            .0
            .send(Event::PluginReplaced { plugin: plugin.clone(), sha256: sha256.to_owned() });
    }
}

impl Prepared {
    /// What the rooms of its runs run with.
    #[must_use]
    pub fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    /// Looks after the plugins that come from files, for an author who builds them anew: the next
    /// call goes to the new one.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        Reloader::new(self.rebuilt.clone())
    }

    /// It was held to a lock.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.rebuilt.pins.lock.is_some()
    }

    /// Returns whether the lock says that the operator builds this plugin.
    #[must_use]
    pub fn is_dev(&self, plugin: &PluginName) -> bool {
        self.rebuilt.pins.is_dev(plugin.as_str())
    }

    /// The plugins, in order of name.
    #[must_use]
    pub fn plugins(&self) -> &[PluginInfo] {
        &self.plugins
    }

    /// The label of each plugin's source.
    #[must_use]
    pub fn sources(&self) -> &BTreeMap<PluginName, String> {
        &self.sources
    }

    /// What fits and is most likely not meant.
    #[must_use]
    pub fn warnings(&self) -> &Problems {
        &self.warnings
    }

    /// Calls into its plugins without a task: every call has a sandbox of its own and the plugin's
    /// limits.
    #[must_use]
    pub fn calls(&self) -> &Arc<dyn Plugins> {
        &self.calls
    }

    /// The same for a conversation: the entry task, and whatever task it may be handed to, asks its
    /// user after each of its answers, whatever its config says, and only the user ends it. An
    /// answer that says nothing is one too, so that the user is asked then as well. The run's wall
    /// time is taken out of it: the time that a person thinks is not the run's, so it is for
    /// whoever leads the conversation to hold each turn to [`turn_wall`](Self::turn_wall).
    #[must_use]
    pub fn for_chat(mut self) -> Self {
        let setup = Arc::make_mut(&mut self.setup);
        for holder in setup.holders() {
            let Some(task) = setup.tasks.get_mut(&holder) else { continue };
            let task = Arc::make_mut(task);
            (task.interactive, task.no_tool, task.allow_null_result) =
                (true, NoTool::Nothing, true);
        }
        self.turn_wall = setup.limits.wall_ms.take().map(Duration::from_millis);
        self
    }

    /// How long one turn of a conversation may take: `limits.run.wall`; none when there is no
    /// limit, or when it is no conversation.
    #[must_use]
    pub fn turn_wall(&self) -> Option<Duration> {
        self.turn_wall
    }

    /// Opens a room for a message. The work begins when the outcome is awaited.
    ///
    /// # Errors
    /// When the room's journal cannot be made.
    pub fn start(
        &self,
        message: Option<String>,
        options: RunOptions,
    ) -> Result<Run, JournalFailure> {
        self.parts().start(message, options)
    }

    /// Opens a room for run after run: what its agents remember stays from one to the next, unless
    /// a task's `restart` says otherwise.
    ///
    /// # Errors
    /// When the room's journal cannot be made.
    ///
    /// ```
    /// use conclave_runtime::native::{Plugin, Step};
    /// use conclave_runtime::{RunInput, Host, HostOptions, RunOptions, config::Config};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let echo = Plugin::agent("echo", |step: Step| async move { Ok(conclave_runtime::native::finish(step.text())) });
    /// let host = Host::new(HostOptions { native: vec![echo], ..HostOptions::default() })?;
    /// let config = Config::parse("a.toml", "", "entry = 'a'\n[plugins.a]\nsource = 'native:echo'\n[tasks.a]\nagent = 'a'\n")?;
    /// let mut session = host.load(&config).await?.session(RunOptions::default())?;
    /// assert_eq!(session.run(RunInput::from("one")).await?.content.as_deref(), Some("one"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn session(&self, options: RunOptions) -> Result<Session, JournalFailure> {
        Session::open(self.parts(), options)
    }

    /// Goes on with a room that `options.journals` keep: its history is there, and a run that was
    /// cut off can be brought to its end. What the room was allowed when that run began stays so
    /// until the next run; what a plugin may reach is this config's.
    ///
    /// # Errors
    /// `Unknown` when there is no such room, `Changed` when a component that was cut off in a call
    /// is another now.
    pub async fn reopen(&self, room: &RoomId, options: RunOptions) -> Result<Session, ResumeError> {
        Session::reopen(self.parts(), options, room).await
    }

    /// Opens a room that stays open until it is closed: it takes what comes in on its channels, and
    /// tasks. Its loop runs beside the caller, on the executor that this is called on.
    ///
    /// # Errors
    /// When the room's journal cannot be made.
    ///
    /// ```
    /// use conclave_runtime::native::{self, Plugin, Step};
    /// use conclave_runtime::{Host, HostOptions, RunOptions, config::Config, delegation::Delegation};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let count = Plugin::agent("count", |step: Step| async move { Ok(native::finish(step.text().len().to_string())) });
    /// let host = Host::new(HostOptions { native: vec![count], ..HostOptions::default() })?;
    /// let config = Config::parse("a.toml", "", "entry = 'a'\n[plugins.a]\nsource = 'native:count'\n[tasks.a]\nagent = 'a'\n")?;
    /// let (room, hosted) = host.load(&config).await?.open_room(RunOptions::default())?;
    /// let task = room.delegate(Delegation { agent: "a".to_owned(), task: "four".to_owned(), ..Delegation::default() }).await.unwrap();
    /// assert_eq!(task.wait(None).await?.output.as_deref(), Some("4"));
    /// room.close("that was all").await.unwrap();
    /// hosted.closed().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_room(&self, options: RunOptions) -> Result<(RoomHandle, Hosted), JournalFailure> {
        Ok(self.session(options)?.host(RunInput::default()))
    }

    pub(crate) fn parts(&self) -> SessionParts {
        SessionParts {
            setup: Arc::clone(&self.setup),
            plugins: Arc::clone(&self.calls),
            models: Arc::clone(&self.models),
            everything: Arc::clone(&self.everything),
        }
    }
}

impl Run {
    /// The root room's id.
    #[must_use]
    pub fn room(&self) -> &RoomId {
        self.0.room()
    }

    /// A handle that stops it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.0.stopper()
    }

    /// Runs it to its end, background tasks included.
    ///
    /// # Errors
    /// When the journal fails; then nothing more was performed.
    pub async fn outcome(mut self) -> Result<Arc<Outcome>, JournalFailure> {
        self.0.driver.run().await
    }
}

impl SessionParts {
    /// Opens a room for one run.
    pub(crate) fn start(
        self,
        content: Option<String>,
        mut options: RunOptions,
    ) -> Result<Run, JournalFailure> {
        let (inputs, attachments, replay) = (
            options.inputs.take(),
            std::mem::take(&mut options.attachments),
            std::mem::take(&mut options.replay),
        );
        let ask = RunInput { content, inputs, attachments, replay, ..RunInput::default() };
        let mut session = Session::open(self, options)?;
        session.begin(ask);
        Ok(Run(session))
    }
}

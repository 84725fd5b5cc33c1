//! A config that is ready to run, and its runs.

mod call_tool;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use conclave_core::config::Problems;
use conclave_core::protocol::event::Principal;
use conclave_core::setup::Setup;
use conclave_core::types::ids::{OPERATOR, PluginName, RoomId};
use conclave_core::types::outcome::Outcome;

use crate::calls::Plugins;
use crate::driver::approve::{Approver, NoApprover};
use crate::driver::channel::{Channels, UnattendedChannel};
use crate::driver::outgoing::ChannelEndpoints;
use crate::driver::registry::RoomRegistry;
use crate::driver::room_handle::RoomHandle;
use crate::driver::runner::{LocalRunner, TaskRunner};
use crate::driver::{EarlyAnswer, Models};
use crate::host::observers::{self, ObserverReport};
use crate::host::reload::{Rebuilt, Reloader};
use crate::host::session::{
    ResumeError, RoomGuard, RunInput, Session, SessionError, SessionParts, unknown_task,
};
use crate::observe::subscribe::Subscribers;
use crate::storage::journal::{JournalFailure, Journals, NoJournals};
use crate::support::clock::{Clock, SystemClock};
use crate::support::ids::{Ids, RandomIds};

pub(crate) use call_tool::CallSetups;
pub use call_tool::{CallToolError, Caller, ToolCalling, ToolRun};

/// A loaded plugin.
#[derive(Clone, Debug)]
pub struct PluginInfo {
    /// The plugin's name in the config.
    pub name: PluginName,
    /// Whether its compiled code was there before, in the cache or in the program.
    pub from_cache: bool,
    /// The size of the component in bytes; 0 for a native plugin.
    pub size: u64,
    /// Whether the plugin belongs to the program and runs in no sandbox.
    pub is_native: bool,
}

/// A config whose plugins are loaded and admitted. Starting a run from it is cheap.
pub struct Prepared {
    pub(crate) setup: Arc<Setup>,
    pub(crate) calls: Arc<dyn Plugins>,
    pub(crate) plugins: Vec<PluginInfo>,
    pub(crate) models: Arc<Models>,
    pub(crate) sources: BTreeMap<PluginName, String>,
    pub(crate) warnings: Problems,
    pub(crate) rebuilt: Rebuilt,
    /// The wall-time limit of one turn of a conversation; set by `for_chat`.
    pub(crate) turn_wall: Option<Duration>,
    pub(crate) rooms: Arc<RoomRegistry>,
    pub(crate) endpoints: Arc<ChannelEndpoints>,
    /// The setups of single calls so far.
    pub(crate) call_setups: CallSetups,
}

/// The host side of a run besides its plugins. The default is unattended, has no journal and no
/// subscribers.
///
/// ```
/// use std::sync::Arc;
///
/// use conclave_runtime::RunOptions;
/// use conclave_runtime::journal::MemoryJournals;
///
/// let journals = MemoryJournals::default();
/// let options = RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() };
/// # drop(options);
/// ```
#[derive(Clone)]
pub struct RunOptions {
    /// The source of the room's name; a [`RoomId`] always gives itself.
    pub ids: Arc<dyn Ids>,
    /// The principal on whose behalf the run acts.
    pub principal: Principal,
    /// The channels on which people answer questions and read messages.
    pub channels: Arc<dyn Channels>,
    /// The runner of background tasks.
    pub runner: Arc<dyn TaskRunner>,
    /// The approver of tool calls that need an approval.
    pub approver: Arc<dyn Approver>,
    /// The source of the times of events and of the timers.
    pub clock: Arc<dyn Clock>,
    /// The source of each room's journal.
    pub journals: Arc<dyn Journals>,
    /// The subscribers, which receive every event of the run in this order.
    pub subscribers: Subscribers,
    /// Whether a run is left when a model is not available for the only step under way, also when it
    /// is asked again: `NoModel`. It stays interrupted, and its resumption asks once more. Otherwise,
    /// and without a journal, the run ends with a failure.
    pub leaves_without_model: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            ids: Arc::new(RandomIds),
            principal: Principal(OPERATOR.into()),
            channels: Arc::new(UnattendedChannel),
            runner: Arc::new(LocalRunner::new()),
            approver: Arc::new(NoApprover),
            clock: Arc::new(SystemClock),
            journals: Arc::new(NoJournals),
            subscribers: Subscribers::default(),
            leaves_without_model: false,
        }
    }
}

/// An active run: a session of one run. Dropping it stops its sandboxes.
// Boxed, because the future of its outcome would hold it twice.
pub struct Run(pub(super) Box<Session>);

impl Prepared {
    /// The setup of the rooms.
    #[must_use]
    pub fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    /// A reloader for plugins from files, for authors who rebuild them: the next call uses the new
    /// component.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        Reloader::new(self.rebuilt.clone())
    }

    /// The channels that the host serves itself: those of kind `webhook`.
    #[must_use]
    pub fn endpoints(&self) -> &Arc<ChannelEndpoints> {
        &self.endpoints
    }

    /// Whether the config was checked against a lock.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.rebuilt.pins.lock.is_some()
    }

    /// Whether the lock marks this plugin as built by the operator.
    #[must_use]
    pub fn is_dev(&self, plugin: &PluginName) -> bool {
        self.rebuilt.pins.is_dev(plugin.as_str())
    }

    /// The name of the pool of hosts that can go on with each other's runs of this config: a digest
    /// of its setup, with the digests of its components, and of the rules of this host. A host with
    /// another config, component or version is in another pool.
    #[cfg(feature = "postgres")]
    #[must_use]
    pub fn pool(&self) -> String {
        let setup = serde_json::to_string(&*self.setup).unwrap_or_default();
        let rules = conclave_core::protocol::event::RULES;
        let version = env!("CARGO_PKG_VERSION");
        let digest =
            crate::support::digest::sha256(format!("{version} {rules} {setup}").as_bytes());
        digest[..16].to_owned()
    }

    /// The plugins, ordered by name.
    #[must_use]
    pub fn plugins(&self) -> &[PluginInfo] {
        &self.plugins
    }

    /// The label of each plugin's source.
    #[must_use]
    pub fn sources(&self) -> &BTreeMap<PluginName, String> {
        &self.sources
    }

    /// The warnings: valid settings that are probably mistakes.
    #[must_use]
    pub fn warnings(&self) -> &Problems {
        &self.warnings
    }

    /// Returns access to the plugins without a task. Every call has its own sandbox and the
    /// plugin's limits.
    #[must_use]
    pub fn calls(&self) -> &Arc<dyn Plugins> {
        &self.calls
    }

    /// Returns the config for a conversation. The entry task, and each task that the conversation
    /// can be handed to, asks its user after every answer; only the user ends it. This overrides
    /// the config, and an empty answer counts as an answer too.
    ///
    /// The run's wall-time limit is removed, because the user's thinking time would count. The
    /// caller limits each turn to [`turn_wall`](Self::turn_wall) instead.
    #[must_use]
    pub fn for_chat(mut self) -> Self {
        let wall_ms = Arc::make_mut(&mut self.setup).make_interactive();
        self.turn_wall = wall_ms.map(Duration::from_millis);
        self.call_setups = CallSetups::default();
        self
    }

    /// The wall-time limit of one turn of a conversation, from `limits.run.wall`. `None` if there
    /// is no limit, or outside a conversation.
    #[must_use]
    pub fn turn_wall(&self) -> Option<Duration> {
        self.turn_wall
    }

    /// Opens a room for a message, or for a whole [`RunInput`]. The work begins when the outcome is
    /// awaited.
    ///
    /// # Errors
    /// `Journal` if the room's journal cannot be created, `UnknownTask` if the input's `entry` names
    /// no task.
    pub fn start(
        &self,
        input: impl Into<RunInput>,
        options: RunOptions,
    ) -> Result<Run, SessionError> {
        let input = input.into();
        // Before a journal is created.
        unknown_task(&self.setup, input.entry.as_ref())?;
        self.session(options)?.start(input)
    }

    /// Journals the beginning of a run and nothing else; a worker of the store resumes it. Returns
    /// the run's room.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn enqueue(
        &self,
        input: impl Into<RunInput>,
        options: RunOptions,
    ) -> Result<RoomId, SessionError> {
        let Run(mut session) = self.start(input, options)?;
        session.driver.enqueue().await?;
        Ok(session.room().clone())
    }

    /// Opens a room for several runs. Its agents keep their histories from one run to the next,
    /// unless a task's `restart` resets them.
    ///
    /// # Errors
    /// Fails when the room's journal cannot be created.
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

    /// Resumes a room from `options.journals` with its histories; an interrupted run can be brought
    /// to its end. The room keeps the permissions from when that run began until the next run.
    /// Access to the outside follows this config.
    ///
    /// # Errors
    /// `Unknown` if there is no such room, `Changed` if the component of an interrupted call is
    /// another one now.
    pub async fn reopen(&self, room: &RoomId, options: RunOptions) -> Result<Session, ResumeError> {
        Session::reopen(self.parts(), options, room).await
    }

    /// Opens a room that stays open until it is closed, and accepts messages on its channels and
    /// tasks. Its loop runs on the executor that this is called on.
    ///
    /// # Errors
    /// Fails when the room's journal cannot be created.
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
    /// let task = room.delegate(Delegation { worker: "a".to_owned(), description: "four".to_owned(), ..Delegation::default() }).await.unwrap();
    /// assert_eq!(task.wait(None).await?.output.as_deref(), Some("4"));
    /// room.close("that was all").await.unwrap();
    /// hosted.closed().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_room(
        &self,
        options: RunOptions,
    ) -> Result<(RoomHandle, RoomGuard), JournalFailure> {
        Ok(self.session(options)?.open_room(RunInput::default()))
    }

    /// Delivers the events of a stored run that its observers missed, such as after a crash: those
    /// of the runs whose config named the observer. The run itself is not resumed and must not be
    /// active here. Returns one report for each observer of this config.
    pub async fn deliver_missed(&self, run: &RoomId, options: RunOptions) -> Vec<ObserverReport> {
        observers::deliver_missed(&self.parts(), &options, run).await
    }

    pub(crate) fn parts(&self) -> SessionParts {
        SessionParts {
            setup: Arc::clone(&self.setup),
            plugins: Arc::clone(&self.calls),
            models: Arc::clone(&self.models),
            rooms: Arc::clone(&self.rooms),
            endpoints: Arc::clone(&self.endpoints),
        }
    }
}

impl Run {
    /// The root room's id.
    #[must_use]
    pub fn room(&self) -> &RoomId {
        self.0.room()
    }

    /// A handle to the room.
    #[must_use]
    pub fn handle(&self) -> RoomHandle {
        self.0.handle()
    }

    /// Runs to the end, background tasks included.
    ///
    /// # Errors
    /// `Journal` if the journal fails; nothing more was performed after that. `NoModel` if the run was
    /// left for lack of a model.
    pub async fn outcome(mut self) -> Result<Arc<Outcome>, SessionError> {
        let ended = self.outcome_after(None).await;
        self.0.end(ended)
    }

    async fn outcome_after(
        &mut self,
        answer: Option<EarlyAnswer<'_>>,
    ) -> Result<Arc<Outcome>, JournalFailure> {
        self.0.observers.begin();
        self.0.driver.run_and_answer(answer).await
    }
}

impl SessionParts {
    /// Opens a room for one run of the entry task, without a message.
    pub(crate) fn start(self, options: RunOptions) -> Result<Run, JournalFailure> {
        let mut session = Session::open(self, options)?;
        session.begin(RunInput::default());
        Ok(Run(Box::new(session)))
    }
}

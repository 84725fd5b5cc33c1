//! A config that is ready to run, and its runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use conclave_core::config::Problems;
use conclave_core::event::{Event, Opening, Principal, UsedByPlugin};
use conclave_core::ids::{ChannelId, ModelName, PluginName, RoomId};
use conclave_core::outcome::Outcome;
use conclave_core::setup::Setup;
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;

use crate::calls::Plugins;
use crate::channel::{Channels, Nobody};
use crate::clock::{Clock, SystemClock};
use crate::driver::{Driver, Shared};
use crate::journal::{JournalFailure, Journals, NoJournals};
use crate::models::ModelClient;
use crate::subscribe::Subscribers;

/// The channel on which the user of a run is asked.
const USER_CHANNEL: &str = "terminal";

/// A plugin as it was loaded.
#[derive(Clone, Debug)]
pub struct PluginInfo {
    pub name: PluginName,
    pub from_cache: bool,
    /// In bytes.
    pub size: u64,
}

/// A config whose plugins are loaded and admitted. Cheap to run many times.
pub struct Prepared {
    pub(crate) setup: Arc<Setup>,
    pub(crate) calls: Arc<dyn Plugins>,
    pub(crate) plugins: Vec<PluginInfo>,
    pub(crate) models: HashMap<ModelName, Arc<dyn ModelClient>>,
    pub(crate) sources: BTreeMap<PluginName, String>,
    pub(crate) warnings: Problems,
}

/// Who takes part in a run besides its plugins. The default: nobody is there, nothing is kept, nobody follows.
pub struct RunOptions {
    /// The root room's id; none: `run`.
    pub room: Option<RoomId>,
    /// On whose behalf it runs.
    pub principal: Principal,
    /// A JSON object for the entry agent's `inputs`.
    pub inputs: serde_json::Value,
    pub channels: Arc<dyn Channels>,
    pub clock: Arc<dyn Clock>,
    pub journals: Arc<dyn Journals>,
    pub subscribers: Subscribers,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            room: None,
            principal: Principal("operator".into()),
            inputs: json!({}),
            channels: Arc::new(Nobody),
            clock: Arc::new(SystemClock),
            journals: Arc::new(NoJournals),
            subscribers: Subscribers::default(),
        }
    }
}

/// A run that goes on. Dropping it stops its sandboxes.
pub struct Run {
    room: RoomId,
    driver: Driver,
}

/// Stops a run from elsewhere.
#[derive(Clone, Debug)]
pub struct Stopper(UnboundedSender<Event>);

impl Stopper {
    /// Stops it, also inside a step; nothing happens when it is over.
    pub fn stop(&self, reason: &str) {
        let _ = self.0.send(Event::Cancelled { reason: reason.to_owned() });
    }
}

impl Prepared {
    /// What the rooms of its runs run with.
    #[must_use]
    pub fn setup(&self) -> &Arc<Setup> {
        &self.setup
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

    /// Calls into its plugins without a task: every call has a sandbox of its own and the plugin's limits.
    #[must_use]
    pub fn calls(&self) -> &Arc<dyn Plugins> {
        &self.calls
    }

    /// Opens a room for a message. The work begins when the outcome is awaited.
    ///
    /// # Errors
    /// When the room's journal cannot be made.
    pub fn start(&self, message: Option<String>, options: RunOptions) -> Result<Run, JournalFailure> {
        let room = options.room.unwrap_or_else(|| RoomId::from("run"));
        let limits = self.setup.limits.clone();
        let opening = Opening {
            room: room.clone(),
            entry: self.setup.entry.clone(),
            content: message,
            inputs: options.inputs,
            deadline: limits.wall_ms.map(|wall| options.clock.now().plus(wall)),
            limits,
            depth: 0,
            channel: ChannelId::from(USER_CHANNEL),
            used: UsedByPlugin::new(),
        };
        let shared = Shared {
            plugins: Arc::clone(&self.calls),
            models: self.models.clone(),
            channels: options.channels,
            clock: options.clock,
            journals: options.journals,
            subscribers: options.subscribers,
            principal: options.principal,
        };
        let driver = Driver::open(Arc::new(shared), Arc::clone(&self.setup), opening)?;
        Ok(Run { room, driver })
    }
}

impl Run {
    /// The root room's id.
    #[must_use]
    pub fn room(&self) -> &RoomId {
        &self.room
    }

    /// A handle that stops it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.driver.sender())
    }

    /// Runs it to its end, background tasks included.
    ///
    /// # Errors
    /// When the journal fails; then nothing more was performed.
    pub async fn outcome(self) -> Result<Arc<Outcome>, JournalFailure> {
        self.driver.run().await
    }
}

//! The room of a case: its channels, its agents as native plugins, its strategies as components,
//! its gates. Builds a config that the host reads and checks like any other, and opens a persistent
//! room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use conclave_core::setup::plugin_query::GateVerdict;
use conclave_core::types::ids::BackgroundId;
use conclave_runtime::binding::{Binding, ChannelKind};
use conclave_runtime::clock::{Clock, SystemClock};
use conclave_runtime::config::Config;
use conclave_runtime::delegation::{BackgroundRecord, Delegation};
use conclave_runtime::ids::{ChannelId, RoomId, TaskName};
use conclave_runtime::journal::Journals;
use conclave_runtime::limits::RunLimits;
use conclave_runtime::native::{Call, Check, Failure, Plugin, Tool};
use conclave_runtime::request::{Refusal, RefusalCode};
use conclave_runtime::subscribe::{Subscriber, Subscribers};
use conclave_runtime::{
    Host, HostOptions, Prepared, RoomGuard, RoomHandle, RunInput, RunOptions, TaskHandle, WaitError,
};
use serde_json::{Map, Value, json};

use super::agents::{Agent, Script};
use super::followed::Follower;
use super::names;
use crate::Runner;
use crate::case_store::CaseStore;
use crate::toml_text::{string, value};

/// The agent that has the conversation unless the case names another one.
const FRONT: &str = "front-desk";
/// The levels and tasks that a case may use. An operator may raise the host's lower defaults, as
/// this config does.
const DEPTH: u32 = 25;
const TASKS: u32 = 1_100;

/// A delivery strategy of a case.
#[derive(Clone, Debug)]
pub(super) struct Strategy {
    /// The name in the case.
    pub(super) name: String,
    /// The component, and whether it is a test guest instead of a stock plugin.
    pub(super) component: &'static str,
    pub(super) is_guest: bool,
    pub(super) config: Value,
}

/// The behavior of a gate of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateMode {
    Block,
    Modify,
    Throw,
}

/// The replacement text of a gate that modifies messages.
pub(super) const REWRITTEN: &str = "<rewritten>";

/// The setup of a room.
pub(super) struct Stage {
    pub(super) room: String,
    pub(super) metadata: Value,
    pub(super) channels: Vec<(String, Binding)>,
    pub(super) agents: Vec<Agent>,
    /// The ids of the agents with a part in the parent room. The first has the conversation.
    pub(super) front: Vec<String>,
    pub(super) strategies: Vec<Strategy>,
    /// The strategy for the results of every task.
    pub(super) deliver: Option<String>,
    pub(super) gate: Option<(&'static str, GateMode)>,
    /// `tasks.NAME.background` of the agent that has the conversation.
    pub(super) background: Map<String, Value>,
    /// The descriptions of the agents, by agent id.
    pub(super) described: BTreeMap<String, String>,
    /// The number of messages that the channels reject at first.
    pub(super) deaf: u32,
    /// Whether messages are never answered.
    pub(super) is_stuck: bool,
    /// An additional tool of the agent that has the conversation, and its answer.
    pub(super) tool: Option<(String, String)>,
    /// How many times the agent's task lists `delegate_task`.
    pub(super) listed: usize,
}

impl Stage {
    /// Creates the setup from the `room` and the agents of a case.
    pub(super) fn of(given: &Value) -> Self {
        let parent = given.get("parent").unwrap_or(&Value::Null);
        let entries =
            |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
        let registered = entries(given.get("registered"));
        let described = |entry: &Value| {
            let words = entry.get("role").or_else(|| entry.get("description"))?.as_str()?;
            Some((entry.get("id")?.as_str()?.to_owned(), words.to_owned()))
        };
        let mut stage = Self {
            room: parent.get("room").and_then(Value::as_str).unwrap_or("room-1").to_owned(),
            metadata: parent.get("metadata").cloned().unwrap_or(Value::Null),
            channels: Vec::new(),
            agents: registered.iter().filter_map(Script::read).map(Agent::new).collect(),
            front: Vec::new(),
            strategies: Vec::new(),
            deliver: None,
            gate: None,
            background: Map::new(),
            described: registered.iter().filter_map(described).collect(),
            deaf: 0,
            is_stuck: false,
            tool: None,
            listed: 1,
        };
        for channel in entries(parent.get("channels")) {
            stage.add_channel(&channel);
        }
        if stage.front.is_empty() {
            stage.add_front(Script { id: FRONT.to_owned(), ..Script::default() });
        }
        stage
    }

    fn add_channel(&mut self, channel: &Value) {
        let word = |key: &str| channel.get(key).and_then(Value::as_str);
        let Some(id) = word("id") else { return };
        let kind = names::kind(word("category").unwrap_or("transport"), word("type"));
        if kind == ChannelKind::Agent {
            self.add_front(Script::read(channel).unwrap_or_default());
            return;
        }
        let binding = Binding {
            kind,
            access: word("access").map(names::access).unwrap_or_default(),
            visibility: word("visibility").map(names::visibility).unwrap_or_default(),
            muted: channel.get("muted").and_then(Value::as_bool).unwrap_or_default(),
            metadata: channel.get("metadata").cloned().unwrap_or(Value::Null),
            ..Binding::default()
        };
        self.channels.push((id.to_owned(), binding));
    }

    /// Adds an agent with a part in the parent room. It may be registered as well.
    pub(super) fn add_front(&mut self, script: Script) {
        self.front.push(script.id.clone());
        if self.agent(&script.id).is_none() {
            self.agents.push(Agent::new(script));
        }
    }

    pub(super) fn add_agent(&mut self, script: Script) {
        if self.agent(&script.id).is_none() {
            self.agents.push(Agent::new(script));
        }
    }

    pub(super) fn agent(&self, id: &str) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.script().id == id)
    }

    /// Returns the id of the agent that has the conversation.
    pub(super) fn entry(&self) -> &str {
        self.front.first().map_or(FRONT, String::as_str)
    }

    pub(super) fn text(&self, runner: &Runner) -> Result<String, String> {
        let all: Vec<String> = self.agents.iter().map(|agent| string(&agent.script().id)).collect();
        let named: BTreeSet<&str> =
            self.channels.iter().map(|(id, _)| id.as_str()).chain(["terminal"]).collect();
        let channels: Vec<String> = named.into_iter().map(string).collect();
        let mut text = format!("entry = {}\n[limits.run]\ndepth = {DEPTH}\n", string(self.entry()));
        for (id, binding) in self.channels.iter().filter(|(id, _)| id != "terminal") {
            text +=
                &format!("\n[channels.{}]\nkind = {}\n", string(id), string(binding.kind.as_str()));
        }
        for (number, agent) in self.agents.iter().enumerate() {
            let Script { id, system, .. } = agent.script();
            text += &format!(
                "\n[plugins.p{number}]\nsource = \"native:p{number}\"\nlimits = {{ at_once = {TASKS} }}\n"
            );
            let grant = format!(
                "tasks = [{}], at_once = {TASKS}, total = {TASKS}, channels = [{}]",
                all.join(", "),
                channels.join(", ")
            );
            text += if self.tool.is_some() { "grants.tools = [\"others.*\"]\n" } else { "" };
            text += &format!(
                "grants.delegate = {{ {grant} }}\n\n[tasks.{}]\nagent = \"p{number}\"\n",
                string(id)
            );
            let is_entry = id == self.entry();
            let mut tools =
                vec!["\"delegate_task\"".to_owned(); if is_entry { self.listed } else { 1 }];
            if let Some((name, _)) = self.tool.as_ref().filter(|_| is_entry) {
                tools.push(format!(
                    "{{ tool = {}, as = {} }}",
                    string(&format!("others.{name}")),
                    string(name)
                ));
            }
            text += &format!("tools = [{}]\n", tools.join(", "));
            text += &system
                .as_ref()
                .map_or_else(String::new, |system| format!("system = {}\n", string(system)));
            text += &self
                .described
                .get(id)
                .map_or_else(String::new, |words| format!("description = {}\n", string(words)));
            let delivers = self.deliver.as_ref().and_then(|name| {
                self.strategies.iter().position(|strategy| strategy.name == *name)
            });
            text += &delivers
                .map_or_else(String::new, |number| format!("delivery_strategy = \"s{number}\"\n"));
            if id == self.entry() && !self.background.is_empty() {
                let table = value(&Value::Object(self.background.clone()))
                    .ok_or("the background of a task holds null")?;
                text += &format!("background = {table}\n");
            }
        }
        for (number, strategy) in self.strategies.iter().enumerate() {
            let guest = runner.folder.join(format!("{}.wasm", strategy.component));
            let stock = runner
                .folder
                .parent()
                .map(|parent| parent.join("stock").join(format!("{}.wasm", strategy.component)));
            let path = if strategy.is_guest { guest } else { stock.unwrap_or(guest) };
            text +=
                &format!("\n[plugins.s{number}]\nsource = {}\n", string(&path.to_string_lossy()));
            text += &format!(
                "grants.channels = [{}]\nlimits = {{ cpu = \"500 ms\" }}\n",
                channels.join(", ")
            );
            let config = value(&strategy.config).ok_or("the config of a strategy holds null")?;
            text += &format!("config = {config}\n");
        }
        if self.tool.is_some() {
            text += "\n[plugins.others]\nsource = \"native:others\"\n";
        }
        if let Some((point, mode)) = &self.gate {
            text += &format!(
                "\n[plugins.gate]\nsource = \"native:gate\"\n\n[[gates]]\non = \"{point}\"\nplugin = \"gate\"\n"
            );
            // Cases let a message pass when a hook throws. Gates block by default, so the config
            // states it.
            text += if *mode == GateMode::Throw { "on_failure = \"pass\"\n" } else { "" };
        }
        Ok(text)
    }

    fn natives(&self) -> Vec<Plugin> {
        let agents = self
            .agents
            .iter()
            .enumerate()
            .map(|(number, agent)| agent.plugin(&format!("p{number}")));
        let gate = self.gate.map(|(_, mode)| {
            Plugin::gate("gate", move |_: Check| async move {
                match mode {
                    GateMode::Block => {
                        Ok(GateVerdict::Block { reason: "the case says so".to_owned() })
                    }
                    GateMode::Modify => Ok(GateVerdict::Modify { text: REWRITTEN.to_owned() }),
                    GateMode::Throw => Err(Failure::new("the gate is broken")),
                }
            })
        });
        let others = self.tool.clone().map(|(name, answer)| {
            let schema = json!({ "type": "object" });
            let tool = Tool::new(&name, "Answers as the case says.", schema, move |_: Call| {
                std::future::ready(Ok(answer.clone()))
            });
            Plugin::tools("others", [tool])
        });
        agents.chain(gate).chain(others).collect()
    }

    /// Loads the config on a host of its own.
    pub(super) async fn prepare(&self, runner: &Runner) -> Result<(Host, Prepared), String> {
        let text = self.text(runner)?;
        let options = HostOptions {
            cache: runner.cache.clone(),
            native: self.natives(),
            ..HostOptions::default()
        };
        let host = Host::new(options).map_err(|error| error.to_string())?;
        let config = Config::parse("conclave.toml", "/", &text)
            .map_err(|problems| format!("the config is refused:\n{problems}\n{text}"))?;
        let prepared = host
            .load(&config)
            .await
            .map_err(|error| format!("the config does not fit:\n{error}\n{text}"))?;
        Ok((host, prepared))
    }

    /// Opens a persistent room.
    pub(super) async fn open(self, runner: &Runner) -> Result<Open, String> {
        self.open_with(runner, CaseStore::new()?.journals(), Arc::new(SystemClock)).await
    }

    /// Opens a persistent room with these journals and this clock.
    pub(super) async fn open_with(
        self,
        runner: &Runner,
        journals: Arc<dyn Journals>,
        clock: Arc<dyn Clock>,
    ) -> Result<Open, String> {
        let (host, prepared) = self.prepare(runner).await?;
        let follower = Follower::new(self.deaf, self.is_stuck);
        let options = RunOptions {
            ids: Arc::new(RoomId::from(self.room.as_str())),
            channels: Arc::clone(&follower) as _,
            journals,
            clock,
            subscribers: Subscribers::new([
                Arc::clone(&follower) as Arc<dyn Subscriber>,
                crate::bound::counter(),
            ]),
            ..RunOptions::default()
        };
        // The default step limit is meant for one run: each of many tasks would reserve half of the
        // remaining steps.
        let limits = RunLimits {
            turns: None,
            wall_ms: None,
            tool_calls: None,
            ..prepared.setup().limits.clone()
        };
        let session = prepared.session(options).map_err(|error| error.to_string())?;
        let (handle, hosted) = session.open_room(RunInput {
            metadata: self.metadata.clone(),
            limits: Some(limits),
            ..RunInput::default()
        });
        let refused = |refusal: Refusal| refusal.message;
        // The room must have exactly the channels of the case.
        if !self.channels.iter().any(|(id, _)| id == "terminal") {
            handle.unbind("terminal").await.map_err(refused)?;
        }
        for (id, binding) in &self.channels {
            handle.bind(id.as_str(), binding.clone()).await.map_err(refused)?;
        }
        Ok(Open { stage: self, host, prepared, handle, hosted, follower })
    }
}

/// An open room.
pub(super) struct Open {
    pub(super) stage: Stage,
    pub(super) host: Host,
    pub(super) prepared: Prepared,
    pub(super) handle: RoomHandle,
    pub(super) hosted: RoomGuard,
    pub(super) follower: Arc<Follower>,
}

impl Open {
    pub(super) fn room(&self) -> &RoomId {
        self.handle.room()
    }

    /// Delegates as an embedding program does. A channel that cannot be shared is left out, because
    /// the reference drops it silently. The host's refusal lists the channels that can be
    /// shared.
    pub(super) async fn delegate(
        &self,
        by: Option<&str>,
        delegation: Delegation,
    ) -> Result<TaskHandle, Refusal> {
        match self.delegate_once(by, delegation.clone()).await {
            Err(refusal)
                if matches!(
                    refusal.error,
                    RefusalCode::ChannelNotShared | RefusalCode::UnknownChannel
                ) =>
            {
                let share_channels = delegation
                    .share_channels
                    .iter()
                    .filter(|channel| refusal.allowed.contains(channel))
                    .cloned()
                    .collect();
                self.delegate_once(by, Delegation { share_channels, ..delegation }).await
            }
            other => other,
        }
    }

    async fn delegate_once(
        &self,
        by: Option<&str>,
        delegation: Delegation,
    ) -> Result<TaskHandle, Refusal> {
        match by {
            Some(task) => self.handle.delegate_for(TaskName::from(task), delegation).await,
            None => self.handle.delegate(delegation).await,
        }
    }

    /// Returns the record of a task once it has ended. The time of the case passes, so long steps
    /// end. A case's `wait_ms` limits a wait for an event that always comes; here the wait has no
    /// limit, so that a slow machine does not fail the case.
    pub(super) async fn wait(&self, id: &BackgroundId) -> Result<Arc<BackgroundRecord>, WaitError> {
        self.stage.agents.iter().for_each(Agent::release);
        self.handle.wait(id, None).await
    }

    /// Like [`wait`](Self::wait), for a task that is stopped: its current step never ends.
    pub(super) async fn wait_for_stopped(
        &self,
        id: &BackgroundId,
    ) -> Result<Arc<BackgroundRecord>, WaitError> {
        self.handle.wait(id, None).await
    }

    /// Waits at most this long for a task whose steps take longer, so the wait always times out
    /// first.
    pub(super) async fn wait_at_most(
        &self,
        id: &BackgroundId,
        timeout_ms: u64,
    ) -> Result<Arc<BackgroundRecord>, WaitError> {
        self.handle.wait(id, Some(Duration::from_millis(timeout_ms))).await
    }

    /// Returns the record once its result is delivered, queued or blocked.
    pub(super) async fn settle(&self, id: &BackgroundId) -> Arc<BackgroundRecord> {
        loop {
            if let Some(record) =
                self.handle.task(id).filter(|record| super::delegate::is_settled(record))
            {
                return record;
            }
            // A record changes without a notification, so poll it.
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Returns the bindings of this room's channels in a task's room.
    pub(super) fn child_bindings(&self, room: &RoomId) -> BTreeMap<ChannelId, Binding> {
        self.follower
            .seen()
            .openings
            .get(room)
            .and_then(|opening| opening.bindings.clone())
            .unwrap_or_default()
    }

    pub(super) fn child_metadata(&self, room: &RoomId) -> Value {
        self.follower
            .seen()
            .openings
            .get(room)
            .map_or_else(|| json!({}), |opening| opening.metadata.clone())
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(2);

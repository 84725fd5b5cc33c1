//! What a room runs with, fixed when it opens: the operator's config and the admitted plugins, come
//! together. Serialisable, so that a journal says what its run was allowed to do. Not where plugins
//! come from or how they are loaded.

pub mod plugin_query;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::permissions::grant::{Grants, Rights};
use crate::permissions::manifest::Manifest;
use crate::permissions::policy_rules::Rule;
use crate::permissions::task_scope::{Narrow, Narrowed};
use crate::tool_calls::sequence::Sequence;
use crate::tool_calls::toolbox::Toolbox;
use crate::types::channel::Binding;
use crate::types::completion::ToolFormat;
use crate::types::confirm::ConfirmRules;
use crate::types::delegation::{BackgroundRules, HandBack, OnClose};
use crate::types::host_tool::HostTool;
use crate::types::ids::{ChannelId, ModelName, PluginName, TaskName};
use crate::types::limits::{PluginLimits, RunLimits};
use crate::types::message::{Entity, ToolCall};
use crate::types::stuck_rules::StuckRules;
use crate::types::task_options::Overflow;
use crate::types::tool::ToolSpec;

/// What a component can serve as, found by looking at its exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginKind {
    Agent,
    Responder,
    Memory,
    Tools,
    DeliveryStrategy,
    SecurityAnalyzer,
    Condenser,
    Gate,
}

impl PluginKind {
    /// Every kind, in the order of the contract.
    pub const ALL: [Self; 8] = [
        Self::Agent,
        Self::Responder,
        Self::Memory,
        Self::Tools,
        Self::DeliveryStrategy,
        Self::SecurityAnalyzer,
        Self::Condenser,
        Self::Gate,
    ];

    /// The name of the interface that it exports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Responder => "responder",
            Self::Memory => "memory",
            Self::Tools => "tools",
            Self::DeliveryStrategy => "delivery-strategy",
            Self::SecurityAnalyzer => "security-analyzer",
            Self::Condenser => "condenser",
            Self::Gate => "gate",
        }
    }
}

/// What the host found in a component before it ran any of it, and the tools that it listed with
/// nothing granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginFacts {
    pub manifest: Manifest,
    pub kinds: BTreeSet<PluginKind>,
    pub tools: Vec<ToolSpec>,
    /// Lower-case hexadecimal, of the component; empty when there is none.
    pub sha256: String,
    /// Its tools are a server's that speaks the Model Context Protocol: outside any sandbox, and
    /// what they give is text from outside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mcp: bool,
}

impl PluginFacts {
    /// It is code of the program that embeds the host, and runs in no sandbox.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.sha256.is_empty()
    }
}

fn is_unnarrowed(narrow: &Narrow) -> bool {
    *narrow == Narrow::default()
}

/// A plugin in a room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginSetup {
    pub facts: PluginFacts,
    pub grants: Grants,
    pub limits: PluginLimits,
    /// Its own settings, a JSON object.
    pub config: Value,
}

/// How the agent seat answers (L-021, L-125).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentSeat {
    /// Tools and actions only.
    Host,
    /// The component's `respond`, where the host has nothing to do.
    #[default]
    HostThenComponent,
    /// The component's `respond`, always.
    Component,
}

/// What happens with an agent's message that carries no tool call (L-125).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoTool {
    /// The next seat is tried.
    #[default]
    Nothing,
    /// It is the task's result.
    Done,
    /// It goes to the user.
    User,
    /// This text goes back to the agent.
    Nudge(String),
    /// This tool is called instead.
    Call(ToolCall),
}

/// When a row of the same messages is a loop (L-096, L-097).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoopRules {
    /// Messages in a cycle at most; 0: cycles are not looked for.
    pub cycle_len: u32,
    /// How much more often those of a cycle must have come than any other.
    pub dominance: f64,
    /// How often a cycle must have come round.
    pub wait: u32,
    /// Turns that end with DO-NOT-KNOW, one after the other, are a loop too.
    pub alternation: bool,
}

impl Default for LoopRules {
    /// L-041
    fn default() -> Self {
        Self { cycle_len: 10, dominance: 1.5, wait: 5, alternation: true }
    }
}

/// What the words of a message may do. In the reference all of it is on; here text is data, unless
/// the operator says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TextRules {
    /// `DONE`, `__PASS__`, `__PASS__:name` and `__SEND__:name` mean what they say (L-066, L-152).
    pub signals: bool,
    /// An agent's text may name its recipient: `TO[name]:`, or a JSON object with `recipient`
    /// (L-065).
    pub recipients: bool,
    /// The prefix that addresses somebody, such as `|@|`; empty: none does (L-067).
    pub prefix: String,
    /// Calls are looked for in text, whatever the tool format is (L-108).
    pub calls: bool,
    /// A user's text that begins with `SYSTEM` is the host's word (L-029).
    pub system_word: bool,
}

/// What a run's result is to be (L-050i).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReturnType {
    Text,
    Int,
    Float,
    Bool,
    AnyTool,
    Tool(String),
}

/// A task in a room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSetup {
    pub agent: PluginName,
    /// For people and for agents that may hand work to it.
    pub description: String,
    /// The task's system message; empty when it has none.
    pub system: Arc<str>,
    /// In the order in which they are tried.
    pub subtasks: Vec<TaskName>,
    /// What the agent may call, and what this task carries out: its grant, narrowed by the task,
    /// among what was admitted, in order of name; then the tools of the host.
    pub toolbox: Arc<Toolbox>,
    /// What the task leaves of its agent's other grants.
    #[serde(default, skip_serializing_if = "is_unnarrowed")]
    pub narrow: Narrow,
    /// The tool that the model must call (L-101).
    pub force: Option<String>,
    /// The delivery strategy of its results when it runs in the background.
    pub deliver: Option<PluginName>,
    /// The user is asked after each step of somebody else.
    pub interactive: bool,
    /// Steps of one activation (L-050f); none: no limit of its own.
    pub turns: Option<u32>,
    /// Steps without a valid answer before it ends as stalled (L-084).
    pub max_stalled_steps: u32,
    /// A non-empty answer of one of these ends it (L-081).
    pub done_if_response: BTreeSet<Entity>,
    /// No answer of one of these ends it (L-081).
    pub done_if_no_response: BTreeSet<Entity>,
    /// A message with a call ends it (L-082).
    pub done_if_tool: bool,
    /// Each ends it when the newest messages match (L-083).
    pub done_sequences: Vec<Sequence>,
    pub no_tool: NoTool,
    pub agent_seat: AgentSeat,
    /// Seats that are taken.
    pub seats: BTreeSet<Entity>,
    /// Without a valid answer the other side says that it does not know (L-058).
    pub allow_null_result: bool,
    pub tool_format: ToolFormat,
    /// At the root only the user ends an interactive task (L-061).
    pub only_user_quits_root: bool,
    /// What the user is taken to have said; nobody is asked (L-029).
    pub default_human_response: Option<String>,
    /// What the agent's history begins with (L-024).
    pub user_message: Option<String>,
    /// Each run begins with empty histories, its sub-tasks' too (L-050b).
    pub restart: bool,
    /// The same for each call by another task.
    pub restart_as_subtask: bool,
    /// Histories forget what led to the result (L-050l).
    pub erase_substeps: bool,
    pub loops: LoopRules,
    pub text: TextRules,
    /// A message may hold several calls (L-118).
    pub allow_multiple_tools: bool,
    /// As a sub-task it is called only for calls that it carries out (L-032).
    pub respond_tools_only: bool,
    /// A message with several native calls may go to a sub-task (L-123).
    pub allow_subtask_multi_tools: bool,
    /// What its result is to be; none: the message as it is.
    pub returns: Option<ReturnType>,
    pub overflow: Overflow,
    /// Where this host does better than the reference, and somebody may depend on the old way, the
    /// old way (`compat = "langroid"`).
    pub as_langroid: bool,
    /// Bytes that are taken for a token where texts are measured; 4 when the config says nothing.
    pub bytes_per_token: u32,
    /// Plugins whose tools carry out the agent's actions, in the order in which they are looked
    /// through (O-132).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executors: Vec<PluginName>,
    /// Milliseconds that an action or a tool call may be pending; none: as long as the plugin's own
    /// limits allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_timeout_ms: Option<u64>,
    /// The plugin that `recall` asks; none: the agent's own component where it exports `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<PluginName>,
    /// Which of the agent's actions wait for consent (O-109…O-111).
    #[serde(default, skip_serializing_if = "is_default")]
    pub confirm: ConfirmRules,
    /// When its history is condensed, and by whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condense: Option<CondenseRules>,
    /// When it is stuck (O-098…O-108).
    #[serde(default, skip_serializing_if = "is_default")]
    pub stuck: StuckRules,
    /// What a micro-agent takes and gives; none: the task is none (O-093).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro: Option<Arc<MicroAgent>>,
    /// Texts that its agent reads once a user says one of their triggers (O-126).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knowledge: Vec<Arc<Knowledge>>,
    /// What speaking of its result means; none: a turn of the notified task where that is
    /// interactive and its agent has a model, or the room is held; else the text as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_back: Option<HandBack>,
    /// Milliseconds that it may take in the background; none: what is left of the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// What becomes of it in the background when its parent is stopped or closed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_close: OnClose,
    /// In the background it must hand its result in with `submit_result`, and is asked again so
    /// often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<u32>,
    /// Whom it may hand the conversation to (`user` among them); none: whomever its agent may
    /// address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<Vec<String>>,
    /// What it may use at most in the background; none: half of what is left of the run's.
    #[serde(default, skip_serializing_if = "is_default")]
    pub budget: TaskBudget,
    /// How it delegates itself.
    #[serde(default, skip_serializing_if = "is_default")]
    pub background: BackgroundRules,
}

/// What a task may use at most in the background, as far as its run has it. None: half of what is
/// left there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskBudget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Background tasks that it may start itself, and have under way at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
}

/// Where in a room a gate is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GatePoint {
    /// Before something that came in on a channel counts.
    Inbound,
    /// Before a background task begins.
    Delegate,
    /// Before a result or an announcement is said.
    Deliver,
}

/// The user, as whoever hands a conversation over may call them.
#[must_use]
pub fn is_user(name: &str) -> bool {
    name.eq_ignore_ascii_case("user") || name.eq_ignore_ascii_case("human")
}

impl TaskSetup {
    /// The operator's table of handoffs has nothing against it; none: to the user.
    #[must_use]
    pub fn may_hand_to(&self, to: Option<&TaskName>) -> bool {
        let Some(table) = &self.handoff else { return true };
        table.iter().any(|name| match to {
            Some(task) => name == task.as_str(),
            None => is_user(name),
        })
    }
}

impl GatePoint {
    /// The word in configs and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Delegate => "delegate",
            Self::Deliver => "deliver",
        }
    }
}

/// A gate: a plugin that may let pass, change or block. One that fails, or takes too long, blocks,
/// unless the operator says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRule {
    pub on: GatePoint,
    pub plugin: PluginName,
    /// Milliseconds.
    pub deadline_ms: u64,
    /// When it fails, or takes too long, it lets pass: only where the operator says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fails_open: bool,
}

/// When a history is condensed, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CondenseRules {
    /// A plugin that exports `condenser`.
    pub plugin: PluginName,
    /// Entries that the history may have before it is asked.
    pub over: u64,
}

impl CondenseRules {
    /// Entries, when the config gives no number.
    pub const OVER: u64 = 100;
}

/// An agent that is a text: what it takes and what it gives. Its prompt is the task's system
/// message (O-093).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MicroAgent {
    /// Names of its inputs, and what each is.
    pub inputs: BTreeMap<String, String>,
    /// Names of its outputs, and what each is.
    pub outputs: BTreeMap<String, String>,
}

/// A text that an agent reads once a user says one of its triggers (O-126).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knowledge {
    /// Its file, as the config writes it.
    pub file: String,
    /// What it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Words of a user that call for it; whole words, in any case.
    pub triggers: Vec<String>,
    pub text: String,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for TaskSetup {
    /// The defaults of the config.
    fn default() -> Self {
        Self {
            agent: PluginName::from(""),
            description: String::new(),
            system: Arc::from(""),
            subtasks: Vec::new(),
            narrow: Narrow::default(),
            toolbox: Arc::default(),
            force: None,
            deliver: None,
            interactive: false,
            turns: None,
            max_stalled_steps: 5,
            done_if_response: BTreeSet::new(),
            done_if_no_response: BTreeSet::new(),
            done_if_tool: false,
            done_sequences: Vec::new(),
            no_tool: NoTool::default(),
            agent_seat: AgentSeat::default(),
            seats: [Entity::Llm, Entity::Agent, Entity::User].into(),
            allow_null_result: false,
            tool_format: ToolFormat::Native,
            only_user_quits_root: true,
            default_human_response: None,
            user_message: None,
            restart: true,
            restart_as_subtask: false,
            erase_substeps: false,
            loops: LoopRules::default(),
            text: TextRules::default(),
            allow_multiple_tools: true,
            respond_tools_only: false,
            allow_subtask_multi_tools: true,
            returns: None,
            overflow: Overflow::default(),
            as_langroid: false,
            bytes_per_token: 4,
            executors: Vec::new(),
            action_timeout_ms: None,
            memory: None,
            confirm: ConfirmRules::default(),
            condense: None,
            stuck: StuckRules::default(),
            micro: None,
            knowledge: Vec::new(),
            hand_back: None,
            deadline_ms: None,
            on_close: OnClose::default(),
            structured: None,
            handoff: None,
            budget: TaskBudget::default(),
            background: BackgroundRules::default(),
        }
    }
}

/// A model in a room. What it costs and takes, not how it is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelSetup {
    /// Micro-US-dollars for a million tokens of input; none when it is not known.
    pub input_price: Option<u64>,
    pub output_price: Option<u64>,
    /// For a million tokens of input that the provider had kept; none: as any input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_price: Option<u64>,
    /// Host and port of its server; none when prompts stay in this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_at: Option<String>,
    /// Tokens of a prompt and its answer together; none: no history is cut for it (L-180).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// Tokens of an answer at most; none: as the model has it, and 4096 are kept free for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// Tokens that are kept free for an answer when the context is short; 50 when there is no
    /// value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_output: Option<u64>,
}

/// Everything that a room runs with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The task that gets the first message.
    pub entry: TaskName,
    pub tasks: BTreeMap<TaskName, Arc<TaskSetup>>,
    pub plugins: BTreeMap<PluginName, Arc<PluginSetup>>,
    pub models: BTreeMap<ModelName, ModelSetup>,
    pub channels: BTreeMap<ChannelId, Binding>,
    /// Gates, in the order in which they are asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateRule>,
    /// In the order in which they are tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policy: Vec<Rule>,
    pub limits: RunLimits,
}

impl Setup {
    /// The rights of a plugin; none when the config has no plugin of that name.
    #[must_use]
    pub fn rights<'a>(&'a self, plugin: &'a PluginName) -> Option<Rights<'a>> {
        let setup = self.plugins.get(plugin)?;
        Some(Rights {
            plugin: plugin.as_str(),
            manifest: &setup.facts.manifest,
            grants: &setup.grants,
            narrowed: None,
        })
    }

    /// The rights of an agent while it works on a task: what the task leaves of them.
    #[must_use]
    pub fn rights_in<'a>(&'a self, plugin: &'a PluginName, task: &TaskName) -> Option<Rights<'a>> {
        let found = self.tasks.get_key_value(task).filter(|(_, setup)| setup.agent == *plugin);
        let narrowed = found.map(|(task, setup)| Narrowed { task, narrow: &setup.narrow });
        Some(Rights { narrowed, ..self.rights(plugin)? })
    }

    /// The tasks that a conversation with the entry task may come to: itself, and all that it may
    /// be handed to.
    #[must_use]
    pub fn holders(&self) -> BTreeSet<TaskName> {
        let (mut holders, mut next) = (BTreeSet::new(), vec![self.entry.clone()]);
        while let Some(name) = next.pop() {
            let Some(task) = self.tasks.get(&name).filter(|_| !holders.contains(&name)) else {
                continue;
            };
            let offers = task
                .toolbox
                .host_tool(HostTool::HandoffConversation)
                .is_some_and(|tool| tool.offered);
            let others = if offers { self.handoff_targets(&name) } else { Vec::new() };
            next.extend(others.into_iter().filter(|name| !is_user(name)).map(TaskName::from));
            holders.insert(name);
        }
        holders
    }

    /// Whom a task may hand the conversation to, as its agent may name them: the table of the task,
    /// as far as the agent may address it.
    #[must_use]
    pub fn handoff_targets(&self, from: &TaskName) -> Vec<String> {
        let Some(task) = self.tasks.get(from) else { return Vec::new() };
        let rights = self.rights_in(&task.agent, from);
        let may_route =
            |to: &TaskName| rights.is_some_and(|rights| rights.may_route(to.as_str()).is_ok());
        let others = self
            .tasks
            .keys()
            .filter(|to| *to != from && task.may_hand_to(Some(to)) && may_route(to));
        others
            .map(ToString::to_string)
            .chain(task.may_hand_to(None).then(|| "user".to_owned()))
            .collect()
    }

    /// The plugin and the tool behind a `plugin.tool`; none when nothing of that name was admitted.
    #[must_use]
    pub fn tool<'a>(&'a self, name: &str) -> Option<(&'a PluginName, &'a ToolSpec)> {
        let (plugin, tool) = name.split_once('.')?;
        let (plugin, setup) = self.plugins.get_key_value(plugin)?;
        let spec = setup.facts.tools.iter().find(|spec| spec.name == tool)?;
        Some((plugin, spec))
    }
}

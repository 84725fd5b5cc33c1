//! The setup of a room, fixed when it opens: the operator's config combined with the admitted
//! plugins. It is serialisable, so that a journal records the permissions of its run. Does not find
//! or load plugins.

mod narrowing;
mod observers;
pub mod plugin_query;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::permissions::grants::{Grants, Rights, ToolPattern};
use crate::permissions::manifest::Manifest;
use crate::permissions::policy_rules::{Policy, glob};
use crate::permissions::task_scope::{ScopedTask, TaskScope};
use crate::tool_calls::sequence::Sequence;
use crate::tool_calls::toolbox::{ToolTarget, Toolbox};
use crate::types::channel::Binding;
use crate::types::completion::{ModelApi, ToolFormat};
use crate::types::confirm::ConfirmRules;
use crate::types::delegation::{BackgroundRules, OnClose, ResultForm};
use crate::types::host_tool::HostTool;
use crate::types::ids::{ChannelId, ModelName, PluginName, TaskName};
use crate::types::limits::{PluginLimits, RunLimits};
use crate::types::message::{Role, ToolCall};
use crate::types::oci::OciReference;
use crate::types::plugin_kind::PluginKind;
use crate::types::stuck_rules::StuckRules;
use crate::types::task_options::Overflow;
use crate::types::tool::ToolSpec;

pub use narrowing::ChangedComponent;
pub use observers::ObserverRule;
pub(crate) use rules::TaskRules;

/// A responder of a task as a config names it: `llm`, `agent`, `user`, or one of its sub-tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ResponderName {
    Role(Role),
    Subtask(TaskName),
}

impl From<Role> for ResponderName {
    fn from(role: Role) -> Self {
        Self::Role(role)
    }
}

impl From<&str> for ResponderName {
    fn from(name: &str) -> Self {
        let role = Role::from_name(name).filter(|role| role.as_str() == name);
        role.map_or_else(|| Self::Subtask(TaskName::from(name)), Self::Role)
    }
}

impl From<String> for ResponderName {
    fn from(name: String) -> Self {
        Self::from(name.as_str())
    }
}

impl From<ResponderName> for String {
    fn from(name: ResponderName) -> Self {
        match name {
            ResponderName::Role(role) => role.as_str().to_owned(),
            ResponderName::Subtask(task) => task.to_string(),
        }
    }
}

/// The host's findings about a component before any of it ran, and the tools that it listed without
/// any grant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginFacts {
    pub manifest: Manifest,
    pub kinds: BTreeSet<PluginKind>,
    pub tools: Vec<ToolSpec>,
    /// The digest of the component, in lower-case hexadecimal; empty if there is no component.
    pub sha256: String,
    /// Whether its tools belong to a Model Context Protocol server. Their results are text from
    /// outside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mcp: bool,
    /// The digest of the way to that server: its command and folder, or its address. Empty for other
    /// plugins.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server: String,
    /// What the program of that server can reach besides its grants; `None` for a server outside
    /// any sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<ServerConfinement>,
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub provenance: Provenance,
}

/// What the confined program of a server can reach besides its grants and the system's own files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerConfinement {
    /// Files and folders of its interpreter and its package, and those that the config adds.
    pub reads: Vec<String>,
    /// The programs that it may start, itself included.
    pub starts: Vec<String>,
}

/// The place that a component came from, as the host verified it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The artifact of a registry, with the digest of its manifest; `None` for other sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<OciReference>,
    /// The operator's names of the trusted keys whose signatures were verified.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub signed_by: BTreeSet<String>,
    /// The other keys whose signatures were verified: `[trust]` neither names nor revokes them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unknown_signers: BTreeSet<String>,
}

impl Provenance {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl PluginFacts {
    /// Whether the plugin is a server that no sandbox holds.
    #[must_use]
    pub fn is_unconfined_server(&self) -> bool {
        self.mcp && self.confinement.is_none()
    }

    /// Whether the plugin is code of the embedding program, which runs in no sandbox.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.sha256.is_empty()
    }
}

fn is_unnarrowed(narrow: &TaskScope) -> bool {
    *narrow == TaskScope::default()
}

/// A plugin in a room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginSetup {
    pub facts: PluginFacts,
    pub grants: Grants,
    pub limits: PluginLimits,
    /// The plugin's own settings, a JSON object.
    pub config: Value,
}

impl PluginSetup {
    /// The rights of the plugin outside of any task, under its name in the config.
    #[must_use]
    pub fn rights<'a>(&'a self, name: &'a PluginName) -> Rights<'a> {
        let (manifest, grants) = (&self.facts.manifest, &self.grants);
        Rights { plugin: name.as_str(), manifest, grants, narrowed: None }
    }
}

/// The way in which the responder `agent` answers (L-021, L-125).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentResponder {
    /// The host carries out tools and actions; the component is not asked.
    Host,
    /// The component's `respond`, if the host has nothing to do.
    #[default]
    HostThenComponent,
    /// The component's `respond`, always.
    Component,
}

/// The treatment of an agent's message without a tool call (L-125).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoTool {
    /// The next responder is tried.
    #[default]
    Nothing,
    /// The message is the task's result.
    Done,
    /// The message goes to the user.
    User,
    /// This text goes back to the agent.
    Nudge(String),
    /// This tool is called instead.
    Call(ToolCall),
}

/// The rules by which a sequence of equal messages counts as a loop (L-096, L-097).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoopRules {
    /// The longest cycle in messages; 0 disables the search for cycles.
    pub cycle_len: u32,
    /// The factor by which messages of a cycle must outnumber any other.
    pub dominance: f64,
    /// The number of repetitions of a cycle before it counts as a loop.
    pub wait: u32,
    /// Whether consecutive turns that end with DO-NOT-KNOW count as a loop too.
    pub alternation: bool,
}

impl LoopRules {
    /// The rules of a task that sets none (L-041).
    pub const DEFAULT: Self = Self { cycle_len: 10, dominance: 1.5, wait: 5, alternation: true };
}

impl Default for LoopRules {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The meaning of special words in messages. The reference enables all of it; here text is data
/// unless the operator decides otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TextRules {
    /// Whether `DONE`, `__PASS__`, `__PASS__:name` and `__SEND__:name` act as signals (L-066,
    /// L-152).
    pub signals: bool,
    /// Whether an agent's text may name its recipient: `TO[name]:`, or a JSON object with
    /// `recipient` (L-065).
    pub recipients: bool,
    /// The prefix that addresses a recipient, such as `|@|`; empty to disable it (L-067).
    pub prefix: String,
    /// Whether calls are read from text for every tool format (L-108).
    pub calls: bool,
    /// Whether a user's text that begins with `SYSTEM` counts as the host's (L-029).
    pub system_word: bool,
}

/// The type of a run's result (L-050i).
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
    /// The description for people and for agents that may delegate to the task.
    pub description: String,
    /// The task's system message; empty if it has none.
    pub system: Arc<str>,
    /// The sub-tasks, in the order in which they are tried.
    pub subtasks: Vec<TaskName>,
    /// The tools that the agent may call and that this task carries out. These are the admitted
    /// tools of its grant, narrowed by the task and sorted by name, then the tools of the host.
    pub toolbox: Arc<Toolbox>,
    /// The task's restriction of its agent's other grants.
    #[serde(default, skip_serializing_if = "is_unnarrowed")]
    pub scope: TaskScope,
    /// The tool that the model must call (L-101).
    pub force_tool: Option<String>,
    /// The delivery strategy for its results when it runs in the background.
    pub delivery_strategy: Option<PluginName>,
    /// Whether the user is asked after each step of another responder.
    pub interactive: bool,
    /// The limit of steps in one activation (L-050f); `None` for no limit of its own.
    pub turns: Option<u32>,
    /// The number of steps without a valid answer before the task ends as stalled (L-084).
    pub max_stalled_steps: u32,
    /// Responders whose non-empty answer ends the task (L-081).
    pub done_if_response: BTreeSet<ResponderName>,
    /// Responders whose missing answer ends the task (L-081).
    pub done_if_no_response: BTreeSet<ResponderName>,
    /// Whether a message with a tool call ends the task (L-082).
    pub done_if_tool: bool,
    /// Sequences of messages; the task ends when the newest messages match one (L-083).
    pub done_sequences: Vec<Sequence>,
    pub no_tool: NoTool,
    pub agent_responder: AgentResponder,
    /// The responders that take part.
    pub responders: BTreeSet<Role>,
    /// Whether a missing answer is replaced with DO-NOT-KNOW from the other side (L-058).
    pub allow_null_result: bool,
    pub tool_format: ToolFormat,
    /// The models that the agent asks if it names none: the first, or the next if that one does not
    /// answer. Empty for the default of the agent's grant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelName>,
    /// Whether only the user can end an interactive root task (L-061).
    pub only_user_quits_root: bool,
    /// The answer that replaces every question to the user (L-029).
    pub default_human_response: Option<String>,
    /// The user message with which the agent's history begins (L-024).
    pub user_message: Option<String>,
    /// Whether each run begins with empty histories, also those of its sub-tasks (L-050b).
    pub restart: bool,
    /// Whether each call by another task begins with empty histories.
    pub restart_as_subtask: bool,
    /// Whether histories drop the messages that led to the result (L-050l).
    pub erase_substeps: bool,
    pub loop_detection: LoopRules,
    pub text_rules: TextRules,
    /// Whether a message may hold several tool calls (L-118).
    pub allow_multiple_tools: bool,
    /// Whether the task, as a sub-task, is tried only for calls that it carries out (L-032).
    pub respond_tools_only: bool,
    /// Whether a message with several native calls may go to a sub-task (L-123).
    pub allow_subtask_multi_tools: bool,
    /// The type of the task's result; `None` for the message as it is.
    pub returns: Option<ReturnType>,
    pub overflow: Overflow,
    /// Whether the task follows the reference where this host deliberately differs from it
    /// (`compat = "langroid"`). Only `TaskRules` reads it.
    pub as_langroid: bool,
    /// The number of bytes counted as one token in estimates; 4 by default.
    pub bytes_per_token: u32,
    /// The plugins whose tools carry out the agent's actions, in order of preference (O-132).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub action_plugins: Vec<PluginName>,
    /// The time limit of an action or tool call, in milliseconds; `None` for the plugin's own
    /// limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_timeout_ms: Option<u64>,
    /// The plugin that `recall` queries; `None` for the agent's own component if it exports
    /// `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<PluginName>,
    /// The rules for actions that need consent (O-109…O-111).
    #[serde(default, skip_serializing_if = "is_default")]
    pub confirm: ConfirmRules,
    /// The plugin that overrules the rules for answers and for the result; `None` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<PluginName>,
    /// The plugin that answers in the place of the user; `None` for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated_user: Option<PluginName>,
    /// The rules for condensing the task's history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condense: Option<CondenseRules>,
    /// The rules for stuck detection (O-098…O-108).
    #[serde(default, skip_serializing_if = "is_default")]
    pub stuck_detection: StuckRules,
    /// Inputs and outputs of a prompt agent; `None` if the task's agent is not one (O-093).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_agent: Option<Arc<MicroAgent>>,
    /// Texts that the agent reads when a user's message contains one of their triggers (O-126).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knowledge: Vec<Arc<Knowledge>>,
    /// The way in which a result is delivered. `None`: an agent turn if the notified task is
    /// interactive and its agent has a model, or if the room is persistent; else the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_delivery: Option<ResultForm>,
    /// The time limit in the background, in milliseconds; `None` for the rest of the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The fate of the background task when its parent is stopped or closed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_close: OnClose,
    /// The number of re-prompts for a result with `submit_result` when the task runs in the
    /// background; `None` if none is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_retries: Option<u32>,
    /// The targets of a handoff, which may include `user`; `None` for every task that its agent may
    /// address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<Vec<String>>,
    /// The budget in the background; `None` in a field stands for half of the run's rest.
    #[serde(default, skip_serializing_if = "is_default")]
    pub budget: TaskBudget,
    /// The rules by which the task delegates.
    #[serde(default, skip_serializing_if = "is_default")]
    pub background: BackgroundRules,
    /// Whether the task has no way to start background tasks, so that none are reserved for it.
    /// False without a limit of tasks, where nothing is reserved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starts_no_tasks: bool,
}

/// The budget of a background task, within that of its run. `None` stands for half of the run's
/// rest.
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
    /// The number of background tasks that it may start, in total and at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
}

/// The points in a room at which a gate is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GatePoint {
    /// Before channel input is accepted.
    Inbound,
    /// Before a background task begins.
    Delegate,
    /// Before a result or an announcement is delivered.
    Deliver,
    /// Before a text passes between a task and its caller in a run: the message to a sub-task or
    /// delegate, and its result.
    Subtask,
    /// Before a question to the user, or the run's answer, reaches people.
    Outbound,
    /// Before a call of a plugin's tool is put to the operator's rules: its arguments.
    ToolCall,
    /// Before anything reads the result of a plugin's tool.
    ToolResult,
}

/// Whether `name` stands for the user as the target of a handoff.
#[must_use]
pub fn is_user(name: &str) -> bool {
    name.eq_ignore_ascii_case("user") || name.eq_ignore_ascii_case("human")
}

impl TaskSetup {
    /// Whether the operator's table of handoffs allows the target; `None` stands for the user.
    #[must_use]
    pub fn may_hand_to(&self, to: Option<&TaskName>) -> bool {
        let Some(table) = &self.handoff else { return true };
        table.iter().any(|name| match to {
            Some(task) => name == task.as_str(),
            None => is_user(name),
        })
    }

    /// Whether the task carries out calls of a tool, by its admitted name `plugin.tool`.
    #[must_use]
    pub fn carries_out(&self, tool: &str) -> bool {
        self.toolbox.iter().any(|listed| listed.handled && listed.target.is_admitted_as(tool))
    }

    /// Whether the task carries out calls of any tool of a plugin.
    #[must_use]
    pub fn calls(&self, plugin: &PluginName) -> bool {
        let is_it = |target: &ToolTarget| match target {
            ToolTarget::Plugin { plugin: of, .. } => of == plugin,
            ToolTarget::Host(_) => false,
        };
        self.toolbox.iter().any(|listed| listed.handled && is_it(&listed.target))
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
            Self::Subtask => "subtask",
            Self::Outbound => "outbound",
            Self::ToolCall => "tool-call",
            Self::ToolResult => "tool-result",
        }
    }

    /// Whether the point is about calls of tools.
    #[must_use]
    pub fn is_of_tools(self) -> bool {
        matches!(self, Self::ToolCall | Self::ToolResult)
    }
}

/// A gate: a plugin that may pass, change or block a text. A gate that fails or times out blocks,
/// unless the operator decides otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRule {
    pub on: GatePoint,
    pub plugin: PluginName,
    /// The time limit in milliseconds.
    pub deadline_ms: u64,
    /// Whether a failure or timeout lets the text pass.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fails_open: bool,
    /// The tools whose calls or results it checks, as in a policy rule: a `*` may stand anywhere.
    /// Empty for all tools, and at points that are not about tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolPattern>,
}

impl GateRule {
    /// The default time limit in milliseconds.
    pub const DEADLINE_MS: u64 = 1_000;

    /// Whether the gate checks the items of a point. `tool` is the `plugin.tool` that a call or a
    /// result belongs to.
    #[must_use]
    pub fn checks(&self, point: GatePoint, tool: Option<&str>) -> bool {
        let covers = |tool: &str| self.tools.iter().any(|it| glob::covers(&it.0, tool));
        self.on == point && (self.tools.is_empty() || tool.is_some_and(covers))
    }
}

/// The rules for condensing a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CondenseRules {
    /// The plugin, which exports `condenser`.
    pub plugin: PluginName,
    /// The number of history entries above which it is asked.
    pub over: u64,
}

impl CondenseRules {
    /// The default of `over`, in entries.
    pub const OVER: u64 = 100;
}

/// A prompt agent: an agent without a component. Its prompt is the task's system message (O-093).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MicroAgent {
    /// Names of its inputs with their descriptions.
    pub inputs: BTreeMap<String, String>,
    /// Names of its outputs with their descriptions.
    pub outputs: BTreeMap<String, String>,
}

/// A text that an agent reads when a user's message contains one of its triggers (O-126).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knowledge {
    /// The path of its file as the config writes it.
    pub file: String,
    /// The name that the file gives itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The trigger words, matched as whole words without regard to case.
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
            scope: TaskScope::default(),
            toolbox: Arc::default(),
            force_tool: None,
            delivery_strategy: None,
            interactive: false,
            turns: None,
            max_stalled_steps: 5,
            done_if_response: BTreeSet::new(),
            done_if_no_response: BTreeSet::new(),
            done_if_tool: false,
            done_sequences: Vec::new(),
            no_tool: NoTool::default(),
            agent_responder: AgentResponder::default(),
            responders: [Role::Llm, Role::Agent, Role::User].into(),
            allow_null_result: false,
            tool_format: ToolFormat::Native,
            models: Vec::new(),
            only_user_quits_root: true,
            default_human_response: None,
            user_message: None,
            restart: true,
            restart_as_subtask: false,
            erase_substeps: false,
            loop_detection: LoopRules::default(),
            text_rules: TextRules::default(),
            allow_multiple_tools: true,
            respond_tools_only: false,
            allow_subtask_multi_tools: true,
            returns: None,
            overflow: Overflow::default(),
            as_langroid: false,
            bytes_per_token: 4,
            action_plugins: Vec::new(),
            action_timeout_ms: None,
            memory: None,
            confirm: ConfirmRules::default(),
            judge: None,
            simulated_user: None,
            condense: None,
            stuck_detection: StuckRules::default(),
            prompt_agent: None,
            knowledge: Vec::new(),
            result_delivery: None,
            deadline_ms: None,
            on_close: OnClose::default(),
            structured_retries: None,
            handoff: None,
            budget: TaskBudget::default(),
            background: BackgroundRules::default(),
            starts_no_tasks: false,
        }
    }
}

/// A model in a room: its prices and limits. The host knows how it is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelSetup {
    /// Micro-US-dollars for a million input tokens; `None` if unknown.
    pub input_price: Option<u64>,
    pub output_price: Option<u64>,
    /// Micro-US-dollars for a million input tokens from the provider's cache; `None` for the price
    /// of other input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_price: Option<u64>,
    /// Host and port of its server; `None` if prompts stay in this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_at: Option<String>,
    /// The API of its server.
    #[serde(default, skip_serializing_if = "ModelApi::is_default")]
    pub api: ModelApi,
    /// The context size in tokens, prompt and answer together; `None` disables the cutting of
    /// histories (L-180).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// The limit of an answer in tokens; `None` for the model's own limit, with 4096 reserved for
    /// an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// The tokens reserved for an answer when the context is short; 50 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_output: Option<u64>,
}

/// The complete setup of a room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The task that gets the first message.
    pub entry: TaskName,
    pub tasks: BTreeMap<TaskName, Arc<TaskSetup>>,
    pub plugins: BTreeMap<PluginName, Arc<PluginSetup>>,
    pub models: BTreeMap<ModelName, ModelSetup>,
    pub channels: Arc<BTreeMap<ChannelId, Binding>>,
    /// The gates, in the order in which they are asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateRule>,
    /// The observers, which receive the events of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observers: Vec<ObserverRule>,
    /// The policy rules, in the order in which they are tried.
    #[serde(default, skip_serializing_if = "Policy::is_empty")]
    pub policy: Policy,
    /// The rules of the config at the last resumption, if they are not those that the run began
    /// with. The stricter decision of both counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_now: Option<Policy>,
    pub limits: RunLimits,
}

impl Setup {
    /// A setup of one task's name, without tasks, plugins and rules.
    #[must_use]
    pub fn empty(entry: TaskName) -> Self {
        Self {
            entry,
            tasks: BTreeMap::new(),
            plugins: BTreeMap::new(),
            models: BTreeMap::new(),
            channels: Arc::default(),
            gates: Vec::new(),
            observers: Vec::new(),
            policy: Policy::default(),
            policy_now: None,
            limits: RunLimits::default(),
        }
    }

    /// The policies that decide about a call, each with the number of rules before its first.
    pub(crate) fn policies(&self) -> impl Iterator<Item = (&Policy, usize)> {
        let now = self.policy_now.iter().map(|policy| (policy, self.policy.len()));
        [(&self.policy, 0)].into_iter().chain(now)
    }

    /// The rights of a plugin; `None` if the config has no plugin of that name.
    #[must_use]
    pub fn rights<'a>(&'a self, plugin: &'a PluginName) -> Option<Rights<'a>> {
        Some(self.plugins.get(plugin)?.rights(plugin))
    }

    /// The rights of an agent while it works on a task, as the task narrows them.
    #[must_use]
    pub fn rights_in<'a>(&'a self, plugin: &'a PluginName, task: &TaskName) -> Option<Rights<'a>> {
        let found = self.tasks.get_key_value(task).filter(|(_, setup)| setup.agent == *plugin);
        let narrowed = found.map(|(task, setup)| ScopedTask { task, scope: &setup.scope });
        Some(Rights { narrowed, ..self.rights(plugin)? })
    }

    /// The tasks that can hold a conversation that begins at the entry task, through any number of
    /// handoffs.
    #[must_use]
    pub fn holders(&self) -> BTreeSet<TaskName> {
        let (mut holders, mut next) = (BTreeSet::new(), vec![self.entry.clone()]);
        while let Some(name) = next.pop() {
            // Handoffs can form cycles, so each task is expanded once.
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

    /// Makes every task that can hold the conversation interactive: it asks its user after each
    /// answer, and only the user ends it. An empty answer counts as an answer too.
    ///
    /// The wall-time limit of a run is removed, because it would count the user's thinking time.
    /// Returns that limit, in milliseconds.
    pub fn make_interactive(&mut self) -> Option<u64> {
        for holder in self.holders() {
            let Some(task) = self.tasks.get_mut(&holder) else { continue };
            let task = Arc::make_mut(task);
            (task.interactive, task.no_tool, task.allow_null_result) =
                (true, NoTool::Nothing, true);
        }
        self.limits.wall_ms.take()
    }

    /// The possible targets of a handoff, as the agent may name them. A target must be in the
    /// task's table, and the agent may address it.
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

    /// The plugin and the tool behind a `plugin.tool`; `None` if no such tool was admitted.
    #[must_use]
    pub fn tool<'a>(&'a self, name: &str) -> Option<(&'a PluginName, &'a ToolSpec)> {
        let (plugin, tool) = name.split_once('.')?;
        let (plugin, setup) = self.plugins.get_key_value(plugin)?;
        let spec = setup.facts.tools.iter().find(|spec| spec.name == tool)?;
        Some((plugin, spec))
    }
}

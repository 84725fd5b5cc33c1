//! A case as written in a file: a compact setup, the scripted answers of each side, and the
//! expectations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use conclave_core::permissions::grants::{
    ChannelsGrant, DelegateGrant, Grants, ModelGrant, RouteGrant, ToolPattern, ToolsGrant,
};
use conclave_core::permissions::manifest::{CapabilityRequest, Manifest};
use conclave_core::permissions::policy_rules::Policy;
use conclave_core::permissions::task_scope::TaskScope;
use conclave_core::protocol::event::RunOpening;
use conclave_core::setup::{
    AgentResponder, CondenseRules, Knowledge, LoopRules, ModelSetup, NoTool, PluginFacts,
    PluginSetup, Provenance, ResponderName, ReturnType, Setup, TaskSetup, TextRules,
};
use conclave_core::tool_calls::sequence::Sequence;
use conclave_core::tool_calls::toolbox::TaskTool;
use conclave_core::types::channel::{Binding, ChannelKind};
use conclave_core::types::completion::ToolFormat;
use conclave_core::types::confirm::ConfirmRules;
use conclave_core::types::host_tool::HostTool;
use conclave_core::types::ids::{ChannelId, Millis, ModelName, PluginName, RoomId, TaskName};
use conclave_core::types::limits::{PluginLimits, RunLimits, WhenUsedUp};
use conclave_core::types::message::Role;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::room_secret::RoomSecret;
use conclave_core::types::stuck_rules::StuckRules;
use conclave_core::types::task_options::Overflow;
use conclave_core::types::tool::ToolSpec;
use serde::Deserialize;
use serde_json::{Value, json};

/// The start time of every case.
pub(crate) const START: Millis = Millis(1_000_000);

/// The secret of every case's room.
pub(crate) const SECRET: RoomSecret = RoomSecret::new([0x5e; RoomSecret::LENGTH]);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The rules that the case covers, for readers.
    #[serde(default)]
    pub(crate) rules: String,
    #[serde(default)]
    pub(crate) setup: SetupPlan,
    /// The first message; `null` if there is no message.
    #[serde(default = "hello")]
    pub(crate) input: Option<String>,
    #[serde(default)]
    pub(crate) opening: OpeningPlan,
    #[serde(default)]
    pub(crate) scripts: Scripts,
    /// The orders in which effects are performed: `first`, `last`, or a seed. Each must lead to the
    /// same result.
    #[serde(default = "in_order")]
    pub(crate) orders: Vec<Value>,
    /// The number of performed effects after which the run is cancelled.
    #[serde(default)]
    pub(crate) cancel_after: Option<usize>,
    /// The number of performed effects after which the turn is stopped.
    #[serde(default)]
    pub(crate) stop_turn_after: Option<usize>,
    /// A task to kill, and the number of performed effects after which that happens.
    #[serde(default)]
    pub(crate) kill_task_after: Option<(String, usize)>,
    /// Whether the run is not over at the end, because a held call waits for its answer.
    #[serde(default)]
    pub(crate) goes_on: bool,
    pub(crate) expect: Value,
}

/// The answers of each side, in order. See `plan.rs` for the forms.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Scripts {
    /// By task.
    pub(crate) agents: BTreeMap<String, Vec<Value>>,
    /// By task.
    pub(crate) responders: BTreeMap<String, Vec<Value>>,
    /// By `plugin.tool`. A tool without a script answers `ok`.
    pub(crate) tools: BTreeMap<String, Vec<Value>>,
    /// After the last answer the user is absent.
    pub(crate) user: Vec<Value>,
    /// By plugin. After the last entry a strategy decides nothing.
    pub(crate) strategies: BTreeMap<String, Vec<Value>>,
    /// Failures of messages. After the last entry every message succeeds.
    pub(crate) messages: Vec<Value>,
    /// By task. A task without a script answers `done`.
    pub(crate) background: BTreeMap<String, Vec<Value>>,
    pub(crate) models: Vec<Value>,
    /// By plugin: its answers to queries other than steps and calls.
    pub(crate) advice: BTreeMap<String, Vec<Value>>,
    /// Approvals in their journal form; `"hold"` leaves a request unanswered.
    pub(crate) approvals: Vec<Value>,
    /// Answers to limit increase requests; `"hold"` leaves a request unanswered.
    pub(crate) top_ups: Vec<Value>,
    /// Whether the last entry of each agent's script repeats without end.
    pub(crate) repeat: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OpeningPlan {
    inputs: Option<Value>,
    /// In milliseconds after the start.
    deadline: Option<u64>,
    depth: u32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SetupPlan {
    entry: Option<String>,
    tasks: BTreeMap<String, TaskPlan>,
    plugins: BTreeMap<String, PluginPlan>,
    models: BTreeMap<String, ModelSetup>,
    gates: Vec<conclave_core::setup::GateRule>,
    policy: Policy,
    limits: LimitsPlan,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TaskPlan {
    /// The tasks that it may hand the conversation to.
    handoff: Option<Vec<String>>,
    /// Defaults to a plugin with the task's name.
    agent: Option<String>,
    subtasks: Vec<String>,
    result_delivery: Option<conclave_core::types::delegation::ResultForm>,
    deadline_ms: Option<u64>,
    on_close: conclave_core::types::delegation::OnClose,
    structured_retries: Option<u32>,
    budget: conclave_core::setup::TaskBudget,
    background: conclave_core::types::delegation::BackgroundRules,
    /// Narrows the granted tools.
    tools: Option<Vec<String>>,
    scope: TaskScope,
    delivery_strategy: Option<String>,
    interactive: bool,
    turns: Option<u32>,
    max_stalled_steps: u32,
    done_if_response: BTreeSet<ResponderName>,
    done_if_no_response: BTreeSet<ResponderName>,
    no_tool: NoTool,
    agent_responder: AgentResponder,
    allow_null_result: bool,
    /// Off by default, because many cases repeat messages on purpose.
    loop_detection: LoopRules,
    text_rules: TextRules,
    tool_format: ToolFormat,
    force_tool: Option<String>,
    overflow: Overflow,
    bytes_per_token: u32,
    done_if_tool: bool,
    done_sequences: Vec<Sequence>,
    responders: BTreeSet<Role>,
    only_user_quits_root: bool,
    default_human_response: Option<String>,
    user_message: Option<String>,
    restart: bool,
    restart_as_subtask: bool,
    erase_substeps: bool,
    allow_multiple_tools: bool,
    respond_tools_only: bool,
    allow_subtask_multi_tools: bool,
    returns: Option<ReturnType>,
    as_langroid: bool,
    action_plugins: Vec<PluginName>,
    action_timeout_ms: Option<u64>,
    memory: Option<PluginName>,
    judge: Option<PluginName>,
    simulated_user: Option<PluginName>,
    confirm: ConfirmRules,
    condense: Option<CondenseRules>,
    knowledge: Vec<Arc<Knowledge>>,
    /// Off by default, because many cases repeat actions on purpose.
    stuck_detection: StuckRules,
    /// The host tools that the agent is offered.
    host_tools: Vec<HostTool>,
    /// Tools that are known but not handled by this task.
    not_handled: Vec<String>,
}

impl Default for TaskPlan {
    fn default() -> Self {
        let of_config = TaskSetup::default();
        Self {
            handoff: None,
            result_delivery: None,
            deadline_ms: None,
            on_close: conclave_core::types::delegation::OnClose::default(),
            structured_retries: None,
            budget: conclave_core::setup::TaskBudget::default(),
            background: conclave_core::types::delegation::BackgroundRules::default(),
            scope: TaskScope::default(),
            text_rules: of_config.text_rules,
            tool_format: of_config.tool_format,
            force_tool: None,
            overflow: of_config.overflow,
            bytes_per_token: of_config.bytes_per_token,
            done_if_tool: false,
            done_sequences: Vec::new(),
            responders: of_config.responders,
            only_user_quits_root: true,
            default_human_response: None,
            user_message: None,
            restart: true,
            restart_as_subtask: false,
            erase_substeps: false,
            allow_multiple_tools: true,
            respond_tools_only: false,
            allow_subtask_multi_tools: true,
            returns: None,
            as_langroid: false,
            action_plugins: Vec::new(),
            action_timeout_ms: None,
            memory: None,
            judge: None,
            simulated_user: None,
            confirm: ConfirmRules::default(),
            condense: None,
            knowledge: Vec::new(),
            stuck_detection: StuckRules { on: false, ..StuckRules::default() },
            host_tools: Vec::new(),
            not_handled: Vec::new(),
            agent: None,
            subtasks: Vec::new(),
            tools: None,
            delivery_strategy: None,
            interactive: false,
            turns: None,
            max_stalled_steps: 5,
            done_if_response: BTreeSet::new(),
            done_if_no_response: BTreeSet::new(),
            no_tool: NoTool::default(),
            agent_responder: AgentResponder::default(),
            allow_null_result: false,
            loop_detection: LoopRules { cycle_len: 0, alternation: false, ..LoopRules::default() },
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PluginPlan {
    /// The names of its tools.
    tools: Vec<String>,
    /// The input schemas of its tools; any object without one.
    schemas: BTreeMap<String, Value>,
    /// Defaults to the capabilities that it is granted.
    asks: Option<Vec<String>>,
    grants: GrantsPlan,
    kinds: BTreeSet<PluginKind>,
    /// Whether it is a component rather than a native plugin.
    sandboxed: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct GrantsPlan {
    tools: Option<Vec<String>>,
    tool_calls: Option<u64>,
    route: Option<Vec<String>>,
    delegate: Option<Vec<String>>,
    at_once: Option<u32>,
    total: Option<u32>,
    /// Channels that it may share.
    share: Vec<String>,
    model: Option<Vec<String>>,
    model_calls: Option<u64>,
    model_tokens: Option<u64>,
    model_cost: Option<u64>,
    channels: Option<Vec<String>>,
    messages: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsPlan {
    turns: Option<u64>,
    tokens: Option<u64>,
    cost: Option<u64>,
    depth: Option<u32>,
    model_calls: Option<u64>,
    tool_calls: Option<u64>,
    /// In milliseconds.
    cpu: Option<u64>,
    history: Option<u64>,
    tasks: Option<u64>,
    tasks_at_once: Option<u32>,
    /// Whether a used-up limit asks for an increase.
    ask: bool,
}

fn hello() -> Option<String> {
    Some("hello".to_owned())
}

fn in_order() -> Vec<Value> {
    vec![json!("first")]
}

impl Case {
    /// Returns the setup that assembly would create from the plan.
    pub(crate) fn setup(&self) -> Setup {
        let plan = &self.setup;
        let mut tasks = plan.tasks.clone();
        let entry = plan.entry.clone().unwrap_or_else(|| "desk".to_owned());
        tasks.entry(entry.clone()).or_default();
        let mut plugins = plan.plugins.clone();
        for (name, task) in &tasks {
            plugins
                .entry(task.agent.clone().unwrap_or_else(|| name.clone()))
                .or_default()
                .kinds
                .insert(PluginKind::Agent);
        }
        let plugins: BTreeMap<PluginName, PluginSetup> = plugins
            .into_iter()
            .map(|(name, plugin)| (PluginName::from(name.as_str()), plugin.setup(&name)))
            .collect();
        Setup {
            entry: TaskName::from(entry),
            observers: Vec::new(),
            tasks: tasks
                .into_iter()
                .map(|(name, task)| {
                    (TaskName::from(name.as_str()), task.setup(&name, &plugins).into())
                })
                .collect(),
            plugins: plugins.into_iter().map(|(name, plugin)| (name, plugin.into())).collect(),
            models: plan
                .models
                .iter()
                .map(|(name, model)| (ModelName::from(name.as_str()), model.clone()))
                .collect(),
            gates: plan.gates.clone(),
            channels: Arc::new(BTreeMap::from([
                (ChannelId::from("pager"), Binding::of(ChannelKind::Other)),
                (ChannelId::from("terminal"), Binding::of(ChannelKind::Text)),
            ])),
            policy: plan.policy.clone(),
            policy_now: None,
            limits: self.limits(),
        }
    }

    fn limits(&self) -> RunLimits {
        let plan = &self.setup.limits;
        RunLimits {
            turns: Some(plan.turns.unwrap_or(100)),
            wall_ms: None,
            tokens: plan.tokens,
            cost_micro_usd: plan.cost,
            depth: plan.depth.unwrap_or(3),
            task_turns: None,
            model_calls: plan.model_calls,
            tool_calls: plan.tool_calls,
            cpu_ms: plan.cpu,
            history: plan.history,
            tasks: plan.tasks,
            tasks_at_once: plan.tasks_at_once,
            when_used_up: if plan.ask { WhenUsedUp::Ask } else { WhenUsedUp::End },
        }
    }

    pub(crate) fn opening(&self) -> RunOpening {
        RunOpening {
            room: RoomId::from("room"),
            entry: self.setup().entry,
            content: self.input.clone(),
            inputs: self.opening.inputs.clone().unwrap_or_else(|| json!({})),
            limits: self.limits(),
            deadline: self.opening.deadline.map(|after| START.plus(after)),
            depth: self.opening.depth,
            channel: ChannelId::from("terminal"),
            ..RunOpening::default()
        }
    }
}

impl TaskPlan {
    fn setup(self, name: &str, plugins: &BTreeMap<PluginName, PluginSetup>) -> TaskSetup {
        let agent = PluginName::from(self.agent.clone().unwrap_or_else(|| name.to_owned()));
        let tools = self.tools_of(&agent, plugins);
        TaskSetup {
            agent,
            scope: self.scope.clone(),
            description: format!("the task {name}"),
            system: format!("You are {name}.").into(),
            models: Vec::new(),
            subtasks: self.subtasks.into_iter().map(TaskName::from).collect(),
            toolbox: Arc::new(tools.into()),
            delivery_strategy: self.delivery_strategy.map(PluginName::from),
            interactive: self.interactive,
            turns: self.turns,
            max_stalled_steps: self.max_stalled_steps,
            done_if_response: self.done_if_response,
            done_if_no_response: self.done_if_no_response,
            no_tool: self.no_tool,
            agent_responder: self.agent_responder,
            allow_null_result: self.allow_null_result,
            loop_detection: self.loop_detection,
            text_rules: self.text_rules,
            tool_format: self.tool_format,
            force_tool: self.force_tool,
            overflow: self.overflow,
            bytes_per_token: self.bytes_per_token,
            done_if_tool: self.done_if_tool,
            done_sequences: self.done_sequences,
            responders: self.responders,
            only_user_quits_root: self.only_user_quits_root,
            default_human_response: self.default_human_response,
            user_message: self.user_message,
            restart: self.restart,
            restart_as_subtask: self.restart_as_subtask,
            starts_no_tasks: false,
            erase_substeps: self.erase_substeps,
            allow_multiple_tools: self.allow_multiple_tools,
            respond_tools_only: self.respond_tools_only,
            allow_subtask_multi_tools: self.allow_subtask_multi_tools,
            returns: self.returns,
            as_langroid: self.as_langroid,
            action_plugins: self.action_plugins,
            action_timeout_ms: self.action_timeout_ms,
            memory: self.memory,
            judge: self.judge,
            simulated_user: self.simulated_user,
            confirm: self.confirm,
            condense: self.condense,
            knowledge: self.knowledge,
            stuck_detection: self.stuck_detection,
            prompt_agent: None,
            handoff: self.handoff,
            result_delivery: self.result_delivery,
            deadline_ms: self.deadline_ms,
            on_close: self.on_close,
            structured_retries: self.structured_retries,
            budget: self.budget,
            background: self.background,
        }
    }

    /// Returns requested ∩ granted ∩ narrowed ∩ admitted.
    fn tools_of(
        &self,
        agent: &PluginName,
        plugins: &BTreeMap<PluginName, PluginSetup>,
    ) -> Vec<TaskTool> {
        let setup = plugins.get(agent).expect("every task's agent was put in");
        let asks_for_tools = setup.facts.manifest.asks.contains_key("tools");
        let granted =
            setup.grants.tools.iter().filter(|_| asks_for_tools).flat_map(|grant| &grant.names);
        let granted: Vec<&ToolPattern> = granted.collect();
        let narrowed = |tool: &str| {
            self.tools
                .as_ref()
                .is_none_or(|names| names.iter().any(|name| ToolPattern(name.clone()).covers(tool)))
        };
        let admitted = plugins.iter().flat_map(|(plugin, setup)| {
            setup.facts.tools.iter().map(move |tool| TaskTool::of_plugin(plugin, tool))
        });
        let may_call =
            |name: &str| granted.iter().any(|pattern| pattern.covers(name)) && narrowed(name);
        let of_host = |tool: HostTool| {
            let mut entry = TaskTool::of_host(tool);
            if self.host_tools.contains(&tool) {
                (entry.offered, entry.handled) = (true, true);
            }
            entry
        };
        let mut tools: Vec<TaskTool> = admitted
            .filter(|tool| may_call(&tool.summary.name))
            .chain(HostTool::ALL.into_iter().map(of_host))
            .collect();
        tools
            .iter_mut()
            .filter(|tool| self.not_handled.contains(&tool.summary.name))
            .for_each(|tool| tool.handled = false);
        tools
    }
}

impl PluginPlan {
    fn setup(self, name: &str) -> PluginSetup {
        let grants = self.grants.grants();
        let granted = || {
            let all = ["model", "tools", "delegate", "route", "channels"].map(|name| {
                conclave_core::types::capability::Capability::from_name(name).expect(name)
            });
            all.into_iter()
                .filter(|capability| grants.has(*capability))
                .map(|capability| capability.to_string())
                .collect()
        };
        let asks: Vec<String> = self.asks.unwrap_or_else(granted);
        let schemas = self.schemas;
        let spec = |name: String| ToolSpec {
            input_schema: schemas
                .get(&name)
                .cloned()
                .unwrap_or_else(|| json!({ "type": "object" })),
            name,
            ..ToolSpec::default()
        };
        let manifest = Manifest {
            format: 1,
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            contract: "0.1".to_owned(),
            asks: asks.into_iter().map(|ask| (ask, CapabilityRequest::default())).collect(),
            ..Manifest::default()
        };
        let tools = self.tools.into_iter().map(spec).collect();
        let sha256 = if self.sandboxed { "00".to_owned() } else { String::new() };
        PluginSetup {
            facts: PluginFacts {
                manifest,
                kinds: self.kinds,
                tools,
                sha256,
                mcp: false,
                server: String::new(),
                confinement: None,
                provenance: Provenance::default(),
            },
            grants,
            limits: PluginLimits::default(),
            config: json!({}),
        }
    }
}

impl GrantsPlan {
    fn grants(&self) -> Grants {
        let calls = self.tool_calls;
        Grants {
            tools: self.tools.clone().map(|names| ToolsGrant {
                names: names.into_iter().map(ToolPattern).collect(),
                calls,
            }),
            route: self.route.clone().map(|names| RouteGrant { names }),
            delegate: self.delegate.clone().map(|tasks| DelegateGrant {
                tasks: tasks.into_iter().map(TaskName::from).collect(),
                at_once: self.at_once.unwrap_or(8),
                total: self.total.unwrap_or(16),
                channels: self.share.clone().into_iter().map(ChannelId::from).collect(),
                ..DelegateGrant::default()
            }),
            model: self.model.clone().map(|names| ModelGrant {
                names: names.into_iter().map(ModelName::from).collect(),
                tokens: self.model_tokens,
                cost_micro_usd: self.model_cost,
                calls: self.model_calls,
            }),
            channels: self.channels.clone().map(|channels| ChannelsGrant {
                channels: channels.into_iter().map(ChannelId::from).collect(),
                messages: self.messages,
            }),
            ..Grants::default()
        }
    }
}

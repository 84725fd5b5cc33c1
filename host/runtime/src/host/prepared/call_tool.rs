//! A single tool call without a task: a room whose agent makes one call and ends. Grants, budgets,
//! limits, policy, journal and subscribers apply as in any run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::config::{MCP_CLIENT, YOU};
use conclave_core::permissions::grants::{Grants, ToolPattern, ToolsGrant};
use conclave_core::permissions::manifest::{CONTRACT, CapabilityRequest, FORMAT, Manifest};
use conclave_core::permissions::policy_rules::{Decide, Rule};
use conclave_core::protocol::notice::Notice;
use conclave_core::setup::{
    AgentResponder, GatePoint, GateRule, PluginFacts, PluginSetup, Provenance, Setup, TaskSetup,
};
use conclave_core::tool_calls::arguments::{Wrong, check};
use conclave_core::tool_calls::toolbox::TaskTool;
use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::capability::Capability;
use conclave_core::types::completion::ToolFormat;
use conclave_core::types::denial::Denial;
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::{PluginName, TaskName};
use conclave_core::types::limits::PluginLimits;
use conclave_core::types::message::{Role, ToolCall};
use conclave_core::types::outcome::Outcome;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::tool::{ToolError, ToolOutcome};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Prepared, Run, RunOptions};
use crate::calls::{CallStart, PluginAnswer, PluginCall, PluginOutput, Plugins};
use crate::driver::EarlyAnswer;
use crate::driver::room_handle::RoomHandle;
use crate::host::session::SessionParts;
use crate::observe::subscribe::{Published, RunEvent, Subscriber};
use crate::storage::journal::JournalFailure;
use crate::support::clock::BoxFuture;

const TASK: &str = "call";

/// The caller of a tool without a task. Its name is no valid plugin name, so policy rules cannot
/// confuse the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// The holder of the config.
    #[default]
    You,
    /// A client that speaks the Model Context Protocol.
    Mcp,
}

impl Caller {
    /// The name that a policy rule uses: `caller = "(mcp)"`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::You => YOU,
            Self::Mcp => MCP_CLIENT,
        }
    }
}

/// The result of a single tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRun {
    /// The tool's answer. Calls in its `then` were not made, because only an agent could make them.
    pub answer: Result<ToolOutcome, ToolError>,
    /// The call's usage and denials; empty if nothing was started.
    pub report: CallReport,
}

/// The reason why a tool was not called at all.
#[derive(Debug, thiserror::Error)]
pub enum CallToolError {
    /// No plugin of the config has this tool.
    #[error("there is no tool `{tool}`; {}", these(.known))]
    Unknown {
        /// The requested name.
        tool: String,
        /// The tools of the config as `plugin.tool`, in order.
        known: Vec<String>,
    },
    /// The arguments are larger than the plugin takes.
    #[error(
        "the arguments have {bytes} bytes, more than the limit of {limit} bytes (limits.arguments of the plugin)"
    )]
    TooLarge {
        /// Bytes of the arguments as JSON.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The journal could not be created or written.
    #[error(transparent)]
    Journal(#[from] JournalFailure),
}

fn these(known: &[String]) -> String {
    if known.is_empty() {
        "no plugin of this config has tools".to_owned()
    } else {
        format!("these are there: {}", known.join(", "))
    }
}

impl Prepared {
    /// Calls one tool, `plugin.tool`, without a task. The call needs no grant, because the caller
    /// holds the config. The tool's own actions obey its grants and limits. Policy rules without a
    /// `caller` apply, and those for `(you)`.
    ///
    /// The arguments are a JSON object. Dropping the future stops the tool.
    ///
    /// # Errors
    /// `Unknown` if no plugin has this tool, `TooLarge` if its plugin does not take arguments of this
    /// size, `Journal` if the journal cannot be created or written. Errors of the tool, and refusals of an approver, are in [`ToolRun::answer`].
    ///
    /// ```
    /// use conclave_runtime::native::{self, Call, Plugin, Tool};
    /// use conclave_runtime::{Host, HostOptions, RunOptions, config::Config};
    /// use serde_json::json;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let double = Tool::new("double", "Twice a number.", json!({ "type": "object" }), |call: Call| async move {
    ///     Ok(json!(call.arguments["number"].as_i64().unwrap_or_default() * 2))
    /// });
    /// let app = Plugin::tools("app", [double]).with_agent(|_| async { Ok(native::finish("Done.")) });
    /// let host = Host::new(HostOptions { native: vec![app], ..HostOptions::default() })?;
    /// let config = Config::parse("app.toml", "", r#"
    ///     entry = "main"
    ///     [plugins.app]
    ///     source = "native:app"
    ///     [tasks.main]
    ///     agent = "app"
    /// "#)?;
    /// let run = host.load(&config).await?.call_tool("app.double", json!({ "number": 21 }), RunOptions::default()).await?;
    /// assert_eq!(run.answer.unwrap().value, Some(json!(42)));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call_tool(
        &self,
        tool: &str,
        arguments: Value,
        options: RunOptions,
    ) -> Result<ToolRun, CallToolError> {
        self.start_tool(Caller::You, tool, arguments, options)?.outcome().await
    }

    /// Starts a tool call for another caller, with a handle that stops it. The work begins when the
    /// outcome is awaited.
    ///
    /// # Errors
    /// `Unknown` if no plugin has this tool, `TooLarge` if its plugin does not take arguments of this
    /// size, `Journal` if the journal cannot be created.
    pub fn start_tool(
        &self,
        caller: Caller,
        tool: &str,
        arguments: Value,
        options: RunOptions,
    ) -> Result<ToolCalling, CallToolError> {
        let Some(CallSetup { setup, only_computes, is_result_gated }) =
            self.call_setups.of(&self.setup, caller, tool)
        else {
            return Err(CallToolError::Unknown { tool: tool.to_owned(), known: self.tools() });
        };
        self.check_size(tool, &arguments)?;
        let seen = Arc::new(CallResult { caller, is_result_gated, findings: Mutex::default() });
        // Kept for the error message, in case the room rejects the arguments.
        let wrong = self
            .setup
            .tool(tool)
            .and_then(|(_, spec)| check(&spec.input_schema, &arguments).err())
            .unwrap_or_default();
        let call = ToolCall { id: "1".to_owned(), ..ToolCall::new(tool, arguments) };
        let plugins = OneCall { inner: Arc::clone(&self.calls), call, seen: Arc::clone(&seen) };
        let options = RunOptions {
            subscribers: options.subscribers.with(Arc::clone(&seen) as Arc<dyn Subscriber>),
            ..options
        };
        let parts = SessionParts {
            setup,
            plugins: Arc::new(plugins),
            models: Arc::clone(&self.models),
            rooms: Arc::clone(&self.rooms),
            endpoints: Arc::clone(&self.endpoints),
        };
        Ok(ToolCalling { run: parts.start(options)?, seen, wrong, only_computes })
    }

    /// Checks the size of the arguments.
    fn check_size(&self, tool: &str, arguments: &Value) -> Result<(), CallToolError> {
        let plugin = self.setup.tool(tool).and_then(|(plugin, _)| self.setup.plugins.get(plugin));
        let Some(limit) = plugin.map(|plugin| plugin.limits.arguments) else { return Ok(()) };
        let bytes = arguments.to_string().len() as u64;
        // A call that is too large would end before it reaches the plugin, and the room could not
        // name the reason to the caller.
        if bytes > limit { Err(CallToolError::TooLarge { bytes, limit }) } else { Ok(()) }
    }

    /// Every tool of the config as `plugin.tool`, in order.
    #[must_use]
    pub fn tools(&self) -> Vec<String> {
        let plugins = self.setup.plugins.iter();
        let mut names: Vec<String> = plugins
            .flat_map(|(plugin, setup)| {
                setup.facts.tools.iter().map(move |tool| format!("{plugin}.{}", tool.name))
            })
            .collect();
        names.sort_unstable();
        names
    }
}

/// An active tool call. Dropping it stops the tool.
pub struct ToolCalling {
    run: Run,
    seen: Arc<CallResult>,
    wrong: Vec<Wrong>,
    /// Whether calls of the tool only compute.
    only_computes: bool,
}

impl ToolCalling {
    /// A handle to the call's room, which stops the call and records that.
    #[must_use]
    pub fn handle(&self) -> RoomHandle {
        self.run.handle()
    }

    /// Returns the result of the tool, once the call's records are durable.
    ///
    /// # Errors
    /// `Journal` if the journal fails; nothing more was performed after that.
    pub async fn outcome(self) -> Result<ToolRun, CallToolError> {
        let Self { mut run, seen, wrong, .. } = self;
        let outcome = run.outcome_after(None).await?;
        Ok(seen.result(&wrong, &outcome))
    }

    /// Runs the call and passes on its result: before the call's records are durable if nothing is
    /// granted to the tool's plugin and nothing was refused to it, and after them otherwise. The
    /// future ends when they are durable.
    ///
    /// # Errors
    /// `Journal` if the journal fails. Then the result was not passed on, or was that of a call that
    /// reached nothing outside its sandbox.
    pub async fn run(self, answer: oneshot::Sender<ToolRun>) -> Result<(), CallToolError> {
        let Self { mut run, seen, wrong, only_computes } = self;
        let mut answer = Some(answer);
        let mut send = |result: ToolRun| {
            // The caller may be gone.
            answer.take().is_some_and(|answer| answer.send(result).is_ok())
        };
        let early = || seen.take_answered().is_some_and(&mut send);
        let early = only_computes.then(|| Box::new(early) as EarlyAnswer<'_>);
        let outcome = run.outcome_after(early).await?;
        send(seen.result(&wrong, &outcome));
        Ok(())
    }
}

/// The error for a room that never made the call. The causes are invalid arguments, a denial by a
/// rule or an approver, and an early end of the run.
fn not_started(denied: Option<Denial>, wrong: &[Wrong], outcome: &Outcome) -> ToolError {
    match (denied, &outcome.content) {
        (Some(denial), _) => ToolError::Denied { denial },
        (None, Some(_)) if !wrong.is_empty() => {
            let wrong: Vec<String> = wrong.iter().map(Wrong::to_string).collect();
            ToolError::InvalidArguments { message: wrong.join("; ") }
        }
        (None, Some(message)) => ToolError::Other { message: message.clone() },
        (None, None) => {
            ToolError::Fault { fault: Fault::new(FaultKind::Abandoned, outcome.reason.clone()) }
        }
    }
}

/// The setup of the rooms for the calls of one tool.
#[derive(Clone)]
struct CallSetup {
    setup: Arc<Setup>,
    /// Whether the tool's plugin only computes.
    only_computes: bool,
    /// Whether gates check the tool's result.
    is_result_gated: bool,
}

/// The setups for single calls by caller and tool. Each is made once, so that a journal also writes
/// it once.
#[derive(Default)]
pub(crate) struct CallSetups(Mutex<BTreeMap<(Caller, String), CallSetup>>);

impl CallSetups {
    /// The setup for a call; `None` if no plugin has the tool.
    fn of(&self, setup: &Setup, caller: Caller, tool: &str) -> Option<CallSetup> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (caller, tool.to_owned());
        if let Some(made) = made.get(&key) {
            return Some(made.clone());
        }
        let only_computes = {
            let (plugin, _) = setup.tool(tool)?;
            setup.plugins.get(plugin).is_some_and(|plugin| plugin.only_computes())
        };
        let is_result_gated =
            setup.gates.iter().any(|gate| gate.checks(GatePoint::ToolResult, Some(tool)));
        let setup = Arc::new(setup_for(setup, caller, tool)?);
        let made = made.entry(key);
        Some(made.or_insert(CallSetup { setup, only_computes, is_result_gated }).clone())
    }
}

/// The setup of a room for one call; `None` if no plugin has the tool.
fn setup_for(setup: &Setup, caller: Caller, tool: &str) -> Option<Setup> {
    let (plugin, spec) = setup.tool(tool)?;
    let checks = |gate: &GateRule| gate.on.is_of_tools() && gate.checks(gate.on, Some(tool));
    let mut tool_of_task = TaskTool::of_plugin(plugin, spec);
    if setup.gates.iter().any(|gate| checks(gate) && gate.on == GatePoint::ToolResult) {
        // The caller takes the room's result, and no model reads it that has a limit.
        tool_of_task.result_tokens = None;
    }
    let of_tool = setup
        .plugins
        .get_key_value(plugin)
        .map(|(name, plugin)| (name.clone(), Arc::clone(plugin)))?;
    let gates = setup.gates.iter().filter(|gate| checks(gate)).map(|gate| &gate.plugin);
    let others = setup.observers.iter().map(|rule| &rule.plugin).chain(gates);
    let others = others.filter_map(|name| {
        let (name, plugin) = setup.plugins.get_key_value(name)?;
        Some((name.clone(), Arc::clone(plugin)))
    });
    Some(Setup {
        entry: TaskName::from(TASK),
        tasks: BTreeMap::from([(TaskName::from(TASK), Arc::new(task(caller, tool_of_task)))]),
        plugins: [of_tool, (PluginName::from(caller.as_str()), Arc::new(setup_of(caller, tool)))]
            .into_iter()
            .chain(others)
            .collect(),
        policy: setup.policy.iter().cloned().chain(own_leave(caller, tool)).collect(),
        policy_now: None,
        ..setup.clone()
    })
}

/// The rule that allows the holder of the config to make the call. The operator's rules still come
/// first.
fn own_leave(caller: Caller, tool: &str) -> Option<Rule> {
    (caller == Caller::You).then(|| Rule {
        tool: ToolPattern(tool.to_owned()),
        caller: Some(PluginName::from(caller.as_str())),
        arguments: Vec::new(),
        only: false,
        decide: Decide::Allow,
        expires_ms: None,
        source: "the command itself".to_owned(),
    })
}

/// A task with one step, which the tool's answer ends.
fn task(caller: Caller, tool: TaskTool) -> TaskSetup {
    TaskSetup {
        agent: PluginName::from(caller.as_str()),
        toolbox: Arc::new(vec![tool].into()),
        max_stalled_steps: 1,
        done_if_response: BTreeSet::from([Role::Agent.into()]),
        agent_responder: AgentResponder::Host,
        tool_format: ToolFormat::Off,
        ..TaskSetup::default()
    }
}

fn setup_of(caller: Caller, tool: &str) -> PluginSetup {
    let asks =
        BTreeMap::from([(Capability::Tools.as_str().to_owned(), CapabilityRequest::default())]);
    let manifest = Manifest {
        format: FORMAT,
        name: caller.as_str().into(),
        version: "0".into(),
        contract: CONTRACT.into(),
        asks,
        ..Manifest::default()
    };
    let facts = PluginFacts {
        manifest,
        kinds: BTreeSet::from([PluginKind::Agent]),
        tools: Vec::new(),
        sha256: String::new(),
        mcp: false,
        server: String::new(),
        confinement: None,
        provenance: Provenance::default(),
    };
    let grants = Grants {
        tools: Some(ToolsGrant { names: vec![ToolPattern(tool.to_owned())], calls: None }),
        ..Grants::default()
    };
    PluginSetup { facts, grants, limits: PluginLimits::default(), config: json!({}) }
}

/// The result of the call, shared between the room's agent and the caller.
struct CallResult {
    caller: Caller,
    /// Whether gates check the result. Then the tool's own answer is not for the caller.
    is_result_gated: bool,
    findings: Mutex<Findings>,
}

#[derive(Default)]
struct Findings {
    answered: Option<(Result<ToolOutcome, ToolError>, CallReport)>,
    /// Whether the call failed, once gates have let its result pass or withheld it.
    checked: Option<(bool, CallReport)>,
    denied: Option<Denial>,
}

impl CallResult {
    fn lock(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tool's answer, if there is one.
    fn take_answered(&self) -> Option<ToolRun> {
        let (answer, report) = self.lock().answered.take()?;
        Some(ToolRun { answer, report })
    }

    /// The result of the call after the run has ended.
    fn result(&self, wrong: &[Wrong], outcome: &Outcome) -> ToolRun {
        if let Some((is_error, report)) = self.lock().checked.take() {
            return ToolRun { answer: checked_answer(is_error, outcome), report };
        }
        self.take_answered().unwrap_or_else(|| ToolRun {
            answer: Err(not_started(self.lock().denied.take(), wrong, outcome)),
            report: CallReport::default(),
        })
    }
}

impl Subscriber for CallResult {
    fn on(&self, happening: &Published) {
        if let RunEvent::Notice { notice: Notice::Denied { plugin, record, .. } } = &happening.what
            && plugin.as_str() == self.caller.as_str()
        {
            self.lock().denied = Some(record.denial.clone());
        }
        if let RunEvent::Notice { notice, .. } = &happening.what
            && let Notice::ToolAnswered { call: Some(_), is_error, report, .. } = notice
            && self.is_result_gated
        {
            self.lock().checked = Some((*is_error, report.clone()));
        }
    }
}

/// Returns the result of a call that gates have checked: the answer of its room.
fn checked_answer(is_error: bool, outcome: &Outcome) -> Result<ToolOutcome, ToolError> {
    let Outcome { content, value, message, .. } = outcome;
    if is_error {
        return Err(ToolError::Other { message: content.clone().unwrap_or_default() });
    }
    let attachments = message.as_ref().map(|message| message.attachments.clone());
    let attachments = attachments.unwrap_or_default();
    let (content, value) = (content.clone(), value.clone());
    Ok(ToolOutcome { content, value, attachments, follow_up_calls: Vec::new() })
}

/// The plugins of the config, with an agent that makes one call.
struct OneCall {
    inner: Arc<dyn Plugins>,
    call: ToolCall,
    seen: Arc<CallResult>,
}

impl OneCall {
    fn turn(&self) -> Turn {
        let action =
            Action::Reply(Reply { tool_calls: vec![self.call.clone()], ..Reply::default() });
        Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() }
    }
}

impl Plugins for OneCall {
    fn call(&self, start: CallStart, call: PluginCall) -> BoxFuture<'static, PluginAnswer> {
        let output = match call {
            PluginCall::Step { .. } => PluginOutput::Step(Ok(self.turn())),
            PluginCall::Respond { .. } => PluginOutput::Respond(Ok(None)),
            PluginCall::Query { .. } | PluginCall::Decide { .. } => {
                return self.inner.call(start, call);
            }
            PluginCall::Tool(_) => {
                let (called, seen) = (self.inner.call(start, call), Arc::clone(&self.seen));
                return Box::pin(async move {
                    let mut answer = called.await;
                    if let PluginOutput::Tool(outcome) = &mut answer.output {
                        if !seen.is_result_gated {
                            let result = (outcome.clone(), answer.report.clone());
                            seen.lock().answered = Some(result);
                        }
                        if let Ok(outcome) = outcome {
                            // The caller gets no further calls; left in place, the room would make
                            // them.
                            outcome.follow_up_calls.clear();
                        }
                    }
                    answer
                });
            }
        };
        Box::pin(std::future::ready(output.into()))
    }

    fn check(
        &self,
        plugin: &PluginName,
        tool: &str,
        arguments: Value,
    ) -> BoxFuture<'static, Result<(), String>> {
        self.inner.check(plugin, tool, arguments)
    }
}

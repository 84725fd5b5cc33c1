//! One configured native plugin, ready for calls: its closures, and the limits that apply without a
//! sandbox.

use std::any::Any;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conclave_core::setup::PluginSetup;
use conclave_core::setup::plugin_query::PluginQuery;
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::PluginName;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::tool::ToolError;
use conclave_core::types::view::AgentView;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::access::CallAccess;
use super::advisor::NativeQuery;
use super::agent::Step;
use super::failure::Failure;
use super::plugin::Plugin;
use super::tool::Call;
use crate::calls::{CallStart, PluginAnswer, PluginCall, PluginOutput, ToolInput};
use crate::imports::call::{PluginContext, no_view};
use crate::imports::convert::queries::{checked, memories_limit};
use crate::plugin::ArgumentChecker;
use crate::plugin::kinds::reads_view;
use crate::support::escape::excerpt;

/// The maximum number of characters of a panic's message in a fault.
const WORDS: usize = 600;

/// A native plugin with its grants and limits.
pub(crate) struct Native {
    plugin: Plugin,
    context: PluginContext,
    arguments: ArgumentChecker,
    at_once: Arc<Semaphore>,
}

impl Native {
    pub(crate) fn new(
        plugin: Plugin,
        arguments: ArgumentChecker,
        name: PluginName,
        setup: Arc<PluginSetup>,
    ) -> Self {
        let at_once = usize::try_from(setup.limits.at_once)
            .unwrap_or(Semaphore::MAX_PERMITS)
            .clamp(1, Semaphore::MAX_PERMITS);
        let context = PluginContext::without_folders(name, setup);
        Self { plugin, context, arguments, at_once: Arc::new(Semaphore::new(at_once)) }
    }

    /// The plugin's name in the config.
    pub(super) fn name(&self) -> &PluginName {
        &self.context.name
    }

    /// Calls the closure that the call goes to, within the plugin's limits.
    pub(super) async fn call(&self, start: CallStart, call: PluginCall) -> PluginAnswer {
        let kind = call.kind();
        let host = CallAccess::new(start, Arc::clone(&self.context.setup));
        match call {
            PluginCall::Step { view } => self.step(host, view).await,
            PluginCall::Tool(input) => self.call_tool(host, input).await,
            PluginCall::Query { query, view } => self.query(host, query, view).await,
            PluginCall::Respond { view } => self.respond(host, view).await,
            // Strategies are components.
            PluginCall::Decide { .. } => {
                kind.failed(self.is_no(PluginKind::DeliveryStrategy)).into()
            }
        }
    }

    async fn step(&self, host: CallAccess, view: AgentView) -> PluginAnswer {
        let name = &self.context.name;
        let Some(agent) = self.plugin.agent.clone() else {
            return PluginOutput::Step(Err(self.is_no(PluginKind::Agent))).into();
        };
        let step = Step { view, host: host.clone() };
        let (turn, report) = self.run(&host, async move { agent(step).await }).await;
        let turn = turn.and_then(|turn| turn.map_err(|failure| failure.into_fault(name.as_str())));
        PluginAnswer { output: PluginOutput::Step(turn), report }
    }

    async fn respond(&self, host: CallAccess, view: AgentView) -> PluginAnswer {
        let name = &self.context.name;
        let Some(responder) = self.plugin.responder.clone() else {
            return PluginOutput::Respond(Err(self.is_no(PluginKind::Responder))).into();
        };
        let step = Step { view, host: host.clone() };
        let (turn, report) = self.run(&host, async move { responder(step).await }).await;
        let turn = turn.and_then(|turn| turn.map_err(|failure| failure.into_fault(name.as_str())));
        PluginAnswer { output: PluginOutput::Respond(turn), report }
    }

    async fn query(
        &self,
        host: CallAccess,
        query: PluginQuery,
        view: Option<AgentView>,
    ) -> PluginAnswer {
        let (name, kind) = (&self.context.name, query.kind());
        let Some(advisor) = self.plugin.advisors.get(&kind).cloned() else {
            return PluginOutput::Query(Err(self.is_no(kind))).into();
        };
        if reads_view(kind) && view.is_none() {
            return PluginOutput::Query(Err(no_view(name))).into();
        }
        let limit = memories_limit(&query);
        let query = Box::new(NativeQuery { query, view, host: host.clone() });
        let (reply, report) = self.run(&host, async move { advisor(query).await }).await;
        let reply =
            reply.and_then(|reply| reply.map_err(|failure| failure.into_fault(name.as_str())));
        let reply = reply.and_then(|reply| checked(reply, limit));
        PluginAnswer { output: PluginOutput::Query(reply), report }
    }

    async fn call_tool(&self, host: CallAccess, input: ToolInput) -> PluginAnswer {
        let ToolInput { task, caller, tool: name, arguments, conversation, callable } = input;
        let failed = |error| PluginAnswer::from(PluginOutput::Tool(Err(error)));
        let Some(index) = self.tool_index(&name) else {
            return failed(ToolError::Other { message: self.has_no_tool(&name) });
        };
        let most = self.context.limits().arguments;
        if let Err(message) = self.arguments.check(index, &arguments, most).await {
            return failed(ToolError::InvalidArguments { message });
        }
        let arguments = Arc::unwrap_or_clone(arguments);
        let body = Arc::clone(&self.plugin.tools[index].body);
        let callable = callable.unwrap_or_default();
        let call = Call { arguments, task, caller, conversation, callable, host: host.clone() };
        let (outcome, report) = self.run(&host, async move { body(call).await }).await;
        let outcome = outcome.map_err(|fault| ToolError::Fault { fault });
        let outcome = outcome.and_then(|outcome| outcome.map_err(Failure::into_tool_error));
        PluginAnswer { output: PluginOutput::Tool(outcome), report }
    }

    fn is_no(&self, kind: PluginKind) -> Fault {
        let message = format!("{} is no `{}`", self.context.name, kind.as_str());
        Fault::new(FaultKind::NotStarted, message)
    }

    fn tool_index(&self, name: &str) -> Option<usize> {
        self.plugin.tools.iter().position(|tool| tool.spec.name == name)
    }

    fn has_no_tool(&self, tool: &str) -> String {
        format!("{} has no tool {tool:?}", self.context.name)
    }

    /// Checks the arguments of a tool; the error is a message for the model.
    pub(super) async fn check(&self, tool: &str, arguments: Value) -> Result<(), String> {
        let index = self.tool_index(tool).ok_or_else(|| self.has_no_tool(tool))?;
        self.arguments
            .check(index, &Arc::new(arguments), self.context.limits().arguments)
            .await
            .map(drop)
    }

    /// Runs a closure's future within the limits.
    async fn run<T>(
        &self,
        host: &CallAccess,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> (Result<Result<T, Failure>, Fault>, CallReport)
    where
        T: Serialize + Send + 'static,
    {
        let place =
            Arc::clone(&self.at_once).acquire_owned().await.expect("the semaphore is never closed");
        // After the permit: waiting for it does not count against the wall-time limit.
        let began = Instant::now();
        // In a task of its own, so that work that blocks its thread still times out.
        let mut task = Cancelled(tokio::spawn(async move {
            let answer = work.await;
            // The work itself holds the permit: abandoned work that still blocks a thread keeps
            // counting against the limit.
            drop(place);
            answer
        }));
        let wall = Duration::from_millis(self.context.limits().wall_ms);
        let answer = match tokio::time::timeout(wall, &mut task.0).await {
            Ok(Ok(answer)) => self.within_output(answer),
            Ok(Err(error)) if error.is_panic() => {
                Err(Fault::new(FaultKind::Panic, panic_sentence(error.into_panic().as_ref())))
            }
            Ok(Err(_)) => Err(Fault::new(FaultKind::Abandoned, "the program is shutting down")),
            Err(_) => Err(self.broken(FaultKind::Wall)),
        };
        (answer, host.end(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)))
    }

    fn within_output<T: Serialize>(
        &self,
        answer: Result<T, Failure>,
    ) -> Result<Result<T, Failure>, Fault> {
        let limit = self.context.limits().output;
        let fits = match &answer {
            Ok(answer) => fits_json(answer, limit),
            Err(failure) => fits_json(&failure.clone().into_tool_error(), limit),
        };
        if fits { Ok(answer) } else { Err(self.broken(FaultKind::Output)) }
    }

    fn broken(&self, kind: FaultKind) -> Fault {
        Fault::new(kind, self.context.limit_sentence(kind))
    }
}

/// A task that is aborted on drop.
struct Cancelled<T>(JoinHandle<T>);

impl<T> Drop for Cancelled<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn panic_sentence(panic: &(dyn Any + Send)) -> String {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    message.map_or_else(
        || "it panicked, and left no message".to_owned(),
        |message| format!("it panicked: {}", excerpt(message, WORDS)),
    )
}

/// Whether a value has at most `limit` bytes as JSON, without keeping them.
fn fits_json(value: &impl Serialize, limit: u64) -> bool {
    serde_json::to_writer(CallsLeft(limit), value).is_ok()
}

struct CallsLeft(u64);

impl Write for CallsLeft {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.0.checked_sub(bytes.len() as u64) {
            Some(remaining) => self.0 = remaining,
            None => return Err(std::io::ErrorKind::FileTooLarge.into()),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

//! Calls into plugins. Each runs in a fresh sandbox under limits, and returns an answer or a fault.
//! A guest's fault is data, not an error of the host.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use conclave_core::setup::PluginSetup;
use conclave_core::setup::plugin_query::{PluginQuery, PluginReply};
use conclave_core::types::action::Turn;
use conclave_core::types::delivery::{Decision, DeliveryView, Wake};
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::PluginName;
use conclave_core::types::tool::{ToolError, ToolOutcome};
use conclave_core::types::view::AgentView;
use serde_json::Value;

use crate::calls::{CallStart, Plugins, ToolStart};
use crate::imports::call::{CallInput, CallState, PluginContext, PluginStores, no_view};
use crate::imports::interfaces::folder::FolderError;
use crate::imports::secrets::scrub;
use crate::imports::secrets::vault::Vault;
use crate::plugin::LoadedPlugin;
use crate::sandbox::guest_calls;
use crate::sandbox::run::{self, GuestCall};
use crate::support::admission::CallPermits;
use crate::support::clock::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A configured plugin, ready for calls.
#[derive(Debug)]
pub struct Sandbox {
    plugin: Arc<LoadedPlugin>,
    grantee: Arc<PluginContext>,
    at_once: CallPermits,
}

impl Sandbox {
    /// Prepares a loaded plugin with its setup, and opens its granted folders.
    ///
    /// # Errors
    /// If a granted folder cannot be opened.
    pub fn new(
        plugin: Arc<LoadedPlugin>,
        name: PluginName,
        setup: Arc<PluginSetup>,
    ) -> Result<Self, FolderError> {
        let at_once = CallPermits::new(usize::try_from(setup.limits.at_once).unwrap_or(usize::MAX));
        let grantee = Arc::new(PluginContext::new(name, setup)?);
        Ok(Self { plugin, grantee, at_once })
    }

    /// Sets the secrets of the config, which are empty by default.
    #[must_use]
    pub(crate) fn with_secrets(mut self, vault: &Arc<Vault>) -> Self {
        if let Some(grantee) = Arc::get_mut(&mut self.grantee) {
            grantee.vault = Arc::clone(vault);
        }
        self
    }

    pub(crate) fn vault(&self) -> &Arc<Vault> {
        &self.grantee.vault
    }

    /// Sets the stores; the default ones live as long as the plugin.
    #[must_use]
    pub(crate) fn with_stores(mut self, stores: PluginStores) -> Self {
        if let Some(grantee) = Arc::get_mut(&mut self.grantee) {
            grantee.stores = stores;
        }
        self
    }

    /// Returns the plugin's stores.
    pub(crate) fn stores(&self) -> &PluginStores {
        &self.grantee.stores
    }

    /// Runs a step of the agent.
    ///
    /// # Errors
    /// The fault: `Error` if the agent reports one, `BadAnswer` if its answer violates the
    /// contract.
    /// the contract says.
    pub async fn step(
        &self,
        start: CallStart,
        view: AgentView,
    ) -> (Result<Turn, Fault>, CallReport) {
        match self.plugin.exports().agent() {
            Some(agent) => self
                .run(start, CallInput::Agent(view), guest_calls::StepCall(agent))
                .await
                .flatten(),
            None => self.lacks("agent"),
        }
    }

    /// Returns the agent's own answer, if it has one.
    ///
    /// # Errors
    /// As for `step`.
    pub async fn respond(
        &self,
        start: CallStart,
        view: AgentView,
    ) -> (Result<Option<Turn>, Fault>, CallReport) {
        match self.plugin.exports().responder() {
            Some(responder) => self
                .run(start, CallInput::Agent(view), guest_calls::Respond(responder))
                .await
                .flatten(),
            None => self.lacks("responder"),
        }
    }

    /// Asks the plugin for memories, a risk, a condensation or a gate verdict. Analyzers and
    /// condensers read the view.
    ///
    /// # Errors
    /// As for `step`.
    pub async fn consult(
        &self,
        start: CallStart,
        question: &PluginQuery,
        view: Option<AgentView>,
    ) -> (Result<PluginReply, Fault>, CallReport) {
        let exports = self.plugin.exports();
        match (question, view) {
            (PluginQuery::Memories { query, limit }, _) => match exports.memory() {
                Some(memory) => self
                    .run(
                        start,
                        CallInput::Nothing,
                        guest_calls::RecallCall { memory, query, limit: *limit },
                    )
                    .await
                    .flatten(),
                None => self.lacks(question.kind().as_str()),
            },
            (PluginQuery::Risk { action, thought }, Some(view)) => match exports.analyzer() {
                Some(analyzer) => self
                    .run(
                        start,
                        CallInput::Agent(view),
                        guest_calls::AssessCall { analyzer, action, thought },
                    )
                    .await
                    .flatten(),
                None => self.lacks(question.kind().as_str()),
            },
            (PluginQuery::Condense { reason }, Some(view)) => match exports.condenser() {
                Some(condenser) => self
                    .run(
                        start,
                        CallInput::Agent(view),
                        guest_calls::CondenseCall { condenser, reason: *reason },
                    )
                    .await
                    .flatten(),
                None => self.lacks(question.kind().as_str()),
            },
            (PluginQuery::Gate { passing }, _) => match exports.gate() {
                Some(gate) => self
                    .run(start, CallInput::Nothing, guest_calls::CheckCall { gate, passing })
                    .await
                    .flatten(),
                None => self.lacks(question.kind().as_str()),
            },
            (PluginQuery::Risk { .. } | PluginQuery::Condense { .. }, None) => {
                (Err(no_view(&self.grantee.name)), CallReport::default())
            }
        }
    }

    /// Returns the decisions of a delivery strategy.
    ///
    /// # Errors
    /// As for `step`.
    pub async fn decide(
        &self,
        start: CallStart,
        wake: &Wake,
        view: DeliveryView,
    ) -> (Result<Vec<Decision>, Fault>, CallReport) {
        match self.plugin.exports().strategy() {
            Some(strategy) => self
                .run(start, CallInput::Delivery(view), guest_calls::DecideCall { strategy, wake })
                .await
                .flatten(),
            None => self.lacks("delivery-strategy"),
        }
    }

    /// Runs a tool. Its arguments are checked against the schema before a sandbox starts.
    ///
    /// # Errors
    /// `InvalidArguments` with the place and the reason, the tool's own error, or `Fault`.
    pub async fn call_tool(
        &self,
        start: CallStart,
        mut tool: ToolStart,
    ) -> (Result<ToolOutcome, ToolError>, CallReport) {
        let (Some(tools), Some(index)) =
            (self.plugin.exports().tools(), self.plugin.tool_index(&tool.tool))
        else {
            let message = format!("{} has no tool {:?}", self.grantee.name, tool.tool);
            return (Err(ToolError::Other { message }), CallReport::default());
        };
        let most = self.grantee.limits().arguments;
        let arguments = match self
            .plugin
            .check_arguments(index, std::mem::take(&mut tool.arguments), most)
            .await
        {
            Ok((checked, text)) => {
                tool.arguments = checked;
                text
            }
            Err(message) => {
                return (Err(ToolError::InvalidArguments { message }), CallReport::default());
            }
        };
        let guest_call = guest_calls::CallTool { tools, name: tool.tool.clone(), arguments };
        let (answer, report) = self.run(start, CallInput::Tool(tool), guest_call).await;
        (answer.unwrap_or_else(|fault| Err(ToolError::Fault { fault })), report)
    }

    /// Checks the arguments of a tool call; the error explains the problem to the model.
    pub(crate) async fn check(&self, tool: &str, arguments: Value) -> Result<(), String> {
        match self.plugin.tool_index(tool) {
            Some(index) => self
                .plugin
                .check_arguments(index, arguments, self.grantee.limits().arguments)
                .await
                .map(drop),
            None => Err(format!("{} has no tool {tool:?}", self.grantee.name)),
        }
    }

    fn lacks<T>(&self, export: &str) -> (Result<T, Fault>, CallReport) {
        let message = format!("{} does not export `{export}`", self.grantee.name);
        (Err(Fault::new(FaultKind::NotStarted, message)), CallReport::default())
    }
}

/// Merges the result of the run with that of the conversion.
trait Flatten<T> {
    fn flatten(self) -> (Result<T, Fault>, CallReport);
}

impl<T> Flatten<T> for (Result<Result<T, Fault>, Fault>, CallReport) {
    fn flatten(self) -> (Result<T, Fault>, CallReport) {
        (self.0.and_then(|answer| answer), self.1)
    }
}

/// The plugins of a config, by name. A plugin can be replaced; running calls end in the old one.
#[derive(Clone, Debug, Default)]
pub struct Sandboxes(Arc<HashMap<PluginName, RwLock<Arc<Sandbox>>>>);

impl Sandboxes {
    /// Returns these plugins, each under its name in the config.
    pub fn new(sandboxes: impl IntoIterator<Item = Sandbox>) -> Self {
        Self(Arc::new(
            sandboxes
                .into_iter()
                .map(|sandbox| (sandbox.grantee.name.clone(), RwLock::new(Arc::new(sandbox))))
                .collect(),
        ))
    }

    /// Returns the plugin of this name.
    #[must_use]
    pub fn get(&self, name: &PluginName) -> Option<Arc<Sandbox>> {
        self.0
            .get(name)
            .map(|sandbox| Arc::clone(&sandbox.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Replaces the plugin of the same name, from the next call on. Ignores unknown names.
    pub(crate) fn replace(&self, sandbox: Sandbox) {
        if let Some(place) = self.0.get(&sandbox.grantee.name) {
            *place.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(sandbox);
        }
    }
}

/// The room only uses plugins of its own config, so this is a fault of the host.
fn unknown(name: &PluginName) -> Fault {
    Fault::new(FaultKind::NotStarted, format!("there is no plugin {name} here"))
}

impl Plugins for Sandboxes {
    fn step(
        &self,
        start: CallStart,
        view: AgentView,
    ) -> BoxFuture<'static, (Result<Turn, Fault>, CallReport)> {
        let Some(sandbox) = self.get(&start.plugin) else {
            return at_once(Err(unknown(&start.plugin)));
        };
        Box::pin(async move { sandbox.step(start, view).await })
    }

    fn respond(
        &self,
        start: CallStart,
        view: AgentView,
    ) -> BoxFuture<'static, (Result<Option<Turn>, Fault>, CallReport)> {
        let Some(sandbox) = self.get(&start.plugin) else {
            return at_once(Err(unknown(&start.plugin)));
        };
        Box::pin(async move { sandbox.respond(start, view).await })
    }

    fn call_tool(
        &self,
        start: CallStart,
        tool: ToolStart,
    ) -> BoxFuture<'static, (Result<ToolOutcome, ToolError>, CallReport)> {
        let Some(sandbox) = self.get(&start.plugin) else {
            return at_once(Err(ToolError::Fault { fault: unknown(&start.plugin) }));
        };
        Box::pin(async move { sandbox.call_tool(start, tool).await })
    }

    fn consult(
        &self,
        start: CallStart,
        question: PluginQuery,
        view: Option<AgentView>,
    ) -> BoxFuture<'static, (Result<PluginReply, Fault>, CallReport)> {
        let Some(sandbox) = self.get(&start.plugin) else {
            return at_once(Err(unknown(&start.plugin)));
        };
        Box::pin(async move { sandbox.consult(start, &question, view).await })
    }

    fn decide(
        &self,
        start: CallStart,
        wake: Wake,
        view: DeliveryView,
    ) -> BoxFuture<'static, (Result<Vec<Decision>, Fault>, CallReport)> {
        let Some(sandbox) = self.get(&start.plugin) else {
            return at_once(Err(unknown(&start.plugin)));
        };
        Box::pin(async move { sandbox.decide(start, &wake, view).await })
    }

    fn check(
        &self,
        plugin: &PluginName,
        tool: &str,
        arguments: Value,
    ) -> BoxFuture<'static, Result<(), String>> {
        let (sandbox, tool) = (self.get(plugin), tool.to_owned());
        Box::pin(async move {
            match sandbox {
                Some(sandbox) => sandbox.check(&tool, arguments).await,
                None => Ok(()),
            }
        })
    }
}

fn at_once<T: Send + 'static, E: Send + 'static>(
    answer: Result<T, E>,
) -> BoxFuture<'static, (Result<T, E>, CallReport)> {
    Box::pin(std::future::ready((answer, CallReport::default())))
}

impl Sandbox {
    /// Runs a guest call in a fresh sandbox, within the plugin's limits.
    ///
    /// The plugin's own queue comes first, so that many waiting calls of one plugin cannot fill the
    /// pool.
    async fn run<E>(
        &self,
        start: CallStart,
        lent: CallInput,
        guest_call: E,
    ) -> (Result<E::Answer, Fault>, CallReport)
    where
        E: GuestCall,
        E::Answer: Serialize + DeserializeOwned,
    {
        let state = CallState::new(self.grantee.clone(), start, lent);
        let (answer, report) = run::run(
            self.plugin.engine(),
            self.plugin.code(),
            Some(&self.at_once),
            state,
            &guest_call,
        )
        .await;
        scrub::ended(&self.grantee, answer, report)
    }
}

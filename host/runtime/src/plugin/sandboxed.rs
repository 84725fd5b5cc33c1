//! Calls into plugins. Each runs in a fresh sandbox under limits, and returns an answer or a fault.
//! A guest's fault is data, not an error of the host.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use conclave_core::setup::PluginSetup;
use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::ids::PluginName;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::tool::ToolError;
use serde_json::Value;

use super::kinds::{ExportCall, GuestFunction, reads_view};
use crate::calls::{CallStart, PluginAnswer, PluginCall, PluginOutput, Plugins, ToolInput};
use crate::imports::call::{CallInput, HostServices, PluginContext, no_view};
use crate::imports::folder::FolderError;
use crate::imports::secrets::scrub;
use crate::imports::secrets::vault::Vault;
use crate::imports::state::CallState;
use crate::plugin::LoadedPlugin;
use crate::sandbox::run;
use crate::support::admission::CallPermits;
use crate::support::clock::BoxFuture;

/// A configured plugin, ready for calls.
#[derive(Debug)]
pub(crate) struct Sandbox {
    plugin: Arc<LoadedPlugin>,
    context: Arc<PluginContext>,
    at_once: CallPermits,
    /// The contexts of resumed rooms, whose grants or limits are narrower than the config's.
    narrowed: Mutex<Vec<Arc<PluginContext>>>,
}

/// Narrowed contexts of a plugin that stay open; the oldest is dropped first.
const NARROWED_MAX: usize = 8;

impl Sandbox {
    /// Prepares a loaded plugin with its setup, and opens its granted folders.
    ///
    /// # Errors
    /// If a granted folder cannot be opened.
    pub(crate) fn new(
        plugin: Arc<LoadedPlugin>,
        name: PluginName,
        setup: Arc<PluginSetup>,
    ) -> Result<Self, FolderError> {
        let at_once = CallPermits::new(usize::try_from(setup.limits.at_once).unwrap_or(usize::MAX));
        let context = Arc::new(PluginContext::new(name, setup)?);
        Ok(Self { plugin, context, at_once, narrowed: Mutex::default() })
    }

    /// Sets the secrets of the config, which are empty by default.
    #[must_use]
    pub(crate) fn with_secrets(mut self, vault: &Arc<Vault>) -> Self {
        if let Some(context) = Arc::get_mut(&mut self.context) {
            context.vault = Arc::clone(vault);
        }
        self
    }

    pub(crate) fn vault(&self) -> &Arc<Vault> {
        &self.context.vault
    }

    /// Sets the stores; the default ones live as long as the plugin.
    #[must_use]
    pub(crate) fn with_services(mut self, services: HostServices) -> Self {
        if let Some(context) = Arc::get_mut(&mut self.context) {
            context.services = services;
        }
        self
    }

    /// The plugin's stores.
    pub(crate) fn services(&self) -> &HostServices {
        &self.context.services
    }

    /// Runs a call in a fresh sandbox, within the plugin's limits. The arguments of a tool are
    /// checked against its schema before the sandbox starts.
    ///
    /// The plugin's own queue comes before the pool, so that many waiting calls of one plugin cannot
    /// fill it.
    pub(crate) async fn call(&self, start: CallStart, call: PluginCall) -> PluginAnswer {
        let kind = call.kind();
        let (function, input) = match self.function(call).await {
            Ok(found) => found,
            Err(ToolError::Fault { fault }) => return kind.failed(fault).into(),
            Err(error) => return PluginOutput::Tool(Err(error)).into(),
        };
        let context = match self.context_in(start.setup.as_ref()).await {
            Ok(context) => context,
            Err(error) => {
                let fault = Fault::new(FaultKind::NotStarted, error.to_string());
                return kind.failed(fault).into();
            }
        };
        let mut state = Box::new(CallState::new(Arc::clone(&context), start, input));
        if let GuestFunction::Plain { tool, arguments } = &function {
            state.wasi.program = tool.program_input(arguments);
        }
        let (engine, code) = (self.plugin.engine(), self.plugin.code());
        let call = ExportCall { exports: self.plugin.exports(), function };
        let (output, report) = run::run(engine, code, Some(&self.at_once), state, &call).await;
        let (output, report) = scrub::ended(context.scrubber().as_deref(), output, report);
        PluginAnswer { output: output.unwrap_or_else(|fault| kind.failed(fault)), report }
    }

    /// Returns the context of a room with this setup of the plugin: the config's own, or one with
    /// the narrower grants and limits of a resumed room.
    async fn context_in(
        &self,
        in_room: Option<&Arc<PluginSetup>>,
    ) -> Result<Arc<PluginContext>, FolderError> {
        let is_of_room = |context: &PluginContext| {
            in_room.is_none_or(|in_room| {
                Arc::ptr_eq(in_room, &context.setup)
                    || (&in_room.grants, &in_room.limits)
                        == (&context.setup.grants, &context.setup.limits)
            })
        };
        let Some(in_room) = in_room.filter(|_| !is_of_room(&self.context)) else {
            return Ok(Arc::clone(&self.context));
        };
        let known = {
            let known = self.narrowed.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().find(|context| is_of_room(context)).cloned()
        };
        if let Some(context) = known {
            return Ok(context);
        }
        let setup = PluginSetup {
            grants: in_room.grants.clone(),
            limits: in_room.limits.clone(),
            ..PluginSetup::clone(&self.context.setup)
        };
        let (name, of_config) = (self.context.name.clone(), Arc::clone(&self.context));
        // Opening folders is disk work. Done twice by two first calls, it does no harm.
        let opened = tokio::task::spawn_blocking(move || {
            let context = PluginContext::new(name, Arc::new(setup))?;
            Ok(Arc::new(PluginContext {
                services: of_config.services.clone(),
                vault: Arc::clone(&of_config.vault),
                ..context
            }))
        });
        let context = opened.await.unwrap_or_else(|broken| resume_unwind(broken.into_panic()))?;
        let mut known = self.narrowed.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= NARROWED_MAX {
            known.remove(0);
        }
        known.push(Arc::clone(&context));
        Ok(context)
    }

    /// The function that a call goes to, and the input that the guest reads through imports.
    ///
    /// # Errors
    /// `Fault` if the plugin lacks the export, or if there is no view; for tools also `Other` if
    /// there is no such tool, and `InvalidArguments`.
    async fn function(
        &self,
        call: PluginCall,
    ) -> Result<(GuestFunction<'_>, CallInput), ToolError> {
        let name = &self.context.name;
        let (kind, function, input) = match call {
            PluginCall::Step { view } => {
                (PluginKind::Agent, GuestFunction::Step, CallInput::Agent(view))
            }
            PluginCall::Respond { view } => {
                (PluginKind::Responder, GuestFunction::Respond, CallInput::Agent(view))
            }
            PluginCall::Tool(input) => return self.tool(input).await,
            PluginCall::Query { query, view } => {
                let kind = query.kind();
                let input = match view {
                    _ if !reads_view(kind) => CallInput::Nothing,
                    Some(view) => CallInput::Agent(view),
                    None => return Err(ToolError::Fault { fault: no_view(name) }),
                };
                (kind, GuestFunction::Query(query), input)
            }
            PluginCall::Decide { wake, view } => {
                let kind = PluginKind::DeliveryStrategy;
                (kind, GuestFunction::Decide(wake), CallInput::Delivery(view))
            }
        };
        if self.plugin.exports().has(kind) {
            return Ok((function, input));
        }
        let message = format!("{name} does not export `{}`", kind.as_str());
        Err(ToolError::Fault { fault: Fault::new(FaultKind::NotStarted, message) })
    }

    async fn tool(&self, input: ToolInput) -> Result<(GuestFunction<'_>, CallInput), ToolError> {
        let (exports, tool) = (self.plugin.exports(), &input.tool);
        let no_tool =
            || ToolError::Other { message: format!("{} has no tool {tool:?}", self.context.name) };
        let index = self.plugin.tool_index(tool).ok_or_else(no_tool)?;
        let arguments = self
            .plugin
            .check_arguments(index, &input.arguments, self.context.limits().arguments)
            .await
            .map_err(|message| ToolError::InvalidArguments { message })?;
        let function = match exports.plain().and_then(|plain| plain.get(tool)) {
            Some(tool) => GuestFunction::Plain { tool, arguments },
            None if exports.has(PluginKind::Tools) => {
                GuestFunction::Tool { name: tool.clone(), arguments }
            }
            None => return Err(no_tool()),
        };
        Ok((function, CallInput::Tool(input)))
    }

    /// Checks the arguments of a tool call; the error explains the problem to the model.
    pub(crate) async fn check(&self, tool: &str, arguments: Value) -> Result<(), String> {
        match self.plugin.tool_index(tool) {
            Some(index) => self
                .plugin
                .check_arguments(index, &Arc::new(arguments), self.context.limits().arguments)
                .await
                .map(drop),
            None => Err(format!("{} has no tool {tool:?}", self.context.name)),
        }
    }
}

/// The plugins of a config, by name. A plugin can be replaced; running calls end in the old one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sandboxes(Arc<HashMap<PluginName, RwLock<Arc<Sandbox>>>>);

impl Sandboxes {
    /// These plugins, each under its name in the config.
    pub(crate) fn new(sandboxes: impl IntoIterator<Item = Sandbox>) -> Self {
        Self(Arc::new(
            sandboxes
                .into_iter()
                .map(|sandbox| (sandbox.context.name.clone(), RwLock::new(Arc::new(sandbox))))
                .collect(),
        ))
    }

    /// The plugin of this name.
    #[must_use]
    pub(crate) fn get(&self, name: &PluginName) -> Option<Arc<Sandbox>> {
        self.0
            .get(name)
            .map(|sandbox| Arc::clone(&sandbox.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Replaces the plugin of the same name, from the next call on. Ignores unknown names.
    pub(crate) fn replace(&self, sandbox: Sandbox) {
        if let Some(place) = self.0.get(&sandbox.context.name) {
            *place.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(sandbox);
        }
    }
}

/// A resumed run uses what it began with, such as a gate, which today's config may not have.
fn unknown(name: &PluginName) -> Fault {
    Fault::new(
        FaultKind::NotStarted,
        format!("the config does not have the plugin `{name}` any more"),
    )
}

impl Plugins for Sandboxes {
    fn call(&self, start: CallStart, call: PluginCall) -> BoxFuture<'static, PluginAnswer> {
        match self.get(&start.plugin) {
            Some(sandbox) => Box::pin(async move { sandbox.call(start, call).await }),
            None => {
                let unknown = call.kind().failed(unknown(&start.plugin));
                Box::pin(std::future::ready(unknown.into()))
            }
        }
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

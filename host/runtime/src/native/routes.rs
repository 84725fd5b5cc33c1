//! Routes every call of a config's plugins to the native plugin or to the sandbox of the component.

use std::collections::HashMap;
use std::sync::Arc;

use conclave_core::setup::plugin_query::{PluginQuery, PluginReply};
use conclave_core::types::action::Turn;
use conclave_core::types::delivery::{Decision, DeliveryView, Wake};
use conclave_core::types::fault::{CallReport, Fault};
use conclave_core::types::ids::PluginName;
use conclave_core::types::tool::{ToolError, ToolOutcome};
use conclave_core::types::view::AgentView;
use serde_json::Value;

use super::running::Native;
use crate::calls::{CallStart, Plugins, ToolStart};
use crate::support::clock::BoxFuture;

/// The native plugins by their names in the config; all other names are components.
pub(crate) struct Routes {
    natives: HashMap<PluginName, Arc<Native>>,
    components: Arc<dyn Plugins>,
}

impl Routes {
    pub(crate) fn new(
        natives: impl IntoIterator<Item = Native>,
        components: Arc<dyn Plugins>,
    ) -> Self {
        Self {
            natives: natives
                .into_iter()
                .map(|native| (native.name().clone(), Arc::new(native)))
                .collect(),
            components,
        }
    }
}

impl Plugins for Routes {
    fn step(
        &self,
        start: CallStart,
        view: AgentView,
    ) -> BoxFuture<'static, (Result<Turn, Fault>, CallReport)> {
        match self.natives.get(&start.plugin).cloned() {
            Some(native) => Box::pin(async move { native.step(start, view).await }),
            None => self.components.step(start, view),
        }
    }

    /// A native agent responds in its steps only.
    fn respond(
        &self,
        start: CallStart,
        view: AgentView,
    ) -> BoxFuture<'static, (Result<Option<Turn>, Fault>, CallReport)> {
        self.components.respond(start, view)
    }

    fn call_tool(
        &self,
        start: CallStart,
        tool: ToolStart,
    ) -> BoxFuture<'static, (Result<ToolOutcome, ToolError>, CallReport)> {
        match self.natives.get(&start.plugin).cloned() {
            Some(native) => Box::pin(async move { native.call_tool(start, tool).await }),
            None => self.components.call_tool(start, tool),
        }
    }

    fn consult(
        &self,
        start: CallStart,
        question: PluginQuery,
        view: Option<AgentView>,
    ) -> BoxFuture<'static, (Result<PluginReply, Fault>, CallReport)> {
        match self.natives.get(&start.plugin).cloned() {
            Some(native) => Box::pin(async move { native.consult(start, question, view).await }),
            None => self.components.consult(start, question, view),
        }
    }

    fn decide(
        &self,
        start: CallStart,
        wake: Wake,
        view: DeliveryView,
    ) -> BoxFuture<'static, (Result<Vec<Decision>, Fault>, CallReport)> {
        self.components.decide(start, wake, view)
    }

    fn check(
        &self,
        plugin: &PluginName,
        tool: &str,
        arguments: Value,
    ) -> BoxFuture<'static, Result<(), String>> {
        match self.natives.get(plugin).cloned() {
            Some(native) => {
                let tool = tool.to_owned();
                Box::pin(async move { native.check(&tool, arguments).await })
            }
            None => self.components.check(plugin, tool, arguments),
        }
    }
}

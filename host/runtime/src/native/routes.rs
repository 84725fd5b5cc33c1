//! Routes every call of a config's plugins to the native plugin or to the sandbox of the component.

use std::collections::HashMap;
use std::sync::Arc;

use conclave_core::types::ids::PluginName;
use serde_json::Value;

use super::running::Native;
use crate::calls::{CallStart, PluginAnswer, PluginCall, Plugins};
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
    fn call(&self, start: CallStart, call: PluginCall) -> BoxFuture<'static, PluginAnswer> {
        match self.natives.get(&start.plugin).cloned() {
            Some(native) => Box::pin(async move { native.call(start, call).await }),
            None => self.components.call(start, call),
        }
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

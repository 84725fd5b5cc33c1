//! Servers of tools that others wrote: what the host asks of whoever speaks to them. How that is
//! done is not known here; `conclave-mcp` does it.

use std::sync::Arc;

use conclave_core::config::McpSource;
use conclave_core::types::ids::PluginName;
use conclave_core::types::limits::PluginLimits;

use crate::imports::secrets::SecretSource;
use crate::native;
use crate::support::blobs::Blobs;
use crate::support::clock::BoxFuture;

/// A server that is to be reached, or started.
#[derive(Clone)]
pub struct ServerStart {
    /// Its name in the config.
    pub plugin: PluginName,
    pub source: McpSource,
    pub limits: PluginLimits,
    /// Where its keys come from.
    pub secrets: Arc<dyn SecretSource>,
    /// Where what it gives besides text is kept.
    pub blobs: Arc<dyn Blobs>,
}

/// Reaches servers of tools.
pub trait ToolServers: Send + Sync + 'static {
    /// A plugin whose tools are the server's. Names, descriptions and schemas are checked as any
    /// plugin's; its calls are held to the limits `wall`, `output` and `at_once`, and what they
    /// give is labelled as text from outside.
    ///
    /// # Errors
    /// In words for the operator: why it could not be reached. Never a key or a part of one.
    fn connect(&self, start: ServerStart) -> BoxFuture<'static, Result<native::Plugin, String>>;
}

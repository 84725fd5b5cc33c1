//! The interface to tool servers written by others. The protocol is implemented in `conclave-mcp`.

use std::sync::Arc;

use conclave_core::config::McpSource;
use conclave_core::types::ids::PluginName;
use conclave_core::types::limits::PluginLimits;

use crate::imports::secrets::SecretSource;
use crate::native;
use crate::support::blobs::Blobs;
use crate::support::clock::BoxFuture;

/// A tool server that is to be started or connected to.
#[derive(Clone)]
pub struct ServerStart {
    /// The plugin's name in the config.
    pub plugin: PluginName,
    /// The program to start, or the address to connect to.
    pub source: McpSource,
    /// The limits of the server's calls.
    pub limits: PluginLimits,
    /// The source of its keys.
    pub secrets: Arc<dyn SecretSource>,
    /// The store of its results that are not text.
    pub blobs: Arc<dyn Blobs>,
}

/// The plugin of a tool server.
#[derive(Clone, Debug)]
pub struct ServerPlugin {
    /// The plugin, with the tools that are served.
    pub plugin: native::Plugin,
    /// What an operator should know of the server's tools: those that are left out, and those that
    /// have another name here. They become warnings of the config.
    pub notes: Vec<ServerNote>,
}

/// A remark on a server's tools, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNote {
    /// A sentence that begins with what it is about, after the plugin's name.
    pub message: String,
    /// The remedy, if there is one.
    pub help: Option<String>,
}

/// Connects to tool servers.
pub trait ToolServers: Send + Sync + 'static {
    /// Returns a plugin with the server's tools. Names, descriptions and schemas are checked as any
    /// plugin's; a tool that does not pass is left out with a warning. Its calls obey the limits `wall`, `output` and `at_once`, and their results are
    /// labelled as untrusted text.
    ///
    /// # Errors
    /// Returns a message for the operator that says why the server cannot be reached. It never
    /// contains a key or a part of one.
    fn connect(&self, start: ServerStart) -> BoxFuture<'static, Result<ServerPlugin, String>>;
}

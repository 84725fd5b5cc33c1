//! The interface to tool servers written by others. The protocol is implemented in `conclave-mcp`.

mod confined;
#[cfg(feature = "fetch")]
mod proxy;

use std::fmt;
use std::sync::Arc;

use conclave_core::config::McpSource;
use conclave_core::types::ids::PluginName;
use conclave_core::types::limits::PluginLimits;

use crate::imports::secrets::SecretSource;
use crate::native;
use crate::support::blobs::Blobs;
use crate::support::clock::BoxFuture;

pub use crate::imports::exec::{LaunchFailure, ServerPipes, stop_servers};
pub use confined::{ConfinedServer, ServerEnvironment, ServerLauncher};
pub(super) use confined::{ServerSurroundings, requests};

/// A tool server that is to be started or connected to.
#[derive(Clone)]
pub struct ServerStart {
    /// The plugin's name in the config.
    pub plugin: PluginName,
    /// The program to start, or the address to connect to.
    pub source: McpSource,
    /// The limits of the server's calls.
    pub limits: PluginLimits,
    /// The launcher of its program, which confines it; `None` for a program without confinement,
    /// and for an address.
    pub launcher: Option<ServerLauncher>,
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
    /// Returns why the server cannot be reached. It never contains a key or a part of one.
    fn connect(
        &self,
        start: ServerStart,
    ) -> BoxFuture<'static, Result<ServerPlugin, ServerFailure>>;
}

/// Why a server cannot be reached, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFailure {
    /// This machine cannot confine its program, for this reason.
    Unconfined(String),
    /// Another reason.
    Other(String),
}

impl From<String> for ServerFailure {
    fn from(reason: String) -> Self {
        Self::Other(reason)
    }
}

impl From<&str> for ServerFailure {
    fn from(reason: &str) -> Self {
        Self::Other(reason.to_owned())
    }
}

impl fmt::Display for ServerFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unconfined(reason) => {
                write!(out, "its program cannot be confined, so it was not started: {reason}")
            }
            Self::Other(reason) => out.write_str(reason),
        }
    }
}

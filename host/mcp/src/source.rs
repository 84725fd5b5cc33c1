//! MCP servers of third parties as plugins of a config: programs to start, or addresses to reach.
//! Servers are untrusted. Their tool names are rewritten, their hints ignored and their questions
//! refused. Their texts are truncated, and only the first tool list counts.

mod address;
mod connection;
mod program;
mod redaction;
mod refusing;
mod result;
mod server;
mod tools;
mod weight;

use conclave_runtime::clock::BoxFuture;
use conclave_runtime::native::Plugin;
use conclave_runtime::servers::{ServerStart, ToolServers};

use server::McpServer;

/// Starts and connects to servers, for
/// [`HostOptions::servers`](conclave_runtime::HostOptions::servers).
///
/// ```
/// use std::sync::Arc;
///
/// use conclave_mcp::source::Servers;
/// use conclave_runtime::{Host, HostOptions};
///
/// let servers = Servers::new(|name| std::env::var(name).ok());
/// let host = Host::new(HostOptions { servers: Some(Arc::new(servers)), ..HostOptions::default() })?;
/// # drop(host);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Servers {
    environment: fn(&str) -> Option<String>,
}

impl Servers {
    /// Returns a source that reads `PATH` and `HOME` for started programs with this function, and
    /// nothing else.
    #[must_use]
    pub fn new(environment: fn(&str) -> Option<String>) -> Self {
        Self { environment }
    }
}

/// Kills every server program of this process, for a process that exits without dropping its state.
pub fn stop_all() {
    program::stop_all();
}

impl ToolServers for Servers {
    fn connect(&self, start: ServerStart) -> BoxFuture<'static, Result<Plugin, String>> {
        Box::pin(McpServer::admit(self.environment, start))
    }
}

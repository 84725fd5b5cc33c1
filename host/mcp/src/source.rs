//! MCP servers of third parties as plugins of a config: programs to start, or addresses to reach.
//! Servers are untrusted. Their tool names are rewritten, their hints ignored and their questions
//! refused. Their texts are truncated, and only the first tool list counts.

mod address;
mod backlog;
mod bounded_client;
mod connection;
mod program;
mod redaction;
mod refusing;
mod result;
mod server;
mod tools;
mod weight;

use std::ffi::OsString;
use std::path::PathBuf;

use conclave_runtime::clock::BoxFuture;
use conclave_runtime::servers::{ServerFailure, ServerPlugin, ServerStart, ToolServers};

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
#[derive(Clone, Debug)]
pub struct Servers {
    environment: fn(&str) -> Option<String>,
    supervisor: Option<ServerSupervisor>,
}

/// A program that starts a server and ends it, with all that it started, together with this
/// process.
#[derive(Clone, Debug)]
pub struct ServerSupervisor {
    /// A program that calls
    /// [`run_supervised`](conclave_runtime::exec::run_supervised) with the arguments after `args`.
    pub program: PathBuf,
    /// The arguments before those for `run_supervised`: the server's program and its arguments.
    pub args: Vec<OsString>,
}

impl Servers {
    /// A source that reads `PATH` and `HOME` for started programs with this function, and nothing
    /// else.
    #[must_use]
    pub fn new(environment: fn(&str) -> Option<String>) -> Self {
        Self { environment, supervisor: None }
    }

    /// Starts servers through this program. Without one, a server whose host is killed ends only if
    /// it notices the end of its input.
    #[must_use]
    pub fn supervised_by(self, supervisor: ServerSupervisor) -> Self {
        Self { supervisor: Some(supervisor), ..self }
    }
}

/// Ends every server program of this process, for a process that exits without dropping its state.
pub fn stop_all() {
    program::stop_all();
}

impl ToolServers for Servers {
    fn connect(
        &self,
        start: ServerStart,
    ) -> BoxFuture<'static, Result<ServerPlugin, ServerFailure>> {
        Box::pin(McpServer::admit(self.clone(), start))
    }
}

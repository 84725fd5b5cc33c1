//! Servers of tools that others wrote, as plugins of a config: started as a program or reached at
//! an address. A server is believed nothing: its names are made names here, its hints are not read,
//! its questions are refused, what it says is short or cut off, and what it listed first is what
//! counts.

mod address;
mod connection;
mod program;
mod refusing;
mod result;
mod said;
mod server;
mod tools;

use conclave_runtime::clock::BoxFuture;
use conclave_runtime::native::Plugin;
use conclave_runtime::servers::{ServerStart, ToolServers};

use server::McpServer;

/// Starts and reaches servers, for
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
    /// `PATH` and `HOME` of programs that are started are read with this function; nothing else is.
    #[must_use]
    pub fn new(environment: fn(&str) -> Option<String>) -> Self {
        Self { environment }
    }
}

/// Ends every program that this process started as a server, at once: for a process that ends
/// without dropping what it has.
pub fn stop_all() {
    program::stop_all();
}

impl ToolServers for Servers {
    fn connect(&self, start: ServerStart) -> BoxFuture<'static, Result<Plugin, String>> {
        Box::pin(McpServer::admit(self.environment, start))
    }
}

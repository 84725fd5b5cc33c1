//! The client for MCP servers that configs name. Without the feature `mcp` there is none, and the
//! host refuses such a config.

use std::sync::Arc;

use conclave_runtime::servers::ToolServers;

/// The client. Servers inherit only `PATH` and `HOME` from this process.
#[cfg(feature = "mcp")]
pub(crate) fn client() -> Option<Arc<dyn ToolServers>> {
    let servers = conclave_mcp::source::Servers::new(|name| std::env::var(name).ok());
    #[cfg(feature = "exec")]
    let servers = match crate::program::exec::supervisor() {
        Some(supervisor) => servers.supervised_by(supervisor),
        None => servers,
    };
    Some(Arc::new(servers))
}

#[cfg(not(feature = "mcp"))]
pub(crate) fn client() -> Option<Arc<dyn ToolServers>> {
    None
}

/// Kills all servers of this process, which is about to exit without dropping its state.
pub(crate) fn stop_all() {
    #[cfg(feature = "mcp")]
    conclave_mcp::source::stop_all();
}

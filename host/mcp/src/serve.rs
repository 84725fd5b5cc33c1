//! Serves the tools of a config to an MCP client, with the grants, limits, policy and journal of
//! any run. No served tool can change them. The client's statements about itself are only
//! journalled; its user decides on approvals.

mod approval;
mod arguments;
mod calling;
mod desk;
mod handler;
mod http;
mod lines;
mod outcome;
mod prompts;
mod reports;
mod resources;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use conclave_core::permissions::grants::ToolPattern;
use conclave_core::types::ids::TaskName;
use conclave_runtime::blobs::Blobs;
use conclave_runtime::{Prepared, RunOptions};
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use tokio::io::{AsyncRead, AsyncWrite};

use desk::Desk;
pub use http::{ENDPOINT, serve_http};
use lines::Spoken;
pub use resources::ServedFile;
pub use tools::OfferError;

use crate::text::display;

/// Maximum bytes of a message; a longer one is refused.
pub const MESSAGE_MAX: usize = 8 << 20;
/// Time for calls to end after the client has gone.
const GRACE: Duration = Duration::from_secs(2);

/// The tools that a client sees, and their names.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Restricts the tools to those of this task's agent; `None` for all tools.
    pub task: Option<TaskName>,
    /// Restricts the tools to these patterns; empty for all.
    pub patterns: Vec<ToolPattern>,
    /// Whether names use `search_find` instead of `search.find`, for clients without dots.
    pub underscores: bool,
    /// Whether to add a tool `ask` that runs the entry task.
    pub ask: bool,
    /// The tools whose missing arguments the client's person is asked for.
    pub asked_arguments: Vec<ToolPattern>,
    /// The tasks whose prompt files are prompts.
    pub prompts: Vec<TaskName>,
    /// The files that the client may read.
    pub files: Vec<ServedFile>,
    /// Whether the client may read the runs of this process.
    pub runs: bool,
}

/// Follows what clients read, for the operator.
pub trait ReadObserver: Send + Sync {
    /// A client read what is at an address, or was refused it for a reason.
    fn on_read(&self, uri: &str, refused: Option<&str>);
}

/// The service for a client.
pub struct Service {
    /// The loaded config that the calls run in.
    pub prepared: Arc<Prepared>,
    /// The tools that the client sees.
    pub selection: Selection,
    /// The options of every call. The approver is replaced by the client's user.
    pub options: RunOptions,
    /// The source of attachments in results.
    pub blobs: Arc<dyn Blobs>,
    /// Follows what clients read.
    pub reads: Option<Arc<dyn ReadObserver>>,
}

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The selection cannot be served.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// The client did not begin with a handshake of the protocol.
    #[error("the client did not begin with `initialize` or `server/discover`: {0}")]
    Beginning(String),
    /// The address cannot be served.
    #[error("it cannot be served over HTTP: {0}")]
    Listening(String),
}

/// Returns the names that a client would see, in order.
///
/// # Errors
/// `Offer` if no tool is left, or two tools would have one name.
pub fn names(prepared: &Prepared, selection: &Selection) -> Result<Vec<String>, OfferError> {
    tools::offered(prepared, selection)
        .map(|tools| tools.iter().map(|tool| tool.tool.name.to_string()).collect())
}

/// Serves one client until it disconnects.
///
/// # Errors
/// `Offer` as in [`names`]; `Beginning` if the client's first message violates the protocol.
pub async fn serve(
    service: Service,
    from: impl AsyncRead + Send + Unpin + 'static,
    to: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), ServeError> {
    let desk = Arc::new(Desk::new(service)?);
    let transport = Spoken::new(from, to, MESSAGE_MAX);
    let ended = match handler::Handler::new(Arc::clone(&desk)).serve(transport).await {
        Ok(running) => running.waiting().await.map(drop).map_err(|error| error.to_string()),
        // A client that disconnects before its first message is no error.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => return Err(ServeError::Beginning(display(&error.to_string(), 300))),
    };
    desk.close(GRACE).await;
    ended.map_err(ServeError::Beginning)
}

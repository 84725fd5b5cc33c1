//! The tools of a config, for a client that speaks the protocol: under the same grants, limits,
//! policy and journal as any run, and with no tool that could change one of them. What a client
//! says of itself is words for the journal; it decides about nothing but what its person is asked.

mod approval;
mod calling;
mod handler;
mod lines;
mod outcome;
mod progress;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use conclave_core::permissions::grant::ToolPattern;
use conclave_core::types::ids::TaskName;
use conclave_runtime::blobs::Blobs;
use conclave_runtime::{Prepared, RunOptions};
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use tokio::io::{AsyncRead, AsyncWrite};

use handler::Desk;
use lines::Spoken;
pub use tools::OfferError;

use crate::text::shown;

/// Bytes of a message that is taken; a longer one is refused.
pub const MESSAGE_MAX: usize = 8 << 20;
/// How long calls may take to end when the client has gone.
const GRACE: Duration = Duration::from_secs(2);

/// Which tools a client sees, and what they are called.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only what this task's agent is offered; none: every tool of every plugin.
    pub task: Option<TaskName>,
    /// Only what one of these covers; none of them: all.
    pub patterns: Vec<ToolPattern>,
    /// `search_find` instead of `search.find`, for clients that take no dots.
    pub underscores: bool,
    /// One more tool, `ask`: the entry task.
    pub ask: bool,
}

/// What a client is served with.
pub struct Service {
    pub prepared: Arc<Prepared>,
    pub selection: Selection,
    /// What every call runs with. The approver is not asked: the client's person is.
    pub options: RunOptions,
    /// Where attachments of results are read.
    pub blobs: Arc<dyn Blobs>,
}

/// Why serving ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// The client did not begin as the protocol has it.
    #[error("the client did not begin with `initialize` or `server/discover`: {0}")]
    Beginning(String),
}

/// The names that a client would see, in order.
///
/// # Errors
/// `Offer` when nothing is left to serve, or two tools would have one name.
pub fn names(prepared: &Prepared, selection: &Selection) -> Result<Vec<String>, OfferError> {
    tools::offered(prepared, selection)
        .map(|tools| tools.iter().map(|tool| tool.shown.name.to_string()).collect())
}

/// Serves one client until it goes.
///
/// # Errors
/// `Offer` as [`names`]; `Beginning` when the client's first message is another than the protocol
/// has.
pub async fn serve(
    service: Service,
    from: impl AsyncRead + Send + Unpin + 'static,
    to: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), ServeError> {
    let desk = Arc::new(Desk::new(service)?);
    let transport = Spoken::new(from, to, MESSAGE_MAX);
    let ended = match handler::Handler(Arc::clone(&desk)).serve(transport).await {
        Ok(running) => running.waiting().await.map(drop).map_err(|error| error.to_string()),
        // A client that goes before it has said anything is no failure.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => return Err(ServeError::Beginning(shown(&error.to_string(), 300))),
    };
    desk.close(GRACE).await;
    ended.map_err(ServeError::Beginning)
}

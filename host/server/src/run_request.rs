//! The parts that every request about a run has, for the API and the pages alike.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;

use crate::http::{Failure, Server};
use crate::people::LoginRefusal;
use crate::sessions::Session;

/// Who asks something about which run. Whether that run is there, and the person may do that to it,
/// is decided later.
pub(crate) struct RunRequest {
    pub(crate) server: Server,
    pub(crate) session: Session,
    /// The run of the path.
    pub(crate) run: String,
}

impl FromRequestParts<Server> for RunRequest {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Failure> {
        // The guard has refused requests without a session.
        let session = parts.extensions.get::<Session>().cloned();
        let session = session.ok_or(LoginRefusal::WrongToken)?;
        let path = RawPathParams::from_request_parts(parts, server).await;
        let path = path.map_err(|_| Failure::missing())?;
        let run = path.iter().find(|(name, _)| *name == "run").map(|(_, run)| run.to_owned());
        let run = run.ok_or_else(Failure::missing)?;
        Ok(Self { server: server.clone(), session, run })
    }
}

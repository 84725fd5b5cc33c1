//! What `conclave audit verify` says of the server's store. It reads every record, so it is computed
//! by one task for all who ask, with a reader of its own, and seldom.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use conclave_core::policy::roles::Action;
use conclave_runtime::store::{StoreCheck, StoreReader};
use serde_json::{Value, json};

use super::Problem;
use crate::cached::Computed;
use crate::http::{Failure, Server};
use crate::sessions::Session;

/// The age up to which a store is not verified again.
const AGE: Duration = Duration::from_secs(120);
/// The time that a request waits for the first verification.
const PATIENCE: Duration = Duration::from_secs(5);

impl Server {
    /// The newest verification of the store; `None` while the first one is under way, or if the
    /// store cannot be read.
    pub(crate) async fn verified(
        &self,
        session: &Session,
    ) -> Result<Option<Arc<Computed<StoreCheck>>>, Failure> {
        session.may(Action::Audit, None)?;
        if self.shares_store() {
            let what = "the store has runs of other configs too; `conclave audit verify` verifies it \
                        at a terminal";
            return Err(Failure::new(StatusCode::FORBIDDEN, "shared_store", what));
        }
        let server = self.clone();
        let verified = self.cached_check().get((AGE, PATIENCE), move || async move {
            let store = server.conversations().store().clone();
            let verifying =
                conclave_runtime::blocking::spawn(move || StoreReader::open(&store)?.verify(&[]));
            match verifying.await.ok()? {
                Ok(check) => Some(check),
                Err(error) => {
                    server.conversations().report_unreadable(&error);
                    None
                }
            }
        });
        Ok(verified.await)
    }
}

pub(super) async fn verification(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
) -> Result<Json<Value>, Problem> {
    let Some(verified) = server.verified(&session).await? else {
        let what = "the store is being verified; ask again in a moment";
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", what).into());
    };
    let check = &verified.value;
    Ok(Json(json!({
        "at": verified.at,
        "is_intact": check.problems.is_empty(),
        "chains": check.chains,
        "rooms": check.rooms,
        "records": check.records,
        "removed_runs": check.removed_runs,
        "problems": check.problems,
    })))
}

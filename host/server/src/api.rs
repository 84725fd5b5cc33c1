//! API v1: the runs of the server's configs. A handler asks the store for what the person may read, or
//! calls the function of the library that the command line calls too; it decides nothing. Refusals
//! are problem documents (RFC 9457).

pub(crate) mod acting;
pub(crate) mod budgets;
mod events;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod rights;
pub(crate) mod run_list;
pub(crate) mod verification;
pub(crate) mod views;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Path, State};
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router};
use conclave_core::policy::roles::{Action, RoleRefusal};
use conclave_core::types::approval::approval_id;
use conclave_core::types::ids::{Principal, RoomId};
use conclave_runtime::store::{RunFilter, RunRow, StoreError, StoreReader, WaitRow};
use serde_json::{Value, json};

use crate::conversations::FAILED;
use crate::entity_tag::EntityTag;
use crate::gateway::Gateway;
use crate::http::{Failure, Server};
use crate::readers::ReadFailed;
use crate::sessions::Session;
use crate::visible_configs::{ListedRuns, VisibleConfigs};
use events::{Begin, run_events};
use run_list::RunQuery;

/// The beginning of the paths of this version.
pub(crate) const API: &str = "/api/v1";
/// The time in which the first record of a run is durable.
const STORED_WITHIN: Duration = Duration::from_secs(10);
/// The interval between two looks whether it is.
const STORED_LOOK: Duration = Duration::from_millis(10);

/// The routes below [`API`], each with the methods of its handlers.
pub(crate) fn routes() -> Vec<(&'static str, MethodRouter<Server>)> {
    vec![
        ("/openapi.json", get(document)),
        ("/configs", get(configs)),
        ("/runs", get(list).post(acting::start)),
        ("/runs/{run}", get(read)),
        ("/runs/{run}/events", get(follow)),
        ("/runs/{run}/messages", post(acting::message)),
        ("/runs/{run}/stop", post(acting::stop)),
        ("/runs/{run}/pause", post(acting::pause)),
        ("/runs/{run}/resume", post(acting::resume)),
        ("/runs/{run}/questions/{id}", post(acting::settle)),
        ("/runs/{run}/changes", get(views::changes).post(acting::decide_changes)),
        ("/runs/{run}/tasks", get(views::tasks)),
        ("/runs/{run}/timeline", get(views::timeline)),
        ("/runs/{run}/audit", get(views::audit)),
        ("/runs/{run}/budget", get(budgets::budget)),
        ("/runs/{run}/why/{call}", get(views::why)),
        ("/questions", get(views::questions)),
        ("/budgets", get(budgets::list)),
        ("/audit", get(verification::verification)),
        ("/rights", get(rights::rights)),
        ("/plugins", get(rights::plugins)),
        ("/can", get(rights::can)),
    ]
}

pub(crate) fn router() -> Router<Server> {
    let add = |router: Router<Server>, (path, methods)| router.route(path, methods);
    routes()
        .into_iter()
        .fold(Router::new(), add)
        .fallback(async || Problem::from(Failure::missing()))
        .method_not_allowed_fallback(async || Problem::from(Failure::wrong_method()))
}

/// The routes that say how the server does, to the programs that look after it.
pub(crate) fn health_routes() -> Vec<(&'static str, MethodRouter<Server>)> {
    vec![("/healthz", get(async || "ok\n")), ("/readyz", get(ready)), ("/metrics", get(measure))]
}

/// A refused or failed request of this API.
#[derive(Debug)]
pub(crate) struct Problem(Failure);

impl<T: Into<Failure>> From<T> for Problem {
    fn from(failure: T) -> Self {
        Self(failure.into())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, body) = self.0.into_parts();
        let mut document = json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or_default(),
            "status": status.as_u16(),
            "code": body["error"],
            "detail": body["message"],
        });
        for more in ["allowed", "configs", "files", "person", "budget", "used", "limit", "free_at"]
        {
            if let Some(value) = body.get(more) {
                document[more] = value.clone();
            }
        }
        (status, [(CONTENT_TYPE, "application/problem+json")], document.to_string()).into_response()
    }
}

async fn document() -> Json<Value> {
    Json(openapi::document())
}

pub(crate) fn bad_arguments(what: &str) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "bad_arguments", what)
}

async fn configs(Extension(visible): Extension<VisibleConfigs>) -> Json<Value> {
    Json(json!({ "configs": visible.values() }))
}

async fn list(
    Extension(visible): Extension<VisibleConfigs>,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    let ListedRuns { runs, next } = visible.runs(RunQuery::of(&uri)?).await?;
    let runs: Vec<Value> = runs.iter().map(|run| run.server.run_value(&run.row)).collect();
    Ok(Json(json!({ "runs": runs, "next": next })))
}

async fn read(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
) -> Result<Json<Value>, Problem> {
    let row = server.run(&session, Action::Read, &run).await?;
    let mut value = server.run_value(&row);
    let (rooms, waits) = server
        .read(move |reader, _| Ok((reader.rooms(&row.run)?, reader.waits(Some(&row.run))?)))
        .await?;
    value["room_list"] = rooms
        .iter()
        .map(|room| {
            let mut value = json!(room);
            value["state"] = room.state.word().into();
            value
        })
        .collect();
    value["waits"] = waits.iter().map(wait_value).collect();
    Ok(Json(value))
}

async fn follow(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let row = server.run(&session, Action::Read, &run).await?;
    let permit = server.stream_permit()?;
    let last = headers.get(HeaderName::from_static("last-event-id"));
    let last = last.map(|last| last.to_str().unwrap_or_default());
    let end = match last {
        None => None,
        Some(_) => {
            let run = row.run.clone();
            server.read(move |reader, _| reader.run_end(&run)).await?
        }
    };
    let changes = server.conversations().changes(&row.run);
    let follower = server.followers().follow(&row.run, changes).await?;
    let events = run_events(follower, Begin::after(last, end), permit);
    Ok(server.until_end(session, events))
}

async fn ready(Extension(gateway): Extension<Gateway>) -> Result<&'static str, Problem> {
    for server in gateway.servers() {
        let reads = async {
            let filter = RunFilter { most: Some(1), ..RunFilter::default() };
            server.read(move |reader, _| reader.runs(&filter)).await.is_ok()
        };
        if !server.readiness().is_ready(reads).await {
            return Err(Failure::from(ReadFailed).into());
        }
    }
    Ok("ready\n")
}

async fn measure(Extension(visible): Extension<VisibleConfigs>) -> Result<Response, Problem> {
    let text = metrics::text(&visible.totals().await?);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

impl From<ReadFailed> for Failure {
    fn from(_: ReadFailed) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "failed", FAILED)
    }
}

impl Server {
    /// Whether a run or a conversation is one of this config.
    pub(crate) async fn has(&self, run: &str) -> Result<bool, Failure> {
        if self.conversations().find(run).is_some() {
            return Ok(true);
        }
        Ok(self.own_run(run).await?.is_some())
    }

    async fn own_run(&self, run: &str) -> Result<Option<RunRow>, Failure> {
        let id = RoomId::from(run);
        let row = self.read(move |reader, _| reader.run(&id)).await?;
        Ok(row.filter(|row| row.config.as_deref() == Some(self.conversations().config())))
    }

    /// A run for clients, with the name of its config if there are others.
    pub(crate) fn run_value(&self, row: &RunRow) -> Value {
        let mut value = run_value(row);
        if let Some(name) = self.config_name() {
            value["config"] = name.into();
        }
        value
    }

    /// Reads from the store, away from the loops of rooms. The config is that of the server.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&StoreReader, &std::path::Path) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Failure> {
        let config = self.conversations().config().to_owned();
        Ok(self.readers().read(move |reader| read(reader, &config)).await?)
    }

    /// The tag of an answer that depends on these values and on the program.
    pub(crate) fn entity_tag(&self, values: &Value) -> EntityTag {
        EntityTag::of(&json!([self.conversations().epoch(), values]))
    }

    /// Waits until the store shows a run that has begun, so that a client finds it after the answer.
    pub(crate) async fn until_stored(&self, run: &RoomId) -> Result<RunRow, Failure> {
        let began = Instant::now();
        loop {
            let id = run.clone();
            if let Some(row) = self.read(move |reader, _| reader.run(&id)).await? {
                return Ok(row);
            }
            if began.elapsed() >= STORED_WITHIN {
                return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "failed", FAILED));
            }
            tokio::time::sleep(STORED_LOOK).await;
        }
    }

    /// The run of a path, if it is one of this config and the person may do that to it.
    pub(crate) async fn run(
        &self,
        session: &Session,
        action: Action,
        run: &str,
    ) -> Result<RunRow, Failure> {
        // The same answer as for a run that the person may not read.
        let row = self.own_run(run).await?.ok_or(RoleRefusal::ForeignRun)?;
        session.may(action, Some(&owner(&row)))?;
        Ok(row)
    }
}

/// A principal that owns no run. Who may read its runs may read those of everybody.
pub(crate) fn ownerless() -> Principal {
    Principal(Arc::from(""))
}

pub(crate) fn owner(row: &RunRow) -> Principal {
    Principal(Arc::from(row.principal.as_str()))
}

/// A run without the paths of this machine.
fn run_value(row: &RunRow) -> Value {
    let mut value = json!(row);
    value["state"] = row.state.word().into();
    if let Value::Object(fields) = &mut value {
        fields.remove("store");
        fields.remove("config");
    }
    value
}

/// A call or timer that a run waits for. What a person settles has the id of its question; a tool
/// or a step under way has none, because nothing can be decided about it.
fn wait_value(row: &WaitRow) -> Value {
    let call = row.wait.key.call().filter(|_| row.asks_person());
    let id = call.map(|call| approval_id(&row.room, call));
    json!({ "id": id, "room": row.room, "since": row.since, "wait": row.wait })
}

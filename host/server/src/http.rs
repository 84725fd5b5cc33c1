//! The routes of the server. A handler translates a request to the room's own, and the room's reply
//! to a status; it decides nothing.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, SET_COOKIE};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router, middleware};
use conclave_core::policy::roles::{Action, RoleRefusal};
use conclave_core::types::ids::Millis;
use conclave_core::types::request::{Inbound, Refusal, RefusalCode};
use conclave_runtime::clock::{Clock as _, SystemClock};
use futures_util::stream::once;
use futures_util::{Stream, StreamExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::access::{Access, guard};
use crate::api::{self, API};
use crate::connections;
use crate::conversation::Conversation;
use crate::conversations::Conversations;
use crate::events::events;
use crate::followers::Followers;
use crate::hooks;
use crate::page;
use crate::people::LoginRefusal;
use crate::readers::Readers;
use crate::sessions::Session;
use crate::tls::ServerTls;

/// Bytes of a request's body.
const BODY: usize = 256 << 10;
/// The time in which a body has to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);
/// Event streams at once. Each occupies a connection.
pub(crate) const STREAMS: usize = 1_024;
/// Requests that act on runs at once. Each may wait some seconds for a run, on a thread and with a
/// reader of the store of its own.
const ACTING: usize = 32;
/// Silence of an event stream after which it sends a comment, which proxies and browsers read as a
/// sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The time after which a reader comes back to a server that stops.
const RETRY: Duration = Duration::from_secs(2);

/// The interval between two looks at the files of the certificate.
const RENEWAL: Duration = Duration::from_secs(1);

const PAGE: (&str, &str) = ("text/html; charset=utf-8", include_str!("page/index.html"));
const STYLE: (&str, &str) = ("text/css; charset=utf-8", include_str!("page/chat.css"));
const SCRIPT: (&str, &str) = ("text/javascript; charset=utf-8", include_str!("page/chat.js"));

/// The state of the server. Clones share it.
#[derive(Clone)]
pub struct Server(Arc<ServerState>);

struct ServerState {
    access: Access,
    conversations: Conversations,
    readers: Readers,
    followers: Followers,
    streams: Arc<Semaphore>,
    acting: Arc<Semaphore>,
    /// Whether the server stops.
    stopping: watch::Sender<bool>,
}

impl Server {
    /// Creates a server; [`Server::serve`] runs it.
    #[must_use]
    pub fn new(access: Access, conversations: Conversations) -> Self {
        let [streams, acting] = [STREAMS, ACTING].map(|most| Arc::new(Semaphore::new(most)));
        let (readers, stopping) = (conversations.readers(), watch::Sender::new(false));
        let followers = Followers::new(readers.clone());
        let state =
            ServerState { access, conversations, readers, followers, streams, acting, stopping };
        Self(Arc::new(state))
    }

    /// Serves connections, with TLS if there is a certificate, until `stop` is ready. Event streams end then, and say when to come back;
    /// requests in progress are answered. The rooms are left as they are.
    pub async fn serve(
        self,
        listener: TcpListener,
        tls: Option<ServerTls>,
        stop: impl Future<Output = ()>,
    ) {
        let (state, tls) = (self.clone(), tls.map(Arc::new));
        let stopping = state.0.stopping.subscribe();
        let serving = connections::serve(listener, router(self), tls.clone(), stopping);
        let stopping = async {
            stop.await;
            state.0.stopping.send_replace(true);
            std::future::pending().await
        };
        tokio::select! {
            () = serving => {}
            () = state.access().watch_tokens() => {}
            () = state.watch_certificate(tls) => {}
            () = stopping => {}
        }
    }

    /// Takes a renewed certificate, again and again.
    async fn watch_certificate(&self, tls: Option<Arc<ServerTls>>) {
        let Some(tls) = tls else { return std::future::pending().await };
        loop {
            tokio::time::sleep(RENEWAL).await;
            let tls = Arc::clone(&tls);
            let reloading = tokio::task::spawn_blocking(move || tls.reload());
            if let Ok(Err(error)) = reloading.await {
                self.access().report_unusable(&error);
            }
        }
    }

    /// The events of a stream until its session ends or the server stops.
    pub(crate) fn until_end(
        &self,
        session: Session,
        events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static,
    ) -> Response {
        let mut stopping = self.0.stopping.subscribe();
        let stops = async move { connections::stopped(&mut stopping).await };
        let back = Ok(Event::default().retry(RETRY));
        let events = events.take_until(stops).chain(once(std::future::ready(back)));
        // Whoever loses the session does not read on.
        let events = events.take_until(session.ended());
        Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
    }

    pub(crate) fn access(&self) -> &Access {
        &self.0.access
    }

    pub(crate) fn conversations(&self) -> &Conversations {
        &self.0.conversations
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.0.readers
    }

    pub(crate) fn followers(&self) -> &Followers {
        &self.0.followers
    }

    /// The permit of an event stream. It is not waited for: each waiting page would hold a
    /// connection.
    pub(crate) fn stream_permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.0.streams).try_acquire_owned().map_err(|_| {
            let what =
                format!("{STREAMS} pages are open already; close one and load this one again");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", what)
        })
    }

    /// The permit of a request that acts. It is not waited for, as that of a stream is not.
    pub(crate) fn acting_permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.0.acting).try_acquire_owned().map_err(|_| {
            let what = format!("{ACTING} requests act on runs already; try again in a moment");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", what)
        })
    }

    /// The number of event streams.
    pub(crate) fn open_streams(&self) -> usize {
        STREAMS - self.0.streams.available_permits()
    }

    /// Returns the conversation of a path, if this person may do that to it.
    fn conversation(
        &self,
        session: &Session,
        action: Action,
        id: &str,
    ) -> Result<Arc<Conversation>, Failure> {
        // Of a foreign conversation a person does not even learn that it exists.
        let missing = || {
            let what = format!("there is no conversation {id}");
            Failure::new(StatusCode::NOT_FOUND, "room_not_found", what)
        };
        let conversation = self.0.conversations.find(id).ok_or_else(missing)?;
        match session.may(action, Some(conversation.owner())) {
            Ok(()) => Ok(conversation),
            Err(RoleRefusal::ForeignRun) => Err(missing()),
            Err(refusal) => Err(refusal.into()),
        }
    }
}

fn router(server: Server) -> Router {
    let assets = Router::new()
        .route("/", get(|| asset(PAGE)))
        .route("/chat.css", get(|| asset(STYLE)))
        .route("/chat.js", get(|| asset(SCRIPT)));
    page_routes()
        .into_iter()
        .chain(api::health_routes())
        .chain(page::routes())
        .chain(hooks::routes())
        .fold(assets, |router, (path, methods)| router.route(path, methods))
        .nest(API, api::router())
        .fallback(async || Failure::missing())
        .method_not_allowed_fallback(async || Failure::wrong_method())
        .layer(DefaultBodyLimit::max(BODY))
        // The last layer is the outermost: a request is checked before anything reads it.
        .layer(middleware::from_fn_with_state(server.clone(), guard))
        .with_state(server)
}

/// The routes that the page asks.
pub(crate) fn page_routes() -> Vec<(&'static str, MethodRouter<Server>)> {
    vec![
        ("/api/session", post(begin_session)),
        ("/api/conversations", get(list).post(begin)),
        ("/api/conversations/{id}/events", get(follow)),
        ("/api/conversations/{id}/messages", post(message)),
        ("/api/conversations/{id}/stop", post(stop)),
    ]
}

/// A refused or failed request: a status and a code for programs, a sentence for people.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    body: Value,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self { status, body: json!({ "error": code, "message": message.into() }) }
    }

    /// The failure with more about it for programs.
    pub(crate) fn with(mut self, field: &str, value: Value) -> Self {
        self.body[field] = value;
        self
    }

    /// The answer to a request for what is not there.
    pub(crate) fn missing() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "this server has no such address")
    }

    /// The answer to a request with another method than those of its address.
    pub(crate) fn wrong_method() -> Self {
        let what = "this address does not accept the method of the request";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", what)
    }

    /// The answer to a message for a conversation whose room is over.
    pub(crate) fn over() -> Self {
        Refusal::new(RefusalCode::RoomClosed, "the conversation is over; begin a new one").into()
    }

    pub(crate) fn into_parts(self) -> (StatusCode, Value) {
        (self.status, self.body)
    }

    #[cfg(test)]
    pub(crate) fn code(&self) -> &'static str {
        let codes = ["wrong_host", "wrong_origin", "no_access"];
        codes.into_iter().find(|code| self.body["error"] == *code).unwrap_or_default()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.error {
            RefusalCode::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            RefusalCode::KeyReused => StatusCode::CONFLICT,
            RefusalCode::Busy | RefusalCode::LimitReached => StatusCode::SERVICE_UNAVAILABLE,
            RefusalCode::RoomClosed => StatusCode::GONE,
            RefusalCode::NoAccess | RefusalCode::Blocked | RefusalCode::NotGranted => {
                StatusCode::FORBIDDEN
            }
            RefusalCode::RoomNotFound | RefusalCode::UnknownChannel => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Self { status, body: refusal.to_value() }
    }
}

impl From<RoleRefusal> for Failure {
    fn from(refusal: RoleRefusal) -> Self {
        let status = match refusal {
            RoleRefusal::ForeignRun => StatusCode::NOT_FOUND,
            RoleRefusal::MissingRole { .. } => StatusCode::FORBIDDEN,
        };
        Self::new(status, refusal.code(), refusal.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

async fn asset((kind, text): (&'static str, &'static str)) -> Response {
    ([(CONTENT_TYPE, kind)], text).into_response()
}

/// The time for what is shown.
pub(crate) fn now() -> Millis {
    SystemClock.now()
}

/// Reads a JSON body of limited size, within a limited time.
pub(crate) async fn body<T: DeserializeOwned>(request: Request) -> Result<T, Failure> {
    let read = in_time(Json::<T>::from_request(request, &())).await?;
    read.map(|Json(body)| body).map_err(|rejection| {
        Failure::new(rejection.status(), "bad_arguments", rejection.body_text())
    })
}

/// Reads the body of a page's form, with the limits of [`body`].
pub(crate) async fn form_body(request: Request) -> Result<String, Failure> {
    in_time(String::from_request(request, &())).await?.map_err(|rejection| {
        Failure::new(rejection.status(), "bad_arguments", rejection.body_text())
    })
}

async fn in_time<T>(reading: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::time::timeout(BODY_TIME, reading).await.map_err(|_| {
        let what = format!("the body did not arrive within {} s", BODY_TIME.as_secs());
        Failure::new(StatusCode::REQUEST_TIMEOUT, "too_slow", what)
    })
}

#[derive(Deserialize)]
struct SessionRequest {
    token: String,
}

/// Exchanges the token of the printed address for a cookie.
async fn begin_session(
    State(server): State<Server>,
    request: Request,
) -> Result<Response, Failure> {
    let SessionRequest { token } = body(request).await?;
    let cookie = server.access().begin_session(&token).await.map_err(|refusal| match refusal {
        LoginRefusal::WrongToken if server.access().token().is_some() => {
            let what =
                "the address is not valid any more; open the one that `conclave serve` printed";
            Failure::new(StatusCode::UNAUTHORIZED, "no_access", what)
        }
        refusal => refusal.into(),
    })?;
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response())
}

async fn list(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
) -> Result<Json<Value>, Failure> {
    session.may(Action::List, None)?;
    let rows = server.0.conversations.rows(|owner| session.may(Action::Read, Some(owner)).is_ok());
    Ok(Json(json!({ "conversations": rows })))
}

async fn begin(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
) -> Result<Response, Failure> {
    session.may(Action::Start, None)?;
    let conversation = server.0.conversations.begin(session.identity.principal.clone()).await?;
    server.until_stored(conversation.room()).await?;
    Ok((StatusCode::CREATED, Json(conversation.row())).into_response())
}

async fn follow(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let conversation = server.conversation(&session, Action::Read, &id)?;
    let permit = server.stream_permit()?;
    let last = headers.get(HeaderName::from_static("last-event-id"));
    let last = last.and_then(|last| last.to_str().ok());
    let events = events(conversation, server.0.conversations.epoch(), last, permit);
    Ok(server.until_end(session, events))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageRequest {
    text: String,
    /// The idempotency key: a message that is sent again has the same one.
    key: String,
}

async fn message(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let conversation = server.conversation(&session, Action::Say, &id)?;
    let MessageRequest { text, key } = body(request).await?;
    let channel = server.0.conversations.channel().clone();
    let sender = session.name().unwrap_or_default().to_owned();
    let inbound = Inbound { sender, key: Some(key), ..Inbound::new(channel, text) };
    let handle = conversation.handle().ok_or_else(Failure::over)?;
    let accepted = handle.inbound(inbound).await?;
    Ok(Json(json!({ "index": accepted.index, "duplicate": accepted.duplicate })))
}

async fn stop(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    let conversation = server.conversation(&session, Action::Stop, &id)?;
    let who = session.name().unwrap_or("its user");
    conversation.handle().ok_or_else(Failure::over)?.stop_turn(format!("{who} pressed Stop"));
    // A stop has no reply; the page reads the end of the turn among its events.
    Ok(StatusCode::ACCEPTED)
}

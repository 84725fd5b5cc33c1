//! The routes of the server. A handler translates a request to the room's own, and the room's reply
//! to a status; it decides nothing.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, SET_COOKIE};
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router};
use conclave_core::policy::roles::{Action, RoleRefusal};
use conclave_core::setup::Setup;
use conclave_core::types::ids::{Millis, Principal};
use conclave_core::types::request::{Inbound, Refusal, RefusalCode};
use conclave_runtime::Accepted;
use conclave_runtime::clock::{Clock as _, SystemClock};
use conclave_runtime::store::StoreCheck;
use futures_util::stream::once;
use futures_util::{Stream, StreamExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::access::Access;
use crate::api::rights::GrantUses;
use crate::api::views::RunViews;
use crate::api::{self, API};
use crate::cached::Cached;
use crate::connections::{self, peer_of};
use crate::conversation::Conversation;
use crate::conversations::Conversations;
use crate::daily_spending::SpentBefore;
use crate::entity_tag;
use crate::events::events;
use crate::folds::RunFolds;
use crate::followers::Followers;
use crate::gateway::Gateway;
use crate::hooks::{self, HOOK_KEY, HookCounts};
use crate::open_questions::OpenQuestions;
use crate::page;
use crate::people::LoginRefusal;
use crate::readers::Readers;
use crate::readiness::Readiness;
use crate::refusals::Surface;
use crate::sessions::Session;
use crate::single_values;
use crate::visible_configs::{VisibleConfig, VisibleConfigs};

/// The content type of the forms of pages.
const FORM: &str = "application/x-www-form-urlencoded";
/// Bytes of a request's body.
const BODY: usize = 256 << 10;
/// The time in which a body has to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);
/// Event streams at once. Each occupies a connection.
pub(crate) const STREAMS: usize = 1_024;
/// Requests that act on runs at once. Each may wait some seconds for a run, on a thread and with a
/// reader of the store of its own.
const ACTING: usize = 32;
/// Webhooks that are verified at once, which strangers can begin.
const HOOKS: usize = 64;
/// Silence of an event stream after which it sends a comment, which proxies and browsers read as a
/// sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The time after which a reader comes back to a server that stops.
const RETRY: Duration = Duration::from_secs(2);

/// The server of a config. Clones share it.
#[derive(Clone)]
pub(crate) struct Server(Arc<ServerState>);

/// A server among those of its process.
pub(crate) struct ServerPlace {
    /// The name of its config.
    pub(crate) name: String,
    /// Whether its process serves other configs too.
    pub(crate) has_others: bool,
    /// Whether one of them has the same store.
    pub(crate) shares_store: bool,
}

struct ServerState {
    place: ServerPlace,
    access: Arc<Access>,
    conversations: Conversations,
    readers: Readers,
    followers: Followers,
    folds: RunFolds,
    readiness: Readiness,
    open_questions: OpenQuestions,
    spent_before: SpentBefore,
    permits: ServerPermits,
    /// The event streams of this config; it is no further limit.
    streams: Arc<Semaphore>,
    /// The uses of the grants of a setup: a config that is read again has others.
    uses: Mutex<Option<(Arc<Setup>, Cached<GrantUses>)>>,
    check: Cached<StoreCheck>,
    hook_counts: HookCounts,
    views: RunViews,
    /// Whether the server stops.
    stopping: watch::Receiver<bool>,
}

/// The permits of a process, whose servers share them.
#[derive(Clone)]
pub(crate) struct ServerPermits {
    streams: Arc<Semaphore>,
    acting: Arc<Semaphore>,
    hooks: Arc<Semaphore>,
}

impl Default for ServerPermits {
    fn default() -> Self {
        let [streams, acting, hooks] =
            [STREAMS, ACTING, HOOKS].map(|most| Arc::new(Semaphore::new(most)));
        Self { streams, acting, hooks }
    }
}

/// The permit of an event stream, which also counts the streams of its config.
pub(crate) struct StreamPermit {
    _permits: [OwnedSemaphorePermit; 2],
}

impl Server {
    /// Creates the server of a config with this name, in a process that may serve others.
    pub(crate) fn new(
        place: ServerPlace,
        access: Arc<Access>,
        conversations: Conversations,
        permits: ServerPermits,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let readers = conversations.readers();
        let (followers, folds) = (Followers::new(readers.clone()), RunFolds::new(readers.clone()));
        let streams = Arc::new(Semaphore::new(STREAMS));
        let readiness = Readiness::default();
        Self(Arc::new(ServerState {
            place,
            access,
            conversations,
            readers,
            followers,
            folds,
            readiness,
            open_questions: OpenQuestions::default(),
            spent_before: SpentBefore::default(),
            permits,
            streams,
            uses: Mutex::default(),
            check: Cached::default(),
            hook_counts: HookCounts::default(),
            views: RunViews::default(),
            stopping,
        }))
    }

    /// The name of the config.
    pub(crate) fn name(&self) -> &str {
        &self.0.place.name
    }

    /// The name of the config, if its process serves others too.
    pub(crate) fn config_name(&self) -> Option<&str> {
        self.0.place.has_others.then_some(&self.0.place.name)
    }

    /// Whether the store has the runs of other configs of this process, whose people may be others.
    pub(crate) fn shares_store(&self) -> bool {
        self.0.place.shares_store
    }

    /// The events of a stream until its session ends or the server stops.
    pub(crate) fn until_end(
        &self,
        session: Session,
        events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static,
    ) -> Response {
        let mut stopping = self.0.stopping.clone();
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

    pub(crate) fn open_questions(&self) -> &OpenQuestions {
        &self.0.open_questions
    }

    pub(crate) fn spent_before(&self) -> &SpentBefore {
        &self.0.spent_before
    }

    pub(crate) fn folds(&self) -> &RunFolds {
        &self.0.folds
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        &self.0.readiness
    }

    pub(crate) fn views(&self) -> &RunViews {
        &self.0.views
    }

    pub(crate) fn hook_counts(&self) -> &HookCounts {
        &self.0.hook_counts
    }

    /// The uses of the grants of this setup, which is that of the config.
    pub(crate) fn cached_uses(&self, setup: &Arc<Setup>) -> Cached<GrantUses> {
        let mut uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
        match &*uses {
            Some((of, cached)) if Arc::ptr_eq(of, setup) => cached.clone(),
            _ => {
                let cached = Cached::default();
                *uses = Some((Arc::clone(setup), cached.clone()));
                cached
            }
        }
    }

    pub(crate) fn cached_check(&self) -> &Cached<StoreCheck> {
        &self.0.check
    }

    /// The permit of an event stream. It is not waited for: each waiting page would hold a
    /// connection.
    pub(crate) fn stream_permit(&self) -> Result<StreamPermit, Failure> {
        let [process, config] = [&self.0.permits.streams, &self.0.streams]
            .map(|streams| Arc::clone(streams).try_acquire_owned());
        let (Ok(process), Ok(config)) = (process, config) else {
            let what =
                format!("{STREAMS} pages are open already; close one and load this one again");
            return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", what));
        };
        Ok(StreamPermit { _permits: [process, config] })
    }

    /// The permit of a request that acts. It is not waited for, as that of a stream is not.
    pub(crate) fn acting_permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.0.permits.acting).try_acquire_owned().map_err(|_| {
            let what = format!("{ACTING} requests act on runs already; try again in a moment");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", what)
        })
    }

    /// The permit of a webhook whose signature was not verified yet.
    pub(crate) fn hook_permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.0.permits.hooks).try_acquire_owned().map_err(|_| {
            let what = format!("{HOOKS} webhooks are verified already; try again in a moment");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", what)
        })
    }

    /// The number of event streams of this config.
    pub(crate) fn open_streams(&self) -> usize {
        STREAMS - self.0.streams.available_permits()
    }

    /// Sends a message of somebody to a conversation. The room refuses it, and records that, if the
    /// budget of the conversation's owner is used up.
    pub(crate) async fn inbound(
        &self,
        conversation: &Conversation,
        by: &Principal,
        message: Inbound,
    ) -> Result<Accepted, Failure> {
        let handle = conversation.handle().ok_or_else(Failure::over)?;
        let refusal = self.budget_refusal(conversation.owner()).await?;
        let over_budget = refusal.as_ref().map(ToString::to_string);
        match (handle.inbound(Inbound { over_budget, ..message }).await, refusal) {
            (Err(Refusal { error: RefusalCode::BudgetUsedUp, .. }), Some(refusal)) => {
                Err(self.refuse_over_budget(by, Some(conversation.room()), &refusal))
            }
            (accepted, _) => Ok(accepted?),
        }
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

/// The routes of the server of a config.
pub(crate) fn router(server: Server) -> Router {
    page_routes()
        .into_iter()
        .chain(api::health_routes())
        .chain(page::routes())
        .chain(hooks::routes())
        .fold(Router::new(), |router, (path, methods)| router.route(path, methods))
        .nest(API, api::router())
        .fallback(async |uri: Uri| Surface::of(uri.path()).refuse(Failure::missing(), None))
        .method_not_allowed_fallback(async |uri: Uri| {
            Surface::of(uri.path()).refuse(Failure::wrong_method(), None)
        })
        .layer(from_fn(entity_tag::tag_answer))
        .layer(DefaultBodyLimit::max(BODY))
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

    /// The stable code.
    pub(crate) fn error_code(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }

    /// Whether the request came without access, so that a log-in can help.
    pub(crate) fn is_without_access(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }

    /// Whether the same request can succeed later.
    pub(crate) fn is_temporary(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS || self.status.is_server_error()
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
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.error {
            RefusalCode::RateLimited | RefusalCode::BudgetUsedUp => StatusCode::TOO_MANY_REQUESTS,
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

/// Reads the body of a page's form, with the limits of [`body`]. Each of its fields comes once.
pub(crate) async fn form_body(request: Request) -> Result<String, Failure> {
    // What a browser sends from a page's form, and no other program by chance: a text that is read
    // as another format than its sender meant says something else.
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case(FORM) {
        let what = format!("the body must be {FORM}");
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_arguments", what));
    }
    let body = text_body(request).await?;
    single_values::check_fields(&body)?;
    Ok(body)
}

/// Reads a body as it is, with the limits of [`body`].
pub(crate) async fn text_body(request: Request) -> Result<String, Failure> {
    in_time(String::from_request(request, &())).await?.map_err(|rejection| {
        Failure::new(rejection.status(), "bad_arguments", rejection.body_text())
    })
}

/// Reads the bytes of a body of limited size, within a limited time.
pub(crate) async fn whole_body(request: Request) -> Result<Bytes, Failure> {
    in_time(Bytes::from_request(request, &())).await?.map_err(|rejection| {
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
    Extension(gateway): Extension<Gateway>,
    request: Request,
) -> Result<Response, Failure> {
    let peer = peer_of(request.extensions());
    let SessionRequest { token } = body(request).await?;
    let session = gateway.access().begin_session(&token, peer).await;
    let cookie = session.map_err(|refusal| match refusal {
        LoginRefusal::WrongToken if gateway.token().is_some() => {
            let what =
                "the address is not valid any more; open the one that `conclave serve` printed";
            Failure::new(StatusCode::UNAUTHORIZED, "no_access", what)
        }
        refusal => refusal.into(),
    })?;
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response())
}

async fn list(Extension(visible): Extension<VisibleConfigs>) -> Result<Json<Value>, Failure> {
    let mut rows = Vec::new();
    for VisibleConfig { server, session } in visible.where_may(Action::List)? {
        let is_visible = |owner: &Principal| session.may(Action::Read, Some(owner)).is_ok();
        for row in server.0.conversations.rows(is_visible) {
            let mut row = json!(row);
            if let Some(name) = server.config_name() {
                row["config"] = name.into();
            }
            rows.push(row);
        }
    }
    let mut list = json!({ "conversations": rows });
    if !visible.names().is_empty() {
        // Those in which the person can begin one.
        let begins = visible.where_may(Action::Start).unwrap_or_default();
        let begins =
            begins.iter().filter(|config| config.server.0.conversations.channel().is_some());
        list["configs"] = begins.map(|config| config.server.name()).collect();
    }
    Ok(Json(list))
}

async fn begin(Extension(visible): Extension<VisibleConfigs>) -> Result<Response, Failure> {
    let VisibleConfig { server, session } = visible.choose(None)?;
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
    if key.starts_with(HOOK_KEY) {
        let what = format!("a key does not begin with `{HOOK_KEY}`");
        return Err(Failure::new(StatusCode::BAD_REQUEST, "bad_arguments", what));
    }
    let channel = server.0.conversations.channel().cloned().ok_or_else(Failure::missing)?;
    server.0.conversations.check_access(&channel)?;
    let sender = session.name().unwrap_or_default().to_owned();
    let inbound = Inbound { sender, key: Some(key), ..Inbound::new(channel, text) };
    let accepted = server.inbound(&conversation, &session.identity.principal, inbound).await?;
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

//! One address for the servers of several configs. Each config has a complete server of its own,
//! with its people, its store's readers and its conversations; the gateway decides which of them
//! answers a request. A server never sees a session of another config, so a person who has none at
//! a config cannot learn from any route that it exists.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use conclave_core::config::ServerConfig;
use conclave_core::types::ids::ChannelId;
use conclave_runtime::Prepared;
use conclave_runtime::ids::{Ids as _, RandomIds};
use conclave_runtime::store::StoreAddress;
use futures_util::future::select_all;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::access::{Access, Address, Entrance, is_hook, is_open};
use crate::connections;
use crate::conversations::{Conversations, FAILED};
use crate::error::ServerError;
use crate::hooks::HookReports;
use crate::http::{Failure, Server, ServerPermits, ServerPlace, router};
use crate::operator::{AnsweredRequest, Operator};
use crate::page;
#[cfg(feature = "oidc")]
use crate::page::login::CALLBACK;
use crate::page::login::{BEGIN, LOGOUT, LoginForm};
use crate::people::People;
use crate::refusals::Surface;
use crate::retention::retain;
use crate::server_access::ServerAccess;
use crate::sessions::Session;
use crate::tls::ServerTls;
use crate::visible_configs::{VisibleConfig, VisibleConfigs, config_not_found, config_required};

/// The interval between two reports of the requests for which a server that stops waits.
const DRAIN_REPORT: Duration = Duration::from_secs(1);
/// The time in which the loops of rooms stop.
const LOOPS: Duration = Duration::from_secs(3);
/// The interval between two looks at the files of the certificate.
const RENEWAL: Duration = Duration::from_secs(1);
/// The paths whose answers are put together from all configs that a person sees, or that choose one
/// by themselves. Every other path is of one config: a new route cannot show several by mistake.
const LISTS: [&str; 10] = [
    "/runs",
    "/inbox",
    LOGOUT,
    page::REFUSE_SELECTED,
    "/metrics",
    "/api/conversations",
    "/api/v1/configs",
    "/api/v1/openapi.json",
    "/api/v1/questions",
    "/api/v1/runs",
];
/// The beginnings of paths behind which a run or a conversation is named.
const OF_RUN: [&str; 3] = ["/runs/", "/api/v1/runs/", "/api/conversations/"];
/// The field of a query that names a config.
const CONFIG: &str = "config";

/// A config of a server.
pub struct ConfigParts {
    /// Its name in the API and on the page, which no other config of the server has. It has letters,
    /// digits, `-`, `_` and `.` if there are several.
    pub name: String,
    /// Who may use it.
    pub people: People,
    /// Its rooms.
    pub conversations: Conversations,
}

/// A config that was read again.
pub struct NextConfig {
    /// The loaded config.
    pub prepared: Prepared,
    /// Its `[server]`.
    pub server: ServerConfig,
    /// Who may use it.
    pub people: People,
}

/// The servers of configs at one address. Clones share them.
#[derive(Clone)]
pub struct Gateway(Arc<GatewayState>);

struct GatewayState {
    access: ServerAccess,
    configs: Vec<RoutedServer>,
    operator: Arc<dyn Operator>,
    requests: Arc<Requests>,
    hook_reports: HookReports,
    /// Whether the server stops.
    stopping: watch::Sender<bool>,
}

/// The requests that are being answered.
#[derive(Default)]
struct Requests(Mutex<BTreeMap<u64, String>>);

/// A request in progress, until it is dropped.
struct RequestGuard {
    requests: Arc<Requests>,
    number: u64,
}

impl Requests {
    fn begin(self: &Arc<Self>, head: &Parts) -> RequestGuard {
        let mut all = self.all();
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        // Without its query, in which people can write anything.
        all.insert(number, format!("{} {}", head.method, head.uri.path()));
        RequestGuard { requests: Arc::clone(self), number }
    }

    /// The method and the path of each, the oldest first.
    fn names(&self) -> Vec<String> {
        self.all().values().cloned().collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.requests.all().remove(&self.number);
    }
}

struct RoutedServer {
    server: Server,
    routes: TowerToHyperService<Router>,
}

impl Gateway {
    /// Creates the servers of configs, of which there is at least one; [`Gateway::serve`] runs them.
    ///
    /// # Errors
    /// `Randomness` if the system has none.
    pub fn new(
        address: Address,
        configs: Vec<ConfigParts>,
        operator: &Arc<dyn Operator>,
    ) -> Result<Self, ServerError> {
        let entrance = Arc::new(Entrance::new(address, Arc::clone(operator))?);
        let (permits, stopping) = (ServerPermits::default(), watch::Sender::new(false));
        let has_several = configs.len() > 1;
        let stores: Vec<StoreAddress> =
            configs.iter().map(|config| config.conversations.store().clone()).collect();
        let (mut accesses, mut servers) = (Vec::new(), Vec::new());
        for ConfigParts { name, people, conversations } in configs {
            let access = Arc::new(Access::new(people, &entrance));
            accesses.push(Arc::clone(&access));
            let own = conversations.store();
            // Two addresses of databases may be of the same one.
            let may_be_own = |store: &&StoreAddress| {
                *store == own || (store.folder().is_none() && own.folder().is_none())
            };
            let shares_store = stores.iter().filter(may_be_own).count() > 1;
            let server = Server::new(
                ServerPlace { name, has_others: has_several, shares_store },
                access,
                conversations,
                permits.clone(),
                stopping.subscribe(),
            );
            let routes = TowerToHyperService::new(router(server.clone()));
            servers.push(RoutedServer { server, routes });
        }
        let access = ServerAccess::new(entrance, accesses);
        let (operator, requests) = (Arc::clone(operator), Arc::default());
        let hook_reports = HookReports::default();
        let state =
            GatewayState { access, configs: servers, operator, requests, hook_reports, stopping };
        Ok(Self(Arc::new(state)))
    }

    /// The token of the address that the operator opens; `None` if people have tokens of their own.
    #[must_use]
    pub fn token(&self) -> Option<String> {
        self.0.access.token()
    }

    /// Serves connections, with TLS if there is a certificate, until `stop` is ready. Event streams
    /// end then, and say when to come back; requests in progress are answered. The rooms are left as
    /// they are.
    pub async fn serve(
        &self,
        listener: TcpListener,
        tls: Option<ServerTls>,
        stop: impl Future<Output = ()>,
    ) {
        let tls = tls.map(Arc::new);
        let stopping = self.0.stopping.subscribe();
        let router = Router::new().fallback(answer).with_state(self.clone());
        let serving = connections::serve(listener, router, tls.clone(), stopping);
        let stopping = async {
            stop.await;
            self.0.stopping.send_replace(true);
            self.report_drain().await;
        };
        tokio::select! {
            () = serving => {}
            () = self.0.access.watch_tokens() => {}
            () = self.watch_certificate(tls) => {}
            _ = self.remove_old_runs() => {}
            _ = stopping => {}
        }
        let late = self.0.requests.names();
        if !late.is_empty() {
            self.0.operator.given_up(&late);
        }
    }

    /// Stops the loops of all rooms as a crash would. Afterwards nothing of this server writes to its
    /// stores any more.
    pub async fn stop_rooms(&self) {
        let stopping = async {
            for server in self.servers() {
                server.conversations().stop_loops().await;
            }
        };
        // One that does not yield is stopped by the end of the process.
        let _ = tokio::time::timeout(LOOPS, stopping).await;
    }

    /// Names the requests for which a server that stops waits, again and again.
    async fn report_drain(&self) -> Infallible {
        loop {
            tokio::time::sleep(DRAIN_REPORT).await;
            let requests = self.0.requests.names();
            if !requests.is_empty() {
                self.0.operator.draining(&requests);
            }
        }
    }

    /// Takes configs that were read again, in the order of the present ones. New rooms are those of
    /// the new configs; the rooms that run keep theirs. People who are not there any more lose their
    /// sessions. It reads the file of tokens.
    pub fn replace(&self, configs: Vec<NextConfig>) {
        for (RoutedServer { server, .. }, next) in self.0.configs.iter().zip(configs) {
            server.conversations().replace(next.prepared, next.server);
            server.access().replace_people(next.people);
        }
    }

    /// Removes the ended runs that no config keeps any longer, again and again.
    async fn remove_old_runs(&self) -> Infallible {
        let retaining = self.servers().map(|server| retain(server.clone()));
        match select_all(retaining.map(Box::pin)).await.0 {}
    }

    pub(crate) fn access(&self) -> &ServerAccess {
        &self.0.access
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = &Server> {
        self.0.configs.iter().map(|config| &config.server)
    }

    /// Reports a refused webhook to the operator, unless others were a moment ago.
    pub(crate) fn report_hook(&self, channel: Option<&ChannelId>, code: &str) {
        if let Some(count) = self.0.hook_reports.due(Instant::now()) {
            self.0.operator.hooks_refused(channel, code, count);
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
                self.access().entrance().report_unusable(&error);
            }
        }
    }

    /// The server that answers a request without a session: the one at whose provider the browser
    /// logs in, or any, because the other paths are the same at each.
    fn of_stranger(&self, head: &Parts, chosen: Option<&str>) -> &RoutedServer {
        let configs = &self.0.configs;
        let path = head.uri.path();
        let logs_in = |config: &&RoutedServer| match path {
            BEGIN => config.server.access().people().provider_name().is_some(),
            #[cfg(feature = "oidc")]
            CALLBACK => {
                let state = query_value(&head.uri, "state");
                config.server.access().has_begun(&head.headers, state.as_deref())
            }
            _ => false,
        };
        let is_chosen = |config: &&RoutedServer| chosen == Some(config.server.name());
        // A log-in needs a provider, and says of no other config whether it exists.
        let mut by_name = configs.iter().filter(|config| !is_login(path) || logs_in(config));
        let by_name = by_name.find(is_chosen);
        by_name.or_else(|| configs.iter().find(logs_in)).unwrap_or(&configs[0])
    }

    /// Chooses the server that answers a request, and notes in it who asks. `sessions` are those at
    /// each config.
    async fn direct(
        &self,
        head: &mut Parts,
        sessions: Vec<Option<Session>>,
    ) -> Result<&RoutedServer, Failure> {
        let configs = &self.0.configs;
        let pairs = configs.iter().zip(sessions);
        let visible = pairs.filter_map(|(config, session)| {
            Some(VisibleConfig { server: config.server.clone(), session: session? })
        });
        let visible = VisibleConfigs::new(visible.collect());
        let chosen = config_of(&head.uri);
        // A signature counts, and no session beside it.
        let is_stranger = is_login(head.uri.path()) || is_hook(head.uri.path());
        let first = visible.iter().next().filter(|_| !is_stranger);
        let Some(first) = first else {
            return Ok(self.of_stranger(head, chosen.as_deref()));
        };
        let path = head.uri.path();
        let is_list = is_open(path) || LISTS.contains(&path);
        let (of_request, answers) = match chosen {
            Some(name) => {
                let only = visible.choose(Some(&name))?.clone();
                (VisibleConfigs::new(vec![only.clone()]), Some(only))
            }
            None if visible.names().is_empty() => (visible.clone(), Some(first.clone())),
            None => {
                let answers = match run_of(path) {
                    _ if is_list => None,
                    // To somebody who may not read a run, it is one that does not exist.
                    Some(run) => Some(visible.of_run(&run).await?.clone()),
                    None => return Err(config_required(&visible.names())),
                };
                (visible.clone(), answers)
            }
        };
        let config = answers.as_ref().map(|config| Arc::from(config.server.name()));
        let VisibleConfig { server, session } = answers.unwrap_or_else(|| first.clone());
        head.extensions.insert(session.among(visible.roles().into(), config));
        head.extensions.insert(of_request);
        let is_chosen = |config: &&RoutedServer| config.server.name() == server.name();
        configs.iter().find(is_chosen).ok_or_else(|| config_not_found(&visible.names()))
    }
}

/// Whether a path is of a log-in at a provider, which can begin beside a session at another config.
fn is_login(path: &str) -> bool {
    #[cfg(feature = "oidc")]
    if path == CALLBACK {
        return true;
    }
    path == BEGIN
}

/// The config that the query of an address names; `None` if it names none.
pub(crate) fn config_of(uri: &Uri) -> Option<String> {
    query_value(uri, CONFIG)
}

fn query_value(uri: &Uri, field: &str) -> Option<String> {
    let fields = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let mut values = fields.filter(|(name, value)| name == field && !value.is_empty());
    values.next().map(|(_, value)| value.into_owned())
}

/// The run or the conversation that a path names.
fn run_of(path: &str) -> Option<String> {
    let rest = OF_RUN.iter().find_map(|begin| path.strip_prefix(begin))?;
    let segment = rest.split('/').next().unwrap_or_default();
    // The decoding of a query is that of a path but for the sign of a blank.
    let query = format!("run={}", segment.replace('+', "%2B").replace('&', "%26"));
    let run = url::form_urlencoded::parse(query.as_bytes()).next();
    run.map(|(_, run)| run.into_owned())
}

/// Refuses requests without access, lets the server of their config answer the others, and adds the
/// headers of every response.
async fn answer(State(gateway): State<Gateway>, request: Request) -> Response {
    let (mut head, body) = request.into_parts();
    let (path, has_session, directed) = {
        let path = head.uri.path().to_owned();
        match gateway.access().admit(&mut head).await {
            Err(failure) => (path, false, Err(failure)),
            Ok(sessions) => {
                let has_session = sessions.iter().any(Option::is_some);
                (path, has_session, gateway.direct(&mut head, sessions).await)
            }
        }
    };
    let surface = Surface::of(&path);
    let mut answered = AnsweredRequest {
        id: RandomIds.run().to_string(),
        method: head.method.to_string(),
        path: path.clone(),
        status: 0,
        took: Duration::ZERO,
        principal: None,
        config: None,
    };
    let began = Instant::now();
    let mut response = match directed {
        Ok(config) => {
            let session = head.extensions.get::<Session>();
            answered.principal = session.map(|session| session.identity.principal.clone());
            answered.config = config.server.config_name().map(str::to_owned);
            head.extensions.insert(gateway.clone());
            let request = gateway.0.requests.begin(&head);
            let answer = config.routes.call(Request::from_parts(head, body));
            let answer = in_a_task(async move {
                let answer = answer.await;
                drop(request);
                answer
            });
            answer.await.unwrap_or_else(|failure| surface.refuse(failure, None))
        }
        Err(failure) => {
            let provider = gateway.access().provider_name();
            let login =
                LoginForm { page: &path, provider: provider.as_deref(), was_refused: false };
            surface.refuse(failure, Some(&login))
        }
    };
    (answered.status, answered.took) = (response.status().as_u16(), began.elapsed());
    gateway.0.operator.answered(&answered);
    if let Ok(id) = HeaderValue::from_str(&answered.id) {
        response.headers_mut().insert(HeaderName::from_static("x-request-id"), id);
    }
    if !has_session {
        // A client without a session gets one answer for each connection.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    for (name, value) in gateway.access().entrance().headers() {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Answers a request in a task of its own.
async fn in_a_task<E: Send + 'static>(
    answer: impl Future<Output = Result<Response<Body>, E>> + Send + 'static,
) -> Result<Response, Failure> {
    // A client that leaves ends its connection, which drops the future of the request at any of its
    // awaits; a change must not end half-way.
    match tokio::spawn(answer).await {
        Ok(Ok(response)) => Ok(response),
        _ => Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", FAILED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_run_and_a_query_its_config() {
        for (path, run) in [
            ("/runs/a%2Eb/changes", Some("a.b")),
            ("/runs/a+b", Some("a+b")),
            ("/api/v1/runs/7f", Some("7f")),
            ("/api/conversations/serve-1.2/events", Some("serve-1.2")),
            ("/runs", None),
            ("/api/conversations", None),
            ("/inbox", None),
        ] {
            assert_eq!(run_of(path).as_deref(), run, "{path}");
        }
        let of = |uri: &str| config_of(&uri.parse().unwrap());
        assert_eq!(of("/runs?status=done&config=desk").as_deref(), Some("desk"));
        assert_eq!((of("/runs"), of("/runs?config=")), (None, None));
    }
}

//! The way out of a confined server: a proxy in the server's own network, behind which this host
//! looks names up and connects. It decides by the functions that decide about requests of
//! components. `CONNECT` makes a tunnel, whose bytes nobody reads; other requests are plain HTTP. One
//! connection carries one request, so none can follow to another host.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use conclave_core::permissions::fetch::{check_body, is_own_header, target};
use conclave_core::permissions::grants::FetchGrant;
use conclave_core::permissions::secret::RequestParts;
use conclave_core::types::capability::Capability;
use conclave_core::types::denial::{DenialRecord, Layer};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use url::{Host, Url};

use super::confined::{Refusals, ServerRights};
use crate::imports::exec::OnListener;
use crate::imports::fetch::send;
use crate::imports::outgoing::{FetchClient, Unreached, checked_addresses};

/// Connections of a server at once. More of them wait.
const CONNECTIONS: usize = 64;
/// The time for a connection of a tunnel.
const CONNECT: Duration = Duration::from_secs(10);

/// The proxy of a server, which ends when this is dropped.
pub(super) struct ProxyTask(Arc<Mutex<Option<AbortHandle>>>);

impl Drop for ProxyTask {
    fn drop(&mut self) {
        if let Some(task) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

/// Returns a proxy that begins when the listener of the server's network is there.
pub(super) fn prepare(rights: ServerRights, refusals: &Refusals) -> (ProxyTask, OnListener) {
    let proxy = Arc::new(ServerProxy {
        outgoing: FetchClient::new(&rights.grants),
        rights,
        requests: AtomicU64::new(0),
        names: Mutex::default(),
        refusals: refusals.clone(),
    });
    let (task, runtime) = (Arc::new(Mutex::new(None)), Handle::current());
    let slot = Arc::clone(&task);
    let on_listener = Box::new(move |listener: TcpListener| {
        let serving = runtime.spawn(async move { proxy.serve(listener).await });
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(serving.abort_handle());
    });
    (ProxyTask(task), on_listener)
}

struct ServerProxy {
    rights: ServerRights,
    outgoing: FetchClient,
    /// Requests since the start of the server.
    requests: AtomicU64,
    /// Names that were looked up.
    names: Mutex<BTreeSet<String>>,
    refusals: Refusals,
}

/// Why a request is not sent.
enum ProxyRefusal {
    /// It is no request that a proxy takes.
    Invalid(String),
    Denied(Box<DenialRecord>),
    Unavailable(&'static str),
}

impl From<Box<DenialRecord>> for ProxyRefusal {
    fn from(record: Box<DenialRecord>) -> Self {
        Self::Denied(record)
    }
}

impl From<Unreached> for ProxyRefusal {
    fn from(unreached: Unreached) -> Self {
        match unreached {
            Unreached::NoAddress => Self::Unavailable("its name stands for no address"),
            Unreached::Refused(record) => Self::Denied(record),
        }
    }
}

/// A tunnel that begins when its connection is free of HTTP.
struct Tunnel {
    client: OnUpgrade,
    server: TcpStream,
}

type Answer = Response<Full<Bytes>>;

impl ServerProxy {
    /// Serves until the task is aborted.
    async fn serve(self: Arc<Self>, listener: TcpListener) {
        let listener = listener
            .set_nonblocking(true)
            .and_then(|()| tokio::net::TcpListener::from_std(listener));
        let Ok(listener) = listener else { return };
        let free = Arc::new(Semaphore::new(CONNECTIONS));
        // Dropped with this task, so that no connection outlives the server.
        let mut connections = JoinSet::new();
        loop {
            let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
            let Ok((connection, _)) = listener.accept().await else { continue };
            while connections.try_join_next().is_some() {}
            let proxy = Arc::clone(&self);
            connections.spawn(async move {
                proxy.serve_connection(connection).await;
                drop(permit);
            });
        }
    }

    async fn serve_connection(&self, connection: TcpStream) {
        let tunnel = Mutex::new(None);
        let slot = &tunnel;
        let service = service_fn(move |request: Request<Incoming>| async move {
            let answered = if request.method() == Method::CONNECT {
                self.open_tunnel(request).await.map(|opened| {
                    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
                    Answer::default()
                })
            } else {
                self.forward(request).await
            };
            Ok::<_, Infallible>(answered.unwrap_or_else(|refusal| self.refused(refusal)))
        });
        let mut http = Builder::new();
        http.keep_alive(false);
        let served = http.serve_connection(TokioIo::new(connection), service).with_upgrades();
        if served.await.is_err() {
            return;
        }
        let tunnel = tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Tunnel { client, mut server }) = tunnel else { return };
        if let Ok(client) = client.await {
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut server).await;
        }
    }

    fn grant(&self) -> Option<&FetchGrant> {
        self.rights.grants.fetch.as_ref()
    }

    /// Opens a tunnel to `HOST:PORT`.
    async fn open_tunnel(&self, request: Request<Incoming>) -> Result<Tunnel, ProxyRefusal> {
        let authority = request.uri().authority().filter(|authority| authority.port().is_some());
        let authority = authority
            .ok_or_else(|| ProxyRefusal::Invalid("CONNECT needs a host and a port".to_owned()))?;
        let url = parsed(&format!("https://{authority}/"))?;
        self.rights.rights().may_tunnel(&url)?;
        let addresses = self.reach(&url).await?;
        let port = url.port_or_known_default().unwrap_or(443);
        let stream = timeout(CONNECT, connect(&addresses, port)).await.ok().flatten();
        let server = stream.ok_or(ProxyRefusal::Unavailable("no connection could be made"))?;
        Ok(Tunnel { client: hyper::upgrade::on(request), server })
    }

    /// Sends a request of plain HTTP, and returns the whole response.
    async fn forward(&self, request: Request<Incoming>) -> Result<Answer, ProxyRefusal> {
        let (head, body) = request.into_parts();
        if head.uri.scheme_str() != Some("http") {
            let what = "a proxy takes `http://` addresses, and CONNECT for others";
            return Err(ProxyRefusal::Invalid(what.to_owned()));
        }
        let url = parsed(&head.uri.to_string())?;
        let mut headers = Vec::new();
        for (name, value) in &head.headers {
            if is_own_header(name.as_str()) || name.as_str().starts_with("proxy-") {
                continue;
            }
            let text = value
                .to_str()
                .map_err(|_| ProxyRefusal::Invalid(format!("the header `{name}` is no text")))?;
            headers.push((name.as_str().to_owned(), text.to_owned()));
        }
        let method = head.method.as_str().to_owned();
        let names = headers.iter().map(|(name, _)| name.as_str());
        self.rights.rights().may_fetch(&method, &url, names)?;
        let Some(grant) = self.grant() else {
            return Err(ProxyRefusal::Unavailable("nothing is granted"));
        };
        let most = usize::try_from(grant.request_bytes).unwrap_or(usize::MAX);
        // Taken before the body, which is held until the answer is there.
        let _turn = self.outgoing.turn().await;
        let time = Duration::from_millis(grant.time_ms);
        let body = timeout(time, Limited::new(body, most).collect()).await;
        let body = body.map_err(|_| ProxyRefusal::from(self.limit(&url, "timeout")))?;
        let body = body.map_err(|_| self.limit(&url, "request_size"))?.to_bytes();
        check_body(&method, &body).map_err(|error| ProxyRefusal::Invalid(error.to_string()))?;
        let addresses = self.reach(&url).await?;
        let body = (!body.is_empty()).then(|| body.to_vec());
        let parts = RequestParts { method, url: url.clone(), headers, body };
        let sent = send(parts, &addresses, grant.response_bytes);
        let sent = timeout(time, sent).await;
        let raw = sent.map_err(|_| ProxyRefusal::from(self.limit(&url, "timeout")))?;
        let raw = raw.map_err(|_| ProxyRefusal::Unavailable("the address gave no answer"))?;
        let mut answer = Response::new(Full::new(Bytes::from(raw.body)));
        *answer.status_mut() = StatusCode::from_u16(raw.status).unwrap_or(StatusCode::BAD_GATEWAY);
        for (name, value) in raw.headers.iter().filter(|(name, _)| !is_own_header(name)) {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
                answer.headers_mut().append(name, value);
            }
        }
        Ok(answer)
    }

    /// Counts a request, and returns the addresses that it may connect to.
    async fn reach(&self, url: &Url) -> Result<Vec<IpAddr>, ProxyRefusal> {
        let Some(grant) = self.grant() else {
            return Err(ProxyRefusal::Unavailable("nothing is granted"));
        };
        if self.requests.fetch_add(1, Ordering::Relaxed) >= grant.requests {
            return Err(self.limit(url, "requests").into());
        }
        if let Some(Host::Domain(name)) = url.host() {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            let most = usize::try_from(grant.names).unwrap_or(usize::MAX);
            if !names.contains(name) && names.len() >= most {
                return Err(self.limit(url, "host_names").into());
            }
            names.insert(name.to_owned());
        }
        let rights = self.rights.rights();
        Ok(checked_addresses(&*self.outgoing.resolver, &rights, url).await?)
    }

    /// The refusal at a limit of the grant.
    fn limit(&self, url: &Url, key: &str) -> Box<DenialRecord> {
        let rights = self.rights.rights();
        let reason =
            format!("the limit `{key}` of plugins.{}.grants.fetch is reached", rights.plugin);
        rights.refuse(Capability::Fetch, url.as_str(), Layer::Runtime, &reason, None)
    }

    /// Tells the server, and remembers for the operator.
    fn refused(&self, refusal: ProxyRefusal) -> Answer {
        let (status, text) = match refusal {
            ProxyRefusal::Invalid(what) => (StatusCode::BAD_REQUEST, what),
            ProxyRefusal::Unavailable(what) => (StatusCode::BAD_GATEWAY, what.to_owned()),
            ProxyRefusal::Denied(record) => {
                self.refusals.add(&record);
                (StatusCode::FORBIDDEN, record.denial.to_text())
            }
        };
        let mut answer = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
        *answer.status_mut() = status;
        answer
    }
}

fn parsed(url: &str) -> Result<Url, ProxyRefusal> {
    target(url).map_err(|error| ProxyRefusal::Invalid(error.to_string()))
}

/// Connects to the first address that answers.
async fn connect(addresses: &[IpAddr], port: u16) -> Option<TcpStream> {
    for address in addresses {
        if let Ok(stream) = TcpStream::connect(SocketAddr::new(*address, port)).await {
            return Some(stream);
        }
    }
    None
}

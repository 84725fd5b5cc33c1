//! One request over one connection to checked addresses, without proxies, redirects, cookies or
//! retries. The response is decompressed as it arrives, and fails above its limit. Errors omit the
//! library's text, which contains addresses.
//!
//! The task that awaits the response also drives the connection, so cancelling it closes the
//! connection.

use std::error::Error;
use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conclave_core::permissions::secret::RequestParts;
use conclave_models::http::shared_tls;
use http::header::{ACCEPT, HOST, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tower::{ServiceExt, service_fn};
use tower_http::decompression::{Decompression, DecompressionBody};
use url::{Host, Position, Url};

use super::interim::{Interim, Wire};

/// Maximum number of headers in a response.
const HEADERS: usize = 100;
const AGENT: &str = concat!("conclave/", env!("CARGO_PKG_VERSION"));

/// A received response, decompressed.
pub(crate) struct Raw {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(super) address: Option<SocketAddr>,
}

/// Why there is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionError {
    /// Interim responses, headers and body together exceed the limit.
    TooLong,
    /// The reason, for an error message.
    NotSent(&'static str),
    NoAnswer(&'static str),
}

/// The time for a connection. After it nothing was sent, which no longer limit could say.
const CONNECT: Duration = Duration::from_secs(10);

const UNBUILT: ConnectionError = ConnectionError::NotSent("it could not be put together");
const UNCONNECTED: ConnectionError =
    ConnectionError::NoAnswer("no connection could be made, or none that is secure");
const CUT_OFF: ConnectionError =
    ConnectionError::NoAnswer("the connection ended before the answer did");

impl ConnectionError {
    /// Whether nothing was sent because there was no connection.
    pub(crate) fn is_unconnected(self) -> bool {
        self == UNCONNECTED
    }
}

/// Sends a request to one of these addresses. `limit` bounds the bytes of interim responses,
/// headers and decompressed body together.
pub(crate) async fn send(
    parts: RequestParts,
    addresses: &[IpAddr],
    limit: u64,
) -> Result<Raw, ConnectionError> {
    let url = parts.url.clone();
    let interim = Arc::new(Interim::new(limit));
    let request = request(parts, &interim)?;
    let connecting = timeout(CONNECT, connect(&url, addresses)).await;
    let stream = connecting.unwrap_or(Err(UNCONNECTED))?;
    let address = stream.peer_addr().ok();
    // The connector only knows these addresses. Should it ever connect elsewhere, nothing is sent.
    if !address.is_some_and(|address| addresses.contains(&address.ip())) {
        return Err(ConnectionError::NoAnswer("the connection went elsewhere than it should"));
    }
    let raw = match url.scheme() {
        "https" => exchange(secure(stream, &url).await?, request, &interim).await?,
        _ => exchange(stream, request, &interim).await?,
    };
    Ok(Raw { address, ..raw })
}

/// Connects with a resolver that only returns the checked addresses. The connector tries them like
/// a browser does (Happy Eyeballs).
async fn connect(url: &Url, addresses: &[IpAddr]) -> Result<TcpStream, ConnectionError> {
    let known: Vec<SocketAddr> =
        addresses.iter().map(|address| SocketAddr::new(*address, 0)).collect();
    let resolver = service_fn(move |_: Name| ready(Ok::<_, io::Error>(known.clone().into_iter())));
    let mut connector = HttpConnector::new_with_resolver(resolver);
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let uri: Uri = url.as_str().parse().map_err(|_| UNBUILT)?;
    Ok(connector.oneshot(uri).await.map_err(|_| UNCONNECTED)?.into_inner())
}

async fn secure(stream: TcpStream, url: &Url) -> Result<TlsStream<TcpStream>, ConnectionError> {
    let mut config = shared_tls(true).map_err(|_| {
        ConnectionError::NotSent(
            "this machine has no certificates to check a secure connection with",
        )
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = match url.host() {
        Some(Host::Domain(name)) => {
            ServerName::try_from(name.to_owned()).map_err(|_| UNCONNECTED)?
        }
        Some(Host::Ipv4(address)) => ServerName::from(IpAddr::from(address)),
        Some(Host::Ipv6(address)) => ServerName::from(IpAddr::from(address)),
        None => return Err(UNCONNECTED),
    };
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|_| UNCONNECTED)
}

fn request(
    parts: RequestParts,
    interim: &Arc<Interim>,
) -> Result<Request<Full<Bytes>>, ConnectionError> {
    let unsent = |_| ConnectionError::NotSent("a header cannot be sent");
    let mut request = Request::new(Full::new(Bytes::from(parts.body.unwrap_or_default())));
    *request.method_mut() =
        parts.method.parse().map_err(|_| ConnectionError::NotSent("its method cannot be sent"))?;
    *request.uri_mut() =
        parts.url[Position::BeforePath..Position::AfterQuery].parse().map_err(|_| UNBUILT)?;
    let host = &parts.url[Position::BeforeHost..Position::AfterPort];
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_str(host).map_err(unsent)?);
    for (name, value) in parts.headers {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| ConnectionError::NotSent("a header cannot be sent"))?;
        let mut value = HeaderValue::from_str(&value).map_err(unsent)?;
        // Any header may hold a secret; sensitive values are not printed.
        value.set_sensitive(true);
        headers.append(name, value);
    }
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    let interim = Arc::clone(interim);
    hyper::ext::on_informational(&mut request, move |answer| {
        let bytes = answer.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
        interim.arrived(bytes.sum::<usize>() as u64);
    });
    Ok(request)
}

/// Sends a request over a connection of its own.
async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    interim: &Arc<Interim>,
) -> Result<Raw, ConnectionError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let wire = TokioIo::new(Wire::new(stream, Arc::clone(interim)));
    let (sender, connection) =
        Builder::new().max_headers(HEADERS).handshake(wire).await.map_err(|_| CUT_OFF)?;
    let mut answer = pin!(answer(sender, request, interim));
    tokio::select! {
        answer = &mut answer => return answer,
        // The answer future reports why the connection ended.
        _ = connection => {}
    }
    answer.await
}

async fn answer(
    mut sender: SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    interim: &Interim,
) -> Result<Raw, ConnectionError> {
    let sending = service_fn(move |request| sender.send_request(request));
    let decompressed = Decompression::new(sending).gzip(true).br(true).deflate(true);
    let response =
        decompressed.oneshot(request).await.map_err(|_| interim.trouble().unwrap_or(CUT_OFF))?;
    // Interim responses may have arrived together with the final one.
    if let Some(trouble) = interim.trouble() {
        return Err(trouble);
    }
    read(response, interim.remaining().ok_or(ConnectionError::TooLong)?).await
}

async fn read(
    response: Response<DecompressionBody<Incoming>>,
    limit: u64,
) -> Result<Raw, ConnectionError> {
    let (head, body) = response.into_parts();
    let text = |value: &HeaderValue| {
        value.as_bytes().iter().map(|byte| char::from(*byte)).collect::<String>()
    };
    let headers: Vec<_> =
        head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    let length: u64 = headers.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum();
    let mut remaining = limit.checked_sub(length).ok_or(ConnectionError::TooLong)?;
    let mut bytes = Vec::new();
    let mut body = pin!(body);
    while let Some(frame) = body.frame().await {
        // Trailers are dropped.
        let Ok(chunk) = frame.map_err(|error| unread(&*error))?.into_data() else { continue };
        remaining = remaining.checked_sub(chunk.len() as u64).ok_or(ConnectionError::TooLong)?;
        bytes.extend_from_slice(&chunk);
    }
    Ok(Raw { status: head.status.as_u16(), headers, body: bytes, address: None })
}

/// Returns why the body ended early: a broken connection, or invalid compression.
fn unread(error: &(dyn Error + Send + Sync + 'static)) -> ConnectionError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<hyper::Error>() {
            return CUT_OFF;
        }
        cause = error.source();
    }
    ConnectionError::NoAnswer("the answer cannot be decompressed")
}

#[cfg(test)]
mod tests;

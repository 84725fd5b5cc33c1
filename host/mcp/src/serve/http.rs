//! Streamable HTTP for clients of this machine. Every client is served the same tools, and a browser
//! only from a page of this server's own address: any page can send requests to a port of this
//! machine, under a name that leads here.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::desk::Desk;
use super::handler::Handler;
use super::{GRACE, MESSAGE_MAX, ServeError, Service};

/// The usual path of the endpoint. The others lead there too, because there is nothing else.
pub const ENDPOINT: &str = "/mcp";
/// Maximum open connections; further ones wait.
const CONNECTIONS: usize = 256;
/// The time in which the head of a request has to arrive. Also that of an idle connection.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// The pause after a failed accept: without file descriptors, the next one fails as well.
const PAUSE: Duration = Duration::from_millis(100);

/// Stops the calls of all clients when the serving ends, whether or not it is awaited to its end.
struct Serving(Arc<Desk>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.stop_calls();
    }
}

/// Serves any number of clients until `stopped`, and then the calls in progress to their end.
///
/// # Errors
/// `Offer` as in [`names`](super::names); `Listening` if the listener has no address of this machine
/// alone.
pub async fn serve_http(
    service: Service,
    listener: TcpListener,
    stopped: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address =
        listener.local_addr().map_err(|error| ServeError::Listening(error.to_string()))?;
    if !address.ip().is_loopback() {
        return Err(ServeError::Listening(format!("{address} is not an address of loopback")));
    }
    let desk = Arc::new(Desk::new(service)?);
    let serving = Serving(Arc::clone(&desk));
    let endpoint = endpoint(&desk, address);
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let mut open = JoinSet::new();
    tokio::pin!(stopped);
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&permits).acquire_owned() => permit,
            () = &mut stopped => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stopped => break,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let endpoint = endpoint.clone();
        open.spawn(async move {
            let _permit = permit;
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
            let answer = service_fn(move |request: Request<Incoming>| {
                let endpoint = endpoint.clone();
                async move { Ok::<_, Infallible>(endpoint.handle(request).await) }
            });
            // A client that breaks off is no failure of the server.
            drop(http.serve_connection(TokioIo::new(stream), answer).await);
        });
        while open.try_join_next().is_some() {}
    }
    drop(serving);
    desk.close(GRACE).await;
    Ok(())
}

fn endpoint(
    desk: &Arc<Desk>,
    address: SocketAddr,
) -> StreamableHttpService<Handler, LocalSessionManager> {
    let names = authorities(address);
    let origins: Vec<String> = names.iter().map(|name| format!("http://{name}")).collect();
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(names)
        .with_allowed_origins(origins)
        .with_max_request_body_bytes(MESSAGE_MAX);
    let desk = Arc::clone(desk);
    let handler = move || Ok(Handler::new(Arc::clone(&desk)));
    StreamableHttpService::new(handler, Arc::default(), config)
}

/// The names under which clients of this machine reach the address.
fn authorities(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    let loopback: [SocketAddr; 2] =
        [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()];
    let mut names = vec![format!("localhost:{port}"), address.to_string()];
    names.extend(loopback.map(|address| address.to_string()));
    names
}

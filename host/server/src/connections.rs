//! The connections of the server. Their number, the time of each request and that of each write are
//! limited, so that slow, absent or many clients cannot use up the program. Clients without a
//! session take no place of those with one.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Extensions, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Sleep;

use crate::http::STREAMS;
use crate::tls::ServerTls;

/// Connections with a session at once: event streams leave some for requests.
const SESSIONS: usize = STREAMS + 256;
/// Connections without a session at once. One more takes the place of the oldest.
const STRANGERS: usize = 256;
/// The time in which the head of a request has to arrive. Also that of an idle connection.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The time in which a client has to read some bytes of a response. Comments keep an event stream
/// busy, and a browser that was away connects again.
const WRITE_TIME: Duration = Duration::from_secs(10);
/// Bytes of the head of a request.
const HEAD: usize = 16 << 10;
/// The pause after a failed accept: without file descriptors, the next one fails as well.
const PAUSE: Duration = Duration::from_millis(100);

/// The time after which connections that are still busy are given up when the server stops.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves connections until `stopping` is true, and then those that are busy to their end.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<ServerTls>>,
    mut stopping: watch::Receiver<bool>,
) {
    let admission = Arc::<Admission>::default();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD);
    let router = TowerToHyperService::new(router);
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => break,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let connection = admission.admit(peer.ip());
        let service = {
            let (connection, router) = (Arc::clone(&connection), router.clone());
            service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(Arc::clone(&connection));
                router.call(request)
            })
        };
        let (http, stopping) = (http.clone(), stopping.clone());
        let acceptor = tls.as_ref().map(|tls| tls.acceptor());
        open.spawn(async move {
            let serving = async {
                match acceptor {
                    None => serve_stream(&http, stream, service, stopping).await,
                    Some(acceptor) => {
                        let handshake = tokio::time::timeout(HEAD_TIME, acceptor.accept(stream));
                        if let Ok(Ok(stream)) = handshake.await {
                            serve_stream(&http, stream, service, stopping).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = serving => {}
                () = connection.displaced.notified() => {}
            }
            connection.end();
        });
        while open.try_join_next().is_some() {}
    }
    // Clients that connect now are refused at once, and try another server or later again.
    drop(listener);
    let _ = tokio::time::timeout(DRAIN, async { while open.join_next().await.is_some() {} }).await;
}

/// Returns when the server stops.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // The sender is dropped with the server.
    let _ = stopping.wait_for(|stops| *stops).await;
}

/// Serves a connection until it ends, or the server stops and its request is answered.
async fn serve_stream<S, H>(
    http: &http1::Builder,
    stream: S,
    service: H,
    mut stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    H: HttpService<Incoming, ResBody = Body>,
    H::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = TokioIo::new(TimedWrites::new(stream, WRITE_TIME));
    let mut served = std::pin::pin!(http.serve_connection(stream, service));
    // A client that breaks off or sends no HTTP ends its own connection only.
    tokio::select! {
        _ = &mut served => {}
        () = stopped(&mut stopping) => {
            served.as_mut().graceful_shutdown();
            let _ = served.await;
        }
    }
}

/// Admits connections, and ends the oldest of those without a session.
#[derive(Default)]
struct Admission(Mutex<OpenConnections>);

#[derive(Default)]
struct OpenConnections {
    /// Those without a session, the oldest first.
    strangers: VecDeque<Arc<Connection>>,
    /// The number of those with one.
    sessions: usize,
}

/// A connection. It is a stranger's until a request on it has a session.
pub(crate) struct Connection {
    admission: Arc<Admission>,
    peer: IpAddr,
    has_session: AtomicBool,
    displaced: Notify,
}

impl Admission {
    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection, in the place of the oldest stranger if there are too many.
    fn admit(self: &Arc<Self>, peer: IpAddr) -> Arc<Connection> {
        let connection = Arc::new(Connection {
            admission: Arc::clone(self),
            peer,
            has_session: AtomicBool::new(false),
            displaced: Notify::new(),
        });
        let mut open = self.open();
        if open.strangers.len() >= STRANGERS
            && let Some(oldest) = open.strangers.pop_front()
        {
            oldest.displaced.notify_one();
        }
        open.strangers.push_back(Arc::clone(&connection));
        connection
    }
}

/// The address of the other side of a request's connection.
pub(crate) fn peer_of(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<Arc<Connection>>().map(|connection| connection.peer())
}

impl Connection {
    /// The address of the other side.
    pub(crate) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Marks the connection as one with a session. Returns false if there are too many of them.
    pub(crate) fn recognize(self: &Arc<Self>) -> bool {
        let mut open = self.admission.open();
        // A connection carries many requests, and counts once.
        if self.has_session.load(Ordering::Relaxed) {
            return true;
        }
        if open.sessions >= SESSIONS {
            return false;
        }
        open.sessions += 1;
        open.strangers.retain(|other| !Arc::ptr_eq(other, self));
        self.has_session.store(true, Ordering::Relaxed);
        true
    }

    fn end(self: &Arc<Self>) {
        let mut open = self.admission.open();
        if self.has_session.load(Ordering::Relaxed) {
            open.sessions -= 1;
        } else {
            open.strangers.retain(|other| !Arc::ptr_eq(other, self));
        }
    }
}

/// A stream whose writes fail if the other side takes nothing for a while.
struct TimedWrites<S> {
    inner: S,
    time: Duration,
    /// The end of the time for the write that waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedWrites<S> {
    fn new(inner: S, time: Duration) -> Self {
        Self { inner, time, deadline: None }
    }

    fn in_time<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        // Any progress renews the time: a slow reader may stay, an absent one may not.
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let time = self.time;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedWrites<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedWrites<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.in_time(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, parts);
        self.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.in_time(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.inner).poll_shutdown(context);
        self.in_time(context, closed)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn is_displaced(connection: &Connection) -> bool {
        let mut displaced = std::pin::pin!(connection.displaced.notified());
        let mut context = Context::from_waker(std::task::Waker::noop());
        displaced.as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn strangers_displace_the_oldest_of_them_and_no_session() {
        let admission = Arc::<Admission>::default();
        let browser = admission.admit(Ipv4Addr::LOCALHOST.into());
        assert!(browser.recognize() && browser.recognize());
        let strangers: Vec<_> =
            (0..STRANGERS).map(|_| admission.admit(Ipv4Addr::LOCALHOST.into())).collect();
        assert!(strangers.iter().all(|stranger| !is_displaced(stranger)));
        let newest = admission.admit(Ipv4Addr::LOCALHOST.into());
        assert!(is_displaced(&strangers[0]) && !is_displaced(&strangers[1]));
        assert!(!is_displaced(&browser) && !is_displaced(&newest));
        assert!(newest.recognize(), "a place for a session is free");
        let sessions: Vec<_> =
            (2..SESSIONS).map(|_| admission.admit(Ipv4Addr::LOCALHOST.into())).collect();
        assert!(sessions.iter().all(Connection::recognize));
        let late = admission.admit(Ipv4Addr::LOCALHOST.into());
        assert!(!late.recognize());
        browser.end();
        assert!(late.recognize());
        let open = admission.open();
        assert!((open.sessions, open.strangers.len()) <= (SESSIONS, STRANGERS));
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_loses_its_connection() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = TimedWrites::new(near, Duration::ZERO);
        near.write_all(b"12345678").await.expect("there is space");
        let failed = near.write_all(b"more").await.expect_err("nothing was taken");
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        drop(near);
        let mut text = String::new();
        far.read_to_string(&mut text).await.expect("it was sent before");
        assert_eq!(text, "12345678");
    }

    #[tokio::test]
    async fn the_time_of_a_write_begins_anew_with_each_that_was_taken() {
        let (near, mut far) = tokio::io::duplex(1);
        let mut near = TimedWrites::new(near, Duration::MAX);
        for byte in *b"abc" {
            near.write_all(&[byte]).await.expect("there is space");
            let mut waiting = std::pin::pin!(near.write_all(b"-"));
            let mut context = Context::from_waker(std::task::Waker::noop());
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            assert_eq!(far.read_u8().await.expect("it was sent"), byte);
            waiting.await.expect("it is taken");
            assert!(near.deadline.is_none());
            assert_eq!(far.read_u8().await.expect("it was sent"), b'-');
        }
    }
}

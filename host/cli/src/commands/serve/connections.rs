//! The connections of the server. Their number and the time of each request are limited, so that
//! slow or many clients cannot use up the program.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::http::STREAMS;

/// Connections at once: an event stream leaves one for requests.
const CONNECTIONS: usize = 2 * STREAMS;
/// The time in which the head of a request has to arrive. Also that of an idle connection.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Bytes of the head of a request.
const HEAD: usize = 16 << 10;
/// The pause after a failed accept: without file descriptors, the next one fails as well.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves connections until the future is dropped.
pub(super) async fn serve(listener: TcpListener, router: Router) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD);
    let service = TowerToHyperService::new(router);
    loop {
        // The semaphore is never closed. Other clients wait in the queue of the system.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let connection = http.serve_connection(TokioIo::new(stream), service.clone());
        tokio::spawn(async move {
            // A client that breaks off or sends no HTTP ends its own connection only.
            let _ = connection.await;
            drop(permit);
        });
    }
}

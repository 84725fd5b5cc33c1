//! Limits for interim responses such as `100 Continue`. They are counted by the parser and bounded
//! where bytes arrive. The HTTP library skips them in a loop that only yields when no bytes are
//! left. A server that never stops sending would block it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::client::ConnectionError;

/// Maximum interim responses of one request.
const ANSWERS: u32 = 16;
/// Bytes of one without its headers: `HTTP/1.1 100 Continue` and the line ends.
const LINE: u64 = 25;

/// The interim responses of one request so far.
#[derive(Debug)]
pub(super) struct Interim {
    count: AtomicU32,
    bytes: AtomicU64,
    limit: u64,
}

impl Interim {
    /// Returns a counter; `limit` bounds all received bytes.
    pub(super) fn new(limit: u64) -> Self {
        Self { count: AtomicU32::new(0), bytes: AtomicU64::new(0), limit }
    }

    /// Counts a response with so many bytes of headers.
    pub(super) fn arrived(&self, headers: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(headers + LINE, Ordering::Relaxed);
    }

    /// The bytes left for the final response; `None` above the limit.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.limit.checked_sub(self.bytes.load(Ordering::Relaxed))
    }

    /// Returns why reading must stop; `None` if it may continue.
    pub(super) fn trouble(&self) -> Option<ConnectionError> {
        if self.remaining().is_none() {
            return Some(ConnectionError::TooLong);
        }
        let is_past = self.count.load(Ordering::Relaxed) > ANSWERS;
        is_past.then_some(ConnectionError::NoAnswer("the server sent more than 16 interim answers"))
    }
}

/// A connection that fails after too many interim responses.
pub(super) struct Wire<S> {
    stream: S,
    interim: Arc<Interim>,
}

impl<S> Wire<S> {
    pub(super) fn new(stream: S, interim: Arc<Interim>) -> Self {
        Self { stream, interim }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.interim.trouble().is_some() {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

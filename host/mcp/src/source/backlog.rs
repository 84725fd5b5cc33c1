//! The answers that a server has not read: it may send requests of its own, such as pings, and each
//! answer waits in memory until the server reads it. Requests and answers are counted while their
//! bytes pass, without parsing them.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncWrite;

/// Requests of a server that may be open at once. The answers to so many take some megabytes.
const OPEN: usize = 4_096;
/// Bytes of a key that are kept; the longest one that counts is shorter.
const KEY: usize = 8;

/// Why a server with too many open requests is cut off.
pub(super) const FLOODED: &str = "it sends requests and does not read their answers";

/// A server's requests whose answers it has not read.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog(Arc<OpenRequests>);

#[derive(Debug, Default)]
struct OpenRequests {
    count: AtomicUsize,
    is_flooded: AtomicBool,
    /// Of a write that waits for the server to read.
    writer: Mutex<Option<Waker>>,
}

impl Backlog {
    /// Counts a request. Returns false if too many are open; a write that waits then fails.
    pub(super) fn open(&self) -> bool {
        let is_room = self.0.count.fetch_add(1, Ordering::Relaxed) < OPEN;
        if !is_room {
            self.0.is_flooded.store(true, Ordering::SeqCst);
            if let Some(writer) = self.writer().take() {
                writer.wake();
            }
        }
        is_room
    }

    /// Whether too many requests were open.
    pub(super) fn is_flooded(&self) -> bool {
        self.0.is_flooded.load(Ordering::SeqCst)
    }

    /// Counts an answer that the server has taken.
    pub(super) fn close(&self) {
        let less = |open: usize| Some(open.saturating_sub(1));
        let _ = self.0.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn writer(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a message is, by the keys of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    Request,
    Answer,
    Other,
}

/// Finds the kind of each message while its bytes pass. The messages of a batch count one by one.
#[derive(Debug, Default)]
pub(super) struct MessageKinds {
    depth: usize,
    /// 1, and 2 within a batch.
    level: usize,
    is_in_text: bool,
    is_escaped: bool,
    /// Whether a text that begins now is a key of the message.
    key_comes: bool,
    /// The key that is being read, as far as it counts.
    key: Option<Vec<u8>>,
    has_method: bool,
    has_id: bool,
    has_answer: bool,
}

impl MessageKinds {
    /// Returns the kind of the message that ends with this byte, if one does.
    pub(super) fn add(&mut self, byte: u8) -> Option<MessageKind> {
        if byte == b'\n' {
            // JSON has no line end within a text.
            *self = Self::default();
        } else if self.is_in_text {
            self.add_to_text(byte);
        } else {
            return self.add_to_structure(byte);
        }
        None
    }

    fn add_to_text(&mut self, byte: u8) {
        if std::mem::take(&mut self.is_escaped) {
            return;
        }
        match byte {
            b'\\' => {
                self.is_escaped = true;
                // No server escapes these keys, so one that does hides a request.
                if self.key.is_some() {
                    (self.has_method, self.has_id) = (true, true);
                }
            }
            b'"' => {
                self.is_in_text = false;
                match self.key.take().as_deref() {
                    Some(b"method") => self.has_method = true,
                    Some(b"id") => self.has_id = true,
                    Some(b"result" | b"error") => self.has_answer = true,
                    _ => {}
                }
            }
            byte => {
                if let Some(key) = &mut self.key
                    && key.len() < KEY
                {
                    key.push(byte);
                }
            }
        }
    }

    fn add_to_structure(&mut self, byte: u8) -> Option<MessageKind> {
        match byte {
            b'"' => {
                self.is_in_text = true;
                self.key = std::mem::take(&mut self.key_comes).then(Vec::new);
            }
            b'{' | b'[' => {
                if self.depth == 0 {
                    self.level = if byte == b'[' { 2 } else { 1 };
                }
                self.depth += 1;
                self.key_comes = byte == b'{' && self.depth == self.level;
            }
            b',' => self.key_comes = self.depth == self.level,
            b'}' | b']' => {
                let ends = byte == b'}' && self.depth == self.level && self.depth > 0;
                self.depth = self.depth.saturating_sub(1);
                return ends.then(|| self.end());
            }
            _ => {}
        }
        None
    }

    fn end(&mut self) -> MessageKind {
        let (method, id, answer) = (self.has_method, self.has_id, self.has_answer);
        (self.has_method, self.has_id, self.has_answer) = (false, false, false);
        match (method && id, answer) {
            (true, _) => MessageKind::Request,
            (false, true) => MessageKind::Answer,
            (false, false) => MessageKind::Other,
        }
    }
}

/// The input of a server. An answer that it has taken is no longer open.
pub(super) struct Answers<W> {
    inner: W,
    kinds: MessageKinds,
    backlog: Backlog,
}

impl<W> Answers<W> {
    pub(super) fn new(inner: W, backlog: Backlog) -> Self {
        Self { inner, kinds: MessageKinds::default(), backlog }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Answers<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        *self.backlog.writer() = Some(context.waker().clone());
        // Behind the waker, so that a flood that is found in between is not missed.
        if self.backlog.is_flooded() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = std::task::ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        for byte in bytes.iter().take(written) {
            if self.kinds.add(*byte) == Some(MessageKind::Answer) {
                self.backlog.close();
            }
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    fn kinds(text: &str) -> Vec<MessageKind> {
        let mut kinds = MessageKinds::default();
        text.bytes().filter_map(|byte| kinds.add(byte)).collect()
    }

    #[test]
    fn messages_are_told_apart_by_their_own_keys() {
        use MessageKind::{Answer, Other, Request};
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, vec![Request]),
            (r#"{ "method" : "ping" , "params":{"a":[1]}, "id" : "x" }"#, vec![Request]),
            (r#"{"method":"notifications/message","params":{"id":1}}"#, vec![Other]),
            (r#"{"id":1,"result":{"method":"x"}}"#, vec![Answer]),
            (r#"{"id":1,"error":{"code":1}}"#, vec![Answer]),
            (r#"{"params":"\"id\":1,\"method\"","jsonrpc":"2.0"}"#, vec![Other]),
            (r#"{"\u0069d":1,"method":"ping"}"#, vec![Request]),
            (r#"[{"id":1,"method":"ping"},{"id":2,"result":1}]"#, vec![Request, Answer]),
            ("{\"id\":1,\n{\"id\":2,\"method\":\"ping\"}", vec![Request]),
            ("}}]{\"method\"", vec![]),
        ] {
            assert_eq!(kinds(text), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_taken_makes_room_for_a_request() {
        let backlog = Backlog::default();
        let mut input = Answers::new(Vec::new(), backlog.clone());
        for _ in 0..OPEN {
            assert!(backlog.open());
        }
        input.write_all(b"{\"id\":1,\"result\":{}}\n{\"id\":2,\"error\":{}}\n").await.unwrap();
        input.write_all(b"{\"id\":3,\"method\":\"tools/call\"}\n").await.unwrap();
        assert!(backlog.open() && backlog.open());
        assert!(!backlog.is_flooded());
        assert!(!backlog.open(), "a request of the host closes none");
        assert!(backlog.is_flooded());
        assert!(input.write_all(b"{}").await.is_err(), "nothing more is sent");
    }
}

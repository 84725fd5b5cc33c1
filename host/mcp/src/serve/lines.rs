//! Checks the lines of a client before the protocol handles them. A line that is too long, not
//! JSON, or a tool call with invalid arguments is answered here. Tools are not known here.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rmcp::model::{ErrorCode, ErrorData, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

/// Maximum queued error answers; further invalid lines are not answered.
const WAITING: usize = 64;
/// Bytes per read.
const CHUNK: usize = 16 << 10;

/// The answer to a refused line.
type Answer = (ErrorData, Option<RequestId>);

/// A transport that answers invalid lines itself.
pub(super) struct Spoken<R: AsyncRead + Unpin, W: AsyncWrite> {
    inner: AsyncRwTransport<RoleServer, Good<R>, W>,
    answers: mpsc::Receiver<Answer>,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Spoken<R, W> {
    /// Returns a transport for lines of at most so many bytes.
    pub(super) fn new(from: R, to: W, most: usize) -> Self {
        let (sender, answers) = mpsc::channel(WAITING);
        let good = Good {
            inner: from,
            most,
            line: Vec::new(),
            is_dropped: false,
            ready: Vec::new(),
            given: 0,
            answers: sender,
        };
        Self {
            inner: AsyncRwTransport::new(good, to).with_max_line_length(most.saturating_add(2)),
            answers,
        }
    }

    /// Writes an answer in a task of its own, because `receive` may be cancelled.
    fn answer(&mut self, (error, id): Answer) {
        let written = self.inner.send(TxJsonRpcMessage::<RoleServer>::error(error, id));
        tokio::spawn(async move { drop(written.await) });
    }
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer>
    for Spoken<R, W>
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            tokio::select! {
                biased;
                Some(answer) = self.answers.recv() => self.answer(answer),
                received = self.inner.receive() => {
                    while let Ok(answer) = self.answers.try_recv() {
                        self.answer(answer);
                    }
                    return received;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.inner.close().await
    }
}

/// A reader that only yields valid lines.
struct Good<R> {
    inner: R,
    most: usize,
    line: Vec<u8>,
    /// Whether the rest of an oversized line is being skipped.
    is_dropped: bool,
    ready: Vec<u8>,
    given: usize,
    answers: mpsc::Sender<Answer>,
}

impl<R> Good<R> {
    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_end = part.ends_with(b"\n");
            if !self.is_dropped && self.line.len() + part.len() > self.most {
                let what = format!("a message may have {} bytes", self.most);
                self.refuse(ErrorData::new(ErrorCode::INVALID_REQUEST, what, None));
                self.is_dropped = true;
                // Releases the buffer of the oversized line.
                self.line = Vec::new();
            }
            if !self.is_dropped {
                self.line.extend_from_slice(part);
            }
            if is_end && !std::mem::take(&mut self.is_dropped) {
                self.ended();
            }
        }
    }

    fn ended(&mut self) {
        match wrong(&self.line) {
            Some(error) => {
                self.refuse(error);
                self.line.clear();
            }
            None => self.ready.append(&mut self.line),
        }
    }

    fn refuse(&self, error: ErrorData) {
        let _ = self.answers.try_send((error, id_of(&self.line)));
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Good<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let left = self.ready.get(self.given..).unwrap_or_default();
            if !left.is_empty() {
                let taken = left.len().min(buffer.remaining());
                buffer.put_slice(&left[..taken]);
                self.given += taken;
                return Poll::Ready(Ok(()));
            }
            self.ready.clear();
            self.given = 0;
            let mut chunk = [0; CHUNK];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut self.inner).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.take(read.filled());
        }
    }
}

/// Returns the error of an invalid line.
fn wrong(line: &[u8]) -> Option<ErrorData> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let message: Value = match serde_json::from_slice(line) {
        Ok(message) => message,
        Err(error) => {
            return Some(ErrorData::new(
                ErrorCode::PARSE_ERROR,
                format!("this line is no message: {error}"),
                None,
            ));
        }
    };
    let arguments =
        message.pointer("/params/arguments").filter(|_| message["method"] == "tools/call")?;
    let is_right = arguments.is_object() || arguments.is_null();
    (!is_right).then(|| ErrorData::invalid_params("`arguments` must be an object", None))
}

/// Returns the id of a request, as far as the line can be parsed. The id of a response belongs to
/// the server, so it is not returned.
fn id_of(line: &[u8]) -> Option<RequestId> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    let fields = RefCell::default();
    let _ = serde_json::Deserializer::from_slice(line).deserialize_map(Outer(&fields));
    let Fields { id, is_request } = fields.into_inner();
    id.filter(|_| is_request)
}

#[derive(Default)]
struct Fields {
    id: Option<RequestId>,
    is_request: bool,
}

/// Records the outermost fields during parsing, even if the rest is invalid.
struct Outer<'a>(&'a RefCell<Fields>);

impl<'de> Visitor<'de> for Outer<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(name) = fields.next_key::<String>()? {
            match name.as_str() {
                "id" => self.0.borrow_mut().id = fields.next_value()?,
                "method" => {
                    fields.next_value::<IgnoredAny>()?;
                    self.0.borrow_mut().is_request = true;
                }
                _ => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_where_it_can_be_read() {
        let deep = format!(
            r#"{{"id":2,"method":"tools/call","params":{}{}}}"#,
            "[".repeat(5000),
            "]".repeat(5000)
        );
        for (line, id) in [
            (deep.as_str(), Some(RequestId::Number(2))),
            (
                r#"{"params":{"id":3},"method":"x","id":"a","n":1e999}"#,
                Some(RequestId::String("a".into())),
            ),
            (r#"{"method":"x","id":7,"params":"aaaa"#, Some(RequestId::Number(7))),
            (r#"{"method":"x","params":{"id":7,"#, None),
            (r#"{"id":7,"result":x}"#, None),
            ("junk", None),
        ] {
            assert_eq!(id_of(line.as_bytes()), id, "{}", line.chars().take(60).collect::<String>());
        }
    }

    #[test]
    fn what_is_no_message_is_told_apart() {
        let code = |line: &str| wrong(line.as_bytes()).map(|error| error.code.0);
        for line in ["junk", r#"{"n":1e999}"#, r#"{"s":"\ud800"}"#] {
            assert_eq!(code(line), Some(-32700), "{line}");
        }
        assert_eq!(
            code(r#"{"id":1,"method":"tools/call","params":{"name":"a","arguments":"x"}}"#),
            Some(-32602)
        );
        for line in [
            "",
            "\r",
            "\u{feff}{}",
            r#"{"method":"tools/call","params":{"arguments":{}}}"#,
            r#"{"method":"tools/call","params":{}}"#,
        ] {
            assert_eq!(code(line), None, "{line}");
        }
    }
}

//! The transport of a client: one JSON message in each line. What is no message, and a request that
//! is invalid, is answered here, each under its id. Tools are not known here.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::sync::Arc;

use rmcp::model::{ClientRequest, ErrorCode, JsonRpcMessage};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Mutex, Semaphore};

/// Maximum error answers that wait for the client to read; further invalid lines are not answered.
const WAITING: usize = 64;
/// Bytes per read.
const CHUNK: usize = 16 << 10;
/// The methods that this server has. Another one gets `METHOD_NOT_FOUND` from the protocol.
const METHODS: [&str; 15] = [
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "subscriptions/listen",
    "tools/call",
    "tools/list",
];

/// A transport that answers invalid lines itself.
pub(super) struct Spoken<R, W> {
    lines: Lines<R>,
    writer: Arc<Mutex<Option<W>>>,
    answers: Arc<Semaphore>,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Spoken<R, W> {
    /// Returns a transport for lines of at most so many bytes.
    pub(super) fn new(from: R, to: W, most: usize) -> Self {
        Self {
            lines: Lines::new(from, most),
            writer: Arc::new(Mutex::new(Some(to))),
            answers: Arc::new(Semaphore::new(WAITING)),
        }
    }

    /// Writes an answer in a task of its own, because `receive` may be cancelled, and because a
    /// client that does not read must not stop the others' answers from being read.
    fn answer(&self, answer: &Value) {
        let Ok(permit) = Arc::clone(&self.answers).try_acquire_owned() else { return };
        let written = write(Arc::clone(&self.writer), answer.to_string().into_bytes());
        tokio::spawn(async move {
            drop(written.await);
            drop(permit);
        });
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
        let line = serde_json::to_vec(&item).map_err(io::Error::from);
        let writer = Arc::clone(&self.writer);
        async move { write(writer, line?).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            match self.lines.next().await {
                InputLine::Whole(line) => match read(&line) {
                    Received::Message(message) => return Some(*message),
                    Received::Refused(answer) => self.answer(&answer),
                    Received::Ignored => {}
                },
                InputLine::TooLong { start, most } => {
                    let what = format!("a message may have {most} bytes");
                    self.answer(&refusal(id_of(&start), ErrorCode::INVALID_REQUEST, &what));
                }
                InputLine::End => {
                    // The answers to the last lines precede the end.
                    let all = u32::try_from(WAITING).unwrap_or(u32::MAX);
                    drop(self.answers.acquire_many(all).await);
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        match self.writer.lock().await.take() {
            Some(mut writer) => writer.shutdown().await,
            None => Ok(()),
        }
    }
}

/// Writes a line. The lock keeps lines whole.
async fn write<W: AsyncWrite + Unpin>(
    writer: Arc<Mutex<Option<W>>>,
    mut line: Vec<u8>,
) -> io::Result<()> {
    line.push(b'\n');
    let mut slot = writer.lock().await;
    let Some(writer) = slot.as_mut() else {
        return Err(io::Error::new(io::ErrorKind::NotConnected, "the connection is closed"));
    };
    writer.write_all(&line).await?;
    writer.flush().await
}

/// The lines of a client, each of bounded length.
struct Lines<R> {
    inner: R,
    most: usize,
    /// What was read, and how much of it was taken.
    buffer: Vec<u8>,
    consumed: usize,
    line: Vec<u8>,
    /// Whether the rest of an oversized line is being skipped.
    is_dropped: bool,
}

enum InputLine {
    Whole(Vec<u8>),
    /// A line of more than `most` bytes, and its start.
    TooLong {
        start: Vec<u8>,
        most: usize,
    },
    End,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(inner: R, most: usize) -> Self {
        let (buffer, line) = (Vec::with_capacity(CHUNK), Vec::new());
        Self { inner, most, buffer, consumed: 0, line, is_dropped: false }
    }

    /// Returns the next line. Dropping the future loses nothing: what was read is in the buffer. A
    /// last line without its end is none.
    async fn next(&mut self) -> InputLine {
        loop {
            if let Some(line) = self.take() {
                return line;
            }
            self.buffer.clear();
            self.consumed = 0;
            match self.inner.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return InputLine::End,
                Ok(_) => {}
            }
        }
    }

    /// Takes the rest of a line from the buffer.
    fn take(&mut self) -> Option<InputLine> {
        while self.consumed < self.buffer.len() {
            let remaining = &self.buffer[self.consumed..];
            let end = remaining.iter().position(|byte| *byte == b'\n');
            let part = &remaining[..end.map_or(remaining.len(), |end| end + 1)];
            self.consumed += part.len();
            if self.is_dropped {
                self.is_dropped = end.is_none();
                continue;
            }
            if self.line.len() + part.len() > self.most {
                self.is_dropped = end.is_none();
                // Releases the buffer of the oversized line.
                let start = std::mem::take(&mut self.line);
                return Some(InputLine::TooLong { start, most: self.most });
            }
            self.line.extend_from_slice(part);
            if end.is_some() {
                return Some(InputLine::Whole(std::mem::take(&mut self.line)));
            }
        }
        None
    }
}

/// What a line is.
enum Received {
    Message(Box<RxJsonRpcMessage<RoleServer>>),
    /// An invalid line, with the answer to it.
    Refused(Value),
    /// A blank line, or a notification or response that is invalid: nobody waits for an answer.
    Ignored,
}

fn read(line: &[u8]) -> Received {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    if line.iter().all(u8::is_ascii_whitespace) {
        return Received::Ignored;
    }
    match serde_json::from_slice(line) {
        Ok(Value::Array(messages)) => batch(&messages),
        Ok(message) => read_message(message),
        Err(error) => {
            let what = format!("this line is no message: {error}");
            Received::Refused(refusal(id_of(line), ErrorCode::PARSE_ERROR, &what))
        }
    }
}

/// Refuses each request of a batch, which the newest revisions do not have.
fn batch(messages: &[Value]) -> Received {
    let what = "batches are not supported; send each message in a line of its own";
    let refused = |id: Value| refusal(id, ErrorCode::INVALID_REQUEST, what);
    let is_request = |message: &&Value| message.get("method").is_some();
    let ids = messages.iter().filter(is_request).filter_map(|message| message.get("id"));
    let answers: Vec<Value> = ids.map(|id| refused(answerable(id))).collect();
    if !answers.is_empty() {
        return Received::Refused(Value::Array(answers));
    }
    match messages.is_empty() {
        true => Received::Refused(refused(Value::Null)),
        false => Received::Ignored,
    }
}

fn read_message(message: Value) -> Received {
    let id = message.get("id").map(answerable);
    let method = message.get("method");
    let has_end = ["result", "error"].iter().any(|key| message.get(key).is_some());
    let is_response = method.is_none() && has_end;
    let is_notification = method.is_some_and(Value::is_string) && id.is_none();
    let (code, what) = match invalid(&message).map(|()| serde_json::from_value(message)) {
        Ok(Ok(read)) if !is_unread_call(&read) => return Received::Message(Box::new(read)),
        // The form is right, so what does not fit are the parameters.
        Ok(_) => (ErrorCode::INVALID_PARAMS, "`params` do not fit the method"),
        Err(problem) => problem,
    };
    if is_response || is_notification {
        return Received::Ignored;
    }
    Received::Refused(refusal(id.unwrap_or_default(), code, what))
}

/// Checks the form that all messages have.
fn invalid(message: &Value) -> Result<(), (ErrorCode, &'static str)> {
    let invalid = |what: &'static str| Err((ErrorCode::INVALID_REQUEST, what));
    if !message.is_object() {
        return invalid("a message must be an object");
    }
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return invalid("`jsonrpc` must be \"2.0\"");
    }
    let Some(method) = message.get("method") else {
        let is_response = message.get("result").is_some() || message.get("error").is_some();
        return if is_response { Ok(()) } else { invalid("`method` is missing") };
    };
    if message.get("result").is_some() || message.get("error").is_some() {
        return invalid("a request has no `result` and no `error`");
    }
    if !method.is_string() {
        return invalid("`method` must be a string");
    }
    if message.get("id").is_some_and(|id| !id.is_string() && id.as_i64().is_none()) {
        return invalid("`id` must be a string or a whole number of 64 bits");
    }
    let params = message.get("params");
    if params.is_some_and(|params| !params.is_object() && !params.is_null()) {
        return Err((ErrorCode::INVALID_PARAMS, "`params` must be an object"));
    }
    let arguments = params.and_then(|params| params.get("arguments"));
    if method == "tools/call"
        && arguments.is_some_and(|arguments| !arguments.is_object() && !arguments.is_null())
    {
        return Err((ErrorCode::INVALID_PARAMS, "`arguments` must be an object"));
    }
    Ok(())
}

/// Whether the protocol took a request of a known method for one of another method, because its
/// parameters do not fit.
fn is_unread_call(message: &RxJsonRpcMessage<RoleServer>) -> bool {
    matches!(message, JsonRpcMessage::Request(request)
        if matches!(&request.request, ClientRequest::CustomRequest(custom)
            if METHODS.contains(&custom.method.as_str())))
}

/// The answer to an invalid line.
fn refusal(id: Value, code: ErrorCode, what: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code.0, "message": what } })
}

/// The id of an answer: that of the request, if the protocol can have such an id.
fn answerable(id: &Value) -> Value {
    if id.is_string() || id.is_number() { id.clone() } else { Value::Null }
}

/// The id of a request, as far as the line can be parsed, or null. The id of a response belongs to
/// the server, so it is not returned.
fn id_of(line: &[u8]) -> Value {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    let fields = RefCell::default();
    let _ = serde_json::Deserializer::from_slice(line).deserialize_map(Outer(&fields));
    let Fields { id, is_request } = fields.into_inner();
    if is_request { answerable(&id) } else { Value::Null }
}

#[derive(Default)]
struct Fields {
    id: Value,
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
            (deep.as_str(), json!(2)),
            (r#"{"params":{"id":3},"method":"x","id":"a","n":1e999}"#, json!("a")),
            (r#"{"method":"x","id":7,"params":"aaaa"#, json!(7)),
            (r#"{"method":"x","params":{"id":7,"#, Value::Null),
            (r#"{"id":7,"result":x}"#, Value::Null),
            ("junk", Value::Null),
        ] {
            assert_eq!(id_of(line.as_bytes()), id, "{}", line.chars().take(60).collect::<String>());
        }
    }

    /// The ids and codes of the answer; `None` for a message, and nothing for a line that is
    /// ignored.
    fn answers(line: &str) -> Option<Vec<(Value, i64)>> {
        let answer = match read(line.as_bytes()) {
            Received::Message(_) => return None,
            Received::Refused(answer) => answer,
            Received::Ignored => return Some(Vec::new()),
        };
        let each = match &answer {
            Value::Array(answers) => answers.clone(),
            _ => vec![answer],
        };
        let pair = |answer: &Value| {
            assert!(answer.get("id").is_some() && answer["jsonrpc"] == "2.0", "{answer}");
            (answer["id"].clone(), answer["error"]["code"].as_i64().expect("it has a code"))
        };
        Some(each.iter().map(pair).collect())
    }

    #[test]
    fn an_invalid_request_is_answered_with_its_id() {
        for (line, id, code) in [
            ("junk", Value::Null, -32700),
            (r#"{"n":1e999}"#, Value::Null, -32700),
            (r#"{"id":"a","method":"x","s":"\ud800"}"#, json!("a"), -32700),
            (r#"{"jsonrpc":"1.0","id":4,"method":"ping"}"#, json!(4), -32600),
            (r#"{"id":5,"method":"ping"}"#, json!(5), -32600),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, json!(1.5), -32600),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":7,"method":5}"#, json!(7), -32600),
            (r#"{"jsonrpc":"2.0","method":5}"#, Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":8}"#, json!(8), -32600),
            (r#"{"jsonrpc":"2.0","id":9,"method":"ping","result":{}}"#, json!(9), -32600),
            ("5", Value::Null, -32600),
            ("[]", Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":6,"method":"ping","params":[]}"#, json!(6), -32602),
            (r#"{"jsonrpc":"2.0","id":6,"method":"ping","params":"x"}"#, json!(6), -32602),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#, json!(1), -32602),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":"x"}}"#,
                json!(1),
                -32602,
            ),
            (r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}"#, json!(2), -32602),
        ] {
            assert_eq!(answers(line), Some(vec![(id, code)]), "{line}");
        }
    }

    #[test]
    fn nobody_is_answered_who_does_not_wait() {
        for line in [
            "",
            "\r",
            r#"{"jsonrpc":"1.0","method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}"#,
            r#"{"jsonrpc":"2.0","id":{},"result":{}}"#,
            r#"[{"jsonrpc":"2.0","method":"notifications/initialized"}]"#,
        ] {
            assert_eq!(answers(line), Some(Vec::new()), "{line}");
        }
    }

    #[test]
    fn each_request_of_a_batch_is_answered() {
        let line = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"method":"x"},{"id":"b","method":"ping"},7]"#;
        assert_eq!(answers(line), Some(vec![(json!(1), -32600), (json!("b"), -32600)]));
    }

    #[test]
    fn a_message_is_read() {
        for line in [
            "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
            r#"{"jsonrpc":"2.0","id":"a","method":"no/such","params":{"a":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{}}}"#,
        ] {
            assert_eq!(answers(line), None, "{line}");
        }
    }
}

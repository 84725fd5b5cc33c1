//! Clients over HTTP: who is answered, and who is not.

use conclave_mcp::serve::{ServeError, serve_http};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::offers::service;

/// A server on a free port, until it is stopped.
struct Served {
    port: u16,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), ServeError>>,
    _folder: tempfile::TempDir,
}

impl Served {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let service = service(folder.path()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move { drop(stopped.await) };
        let ended = tokio::spawn(serve_http(service, listener, stopped));
        Self { port, stop, ended, _folder: folder }
    }

    /// Posts a message with these headers. Returns the status and the whole answer.
    async fn post(&self, message: &Value, headers: &[(&str, String)]) -> (u16, String) {
        let body = message.to_string();
        let mut request = format!(
            "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(format!("{request}\r\n{body}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.unwrap_or_else(|| panic!("no status: {answer}")), answer)
    }

    fn own(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

fn listing(method: &str) -> (Value, Vec<(&'static str, String)>) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "tester", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let message =
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "_meta": meta } });
    let headers =
        [("MCP-Protocol-Version", "2026-07-28".to_owned()), ("Mcp-Method", method.to_owned())];
    (message, headers.into())
}

#[tokio::test]
async fn only_its_own_address_leads_to_the_server() {
    let served = Served::start().await;
    let (message, headers) = listing("tools/list");
    let own = served.own();
    for (host, origin, status) in [
        (own.as_str(), None, 200),
        (&format!("localhost:{}", served.port), None, 200),
        (&own, Some(format!("http://{own}")), 200),
        ("evil.example", None, 403),
        (&format!("evil.example:{}", served.port), None, 403),
        ("127.0.0.1:1", None, 403),
        (&own, Some("http://evil.example".to_owned()), 403),
        (&own, Some(format!("https://{own}")), 403),
        (&own, Some("http://localhost:1".to_owned()), 403),
        (&own, Some("null".to_owned()), 403),
    ] {
        let mut headers = headers.clone();
        headers.push(("Host", host.to_owned()));
        headers.extend(origin.clone().map(|origin| ("Origin", origin)));
        let (answered, text) = served.post(&message, &headers).await;
        assert_eq!(answered, status, "{host} {origin:?}: {text}");
        assert_eq!(text.contains("app.greet"), status == 200, "{text}");
    }
}

#[tokio::test]
async fn a_stopped_server_ends() {
    let served = Served::start().await;
    served.stop.send(()).unwrap();
    served.ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_address_of_other_machines_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let service = service(folder.path()).await;
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let refused = serve_http(service, listener, std::future::pending()).await;
    assert!(matches!(refused, Err(ServeError::Listening(_))), "{refused:?}");
}

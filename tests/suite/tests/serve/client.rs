//! A started server, and a client that is as plain as possible: tests see each byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use conclave_test_support::Rig;
use serde_json::{Value, json};

/// A running `conclave serve`, killed when it is dropped.
pub(crate) struct Served {
    child: Child,
    arguments: Vec<String>,
    address: String,
    token: String,
    cookie: String,
}

/// A server that was killed.
pub(crate) struct Killed {
    arguments: Vec<String>,
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Served {
    /// Starts `conclave serve c.toml` on a free port, and opens its address as a browser does.
    pub(crate) fn start(rig: &Rig, arguments: &[&str]) -> Self {
        let all = [&["serve", "c.toml", "--listen", "127.0.0.1:0"], arguments].concat();
        Self::start_with(rig, all.iter().map(|word| (*word).to_owned()).collect(), &[])
    }

    /// Starts `conclave serve` with these configs on a free port.
    pub(crate) fn start_configs(rig: &Rig, configs: &[&str], arguments: &[&str]) -> Self {
        let all = [&["serve"], configs, &["--listen", "127.0.0.1:0"], arguments].concat();
        Self::start_with(rig, all.iter().map(|word| (*word).to_owned()).collect(), &[])
    }

    /// Does the same on this port, where it is found again after a restart.
    pub(crate) fn start_at(rig: &Rig, port: u16, arguments: &[&str]) -> Self {
        let listen = format!("127.0.0.1:{port}");
        let all = [&["serve", "c.toml", "--listen", &listen], arguments].concat();
        Self::start_with(rig, all.iter().map(|word| (*word).to_owned()).collect(), &[])
    }

    /// Does the same with more variables in its environment.
    pub(crate) fn start_with_variables(rig: &Rig, variables: &[(&str, String)]) -> Self {
        let arguments = ["serve", "c.toml", "--listen", "127.0.0.1:0"].map(str::to_owned);
        Self::start_with(rig, arguments.into(), variables)
    }

    pub(crate) fn start_with(
        rig: &Rig,
        arguments: Vec<String>,
        variables: &[(&str, String)],
    ) -> Self {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(rig.folder().join("serve.log"))
            .expect("a log");
        let mut child = rig
            .conclave(&words)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the program starts");
        let mut url = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut url).expect("it prints its address");
        let plain = url.trim().split_once("://").map(|(_, rest)| rest);
        let parts = plain.and_then(|url| url.split_once('/'));
        let log = || std::fs::read_to_string(rig.folder().join("serve.log")).unwrap_or_default();
        let (address, fragment) = parts.unwrap_or_else(|| panic!("{url}{}", log()));
        let mut served = Self {
            child,
            arguments,
            address: address.to_owned(),
            token: fragment.strip_prefix("#token=").unwrap_or_default().to_owned(),
            cookie: String::new(),
        };
        if !served.token.is_empty() {
            served.cookie = served.log_in(&served.token);
        }
        served
    }

    /// Exchanges a token for a cookie.
    pub(crate) fn log_in(&self, token: &str) -> String {
        let session = self.post("/api/session", &json!({ "token": token }));
        assert_eq!(session.status, 204, "{}", session.text);
        let cookie = session.header("set-cookie").expect("it is set").to_owned();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        cookie.split(';').next().unwrap_or_default().to_owned()
    }

    /// Goes on with another cookie.
    pub(crate) fn with_cookie(&mut self, cookie: &str) -> &Self {
        cookie.clone_into(&mut self.cookie);
        self
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process at once.
    pub(crate) fn killed(mut self) -> Killed {
        self.child.kill().expect("it can be killed");
        self.ended()
    }

    /// Waits until the process has ended.
    pub(crate) fn ended(mut self) -> Killed {
        self.child.wait().expect("it ends");
        Killed { arguments: std::mem::take(&mut self.arguments) }
    }

    /// Waits until the process has ended with this exit code.
    pub(crate) fn ended_with(mut self, code: i32) -> Killed {
        assert_eq!(self.child.wait().expect("it ends").code(), Some(code));
        self.ended()
    }

    /// Sends the head of a message, and returns when the server waits for its body.
    pub(crate) fn begin_message(&self, room: &str, key: &str, text: &str) -> SlowRequest {
        let body = json!({ "key": key, "text": text }).to_string();
        let headers: String =
            self.own().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let mut stream = self.connect();
        write!(
            stream,
            "POST /api/conversations/{room}/messages HTTP/1.1\r\n{headers}Expect: 100-continue\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .expect("it listens");
        let mut continues = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
        stream.read_exact(&mut continues).expect("it waits for the body");
        SlowRequest { stream, body }
    }

    /// Returns the headers of the page's own requests.
    pub(crate) fn own(&self) -> Vec<(&str, String)> {
        vec![
            ("Host", self.address.clone()),
            ("Origin", format!("http://{}", self.address)),
            ("Cookie", self.cookie.clone()),
        ]
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.request("GET", path, &self.own(), "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.request("POST", path, &self.own(), &body.to_string())
    }

    pub(crate) fn send(&self, room: &str, key: &str, text: &str) -> Response {
        let message = json!({ "key": key, "text": text });
        self.post(&format!("/api/conversations/{room}/messages"), &message)
    }

    /// Sends the form of a page, as a browser does.
    pub(crate) fn post_form(&self, path: &str, body: &str) -> Response {
        let mut headers = self.own();
        headers.push(("Content-Type", "application/x-www-form-urlencoded".to_owned()));
        self.request("POST", path, &headers, body)
    }

    /// Sends a request with exactly these headers, and those of the body that are not among them.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: &str,
    ) -> Response {
        let mut stream = self.connect();
        let has_kind = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let kind = if has_kind { "" } else { "Content-Type: application/json\r\n" };
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n{kind}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        // A server that refuses the head need not read the rest.
        let _ = stream.write_all(request.as_bytes());
        Response::read(stream)
    }

    /// Sends a request of the page, and leaves with its last byte.
    pub(crate) fn leave(&self, method: &str, path: &str, body: &str) {
        let mut stream = self.connect();
        let headers: String =
            self.own().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\n{headers}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("it listens");
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).expect("it listens")
    }

    /// Returns the id of the only conversation.
    pub(crate) fn only_room(&self) -> String {
        let list = self.get("/api/conversations").body;
        let rows = list["conversations"].as_array().expect("a list");
        assert_eq!(rows.len(), 1, "{list}");
        rows[0]["id"].as_str().expect("it has an id").to_owned()
    }

    /// Opens the event stream of a conversation.
    pub(crate) fn events(&self, room: &str, last: Option<&str>) -> Events {
        self.stream(&format!("/api/conversations/{room}/events"), last)
    }

    /// Opens an event stream.
    pub(crate) fn stream(&self, path: &str, last: Option<&str>) -> Events {
        let mut stream = self.connect();
        let last = last.map(|last| format!("Last-Event-ID: {last}\r\n")).unwrap_or_default();
        let headers: String =
            self.own().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        // In HTTP/1.0 the body is not cut into chunks.
        write!(stream, "GET {path} HTTP/1.0\r\n{headers}{last}\r\n").expect("it listens");
        let mut lines = BufReader::new(stream);
        let mut first = String::new();
        lines.read_line(&mut first).expect("it answers");
        assert!(first.contains(" 200 "), "{first}");
        Events { lines }
    }

    /// Returns all entries of a conversation so far.
    pub(crate) fn entries(&self, room: &str) -> Vec<Value> {
        let mut events = self.events(room, None);
        let mut entries = Vec::new();
        loop {
            match events.next() {
                event if event.kind == "entry" => entries.push(event.data),
                // The status follows the newest entry.
                event if event.kind == "status" => return entries,
                _ => {}
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Killed {
    /// Starts the same command again.
    pub(crate) fn start_again(self, rig: &Rig) -> Served {
        Served::start_with(rig, self.arguments, &[])
    }
}

impl Response {
    pub(crate) fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A refused body can reset the connection behind the answer.
        let _ = stream.read_to_end(&mut bytes);
        let all = String::from_utf8_lossy(&bytes).into_owned();
        let (head, text) = all.split_once("\r\n\r\n").unwrap_or((&all, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Self {
            status: status.unwrap_or_default(),
            head: head.to_owned(),
            body: serde_json::from_str(text).unwrap_or_default(),
            text: text.to_owned(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs
            .into_iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

/// A request whose body was not sent yet.
pub(crate) struct SlowRequest {
    stream: TcpStream,
    body: String,
}

impl SlowRequest {
    pub(crate) fn finish(mut self) -> Response {
        self.stream.write_all(self.body.as_bytes()).expect("it still reads");
        Response::read(self.stream)
    }
}

/// The event stream of a conversation.
pub(crate) struct Events {
    lines: BufReader<TcpStream>,
}

pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

impl Events {
    /// Waits for the next event.
    pub(crate) fn next(&mut self) -> Event {
        let mut event = Event { id: None, kind: String::new(), data: Value::Null };
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).expect("the stream is open");
            assert!(read > 0, "the stream has ended");
            match line.trim_end().split_once(": ") {
                Some(("id", id)) => event.id = Some(id.to_owned()),
                Some(("event", kind)) => kind.clone_into(&mut event.kind),
                Some(("data", data)) => {
                    event.data = serde_json::from_str(data).expect("it is JSON")
                }
                _ if line.trim().is_empty() && !event.kind.is_empty() => return event,
                _ => {}
            }
        }
    }

    /// Waits until the server ends the stream.
    pub(crate) fn until_end(self) {
        self.rest();
    }

    /// Returns the rest of the stream, when the server has ended it.
    pub(crate) fn rest(mut self) -> String {
        let mut rest = Vec::new();
        let _ = self.lines.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }

    pub(crate) fn entry(&mut self) -> Value {
        self.entry_so(|_| true)
    }

    /// Waits for an entry for which this holds.
    pub(crate) fn entry_so(&mut self, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let event = self.next();
            if event.kind == "entry" && is_so(&event.data) {
                return event.data;
            }
        }
    }

    /// Waits for a status for which this holds.
    pub(crate) fn status(&mut self, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let event = self.next();
            if event.kind == "status" && is_so(&event.data) {
                return event.data;
            }
        }
    }
}

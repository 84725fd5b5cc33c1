//! Requests to servers on loopback, with a resolver under the test's control.

mod attacks;
mod limits;

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use conclave_core::permissions::fetch::{UrlPattern, target};
use conclave_core::permissions::grants::{FetchGrant, FetchRule};
use conclave_core::permissions::secret::RequestParts;
use conclave_core::types::denial::Denial;
use conclave_core::types::ids::CallId;
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};

use super::{ExchangeFailure, FetchExchange, ScrubbedResponse};
use crate::calls::EffectPort;
use crate::imports::call::CallCore;
use crate::imports::outgoing::resolver::Resolve;
use crate::imports::outgoing::{FetchClient, Holding};
use crate::imports::testing::{core, setup};
use crate::support::clock::BoxFuture;

/// A server that answers one request per connection with the output of `answer`.
struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    fn start(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, connections) =
            (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let (seen, count, answer) =
            (Arc::clone(&requests), Arc::clone(&connections), Arc::new(answer));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let request = read_request(&mut stream);
                    seen.lock().unwrap().push(request.clone());
                    answer(&request, &mut stream);
                });
            }
        });
        Self { port, requests, connections }
    }

    /// Returns a server with a fixed answer.
    fn saying(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |_, stream| drop(stream.write_all(&answer)))
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4_096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return text,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn redirect(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
}

/// A resolver of speaking names: `10-0-0-1.test` is 10.0.0.1, `a--b.test` is both, and `then`
/// separates successive answers.
#[derive(Debug, Default)]
struct Names {
    requested: Mutex<Vec<String>>,
}

impl Resolve for Names {
    fn resolve(&self, name: String) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        let mut names = self.requested.lock().unwrap();
        let times = names.iter().filter(|known| **known == name).count();
        names.push(name.clone());
        let stem = name.trim_end_matches(".test");
        let turns: Vec<&str> = stem.split("-then-").collect();
        let addresses = turns[times.min(turns.len() - 1)]
            .split("--")
            .map(|address| address.replace('-', ".").parse().unwrap())
            .collect();
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

/// Collects journalled side effects.
#[derive(Default)]
struct Journal {
    lines: Mutex<Vec<String>>,
    refuses_from: Option<u32>,
}

impl EffectPort for Journal {
    fn ask(
        &self,
        _: CallId,
        ordinal: u32,
        side_effect: SideEffect,
    ) -> BoxFuture<'static, Result<(), Denial>> {
        self.lines.lock().unwrap().push(format!("{ordinal} asked {}", side_effect.target()));
        let denial = Denial {
            capability: "fetch".to_owned(),
            target: side_effect.target().into_owned(),
            detail: "no more".to_owned(),
        };
        let refused = self.refuses_from.is_some_and(|from| ordinal >= from);
        Box::pin(std::future::ready(if refused { Err(denial) } else { Ok(()) }))
    }

    fn ended(&self, _: CallId, ordinal: u32, answer: SideEffectAnswer) -> BoxFuture<'static, ()> {
        let word = match answer {
            SideEffectAnswer::Fetched { status, .. } => status.to_string(),
            SideEffectAnswer::Denied { .. } => "denied".to_owned(),
            other => format!("{other:?}"),
        };
        self.lines.lock().unwrap().push(format!("{ordinal} ended {word}"));
        Box::pin(std::future::ready(()))
    }
}

/// A plugin that may reach these addresses on loopback.
struct Plugin {
    core: CallCore,
    holding: Holding,
    names: Arc<Names>,
    journal: Arc<Journal>,
}

fn grant(urls: &[&str]) -> FetchGrant {
    let rule = |url: &&str| FetchRule {
        url: UrlPattern::parse(url).unwrap(),
        methods: vec!["GET".to_owned(), "POST".to_owned()],
    };
    let headers = vec!["x-own".to_owned()];
    FetchGrant {
        headers,
        private: vec!["127.0.0.1/32".parse().unwrap()],
        ..FetchGrant::new(urls.iter().map(rule).collect())
    }
}

fn plugin(grant: FetchGrant) -> Plugin {
    journalling(grant, Journal::default())
}

fn journalling(grant: FetchGrant, journal: Journal) -> Plugin {
    let mut setup = setup();
    setup.facts.manifest.asks.insert("fetch".to_owned(), Default::default());
    setup.grants.fetch = Some(grant);
    let (names, journal) = (Arc::new(Names::default()), Arc::new(journal));
    let mut core = core(setup);
    let plugin = Arc::get_mut(&mut core.plugin).unwrap();
    plugin.outgoing =
        FetchClient::resolving(&plugin.setup.grants, Arc::clone(&names) as Arc<dyn Resolve>);
    core.start.effects = Arc::clone(&journal) as Arc<dyn EffectPort>;
    core.replay = crate::imports::call::CallReplay::new(&core.plugin, &core.start);
    Plugin { core, holding: Holding::default(), names, journal }
}

fn parts(method: &str, url: &str) -> RequestParts {
    RequestParts {
        method: method.to_owned(),
        url: target(url).unwrap(),
        headers: Vec::new(),
        body: None,
    }
}

impl Plugin {
    async fn send(&mut self, parts: RequestParts) -> Result<ScrubbedResponse, ExchangeFailure> {
        let mut exchange = FetchExchange::new(&self.core, &self.holding);
        let answer = exchange.run(parts, None, true).await;
        self.core.effects = exchange.next_ordinal();
        answer
    }

    async fn get(&mut self, url: &str) -> Result<ScrubbedResponse, ExchangeFailure> {
        self.send(parts("GET", url)).await
    }

    /// Returns the reason of a refusal.
    async fn refused(&mut self, method: &str, url: &str) -> String {
        match self.send(parts(method, url)).await {
            Err(ExchangeFailure::Refused(record)) => record.reason,
            Err(other) => panic!("{url}: {other:?}"),
            Ok(_) => panic!("{url} was let through"),
        }
    }

    fn journal(&self) -> Vec<String> {
        self.journal.lines.lock().unwrap().clone()
    }

    fn asked_names(&self) -> Vec<String> {
        self.names.requested.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn a_granted_request_is_sent_and_answered() {
    let server = Server::saying(ok("lit"));
    let url = format!("http://127-0-0-1.test:{}/v1/light?year=1844", server.port);
    let mut plugin = plugin(grant(&[&format!("http://127-0-0-1.test:{}/v1/*", server.port)]));
    let mut parts = parts("POST", &url);
    parts.headers.push(("x-own".to_owned(), "1".to_owned()));
    parts.body = Some(b"body".to_vec());
    let answer = plugin.send(parts).await.unwrap();
    assert_eq!(
        (answer.status, answer.body.as_slice(), answer.url.as_str()),
        (200, &b"lit"[..], url.as_str())
    );
    let request = server.requests().remove(0).to_ascii_lowercase();
    assert!(
        request.starts_with("post /v1/light?year=1844 http/1.1\r\n")
            && request.ends_with("\r\n\r\nbody"),
        "{request}"
    );
    assert!(
        request.contains("x-own: 1\r\n")
            && request.contains(&format!("host: 127-0-0-1.test:{}\r\n", server.port)),
        "{request}"
    );
    for absent in ["cookie", "referer", "proxy", "forwarded", "via"] {
        assert!(!request.contains(absent), "{request}");
    }
    assert_eq!(plugin.journal(), [format!("0 asked {url}"), "0 ended 200".to_owned()]);
}

/// Repeats the test above in a process whose environment names an absent proxy.
#[test]
fn a_proxy_of_the_environment_is_not_used() {
    let program = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(program);
    child.args(["--exact", "imports::fetch::tests::a_granted_request_is_sent_and_answered"]);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    {
        child.env(name, "http://127.0.0.1:1");
    }
    let output = child.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
}

#[tokio::test]
async fn an_answer_may_be_an_error() {
    let server = Server::saying("HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno");
    let base = format!("http://127.0.0.1:{}/", server.port);
    assert_eq!(plugin(grant(&[&format!("{base}*")])).get(&base).await.unwrap().status, 404);
}

#[tokio::test]
async fn nothing_is_sent_before_the_room_says_yes() {
    let server = Server::saying(ok("lit"));
    let base = format!("http://127.0.0.1:{}/", server.port);
    let mut plugin = journalling(
        grant(&[&format!("{base}*")]),
        Journal { refuses_from: Some(0), ..Journal::default() },
    );
    assert!(
        matches!(plugin.get(&base).await, Err(ExchangeFailure::Denied(denial)) if denial.detail == "no more")
    );
    assert_eq!((server.connections(), plugin.journal()), (0, vec![format!("0 asked {base}")]));
}

#[tokio::test]
async fn each_redirect_is_a_request_of_its_own() {
    let server = Server::start(|request, stream| {
        let answer = if request.starts_with("POST /a ") { redirect("/b") } else { ok("there") };
        drop(stream.write_all(answer.as_bytes()));
    });
    let base = format!("http://127.0.0.1:{}", server.port);
    let mut plugin = plugin(grant(&[&format!("{base}/*")]));
    let mut parts = parts("POST", &format!("{base}/a"));
    parts.headers = vec![
        ("content-type".to_owned(), "text/plain".to_owned()),
        ("authorization".to_owned(), "Basic x".to_owned()),
    ];
    parts.body = Some(b"x".to_vec());
    let answer = plugin.send(parts).await.unwrap();
    assert_eq!(
        (answer.body.as_slice(), answer.url.as_str()),
        (&b"there"[..], format!("{base}/b").as_str())
    );
    assert_eq!(
        plugin.journal(),
        [
            format!("0 asked {base}/a"),
            "0 ended 302".into(),
            format!("1 asked {base}/b"),
            "1 ended 200".into()
        ]
    );
    let second = server.requests().remove(1).to_ascii_lowercase();
    assert!(
        second.starts_with("get /b ")
            && second.contains("authorization: basic x")
            && !second.contains("content-type"),
        "{second}"
    );
}

#[tokio::test]
async fn a_redirect_is_the_guests_to_read_when_none_is_followed() {
    let server = Server::saying(redirect("http://elsewhere.test/"));
    let base = format!("http://127.0.0.1:{}/", server.port);
    let mut plugin = plugin(FetchGrant { redirects: 0, ..grant(&[&format!("{base}*")]) });
    assert_eq!(plugin.get(&base).await.unwrap().status, 302);
}

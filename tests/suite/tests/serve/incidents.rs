//! Incidents of other servers of agents, played on this one: docs/reference/security.md lists them.

use serde_json::json;

use super::acting::{Client, waiting};
use super::client::{Response, Served};
use super::configs::{body_of, paths_of_run};
use super::people::token;
use super::{WEB, echo};
use crate::cli::{conclave, text};

/// A route of the document: method, path, and whether a request has a body.
fn routes(served: &Served) -> Vec<(String, String, bool)> {
    let document = served.get("/api/v1/openapi.json").body;
    let mut all = Vec::new();
    for (path, operations) in document["paths"].as_object().expect("a document") {
        for (method, operation) in operations.as_object().expect("operations") {
            let has_body = operation["requestBody"]["required"] == true;
            all.push((method.to_uppercase(), path.clone(), has_body));
        }
    }
    assert!(all.len() > 20, "{all:?}");
    all
}

/// A path of the document with these words in the places of its names.
fn with_names(path: &str, word: &str) -> String {
    ["run", "id", "call", "channel"]
        .iter()
        .fold(path.to_owned(), |path, name| path.replace(&format!("{{{name}}}"), word))
}

/// n8n CVE-2026-21858: a body was read as another format than it had.
#[test]
fn a_body_of_another_content_type_is_read_nowhere() {
    let rig = echo(WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    for (method, path, has_body) in routes(&served) {
        // Webhooks are signed with their bytes, whatever their senders call them.
        if !has_body || path.starts_with("/hooks/") {
            continue;
        }
        let path = with_names(&path, &room);
        for kind in
            ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"]
        {
            let headers = [&served.own()[..], &[("Content-Type", kind.to_owned())]].concat();
            let refused = served.request(&method, &path, &headers, body_of(&path));
            assert_eq!(refused.status, 415, "{method} {path} {kind}: {}", refused.text);
        }
    }
    for path in [
        "/runs",
        "/login",
        "/inbox/refuse",
        &format!("/runs/{room}/messages"),
        &format!("/runs/{room}/stop"),
    ] {
        let refused = served.request("POST", path, &served.own(), r#"{"text":"x"}"#);
        assert_eq!(refused.status, 415, "{path}: {}", refused.text);
    }
    assert!(served.entries(&room).is_empty(), "nothing of it was read");
}

/// Langflow CVE-2026-5027, n8n CVE-2026-21877: a name of a request became a path.
#[test]
fn no_name_of_a_request_is_a_path() {
    let rig = echo(WEB);
    let served = Served::start(&rig, &[]);
    std::fs::write(rig.folder().join("secret.txt"), "the words of a private file").expect("a file");
    for name in [
        "..%2f..%2fsecret.txt",
        "%2e%2e",
        "..%5c..%5csecret.txt",
        "secret.txt",
        "c.toml",
        "%2fetc%2fpasswd",
        "a%00b",
        "..%252fsecret.txt",
        "C:%5csecret.txt",
    ] {
        for (method, path, _) in
            routes(&served).into_iter().filter(|(_, path, _)| path.contains('{'))
        {
            let path = with_names(&path, name);
            let answer = served.request(&method, &path, &served.own(), body_of(&path));
            assert!((400..500).contains(&answer.status), "{method} {path}: {}", answer.text);
            assert!(!answer.text.contains("the words of a private"), "{path}");
        }
        for query in ["config", "cursor", "agent", "status"] {
            let answer = served.get(&format!("/api/v1/runs?{query}={name}"));
            assert!(![500, 503].contains(&answer.status), "{query}={name}: {}", answer.text);
            assert!(!answer.text.contains("the words of a private"), "{query}={name}");
        }
    }
    let headers =
        [&served.own()[..], &[("Idempotency-Key", "../../secret.txt".to_owned())]].concat();
    let started = served.request("POST", "/api/v1/runs", &headers, r#"{"text":"go"}"#);
    assert_eq!(started.status, 201, "{}", started.text);
    let secret = std::fs::read_to_string(rig.folder().join("secret.txt")).expect("it is there");
    assert_eq!(secret, "the words of a private file");
}

/// opencode CVE-2026-22812, OpenClaw CVE-2026-25253, OpenHands: headers of CORS, and an event stream
/// that any web page could open.
#[test]
fn no_answer_lets_another_origin_read_and_no_stream_opens_for_one() {
    let rig = echo(WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let with_origin = |origin: &str| {
        let mut headers = served.own();
        headers.retain(|(name, _)| *name != "Origin");
        headers.push(("Origin", origin.to_owned()));
        headers
    };
    let has_cors = |answer: &Response| {
        let mut lines = answer.head.lines();
        lines.any(|line| line.to_ascii_lowercase().starts_with("access-control-"))
    };
    let pages = ["/", "/chat.js", "/runs", "/inbox", "/rights", "/budgets", "/audit"];
    let pages = pages.map(|page| ("GET".to_owned(), page.to_owned(), false));
    for (method, path, _) in routes(&served).into_iter().chain(pages) {
        let path = with_names(&path, &room);
        for origin in ["http://evil.example", "null", "http://localhost.evil.example"] {
            let mut ask = with_origin(origin);
            ask.push(("Access-Control-Request-Method", method.clone()));
            ask.push(("Access-Control-Request-Headers", "authorization".to_owned()));
            let asked = served.request("OPTIONS", &path, &ask, "");
            assert!(!has_cors(&asked) && asked.status >= 400, "{path}: {}", asked.head);
            let answer = served.request(&method, &path, &with_origin(origin), body_of(&path));
            assert!(!has_cors(&answer), "{path}: {}", answer.head);
            if path.ends_with("/events") {
                assert_eq!(answer.status, 403, "{path} {origin}: {}", answer.text);
            }
        }
    }
}

/// The SDKs of MCP (CVE-2025-66414, CVE-2025-66416, CVE-2026-34742, CVE-2026-42559): a name of
/// somebody else that leads to this machine.
#[test]
fn no_other_spelling_of_this_machine_is_its_host() {
    let rig = echo(WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let port = served.address().rsplit(':').next().expect("a port").to_owned();
    let with_host = |host: &str| {
        let mut headers = served.own();
        headers.retain(|(name, _)| *name != "Host");
        headers.push(("Host", host.to_owned()));
        headers
    };
    let pages =
        ["/", "/runs", "/login", "/healthz"].map(|page| ("GET".to_owned(), page.to_owned(), false));
    for (method, path, _) in routes(&served).into_iter().chain(pages) {
        let path = with_names(&path, &room);
        let refused = served.request(&method, &path, &with_host("evil.test"), body_of(&path));
        assert_eq!(refused.status, 421, "{method} {path}: {}", refused.text);
    }
    for host in [
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::]",
        "127.1",
        "2130706433",
        "127.0.0.1.",
        "127.0.0.2",
        "localhost.evil.test",
        "evil.test@127.0.0.1",
    ] {
        let refused =
            served.request("GET", "/api/v1/runs", &with_host(&format!("{host}:{port}")), "");
        assert!([400, 421].contains(&refused.status), "{host}: {}", refused.text);
    }
    assert_eq!(
        served.request("GET", "/api/v1/runs", &with_host(&format!("LOCALHOST:{port}")), "").status,
        200
    );
}

/// nearai/ironclaw#557: one shared user behind a schema of many.
#[test]
fn two_people_of_one_config_learn_nothing_of_each_other() {
    let rig = waiting();
    let [ada, bea] = ["ada", "quentin"].map(|name| token(&rig, name, "user"));
    let served = Served::start(&rig, &[]);
    let [ada, bea] = [&ada, &bea].map(|token| Client { served: &served, token });
    let started = bea.post("/runs", None, &json!({ "text": "secret words" }));
    let run = started.body["run"].as_str().expect("a run").to_owned();
    let question = bea.question(&run);
    let as_person = |client: &Client<'_>, method: &str, path: &str, body: &str| {
        let host = ("Host", served.address().to_owned());
        let token = ("Authorization", format!("Bearer {}", client.token));
        served.request(method, path, &[host, token], body)
    };
    let begun = as_person(&bea, "POST", "/api/conversations", "{}");
    let conversation = begun.body["id"].as_str().expect("an id").to_owned();
    let missing = "0".repeat(run.len());
    for id in [&run, &conversation] {
        for (method, path) in paths_of_run(id, &question) {
            let body = body_of(&path);
            let answer = as_person(&ada, method, &path, body);
            let same = as_person(&ada, method, &path.replace(id.as_str(), &missing), body);
            let text = answer.text.replace(id.as_str(), &missing);
            assert_eq!((answer.status, text), (same.status, same.text), "{method} {path}");
            assert!(answer.status >= 400, "{method} {path}");
        }
    }
    for path in [
        "/api/v1/runs",
        "/api/v1/questions",
        "/api/v1/budgets",
        "/api/conversations",
        "/runs",
        "/inbox",
        "/budgets",
    ] {
        let answer = as_person(&ada, "GET", path, "");
        assert_eq!(answer.status, 200, "{path}");
        for word in [run.as_str(), &conversation, "secret words", "quentin"] {
            assert!(!answer.text.contains(word), "{path}: {}", answer.text);
        }
        let own = as_person(&bea, "GET", path, "");
        assert!(
            own.text.contains(&run) || own.text.contains(&conversation) || path == "/inbox",
            "{path}"
        );
    }
}

/// Ollama CVE-2026-7482, ComfyUI: servers that everybody reached, without a log-in.
#[test]
fn no_address_of_other_machines_is_served_by_accident() {
    let rig = echo(WEB);
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.7:0"] {
        let refused = conclave(&rig, &["serve", "c.toml", "--listen", listen]);
        assert_eq!(refused.status.code(), Some(2), "{listen}");
        let stderr = text(&refused.stderr);
        assert!(stderr.contains("other machines could reach"), "{listen}: {stderr}");
    }
}

/// OpenClaw CVE-2026-22174 and 2026.2.25: tokens that one could guess, and that reached others.
#[test]
fn a_token_is_random_and_in_no_answer() {
    let rig = echo(WEB);
    let tokens = ["ada", "bob"].map(|name| token(&rig, name, "admin"));
    let secret = |token: &str| token.rsplit_once('.').expect("a secret").1.to_owned();
    let secrets = tokens.each_ref().map(|token| secret(token));
    assert!(secrets.iter().all(|it| it.len() == 64) && secrets[0] != secrets[1]);
    let served = Served::start(&rig, &[]);
    let headers =
        [("Host", served.address().to_owned()), ("Authorization", format!("Bearer {}", tokens[0]))];
    let begun = served.request("POST", "/api/conversations", &headers, "{}");
    let room = begun.body["id"].as_str().expect("an id").to_owned();
    let document = served.request("GET", "/api/v1/openapi.json", &headers, "").body;
    for path in document["paths"].as_object().into_iter().flatten().map(|(path, _)| path) {
        if path.ends_with("/events") {
            continue;
        }
        let answer = served.request("GET", &with_names(path, &room), &headers, "");
        let both = answer.head + &answer.text;
        assert!(secrets.iter().all(|secret| !both.contains(secret.as_str())), "{path}: {both}");
    }
}

//! Requests of real guests, through both interfaces: the `fetch` import and `wasi:http`. The
//! runtime's own tests cover more attacks.

use std::io::{Read, Write};

use conclave_core::protocol::event::Event;
use conclave_core::types::denial::Layer;
use conclave_core::types::side_effect::SideEffectAnswer;
use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::{Ran, Rig, calling};
use serde_json::{Value, json};

fn server() -> Server {
    Server::answering(|request| match request.path.as_str() {
        "/v1/away" => {
            TestReply::bytes(302, "text/plain", "").header("location", "http://10.0.0.1/")
        }
        "/v1/long" => TestReply::bytes(200, "text/plain", vec![b'x'; 200_000]),
        path => TestReply::bytes(
            200,
            "text/plain",
            format!("{} {path} {}", request.method, request.body.len()),
        ),
    })
}

/// `x-own` is the header that the guests send.
fn granted(server: &Server, more: &str) -> String {
    without_header(server, &format!(", headers = [\"x-own\"]{more}"))
}

fn without_header(server: &Server, more: &str) -> String {
    format!(
        "grants.fetch = {{ urls = [\"{}/*\"], methods = [\"GET\", \"POST\"], private = [\"127.0.0.1\"]{more} }}",
        server.url()
    )
}

fn probe(arguments: &Value, lines: &str) -> (Ran, Value) {
    run("fetch_probe", "run", arguments, lines)
}

fn run(guest: &str, tool: &str, arguments: &Value, lines: &str) -> (Ran, Value) {
    let ran = Rig::new().run(&calling(guest, tool, arguments, lines), "go");
    let answer = serde_json::from_str(ran.content())
        .unwrap_or_else(|error| panic!("{error}: {}", ran.content()));
    (ran, answer)
}

fn wasi(server: &Server, method: &str, path: &str, body: usize, lines: &str) -> (Ran, Value) {
    let authority = server.url().replace("http://", "").replace("/v1", "");
    run(
        "fetch_wasi",
        "run",
        &json!({ "method": method, "scheme": "http", "authority": authority, "path": path, "body": body, "header": "1" }),
        lines,
    )
}

#[test]
fn a_granted_request_of_a_guest_is_sent_and_journalled() {
    let server = server();
    let url = format!("{}/light", server.url());
    let arguments =
        json!({ "method": "POST", "url": url, "headers": { "X-Own": "1" }, "body": "1844" });
    let (ran, answer) = probe(&arguments, &granted(&server, ""));
    assert_eq!(
        (&answer["status"], &answer["body"], &answer["url"]),
        (&json!(200), &json!("POST /v1/light 4"), &json!(url)),
        "{answer}"
    );
    assert_eq!(server.requests()[0].headers["x-own"], "1");
    let order: Vec<&str> = ran
        .events("test")
        .iter()
        .filter_map(|event| match event {
            Event::SideEffectAsked { .. } => Some("asked"),
            Event::SideEffectEnded { .. } => Some("ended"),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["asked", "ended"]);
    assert!(ran.denials().is_empty(), "{:?}", ran.denials());
}

#[test]
fn a_guest_without_a_grant_is_denied_and_the_operator_learns_which() {
    let server = server();
    let (ran, answer) =
        probe(&json!({ "method": "GET", "url": "https://api.example.org/v1/x?key=1" }), "");
    assert_eq!(answer["denied"], json!("fetch"), "{answer}");
    assert!(
        !answer.to_string().contains("grants"),
        "the plugin is not told what to grant: {answer}"
    );
    let record = ran.denials().remove(0);
    assert_eq!(record.layer, Layer::Config);
    let line = r#"[plugins.subject] grants.fetch = [{ url = "https://api.example.org/v1/x", methods = ["GET"] }]"#;
    assert_eq!(record.suggestion.as_deref(), Some(line));
    let (ran, _) = probe(&json!({ "method": "GET", "url": server.url() }), "");
    assert_eq!(
        ran.denials()[0].suggestion,
        None,
        "an address of this machine gets no ready-made grant"
    );
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_guest_reaches_nothing_that_no_rule_covers() {
    let server = server();
    let base = server.url();
    let urls = json!([
        base.replace("/v1", "/v2"),
        format!("{base}/../v2"),
        format!("{base}/%2e%2e/v2"),
        format!("{base}/..%2fv2"),
        base.replace("127.0.0.1", "0x7f.2"),
        base.replace("http://", "http://user@"),
        base.replace("127.0.0.1", "localhost"),
        "file:///etc/passwd",
        format!("{base}/x\r\nHost: evil"),
    ]);
    let (_, answers) = run("fetch_probe", "each", &json!({ "urls": urls }), &granted(&server, ""));
    for answer in answers.as_array().expect("a list") {
        assert!(
            answer.get("denied").is_some()
                || answer["error"].as_str().is_some_and(|error| error.contains("the address")),
            "{answer}"
        );
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_redirect_to_an_inner_address_is_not_followed() {
    let server = server();
    let lines = format!(
        "grants.fetch = {{ urls = [\"{}/*\", \"http://10.0.0.1/*\"], private = [\"127.0.0.1\"] }}",
        server.url()
    );
    let (ran, answer) =
        probe(&json!({ "method": "GET", "url": format!("{}/away", server.url()) }), &lines);
    assert_eq!(answer["denied"], json!("fetch"), "{answer}");
    assert!(!answer.to_string().contains("private"), "{answer}");
    assert!(ran.denials()[0].reason.contains("private address, 10.0.0.1"), "{:?}", ran.denials());
}

#[test]
fn headers_that_frame_a_request_are_not_the_guests() {
    let server = server();
    for name in ["Host", "Content-Length", "Transfer-Encoding", "Connection", "x\r\ny"] {
        let (_, answer) = probe(
            &json!({ "method": "GET", "url": server.url(), "headers": { name: "1" } }),
            &granted(&server, ""),
        );
        assert!(
            answer["error"].as_str().is_some_and(|error| error.contains("header")),
            "{name}: {answer}"
        );
    }
    assert_eq!(server.connections(), 0);
}

/// B9: both interfaces send exactly the request that was checked.
#[test]
fn a_header_that_a_server_may_act_on_needs_a_grant_of_its_own() {
    let server = server();
    let (plain, url) = (without_header(&server, ""), format!("{}/light", server.url()));
    for name in [
        "X-Original-URL",
        "X-HTTP-Method-Override",
        "X-Forwarded-For",
        "Forwarded",
        "Metadata-Flavor",
        "X_Original_URL",
    ] {
        let (ran, answer) = probe(
            &json!({ "method": "GET", "url": url, "headers": { name: "/admin", "Accept": "*/*" } }),
            &plain,
        );
        let lower = name.to_ascii_lowercase();
        assert_eq!(answer["denied"], json!("fetch"), "{name}: {answer}");
        let record = ran.denials().remove(0);
        assert!(
            record.layer == Layer::Config
                && record.reason.contains(&format!("does not name the header `{lower}`")),
            "{record:?}"
        );
        assert!(
            record.denial.detail.ends_with(&format!("with the header `{lower}`")),
            "{record:?}"
        );
        let line = record.suggestion.unwrap_or_default();
        assert!(line.contains(&format!("headers = [\"{lower}\"]")), "{line}");
        // The proposed line must allow the request.
        let (_, grants) = line.split_once("] ").expect("a table and a key");
        let (_, answer) =
            probe(&json!({ "method": "GET", "url": url, "headers": { name: "/admin" } }), grants);
        assert_eq!(answer["status"], json!(200), "{name}: {answer}");
        assert_eq!(server.requests().last().expect("one was sent").headers[&lower], "/admin");
    }
    let sent = server.connections();
    let (ran, answer) = wasi(&server, "GET", "/v1/light", 0, &plain);
    assert!(
        answer["error"].as_str().is_some_and(|error| error.contains("HttpRequestDenied")),
        "{answer}"
    );
    assert!(
        ran.denials()[0].reason.contains("does not name the header `x-own`"),
        "{:?}",
        ran.denials()
    );
    assert_eq!(server.connections(), sent);
}

/// B9: a server that ignores the body of a GET would parse it as the next request.
#[test]
fn a_get_with_a_body_is_no_request() {
    let server = server();
    let url = format!("{}/light", server.url());
    let body = "GET /v1/admin HTTP/1.1\r\n\r\n";
    let (ran, answer) =
        probe(&json!({ "method": "GET", "url": url, "body": body }), &granted(&server, ""));
    assert!(
        answer["error"].as_str().is_some_and(|error| error.contains("GET request has no body")),
        "{answer}"
    );
    let (_, answer) = wasi(&server, "GET", "/v1/light", 26, &granted(&server, ""));
    assert!(
        answer["error"].as_str().is_some_and(|error| error.contains("GET request has no body")),
        "{answer}"
    );
    assert!(server.connections() == 0 && ran.denials().is_empty(), "{:?}", ran.denials());
}

/// B12: through the whole host. A neighbor that asks a quiet server still gets its answer.
#[test]
fn endless_interim_answers_end_the_request_and_hold_up_nobody() {
    let endless = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let (port, quiet) = (endless.local_addr().expect("it is bound").port(), server());
    let sending = std::thread::spawn(move || {
        let (mut stream, _) = endless.accept().expect("somebody connects");
        let mut head = [0; 1024];
        assert!(stream.read(&mut head).expect("a request comes") > 0);
        // Until the host hangs up.
        while stream.write_all(&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(64)).is_ok() {}
    });
    let urls = json!([format!("http://127.0.0.1:{port}/v1/x"), format!("{}/light", quiet.url())]);
    let lines = format!(
        "grants.fetch = {{ urls = [\"http://127.0.0.1:{port}/*\", \"{}/*\"], private = [\"127.0.0.1\"], timeout = \"10 min\" }}",
        quiet.url()
    );
    let (ran, answers) = run("fetch_probe", "each", &json!({ "urls": urls }), &lines);
    sending.join().expect("the host hung up");
    assert!(answers[0]["error"].is_string() && answers[0].get("status").is_none(), "{answers}");
    assert_eq!(answers[1]["status"], json!(200), "{answers}");
    let told = ran.events("test").iter().any(|event| {
        matches!(event, Event::SideEffectEnded { answer: SideEffectAnswer::Failed { message, .. }, .. } if message.contains("16 interim answers"))
    });
    assert!(told, "the journal says why: {:?}", ran.events("test"));
}

#[test]
fn requests_of_the_whole_run_are_counted() {
    let server = server();
    let urls: Vec<String> = (0..5).map(|number| format!("{}/{number}", server.url())).collect();
    let (ran, answers) =
        run("fetch_probe", "each", &json!({ "urls": urls }), &granted(&server, ", requests = 3"));
    let sent = answers
        .as_array()
        .expect("a list")
        .iter()
        .filter(|answer| answer["status"] == json!(200))
        .count();
    assert_eq!((sent, server.requests().len()), (3, 3), "{answers}");
    assert!(ran.denials()[0].reason.contains("has sent the 3 requests"), "{:?}", ran.denials());
}

#[test]
fn answers_are_limited_one_by_one_and_together() {
    let server = server();
    let arguments = json!({ "url": format!("{}/long", server.url()), "count": 10 });
    let (_, answer) =
        run("fetch_probe", "hoard", &arguments, &granted(&server, ", response_size = \"100 KiB\""));
    assert_eq!(answer["kept"], json!(0), "{answer}");
    let (_, answer) =
        run("fetch_probe", "hoard", &arguments, &granted(&server, ", response_size = \"200 KiB\""));
    assert_eq!(answer["kept"], json!(4), "{answer}");
    assert!(
        answer["error"].as_str().is_some_and(|error| error.contains("response_size")),
        "{answer}"
    );
}

#[test]
fn wasi_http_is_the_same_under_the_same_grant() {
    let server = server();
    let (ran, answer) = wasi(&server, "POST", "/v1/light", 10_000, &granted(&server, ""));
    assert_eq!(
        (&answer["status"], &answer["body"]),
        (&json!(200), &json!("POST /v1/light 10000")),
        "{answer}"
    );
    assert_eq!(server.requests()[0].headers["x-own"], "1");
    assert!(ran.events("test").iter().any(|event| matches!(event, Event::SideEffectEnded { .. })));
}

/// Incident 8: the allowlist has no bypass.
#[test]
fn wasi_http_reaches_nothing_that_no_rule_covers() {
    let server = server();
    for (method, path, lines) in [
        ("GET", "/v1/light", String::new()),
        ("GET", "/v2/light", granted(&server, "")),
        ("GET", "/v1/../v2", granted(&server, "")),
        ("DELETE", "/v1/light", granted(&server, "")),
        ("CONNECT", "/v1/light", granted(&server, "")),
        (
            "GET",
            "/v1/light",
            format!("grants.fetch = {{ urls = [\"{}/*\"], headers = [\"x-own\"] }}", server.url()),
        ),
    ] {
        let (ran, answer) = wasi(&server, method, path, 0, &lines);
        assert!(
            answer["error"].as_str().is_some_and(|error| error.contains("HttpRequestDenied")),
            "{method} {path}: {answer}"
        );
        assert!(
            ran.denials().iter().any(|record| record.denial.capability == "fetch"),
            "{method} {path}: {:?}",
            ran.denials()
        );
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn wasi_http_has_the_same_limits() {
    let server = server();
    let (_, answer) =
        wasi(&server, "POST", "/v1/x", 200_000, &granted(&server, ", request_size = \"100 KiB\""));
    assert!(
        answer["error"].as_str().is_some_and(|error| error.contains("request_size")),
        "{answer}"
    );
    assert_eq!(server.connections(), 0);
    let (_, answer) =
        wasi(&server, "GET", "/v1/long", 0, &granted(&server, ", response_size = \"100 KiB\""));
    assert!(
        answer["error"].as_str().is_some_and(|error| error.contains("response_size")),
        "{answer}"
    );
    let (_, answer) = wasi(&server, "GET", "/v1/long", 0, &granted(&server, ""));
    assert_eq!(answer["length"], json!(200_000), "{answer}");
}

#[test]
fn a_redirect_through_wasi_http_is_the_guests_to_follow() {
    let server = server();
    let (_, answer) = wasi(&server, "GET", "/v1/away", 0, &granted(&server, ""));
    assert_eq!(answer["status"], json!(302), "{answer}");
}

#[test]
fn a_stopped_call_leaves_no_request_behind() {
    let server = Server::answering(|_| TestReply::bytes(200, "text/plain", "x").then_silence());
    let lines = format!("{}\nlimits = {{ wall = \"10 s\" }}", granted(&server, ""));
    let arguments = json!({ "method": "GET", "url": format!("{}/slow", server.url()) });
    let ran = Rig::new().run(&calling("fetch_probe", "run", &arguments, &lines), "go");
    assert_eq!(ran.fault().kind, conclave_core::types::fault::FaultKind::Wall, "{}", ran.content());
    server.wait_for_hang_ups(1);
}

//! Secrets through the whole host. A server on loopback receives a granted value and repeats it in
//! every encoding. The plugin, the log, the journal and the subscribers must never see it. Also
//! covers guests that try to obtain it.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use conclave_core::config::ProblemCode;
use conclave_core::permissions::secret::{Scrubber, SecretValue};
use conclave_core::types::denial::Layer;
use conclave_core::types::ids::SecretName;
use conclave_models::test_server::{SeenRequest, Server, TestReply};
use conclave_test_support::{Ran, Rig, calling, refused};
use serde_json::{Value, json};

const VALUE: &str = "s3cr\"et+/value&1";

/// `http://127.0.0.1:PORT`.
fn base(server: &Server) -> String {
    server.url().trim_end_matches("/v1").to_owned()
}

fn rig() -> Rig {
    Rig::new()
        .with_file("data/copy.txt", VALUE)
        .with_file("keys/token.txt", format!("{VALUE}\n"))
        .with_file("keys/other.txt", "another-value-77")
}

/// Returns the config of a call to a guest with a grant of `met` for 127.0.0.1 and of requests to
/// these servers.
fn config(guest: &str, tool: &str, arguments: &Value, servers: &[&str], places: &str) -> String {
    let urls: Vec<String> = servers.iter().map(|server| format!("\"{server}/*\"")).collect();
    let lines = format!(
        "grants.secrets = [\"met\"]\ngrants.files = [{{ dir = \"data\", at = \"/folder\", mode = \"read\" }}]\n\
         grants.fetch = {{ urls = [{}], methods = [\"GET\", \"POST\"], headers = [\"x-key\", \"x-a\"], private = [\"127.0.0.1\", \"::1\"] }}",
        urls.join(", ")
    );
    let secrets = format!(
        "[secrets.met]\nfrom = {{ file = \"keys/token.txt\" }}\nhosts = [\"127.0.0.1\"]\nplaces = [{places}]\n\
         [secrets.other]\nfrom = {{ file = \"keys/other.txt\" }}\nhosts = [\"127.0.0.1\"]\n"
    );
    calling(guest, tool, arguments, &lines) + &secrets
}

/// Returns a server that repeats everything, plain and encoded.
fn echo() -> Server {
    Server::answering(|request| {
        let plain = said(request);
        let percent: String = plain.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let hex: String = plain.bytes().map(|byte| format!("{byte:02X}")).collect();
        let body = json!({
            "plain": plain, "json": json!({ "again": plain }).to_string(), "percent": percent, "hex": hex,
            "base64": STANDARD.encode(&plain), "url-safe": URL_SAFE_NO_PAD.encode(format!("x{plain}")),
            "basic": format!("Basic {}", STANDARD.encode(format!("me:{VALUE}"))),
        });
        TestReply::json(200, &body)
            .header("x-echo", VALUE)
            .header("x-basic", &STANDARD.encode(format!("me:{VALUE}")))
    })
}

/// Returns everything that came with a request.
fn said(request: &SeenRequest) -> String {
    let headers: String =
        request.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    format!(
        "{} {}\n{headers}{}",
        request.method,
        request.path,
        String::from_utf8_lossy(&request.body)
    )
}

/// Checks that no visible output contains the value in any encoding.
fn assert_hidden(ran: &Ran) {
    let value =
        SecretValue::new(SecretName::from("met"), VALUE.to_owned()).expect("it is long enough");
    let scrubber = Scrubber::new(vec![value]);
    let assert_clean =
        |what: &str, text: &str| assert_eq!(scrubber.find(text.as_bytes()), None, "{what}: {text}");
    assert_clean("the answer", ran.content());
    for room in ran.rooms() {
        for event in ran.events(room.as_str()) {
            assert_clean("the journal", &serde_json::to_string(&event).expect("an event is JSON"));
        }
    }
    for happening in &ran.happenings {
        assert_clean("--json", &serde_json::to_string(happening).expect("a happening is JSON"));
        assert_clean("a follower", &format!("{happening:?}"));
    }
}

fn request(url: &str, headers: &Value, body: &str) -> Value {
    let method = if body.is_empty() { "GET" } else { "POST" };
    let body = if body.is_empty() { Value::Null } else { body.into() };
    json!({ "request": json!({ "method": method, "url": url, "headers": headers, "body": body }).to_string(), "secret": "met" })
}

#[test]
fn a_value_reaches_its_host_and_comes_back_to_nobody() {
    let server = echo();
    let headers = json!({ "authorization": "Bearer <SECRET>", "content-type": "application/json" });
    let request = request(
        &format!("{}/v1?key=<SECRET>", base(&server)),
        &headers,
        r#"{"token": "<SECRET>"}"#,
    );
    let ran = rig().run(
        &config(
            "secret_sender",
            "run",
            &request,
            &[&base(&server)],
            r#""header", "query", "body""#,
        ),
        "go",
    );
    let came = server.requests();
    assert_eq!(came.len(), 1, "{}", ran.content());
    assert_eq!(came[0].headers["authorization"], format!("Bearer {VALUE}"));
    assert_eq!(came[0].path, "/v1?key=s3cr%22et%2B%2Fvalue%261");
    assert_eq!(came[0].json(), json!({ "token": VALUE }));
    assert!(
        ran.content().contains("200") && ran.content().contains("[secret met]"),
        "{}",
        ran.content()
    );
    assert_hidden(&ran);
    let journal: String = ran
        .events("test")
        .iter()
        .map(|event| serde_json::to_string(event).expect("an event is JSON"))
        .collect();
    assert!(
        journal.contains("Bearer {secret:met}"),
        "the journal says which secret went where: {journal}"
    );
}

#[test]
fn there_is_no_other_place_for_a_secret() {
    let (bound, elsewhere) = (echo(), echo());
    let elsewhere_url = base(&elsewhere).replace("127.0.0.1", "localhost");
    let arguments = json!({ "bound": base(&bound), "elsewhere": elsewhere_url, "secret": "met" });
    let bound_url = base(&bound);
    let all = &[bound_url.as_str(), elsewhere_url.as_str(), "http://*.example"];
    let ran = rig().run(&config("secret_escape", "run", &arguments, all, r#""header""#), "go");
    let tried: Vec<(String, String)> = serde_json::from_str(ran.content())
        .unwrap_or_else(|error| panic!("{error}: {}", ran.content()));
    assert_eq!(tried.len(), 15);
    assert!(tried.iter().all(|(_, what)| !what.contains("SENT")), "{tried:?}");
    assert!(
        bound.requests().is_empty() && elsewhere.requests().is_empty(),
        "not even the placeholder was sent"
    );
    let denials: Vec<_> =
        ran.denials().into_iter().filter(|record| record.denial.capability == "secrets").collect();
    assert!(
        denials
            .iter()
            .any(|record| record.layer == Layer::Runtime
                && record.reason.contains("bound to 127.0.0.1")),
        "{denials:?}"
    );
    // Denials that look alike to the guest are reported once per layer.
    assert!(denials.iter().any(|record| record.reason.contains("in the query")), "{denials:?}");
    assert!(
        denials
            .iter()
            .all(|record| !record.suggestion.as_deref().is_some_and(|line| line.contains("hosts"))),
        "{denials:?}"
    );
    assert_hidden(&ran);
}

#[test]
fn the_placeholder_of_another_call_is_worth_nothing() {
    let server = echo();
    let kept = rig().run(
        &config(
            "secret_sender",
            "keep",
            &json!({ "secret": "met" }),
            &[&base(&server)],
            r#""header""#,
        ),
        "go",
    );
    assert!(kept.content().starts_with("conclave-secret-"), "{}", kept.content());
    let mut arguments = request(&base(&server), &json!({ "x-key": "<SECRET>" }), "");
    arguments["placeholder"] = kept.content().into();
    arguments.as_object_mut().expect("an object").remove("secret");
    let ran = rig().run(
        &config("secret_sender", "send_kept", &arguments, &[&base(&server)], r#""header""#),
        "go",
    );
    assert!(ran.content().contains("Denied") && server.requests().is_empty(), "{}", ran.content());
    assert!(
        ran.denials().iter().any(|record| record.reason.contains("worth nothing in this call")),
        "{:?}",
        ran.denials()
    );
}

#[test]
fn a_secret_of_somebody_else_is_denied_and_only_one_that_there_is_gets_a_line() {
    let ran = rig().run(
        &config(
            "secret_escape",
            "ask",
            &json!({ "names": ["met", "other", "no_such"] }),
            &["http://127.0.0.1"],
            r#""header""#,
        ),
        "go",
    );
    let answers: Vec<String> = serde_json::from_str(ran.content()).expect("a list");
    assert!(
        answers[0].starts_with("Ok") && answers[1].contains("Err") && answers[2].contains("Err"),
        "{answers:?}"
    );
    assert!(!answers[1].contains("grants"), "the plugin is not told what to grant: {answers:?}");
    let suggestion = |name: &str| {
        let denials = ran.denials();
        let record = denials
            .iter()
            .find(|record| record.denial.target == name)
            .unwrap_or_else(|| panic!("{name}: {denials:?}"));
        assert_eq!(record.layer, Layer::Config);
        record.suggestion.clone()
    };
    assert_eq!(
        suggestion("other").as_deref(),
        Some(r#"[plugins.subject] grants.secrets = ["met", "other"]"#)
    );
    assert_eq!(suggestion("no_such"), None);
}

#[test]
fn a_redirect_takes_no_secret_elsewhere() {
    for location in ["/landing", "/landing?stolen=<VALUE>", "/<VALUE>"] {
        let elsewhere = echo();
        let elsewhere_url = base(&elsewhere).replace("127.0.0.1", "localhost");
        let to =
            format!("{elsewhere_url}{}", location.replace("<VALUE>", "s3cr%22et%2B%2Fvalue%261"));
        let bound = Server::answering(move |_| {
            TestReply::bytes(307, "text/plain", "go there").header("location", &to)
        });
        let arguments = request(&base(&bound), &json!({ "x-key": "<SECRET>" }), "");
        let bound_url = base(&bound);
        let all = &[bound_url.as_str(), elsewhere_url.as_str()];
        let ran = rig()
            .run(&config("secret_sender", "run", &arguments, all, r#""header", "query""#), "go");
        assert_eq!(bound.requests().len(), 1, "{}", ran.content());
        for request in elsewhere.requests() {
            assert_eq!(location, "/landing", "it was not followed: {request:?}");
            let said = said(&request);
            assert!(
                !said.contains("x-key")
                    && !said.contains("s3cr")
                    && !said.contains("conclave-secret"),
                "{said}"
            );
        }
        assert_hidden(&ran);
    }
}

#[test]
fn a_redirect_of_the_bound_host_to_itself_keeps_the_secret() {
    let server = Server::answering(|request| match request.path.strip_prefix("/old") {
        Some(query) => {
            TestReply::bytes(308, "text/plain", "").header("location", &format!("/new{query}"))
        }
        None => TestReply::bytes(200, "text/plain", format!("arrived with {}", request.path)),
    });
    let arguments = request(&format!("{}/old?key=<SECRET>", base(&server)), &json!({}), "");
    let ran = rig()
        .run(&config("secret_sender", "run", &arguments, &[&base(&server)], r#""query""#), "go");
    let came = server.requests();
    assert_eq!(came.len(), 2, "{}", ran.content());
    assert_eq!(came[1].path, "/new?key=s3cr%22et%2B%2Fvalue%261");
    assert_hidden(&ran);
}

#[test]
fn a_guest_that_came_by_the_value_gets_it_out_nowhere() {
    for how in ["answer", "error", "panic", "send"] {
        let server = Server::answering(|_| TestReply::bytes(200, "text/plain", "thanks"));
        let arguments = json!({ "url": base(&server), "secret": "met", "file": "/folder/copy.txt", "how": how });
        let ran = rig()
            .run(&config("secret_leak", "run", &arguments, &[&base(&server)], r#""header""#), "go");
        assert_eq!(
            server.requests().len(),
            1,
            "only the first request left, with the placeholder: {how}: {}",
            ran.content()
        );
        assert!(
            ran.logs().iter().any(|line| line.contains("it is [secret met]")),
            "{how}: {:?}",
            ran.logs()
        );
        assert_hidden(&ran);
    }
}

#[test]
fn a_secret_that_is_not_there_or_cannot_be_protected_is_said() {
    let server = echo();
    let arguments = request(&base(&server), &json!({ "x-key": "<SECRET>" }), "");
    let config = config("secret_sender", "run", &arguments, &[&base(&server)], r#""header""#);
    let missing = config
        .replace("token.txt", "no-such.txt")
        .replace("grants.secrets = [\"met\"]", "grants.secrets = [\"met\", \"other\"]");
    let problems = refused(&rig(), &missing.replace("other.txt", "nor-this.txt"));
    assert_eq!(problems.codes(), [ProblemCode::MissingSecret; 2], "{problems}");
    let ran = Rig::new()
        .with_file("data/copy.txt", "x")
        .with_file("keys/token.txt", "short")
        .with_file("keys/other.txt", "x")
        .run(&config, "go");
    assert!(ran.content().contains("Denied") && server.requests().is_empty(), "{}", ran.content());
    assert!(
        ran.denials().iter().any(|record| record.reason.contains("fewer than 8 bytes")),
        "{:?}",
        ran.denials()
    );
}

#[test]
fn a_secret_from_the_environment_is_no_variable_of_the_guest() {
    let secret = "[secrets.met]\nfrom = { env = \"PATH\" }\nhosts = [\"127.0.0.1\"]\n";
    let ran = Rig::new()
        .run(&(calling("env", "run", &json!({}), "grants.secrets = [\"met\"]") + secret), "go");
    let seen: Value = serde_json::from_str(ran.content()).expect("the guest answers with JSON");
    assert_eq!(seen["variables"], json!(0), "{seen}");
    let path = std::env::var("PATH").expect("a test has a PATH");
    assert!(!ran.content().contains(&path));
}

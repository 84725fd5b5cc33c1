//! Attacks on a server that every web site in the operator's browser can reach.

use std::io::{Read, Write};

use conclave_test_support::{Rig, stepping, until};
use serde_json::json;

use super::client::{Response, Served};
use super::echo;

const LIST: &str = "/api/conversations";
/// The event streams of a server at once.
const STREAMS: usize = 1_024;

#[test]
fn no_request_of_another_site_has_an_effect() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let path = format!("/api/conversations/{room}/messages");
    let message = json!({ "key": "a", "text": "hello" }).to_string();
    let with = |name: &str, value: &str| {
        let mut headers = served.own();
        headers.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        let leaked = Box::leak(name.to_owned().into_boxed_str());
        headers.push((leaked, value.to_owned()));
        headers
    };
    // A form or script of another site, with the cookie of a browser that does not know `SameSite`.
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "https://evil.example"] {
        let response = served.request("POST", &path, &with("Origin", origin), &message);
        assert_eq!((response.status, &response.body["error"]), (403, &json!("wrong_origin")));
        let response = served.request("GET", LIST, &with("Origin", origin), "");
        assert_eq!(response.status, 403, "{origin}");
        assert_eq!(response.header("access-control-allow-origin"), None);
    }
    let mut without = served.own();
    without.retain(|(name, _)| *name != "Origin");
    assert_eq!(served.request("POST", &path, &without, &message).status, 403);
    let image = with("Sec-Fetch-Site", "cross-site");
    assert_eq!(served.request("GET", LIST, &image, "").status, 403);
    // A name of the attacker that leads to this machine.
    for host in ["evil.example", "evil.example:80", "127.0.0.1", ""] {
        let response = served.request("GET", LIST, &with("Host", host), "");
        assert_eq!((response.status, &response.body["error"]), (421, &json!("wrong_host")));
        assert_eq!(served.request("GET", "/", &with("Host", host), "").status, 421, "{host}");
    }
    assert_eq!(served.request("OPTIONS", &path, &served.own(), "").status, 405);
    assert!(served.entries(&room).is_empty(), "nothing had an effect");
}

#[test]
fn without_the_cookie_nothing_is_shown_and_a_token_counts_nowhere_else() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let events = format!("/api/conversations/{room}/events");
    let mut headers = served.own();
    headers.retain(|(name, _)| *name != "Cookie");
    let page = format!("http://{}/#token={}", served.address(), served.token());
    let leaked = [
        ("Referer", page.clone()),
        ("Cookie", format!("conclave={}", served.token())),
        ("Authorization", format!("Bearer {}", served.token())),
    ];
    for header in std::iter::once(None).chain(leaked.into_iter().map(Some)) {
        let headers: Vec<_> = headers.iter().cloned().chain(header).collect();
        for path in [LIST, events.as_str(), &format!("{LIST}?token={}", served.token())] {
            let response = served.request("GET", path, &headers, "");
            assert_eq!((response.status, &response.body["error"]), (401, &json!("no_access")));
        }
    }
    let wrong = served.post("/api/session", &json!({ "token": "0".repeat(64) }));
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    // The page is the same for everybody, and lets no address leave.
    let page = served.request("GET", "/", &headers, "");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("referrer-policy"), Some("same-origin"));
    assert!(!page.text.contains(served.token()) && !page.text.contains(&room));
}

#[test]
fn the_page_runs_no_script_but_its_own_and_is_in_no_frame() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    for path in ["/", "/chat.js", "/chat.css", LIST, "/nothing"] {
        let response = served.get(path);
        let policy = response.header("content-security-policy").unwrap_or_default().to_owned();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(response.header("cache-control"), Some("no-store"), "{path}");
    }
    // Markup of a person, an agent or a model stays text: it is in JSON, and never in a page.
    let (room, markup) = (served.only_room(), "<img src=x onerror=alert(1)></script>");
    served.send(&room, "a", markup);
    let mut events = served.events(&room, None);
    let (user, answer) = (events.entry(), events.entry());
    assert_eq!((&user["text"], &answer["text"]), (&json!(markup), &json!(markup)));
    let page = served.get("/");
    let external = ["src=\"http", "href=\"http", "src=\"//", "onload=", "style=\"", "<script>"];
    assert!(external.iter().all(|part| !page.text.contains(part)), "{}", page.text);
}

#[test]
fn markup_in_the_words_of_a_config_stays_text() {
    let markup = "</p><script>document.title = 'owned'</script><img src=x onerror=alert(1)>";
    let task = format!("description = {}", json!(markup));
    let config = stepping("agent_echo", "", &task) + super::WEB;
    let rig = Rig::new().with_file("c.toml", config);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let status = served.events(&room, None).status(|status| status["task"].is_object());
    assert_eq!(status["task"]["description"], markup, "it is in JSON as configured");
    // Nothing that a browser parses as markup or as a script holds it, nor makes markup of a text.
    for path in ["/", "/chat.js", "/chat.css"] {
        assert!(!served.get(path).text.contains("owned"), "{path}");
    }
    let script = served.get("/chat.js").text;
    for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
        assert!(!script.contains(sink), "{sink}");
    }
}

#[test]
fn a_huge_body_or_head_is_refused() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let huge = served.send(&room, "a", &"x".repeat(256 << 10));
    assert_eq!((huge.status, &huge.body["error"]), (413, &json!("bad_arguments")));
    let mut headers = served.own();
    headers.push(("X-Long", "x".repeat(17 << 10)));
    assert_eq!(served.request("GET", LIST, &headers, "").status, 431);
    assert_eq!(served.get(LIST).status, 200, "others are served");
    assert!(served.entries(&room).is_empty());
}

#[test]
fn a_client_that_sends_slowly_is_cut_off_and_others_are_served() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let mut head = served.connect();
    write!(head, "GET /api/conversations HTTP/1.1\r\nHost: ").expect("it listens");
    let headers: String =
        served.own().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let mut body = served.connect();
    write!(
        body,
        "POST /api/conversations/{room}/messages HTTP/1.1\r\n{headers}Connection: close\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    )
    .expect("it listens");
    let mut form = served.connect();
    write!(
        form,
        "POST /login HTTP/1.1\r\n{headers}Connection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\ntoken="
    )
    .expect("it listens");
    assert_eq!(served.get(LIST).status, 200);
    let mut rest = Vec::new();
    // Both reads end only because the server ends them.
    let _ = head.read_to_end(&mut rest);
    let refused = Response::read(body);
    assert_eq!((refused.status, &refused.body["error"]), (408, &json!("too_slow")));
    let refused = Response::read(form);
    assert_eq!(refused.status, 408, "{}", refused.text);
    assert!(refused.text.contains("did not arrive within"), "{}", refused.text);
    assert!(served.entries(&room).is_empty());
}

#[test]
fn each_refusal_has_the_form_that_its_reader_reads() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    let kind = |answer: &Response| answer.header("content-type").unwrap_or_default().to_owned();
    for (path, status) in [
        ("/runs/a/b", 404),
        ("/runs/a/b/c/d", 404),
        ("/nothing", 404),
        ("/runs/%ff", 400),
        ("/runs/%zz", 400),
        ("/runs/a%", 400),
        ("/login", 405),
    ] {
        let answer = served.get(path);
        assert_eq!(
            (answer.status, &*kind(&answer)),
            (status, "text/html; charset=utf-8"),
            "{path}"
        );
    }
    for (path, status, code) in [
        ("/api/v1/runs/%ff", 400, "bad_arguments"),
        ("/api/v1/runs/%", 400, "bad_arguments"),
        ("/api/v1/nothing", 404, "not_found"),
        ("/api/v1", 404, "not_found"),
        ("/api/v1/runs/a/stop", 405, "wrong_method"),
    ] {
        let answer = served.get(path);
        let found = (answer.status, &*kind(&answer), answer.body["code"].as_str());
        assert_eq!(found, (status, "application/problem+json", Some(code)), "{path}");
    }
    let stranger = [("Host", served.address().to_owned())];
    let refused = served.request("GET", "/metrics", &stranger, "");
    assert_eq!((refused.status, &refused.body["code"]), (401, &json!("no_access")));
    for (path, code) in
        [("/api/conversations/%ff/events", "bad_arguments"), ("/api/x", "not_found")]
    {
        assert_eq!(served.get(path).body["error"], code, "{path}");
    }
}

/// Of two values a proxy checks one, and a server behind it takes the other.
#[test]
fn a_request_that_says_something_twice_is_refused() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    let (own, refused) = (served.own(), (400, json!("ambiguous_request")));
    let send = |path: &str, headers: &[(&str, String)]| {
        let answer = served.request("GET", path, headers, "");
        let code =
            [&answer.body["code"], &answer.body["error"]].into_iter().find(|it| it.is_string());
        (answer.status, code.cloned().unwrap_or_default())
    };
    for name in ["Host", "Origin", "Cookie"] {
        let own_value = own.iter().find(|(own, _)| *own == name).expect("one of its own");
        for value in [own_value.1.as_str(), "evil.example"] {
            for path in ["/api/v1/runs", LIST] {
                // Behind the right one, and before it.
                let second = (name, value.to_owned());
                let headers = [&own[..], std::slice::from_ref(&second)].concat();
                assert_eq!(send(path, &headers), refused, "{name}: {value}");
                let headers = [std::slice::from_ref(&second), &own[..]].concat();
                assert_eq!(send(path, &headers), refused, "{name}: {value}");
            }
        }
    }
    for name in
        ["Authorization", "Idempotency-Key", "Last-Event-ID", "Sec-Fetch-Site", "Content-Type"]
    {
        let two = [(name, "same-origin".to_owned()), (name, "same-origin".to_owned())];
        assert_eq!(send("/api/v1/runs", &[&own[..], &two].concat()), refused, "{name}");
    }
    // The same length twice is one; the parser of requests reads no two.
    let length = [&own[..], &[("Content-Length", "1".to_owned())]].concat();
    assert_eq!(send("/api/v1/runs", &length).0, 400);
    for query in ["limit=1&limit=2", "cursor=&cursor=x", "config=c&%63onfig=d", "text=a&text=a"] {
        assert_eq!(send(&format!("/api/v1/runs?{query}"), &own), refused, "{query}");
    }
    let twice = served.post_form("/login", &format!("token={}&token=x", served.token()));
    assert_eq!(twice.status, 400, "{}", twice.text);
    // Another program would read another host in the request line.
    let other = served.request("GET", "http://evil.example/api/v1/runs", &own, "");
    assert_eq!((other.status, &other.body["code"]), (400, &refused.1));
    // Lists may have several values, and a body of another kind is none of a form.
    assert_eq!(send("/api/v1/runs?limit=1&text=", &own).0, 200);
    let kind = served.request("POST", "/login", &own, "token=x");
    assert_eq!(kind.status, 415, "{}", kind.text);
    for path in [LIST.to_owned(), format!("{LIST}/{}/messages", served.only_room())] {
        let text = [&own[..], &[("Content-Type", "text/plain".to_owned())]].concat();
        let status = served.request("POST", &path, &text, r#"{"key":"k","text":"x"}"#).status;
        assert!(status == 415 || path == LIST, "{path}: {status}");
    }
}

/// The future of a request is dropped at any of its awaits when its client leaves.
#[test]
fn a_client_that_leaves_breaks_nothing_on_any_route() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let session = json!({ "token": served.token() }).to_string();
    for round in 0..5 {
        let message = json!({ "key": format!("left-{round}"), "text": "hello" }).to_string();
        served.leave("POST", LIST, "{}");
        served.leave("GET", LIST, "");
        served.leave("POST", &format!("{LIST}/{room}/messages"), &message);
        served.leave("GET", &format!("{LIST}/{room}/events"), "");
        served.leave("POST", &format!("{LIST}/{room}/stop"), "");
        served.leave("POST", "/api/session", &session);
        served.leave("GET", "/", "");
        // Each number is a conversation that works, or none.
        let begun = served.post(LIST, &json!({}));
        assert_eq!(begun.status, 201, "{}", begun.text);
        let begun = begun.body["id"].as_str().expect("an id").to_owned();
        assert_eq!(served.send(&begun, "a", "And here?").status, 200);
        served.events(&begun, None).entry_so(|entry| entry["kind"] == "answer");
    }
    let list = served.get(LIST).body;
    let rows = list["conversations"].as_array().expect("a list");
    assert!(rows.len() > 5 && rows.iter().all(|row| row["is_open"] == true), "{list}");
    for row in rows {
        let id = row["id"].as_str().expect("an id");
        assert_eq!(served.send(id, "b", "Still there?").status, 200, "{id}");
    }
}

/// The answers of pipelined requests fill the buffers of the system, and nobody reads them.
#[test]
fn clients_that_read_nothing_keep_no_browser_out() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let mut stream = served.events(&room, None);
    let asks = format!("GET /chat.js HTTP/1.1\r\nHost: {}\r\n\r\n", served.address());
    let strangers: Vec<_> = (0..300)
        .map(|_| {
            let mut stream = served.connect();
            let _ = stream.write_all(asks.repeat(200).as_bytes());
            stream
        })
        .collect();
    // One more than there are places without a session is answered too, and so is a browser.
    assert_eq!(
        served.request("GET", "/", &[("Host", served.address().to_owned())], "").status,
        200
    );
    assert_eq!(served.send(&room, "a", "hello").status, 200);
    stream.entry_so(|entry| entry["kind"] == "answer");
    drop(strangers);
}

#[test]
fn event_streams_are_limited_and_free_their_place() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let mut streams: Vec<_> = (0..STREAMS).map(|_| served.events(&room, None)).collect();
    let path = format!("/api/conversations/{room}/events");
    let refused = served.get(&path);
    assert_eq!((refused.status, &refused.body["error"]), (503, &json!("busy")));
    // Requests still have connections, and each stream gets the answer.
    assert_eq!(served.send(&room, "a", "hello").status, 200);
    for stream in &mut streams {
        stream.entry_so(|entry| entry["kind"] == "answer");
    }
    drop(streams.pop());
    until("a free place", || {
        let mut stream = served.connect();
        let headers: String =
            served.own().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(stream, "GET {path} HTTP/1.0\r\n{headers}\r\n").expect("it listens");
        let mut first = [0; 12];
        stream.read_exact(&mut first).expect("it answers");
        first.ends_with(b"200").then_some(())
    });
}

#[test]
fn conversations_are_limited() {
    let rig = echo(super::WEB);
    let served = Served::start(&rig, &[]);
    for _ in 1..64 {
        assert_eq!(served.post(LIST, &json!({})).status, 201);
    }
    let refused = served.post(LIST, &json!({}));
    assert_eq!((refused.status, &refused.body["error"]), (503, &json!("limit_reached")));
}

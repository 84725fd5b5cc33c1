//! Requests that plugins or servers try to send to a forbidden destination.

use super::*;

#[tokio::test]
async fn what_no_rule_covers_reaches_nobody() {
    let server = Server::saying(ok("secret"));
    let port = server.port;
    let mut plugin = plugin(grant(&[&format!("http://127-0-0-1.test:{port}/v1/*")]));
    for (method, url) in [
        ("GET", format!("https://127-0-0-1.test:{port}/v1/a")),
        ("GET", format!("http://127.0.0.1:{port}/v1/a")),
        ("GET", format!("http://127-0-0-2.test:{port}/v1/a")),
        ("GET", "http://127-0-0-1.test/v1/a".to_owned()),
        ("GET", format!("http://127-0-0-1.test:{port}/v2/a")),
        ("GET", format!("http://127-0-0-1.test:{port}/v1/../v2")),
        ("GET", format!("http://127-0-0-1.test:{port}/v1/%2e%2e/v2")),
        ("DELETE", format!("http://127-0-0-1.test:{port}/v1/a")),
        ("TRACE", format!("http://127-0-0-1.test:{port}/v1/a")),
        ("CONNECT", format!("http://127-0-0-1.test:{port}/v1/a")),
    ] {
        plugin.refused(method, &url).await;
    }
    assert_eq!(
        (server.connections(), plugin.asked_names().len(), plugin.journal().len()),
        (0, 0, 0),
        "nothing was looked up either"
    );
}

/// Incident 2: addresses are checked after resolution, whatever the spelling of the host.
#[tokio::test]
async fn no_spelling_of_an_inner_address_is_connected_to() {
    let open = [
        "http://*.test/*",
        "http://169.254.169.254/*",
        "http://192.0.0.192/*",
        "http://10.0.0.1/*",
        "http://[::1]/*",
        "http://[::ffff:127.0.0.2]/*",
        "http://[64:ff9b::7f00:2]/*",
        "http://[fd00:ec2::254]/*",
        "http://0.0.0.0/*",
        "http://127.0.0.2/*",
    ];
    let mut plugin = plugin(grant(&open));
    for host in [
        "169.254.169.254",
        "0xa9fea9fe",
        "2852039166",
        "0251.0376.0251.0376",
        "192.0.0.192",
        "10.0.0.1",
        "0",
        "127.2",
        "127.0.0.2",
        "[::1]",
        "[::ffff:127.0.0.2]",
        "[64:ff9b::7f00:2]",
        "[fd00:ec2::254]",
        "169-254-169-254.test",
        "10-0-0-1.test",
        "192-0-0-192.test",
        "127-0-0-2.test",
    ] {
        let reason = plugin.refused("GET", &format!("http://{host}/")).await;
        assert!(
            reason.contains("which no network in plugins.subject.grants.fetch.private covers"),
            "{host}: {reason}"
        );
    }
    assert!(
        plugin.journal().iter().all(|line| line.contains("asked") || line.ends_with("denied")),
        "{:?}",
        plugin.journal()
    );
}

/// Incident 2: rebinding. One forbidden address rejects the whole name, and the connection goes to
/// the checked address.
#[tokio::test]
async fn a_name_that_changes_its_mind_gains_nothing() {
    let server = Server::saying(ok("lit"));
    let port = server.port;
    let mut plugin = plugin(grant(&[&format!("http://*.test:{port}/*")]));
    for mixed in
        ["127-0-0-1--10-0-0-1.test", "10-0-0-1--127-0-0-1.test", "8-8-8-8--169-254-169-254.test"]
    {
        plugin.refused("GET", &format!("http://{mixed}:{port}/")).await;
    }
    assert_eq!(server.connections(), 0);
    let name = "127-0-0-1-then-10-0-0-1.test";
    let before = plugin.asked_names().len();
    assert_eq!(plugin.get(&format!("http://{name}:{port}/")).await.unwrap().status, 200);
    assert_eq!(
        (server.connections(), plugin.asked_names().len() - before),
        (1, 1),
        "it is looked up once"
    );
    plugin.refused("GET", &format!("http://{name}:{port}/")).await;
    assert_eq!(server.connections(), 1);
}

/// Incidents 2 and 12: a redirect is checked like a request, by its URL and by its resolved
/// addresses.
#[tokio::test]
async fn a_redirect_leads_nowhere_that_a_request_may_not_go() {
    let forbidden = Server::saying(ok("secret"));
    let inner = forbidden.port;
    for (to, reason) in [
        (format!("http://127.0.0.1:{inner}/"), "no rule"),
        ("http://10-0-0-1.test/".to_owned(), "private address, 10.0.0.1"),
        ("http://192-0-0-192.test/".to_owned(), "cloud metadata address, 192.0.0.192"),
        ("http://169.254.169.254/latest/meta-data".to_owned(), "no rule"),
        ("file:///etc/passwd".to_owned(), "nobody follows"),
        ("http://user:word@127-0-0-1.test/".to_owned(), "nobody follows"),
        ("//10-0-0-1.test/".to_owned(), "private address"),
    ] {
        let server = Server::saying(redirect(&to));
        let start = format!("http://127.0.0.1:{}/", server.port);
        let mut plugin = plugin(grant(&[&start, "http://*.test/*"]));
        let message = plugin.refused("GET", &start).await;
        assert!(message.contains(reason), "{to}: {message}");
        assert_eq!(server.connections(), 1);
    }
    assert_eq!(forbidden.connections(), 0);
}

#[tokio::test]
async fn a_redirect_in_a_circle_ends() {
    let server = Server::saying(redirect("/"));
    let base = format!("http://127.0.0.1:{}/", server.port);
    let mut plugin = plugin(FetchGrant { redirects: 3, ..grant(&[&format!("{base}*")]) });
    assert!(
        matches!(plugin.get(&base).await, Err(ExchangeFailure::Limit(_, limit)) if limit == "redirects = 3")
    );
    assert_eq!(server.connections(), 4);
    // The room counts each hop.
    let mut plugin = journalling(
        grant(&[&format!("{base}*")]),
        Journal { refuses_from: Some(2), ..Journal::default() },
    );
    assert!(matches!(plugin.get(&base).await, Err(ExchangeFailure::Denied(_))));
    assert_eq!(server.connections(), 6);
}

#[tokio::test]
async fn what_proves_who_asks_does_not_follow_to_another_origin() {
    let other = Server::saying(ok("thanks"));
    let server = Server::saying(redirect(&format!("http://127.0.0.1:{}/", other.port)));
    let mut plugin = plugin(grant(&[
        &format!("http://127.0.0.1:{}/*", server.port),
        &format!("http://127.0.0.1:{}/*", other.port),
    ]));
    let mut parts = parts("GET", &format!("http://127.0.0.1:{}/", server.port));
    parts.headers = [("authorization", "Bearer mine"), ("cookie", "a=b"), ("x-own", "1")]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
    plugin.send(parts).await.unwrap();
    let arrived = other.requests().remove(0).to_ascii_lowercase();
    assert!(
        arrived.contains("x-own: 1")
            && !arrived.contains("authorization")
            && !arrived.contains("cookie"),
        "{arrived}"
    );
}

/// Incident 14: every name that is resolved can leak data. The room counts the names of requests
/// that it is asked about.
#[tokio::test]
async fn no_name_is_resolved_before_the_room_says_yes_or_without_a_rule() {
    let mut plugin = journalling(
        grant(&["http://*.test:1/*"]),
        Journal { refuses_from: Some(0), ..Journal::default() },
    );
    let denied = plugin.get("http://127-0-0-1.test:1/").await;
    assert!(matches!(denied, Err(ExchangeFailure::Denied(_))));
    let denied_host = plugin.get("http://leak.elsewhere.example/").await;
    assert!(matches!(denied_host, Err(ExchangeFailure::Refused(_))));
    assert_eq!(plugin.asked_names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_manifest_that_does_not_ask_gets_nothing_also_when_granted() {
    let server = Server::saying(ok("lit"));
    let base = format!("http://127.0.0.1:{}/", server.port);
    let mut plugin = plugin(grant(&[&format!("{base}*")]));
    let context = Arc::get_mut(&mut plugin.core.plugin).unwrap();
    let mut setup = (*context.setup).clone();
    setup.facts.manifest.asks.clear();
    context.setup = Arc::new(setup);
    assert!(plugin.refused("GET", &base).await.contains("does not ask"));
    assert_eq!(server.connections(), 0);
}

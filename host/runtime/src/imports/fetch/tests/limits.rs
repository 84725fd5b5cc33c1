//! Requests and responses that are too large, too many or too slow.

use super::*;

fn limited(url: &str, limit: impl FnOnce(&mut FetchGrant)) -> Plugin {
    let mut grant = grant(&[&format!("{url}*")]);
    limit(&mut grant);
    plugin(grant)
}

fn is_limit<T>(outcome: &Result<T, ExchangeFailure>, key: &str) -> bool {
    matches!(outcome, Err(ExchangeFailure::Limit(_, limit)) if limit.starts_with(key))
}

#[tokio::test]
async fn a_bomb_is_cut_off_while_it_unfolds() {
    let bomb = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        (0..64).for_each(|_| encoder.write_all(&vec![0; 1 << 20]).unwrap());
        encoder.finish().unwrap()
    };
    assert!(bomb.len() < 100_000, "64 MiB in {}", bomb.len());
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        bomb.len()
    );
    let server = Server::saying([head.into_bytes(), bomb].concat());
    let base = format!("http://127.0.0.1:{}/", server.port);
    let mut plugin = limited(&base, |grant| grant.response_bytes = 100_000);
    assert!(is_limit(&plugin.get(&base).await, "response_size"));
    assert!(plugin.journal()[1].contains("past the limit"), "{:?}", plugin.journal());
}

#[tokio::test]
async fn compressed_answers_arrive_as_they_were() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(b"lit in 1844").unwrap();
    let body = encoder.finish().unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let server = Server::saying([head.into_bytes(), body].concat());
    let base = format!("http://127.0.0.1:{}/", server.port);
    let answer = limited(&base, |_| {}).get(&base).await.unwrap();
    assert_eq!(answer.body, b"lit in 1844");
    assert!(
        answer
            .headers
            .iter()
            .all(|(name, _)| name != "content-encoding" && name != "content-length"),
        "{:?}",
        answer.headers
    );
}

#[tokio::test]
async fn an_endless_body_is_cut_off() {
    let server = Server::start(|_, stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"));
        while stream.write_all(b"10\r\n0123456789abcdef\r\n").is_ok() {}
    });
    let base = format!("http://127.0.0.1:{}/", server.port);
    assert!(is_limit(
        &limited(&base, |grant| grant.response_bytes = 10_000).get(&base).await,
        "response_size"
    ));
}

#[tokio::test]
async fn sixteen_interim_answers_may_come_before_the_answer() {
    for (count, arrives) in [(16, true), (17, false)] {
        let interim = "HTTP/1.1 102 Processing\r\n\r\n".repeat(count);
        let server =
            Server::saying(format!("{interim}HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nlit"));
        let base = format!("http://127.0.0.1:{}/", server.port);
        let outcome = limited(&base, |_| {}).get(&base).await;
        assert_eq!(outcome.is_ok_and(|answer| answer.body == b"lit"), arrives, "{count}");
    }
}

#[tokio::test]
async fn a_slow_body_is_not_waited_for() {
    let server = Server::start(|_, stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx"));
        // Blocks until the client disconnects.
        drop(stream.read(&mut [0; 1]));
    });
    let base = format!("http://127.0.0.1:{}/", server.port);
    let mut plugin = limited(&base, |grant| grant.time_ms = 300);
    assert!(matches!(plugin.get(&base).await, Err(ExchangeFailure::TimedOut(_))));
    assert!(plugin.journal()[1].contains("in time"), "{:?}", plugin.journal());
    let mut patient = limited(&base, |_| {});
    let outcome = FetchExchange::new(&patient.core, &patient.holding)
        .run(parts("GET", &base), Some(300), true)
        .await;
    assert!(
        matches!(outcome, Err(ExchangeFailure::TimedOut(_))),
        "a guest may wait for less than the grant gives"
    );
    patient.core.effects = 1;
}

#[tokio::test]
async fn too_many_or_too_long_headers_are_no_answer() {
    let many: String = (0..200).map(|number| format!("x-{number}: y\r\n")).collect();
    let server = Server::saying(format!("HTTP/1.1 200 OK\r\n{many}content-length: 0\r\n\r\n"));
    let base = format!("http://127.0.0.1:{}/", server.port);
    assert!(matches!(
        limited(&base, |_| {}).get(&base).await,
        Err(ExchangeFailure::Unavailable(_))
    ));
    let server = Server::saying(format!(
        "HTTP/1.1 200 OK\r\nx-long: {}\r\ncontent-length: 0\r\n\r\n",
        "y".repeat(5_000)
    ));
    let base = format!("http://127.0.0.1:{}/", server.port);
    assert!(is_limit(
        &limited(&base, |grant| grant.response_bytes = 4_000).get(&base).await,
        "response_size"
    ));
}

#[tokio::test]
async fn a_request_that_is_too_long_is_not_sent() {
    let server = Server::saying(ok("lit"));
    let base = format!("http://127.0.0.1:{}/", server.port);
    let mut plugin = limited(&base, |grant| grant.request_bytes = 1_000);
    let mut body = parts("POST", &base);
    body.body = Some(vec![b'x'; 1_000]);
    let mut header = parts("GET", &base);
    header.headers.push(("x-own".to_owned(), "y".repeat(1_000)));
    let address = parts("GET", &format!("{base}{}", "z".repeat(1_000)));
    for parts in [body, header, address] {
        assert!(is_limit(&plugin.send(parts).await, "request_size = 1000 B"));
    }
    assert_eq!((server.connections(), plugin.journal().len()), (0, 0));
}

#[tokio::test]
async fn answers_that_are_kept_are_counted_together() {
    let server = Server::saying(ok(&"x".repeat(900)));
    let base = format!("http://127.0.0.1:{}/", server.port);
    let mut plugin = limited(&base, |grant| grant.response_bytes = 1_000);
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(plugin.get(&base).await.unwrap());
    }
    assert!(is_limit(&plugin.get(&base).await, "response_size, answers that are kept"));
    answers.pop();
    assert!(plugin.get(&base).await.is_ok());
}

#[tokio::test]
async fn a_plugin_has_so_many_requests_under_way_and_no_more() {
    let server = Server::saying(ok("lit"));
    let base = format!("http://127.0.0.1:{}/", server.port);
    let mut plugin = limited(&base, |grant| (grant.at_once, grant.time_ms) = (1, 200));
    let context = Arc::clone(&plugin.core.plugin);
    let other = context.outgoing.turn().await;
    assert!(matches!(plugin.get(&base).await, Err(ExchangeFailure::TimedOut(_))));
    assert_eq!(server.connections(), 0);
    drop(other);
}

#[tokio::test]
async fn what_cannot_be_reached_says_nothing_of_how() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let base = format!("http://127.0.0.1:{port}/");
    let mut plugin = limited(&base, |_| {});
    let outcome = plugin.get(&format!("{base}?key=value")).await;
    assert!(
        matches!(&outcome, Err(ExchangeFailure::Unavailable(what)) if !what.contains("value") && !what.contains("127"))
    );
    let garbage = Server::saying("SSH-2.0-OpenSSH\r\n");
    let base = format!("http://127.0.0.1:{}/", garbage.port);
    assert!(matches!(
        limited(&base, |_| {}).get(&base).await,
        Err(ExchangeFailure::Unavailable(_))
    ));
}

#[tokio::test]
async fn a_secure_address_is_not_sent_to_in_the_clear() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let base = format!("https://127.0.0.1:{}/", listener.local_addr().unwrap().port());
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut first = vec![0; 4_096];
        let length = stream.read(&mut first).unwrap();
        drop(stream.write_all(ok("lit").as_bytes()));
        first.truncate(length);
        first
    });
    let mut request = parts("GET", &base);
    request.headers.push(("authorization".to_owned(), "Bearer mine".to_owned()));
    assert!(matches!(
        limited(&base, |_| {}).send(request).await,
        Err(ExchangeFailure::Unavailable(_))
    ));
    let received = receiver.join().unwrap();
    assert!(received.starts_with(&[0x16, 3]), "a greeting of TLS");
    assert!(!String::from_utf8_lossy(&received).contains("mine"));
}

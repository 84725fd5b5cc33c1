//! Keys: read once, renewed after a refusal, and never shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conclave_core::types::completion::{ModelDiagnosticKind, ModelError};
use conclave_models::http::{HttpModel, HttpModelError};
use conclave_models::test_server::{SeenRequest, Server, TestReply};
use conclave_models::{ApiKey, BoxFuture, KeySource};
use serde_json::json;

use crate::world::{SECRET, ask, client, fails, settings};

/// Returns `key-1`, `key-2`, … up to a last one.
struct Rotating {
    requests: AtomicUsize,
    last: usize,
}

impl KeySource for Rotating {
    fn key(&self) -> BoxFuture<'static, Result<ApiKey, String>> {
        let number = (self.requests.fetch_add(1, Ordering::Relaxed) + 1).min(self.last);
        Box::pin(async move { Ok(ApiKey::new(format!("key-{number}"))) })
    }
}

fn rotating(server: &Server, last: usize) -> (HttpModel, Arc<Rotating>) {
    let source = Arc::new(Rotating { requests: AtomicUsize::new(0), last });
    let mut settings = settings(server);
    settings.key = Some(Arc::<Rotating>::clone(&source));
    (HttpModel::new(settings).unwrap(), source)
}

/// Returns a server that accepts one key only.
fn taking(key: &'static str) -> Server {
    Server::answering(move |request: &SeenRequest| {
        let header = request.headers.get("authorization").map_or("", String::as_str);
        if header == format!("Bearer {key}") {
            TestReply::says("in")
        } else {
            TestReply::error(401, &format!("no such key: {header}"))
        }
    })
}

#[tokio::test]
async fn a_key_is_asked_for_once_and_again_after_a_refusal() {
    let server = taking("key-2");
    let (client, source) = rotating(&server, 9);
    for _ in 0..3 {
        ask(&client, false).await.0.unwrap();
    }
    assert_eq!((source.requests.load(Ordering::Relaxed), server.requests().len()), (2, 4));
}

#[tokio::test]
async fn a_second_refusal_is_the_last() {
    let server = taking("key-9");
    let (client, source) = rotating(&server, 9);
    let (_, kind, text) = fails(&client, false).await;
    assert_eq!(
        (kind, server.requests().len(), source.requests.load(Ordering::Relaxed)),
        (ModelDiagnosticKind::Key, 2, 2)
    );
    assert!(
        text.contains("401") && text.contains(&server.url()) && !text.contains("key-2"),
        "{text}"
    );
}

#[tokio::test]
async fn the_same_key_is_not_tried_twice() {
    let server = taking("other");
    let (client, _) = rotating(&server, 1);
    assert_eq!(fails(&client, false).await.1, ModelDiagnosticKind::Key);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_key_that_a_server_sends_back_is_not_told() {
    for status in [400, 401, 404, 429, 500, 200] {
        let server = Server::start(vec![TestReply::error(
            status,
            &format!("bad {SECRET}\u{1b}[2J and Bearer {SECRET}"),
        )]);
        let (_, _, text) = fails(&client(&server), true).await;
        assert!(text.contains("bad (key)"), "{text}");
    }
    for body in [format!("<html>{SECRET}"), format!("data: {{{SECRET}\n\n")] {
        let server = Server::start(vec![TestReply::bytes(200, "text/html", body)]);
        assert!(fails(&client(&server), true).await.2.contains("(key)"));
    }
}

#[tokio::test]
async fn headers_of_the_operator_s_are_secrets_too() {
    let server = Server::answering(|request| TestReply::error(400, &request.headers["x-token"]));
    let mut settings = settings(&server);
    settings.headers.insert("x-token".to_owned(), "tok-777".to_owned());
    let client = HttpModel::new(settings.clone()).unwrap();
    assert!(!fails(&client, false).await.2.contains("tok-777"));
    assert!(!format!("{settings:?} {client:?}").contains("tok-777"));
    assert!(!format!("{settings:?} {client:?}").contains(SECRET));
}

#[tokio::test]
async fn a_query_of_the_address_is_a_secret_too() {
    let server = Server::answering(|request| {
        TestReply::error(400, &format!("bad {} {SECRET}", request.path))
    });
    let mut settings = settings(&server);
    settings.url += "?api_key=q%2Dsecret-9&api-version=2026-01-01";
    let text = fails(&HttpModel::new(settings).unwrap(), false).await.2;
    assert!(
        text.contains("bad /v1/chat/completions?(key)") && !text.contains("secret-9"),
        "{text}"
    );
    let server = Server::answering(|_| TestReply::says("q-secret-9 of 2026-01-01"));
    let mut settings = self::settings(&server);
    settings.url += "?api_key=q%2Dsecret-9&api-version=2026-01-01";
    let completion = ask(&HttpModel::new(settings).unwrap(), false).await.0.unwrap();
    assert_eq!(completion.content.as_deref(), Some("(key) of 2026-01-01"));
}

#[tokio::test]
async fn a_key_at_the_cut_of_a_body_is_not_told_in_part() {
    for space in 330..400 {
        let body = format!("<html>{}{SECRET}", " ".repeat(space));
        let server = Server::start(vec![TestReply::bytes(200, "text/html", body)]);
        let text = fails(&client(&server), false).await.2;
        assert!(!text.contains("sk-v"), "{text}");
    }
    for cut in [1000, 65536] {
        let body = format!("<html>{}{SECRET}", " ".repeat(cut - 15));
        let server = Server::answering(move |_| {
            TestReply::bytes(if cut == 1000 { 200 } else { 400 }, "text/html", body.clone())
        });
        let trouble = client(&server).probe().await.unwrap_err().trouble;
        assert!(!trouble.text.contains("sk-v"), "{}", trouble.text);
    }
}

#[tokio::test]
async fn names_of_models_are_told_without_the_key() {
    let server = Server::answering(|request| match request.method.as_str() {
        "GET" => TestReply::json(
            200,
            &json!({"data": [{"id": format!("{}{SECRET}", "m".repeat(190))}, {"id": SECRET}]}),
        ),
        _ => TestReply::error(404, "The model does not exist."),
    });
    let names = client(&server).probe().await.unwrap();
    assert_eq!(names, [format!("{}(key)", "m".repeat(190)), "(key)".to_owned()]);
    let text = fails(&client(&server), false).await.2;
    assert!(text.contains("It has mmm") && !text.contains("sk-v"), "{text}");
}

#[tokio::test]
async fn a_key_in_a_redirect_is_not_told_in_small_letters() {
    let key = "sk-VERY-Secret-1234";
    let server = Server::start(vec![
        TestReply::bytes(302, "text/plain", "")
            .header("location", &format!("http://{key}.example/")),
    ]);
    let mut settings = settings(&server);
    settings.key = Some(Arc::new(ApiKey::new(key.to_owned())));
    let text = fails(&HttpModel::new(settings).unwrap(), false).await.2;
    assert!(text.contains("http://(key).example"), "{text}");
}

#[tokio::test]
async fn a_key_that_a_server_puts_into_its_answer_reaches_nobody() {
    let call = json!({"id": format!("c-{SECRET}"), "function": {"name": SECRET, "arguments": json!({"a": [SECRET], SECRET: 1}).to_string()}});
    let message =
        json!({"content": format!("it is {SECRET}!"), "reasoning": SECRET, "tool_calls": [call]});
    let id = format!("{}{SECRET}", "i".repeat(190));
    let body = json!({"id": id, "model": SECRET, "choices": [{"message": message, "finish_reason": "stop"}]});
    for stream in [false, true] {
        let server = Server::start(vec![TestReply::json(200, &body)]);
        let (completion, pieces) = ask(&client(&server), stream).await;
        let completion = completion.unwrap();
        assert!(!format!("{completion:?}").contains("sk-v"), "{completion:?}");
        assert_eq!(completion.content.as_deref(), Some("it is (key)!"));
        let call = &completion.tool_calls[0];
        assert_eq!((call.id.as_str(), call.name.as_str()), ("c-(key)", "(key)"));
        assert_eq!(*call.arguments, json!({"a": ["(key)"], "(key)": 1}));
        assert!(!stream || pieces.concat() == "it is (key)!", "{pieces:?}");
    }
}

#[tokio::test]
async fn a_key_in_pieces_is_not_heard_and_other_text_is_not_delayed() {
    let server = Server::start(vec![TestReply::streams(&[
        "a s",
        "k-very-",
        "secret-1234",
        "b",
        " sk-",
        "ip",
        " s",
    ])]);
    let (completion, pieces) = ask(&client(&server), true).await;
    assert_eq!(pieces, ["a ", "(key)", "b", " ", "sk-ip", " ", "s"]);
    assert_eq!(completion.unwrap().content.as_deref(), Some("a (key)b sk-ip s"));
}

#[tokio::test]
async fn without_a_key_nothing_is_sent() {
    struct Nothing;
    impl KeySource for Nothing {
        fn key(&self) -> BoxFuture<'static, Result<ApiKey, String>> {
            Box::pin(async { Err("the variable MODEL_KEY is not set".to_owned()) })
        }
    }
    let server = Server::start(vec![TestReply::says("a")]);
    let mut settings = settings(&server);
    settings.key = Some(Arc::new(Nothing));
    let client = HttpModel::new(settings).unwrap();
    let (error, kind, text) = fails(&client, false).await;
    assert!(matches!(error, ModelError::Other { .. }));
    assert!(kind == ModelDiagnosticKind::Key && text.contains("MODEL_KEY"), "{text}");
    assert_eq!(client.probe().await.unwrap_err().trouble.kind, ModelDiagnosticKind::Key);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_key_that_no_header_can_hold_is_not_sent_and_not_told() {
    let server = Server::start(vec![TestReply::says("a")]);
    let mut settings = settings(&server);
    settings.key = Some(Arc::new(ApiKey::new("first-half\nsecond-half".to_owned())));
    let (_, kind, text) = fails(&HttpModel::new(settings).unwrap(), false).await;
    assert!(kind == ModelDiagnosticKind::Key && !text.contains("half"), "{text}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_server_that_wants_no_key_gets_none() {
    let server = Server::start(vec![TestReply::says("a"), TestReply::error(401, "who are you?")]);
    let mut settings = settings(&server);
    settings.key = None;
    let client = HttpModel::new(settings).unwrap();
    ask(&client, false).await.0.unwrap();
    assert!(!server.requests()[0].headers.contains_key("authorization"));
    let (_, kind, text) = fails(&client, false).await;
    assert!(kind == ModelDiagnosticKind::Key && text.contains("set the model's key"), "{text}");
}

#[tokio::test]
async fn a_redirect_is_told_and_gets_neither_request_nor_key() {
    let target = Server::start(vec![TestReply::says("gotcha")]);
    let location = format!("{}/chat/completions?token={SECRET}", target.url());
    let server =
        Server::start(vec![TestReply::bytes(307, "text/plain", "").header("location", &location)]);
    let (_, kind, text) = fails(&client(&server), false).await;
    assert!(target.requests().is_empty());
    assert!(
        kind == ModelDiagnosticKind::Refused
            && text.contains("307")
            && text.contains(target.url().trim_end_matches("/v1")),
        "{text}"
    );
}

#[tokio::test]
async fn settings_that_cannot_be_meant_are_refused() {
    let server = Server::start(vec![TestReply::says("a")]);
    let wrong = |change: fn(&mut conclave_models::http::HttpModelSettings)| {
        let mut settings = settings(&server);
        change(&mut settings);
        HttpModel::new(settings).unwrap_err()
    };
    assert!(matches!(wrong(|settings| settings.url.clear()), HttpModelError::Url { .. }));
    assert!(matches!(wrong(|settings| settings.model.clear()), HttpModelError::NoModel));
    assert!(matches!(
        wrong(|settings| drop(settings.options.insert("messages".to_owned(), 1.into()))),
        HttpModelError::Option { .. }
    ));
    assert!(matches!(
        wrong(|settings| drop(settings.headers.insert("Authorization".to_owned(), "x".to_owned()))),
        HttpModelError::Header { .. }
    ));
    assert!(matches!(
        wrong(|settings| drop(settings.headers.insert("a b".to_owned(), "x".to_owned()))),
        HttpModelError::Header { .. }
    ));
    assert!(matches!(
        wrong(|settings| settings.proxy = Some("http://".to_owned())),
        HttpModelError::Proxy { .. }
    ));
}

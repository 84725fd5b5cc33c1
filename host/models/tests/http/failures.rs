//! Servers that refuse, fail or send invalid data, and the errors for plugin and operator.

use conclave_core::types::completion::{ModelDiagnosticKind, ModelError};
use conclave_models::http::HttpModel;
use conclave_models::test_server::{Server, TestReply};
use serde_json::json;

use crate::world::{SECRET, client, fails, settings};

/// Returns the failure of a request, which must not be retried.
async fn refused(answer: TestReply) -> (ModelError, ModelDiagnosticKind, String) {
    let server = Server::start(vec![answer, TestReply::says("second")]);
    let failure = fails(&client(&server), false).await;
    let posts = server.requests().iter().filter(|request| request.method == "POST").count();
    assert_eq!(posts, 1);
    assert!(failure.2.contains(&server.url()), "{}", failure.2);
    failure
}

#[tokio::test]
async fn a_refused_key_is_trouble_with_the_key() {
    for status in [401, 403] {
        let (error, kind, text) =
            refused(TestReply::error(status, "Incorrect API key provided")).await;
        assert!(matches!(error, ModelError::Other { .. }));
        assert!(
            kind == ModelDiagnosticKind::Key
                && text.contains("Incorrect API key provided")
                && text.contains("Check"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn an_unknown_model_is_told_with_those_that_are_known() {
    let (error, kind, text) =
        refused(TestReply::error(404, "The model `test-model` does not exist")).await;
    assert_eq!(
        (error, kind),
        (ModelError::UnknownModel { name: "test-model".to_owned() }, ModelDiagnosticKind::NotFound)
    );
    assert!(text.ends_with("It has test-model."), "{text}");
}

#[tokio::test]
async fn a_wrong_path_is_told_as_one() {
    let (error, kind, text) =
        refused(TestReply::bytes(404, "text/plain", "404 page not found")).await;
    assert!(matches!(error, ModelError::Other { .. }));
    assert!(kind == ModelDiagnosticKind::NotFound && text.contains("mostly with /v1"), "{text}");
}

#[tokio::test]
async fn a_prompt_that_does_not_fit_says_what_does() {
    let message =
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.";
    let (error, _, text) = refused(TestReply::error(400, message)).await;
    assert_eq!(error, ModelError::ContextTooLong { tokens: 4096 });
    assert!(text.contains("5000"), "{text}");
}

#[tokio::test]
async fn a_context_without_room_for_a_prompt_is_no_remedy() {
    let message = "request (632 tokens) exceeds the available context size (256 tokens)";
    let body = json!({"error": {"code": 400, "message": message, "n_ctx": 256,
        "type": "exceed_context_size_error"}});
    let (error, _, text) = refused(TestReply::json(400, &body)).await;
    assert_eq!(error, ModelError::ContextTooLong { tokens: 256 });
    assert!(!text.contains("context = 256") && text.contains("start the server"), "{text}");
}

#[tokio::test]
async fn an_answer_that_the_server_cannot_read_is_malformed_after_another_attempt() {
    let message = "The model produced output that does not match the expected peg-native format";
    let server =
        Server::start(vec![TestReply::error(500, message), TestReply::error(500, message)]);
    let mut settings = settings(&server);
    settings.retries = 1;
    let (error, kind, text) = fails(&HttpModel::new(settings).unwrap(), false).await;
    assert_eq!(server.requests().iter().filter(|request| request.method == "POST").count(), 2);
    assert!(matches!(error, ModelError::Other { .. }), "{error:?}");
    assert_eq!(kind, ModelDiagnosticKind::Malformed);
    assert!(text.contains("tool_format"), "{text}");
}

#[tokio::test]
async fn an_empty_account_is_not_waited_for() {
    let quota = json!({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}});
    let (error, kind, _) = refused(TestReply::json(429, &quota)).await;
    assert_eq!(
        (error, kind),
        (ModelError::Unavailable { retry_after_ms: None }, ModelDiagnosticKind::Unavailable)
    );
}

#[tokio::test]
async fn what_a_server_lacks_is_told_with_the_remedy_and_not_asked_for_again() {
    for (status, message, remedy) in [
        (400, "gemma:2b does not support tools", "tool_format"),
        (500, "tools param requires --jinja flag", "--jinja"),
        (500, "Conversation roles must alternate user/assistant", "tool_format"),
    ] {
        let (error, kind, text) = refused(TestReply::error(status, message)).await;
        assert!(matches!(error, ModelError::Other { .. }));
        assert_eq!(kind, ModelDiagnosticKind::Refused);
        assert!(text.contains(message) && text.contains(remedy), "{text}");
    }
}

#[tokio::test]
async fn an_error_in_an_answer_is_not_told_as_a_status() {
    let answer = TestReply::json(200, &json!({"error": {"message": "bad schema"}}));
    let (_, kind, text) = refused(answer).await;
    assert_eq!(kind, ModelDiagnosticKind::Refused);
    assert!(text.contains("in its answer: bad schema") && !text.contains("400"), "{text}");
}

#[tokio::test]
async fn what_the_server_says_is_told_short_and_printable() {
    let (_, _, text) =
        refused(TestReply::error(400, &format!("a\u{1b}[31m\r\n\u{202e}{}", "x".repeat(9000))))
            .await;
    assert!(text.contains("a[31m xxx") && text.chars().count() < 500, "{text}");
}

#[tokio::test]
async fn something_else_than_an_answer_is_malformed() {
    for body in ["<html><title>Login</title>", "{\"choices\": ", "data: {nonsense\n\n", "", "OK"] {
        let (error, kind, text) = refused(TestReply::bytes(200, "text/html", body)).await;
        assert!(matches!(error, ModelError::Other { .. }));
        assert_eq!(kind, ModelDiagnosticKind::Malformed, "{text}");
        assert!(
            text.contains(body.trim()) && text.contains("Are its url and its kind right?"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_large_answer_is_stopped_at_the_limit() {
    let large = TestReply::says(&"x".repeat(300_000));
    let stream = TestReply::streams(&["0123456789".repeat(1000).as_str(); 30]);
    let line = TestReply::bytes(200, "text/event-stream", b"data: ".repeat(100_000));
    for answer in [large, stream, line] {
        let server = Server::start(vec![answer.then_silence()]);
        let mut settings = settings(&server);
        settings.reply_max = 100_000;
        let (error, kind, text) = fails(&HttpModel::new(settings).unwrap(), false).await;
        assert!(matches!(error, ModelError::Other { .. }));
        assert_eq!((kind, server.requests().len()), (ModelDiagnosticKind::Limit, 1), "{text}");
    }
}

#[tokio::test]
async fn an_error_without_end_is_read_in_part() {
    let server = Server::start(vec![
        TestReply::bytes(400, "text/plain", b"no ".repeat(100_000)).then_silence(),
    ]);
    assert!(fails(&client(&server), false).await.2.contains("no no"));
}

#[tokio::test]
async fn nobody_there_is_told_as_that() {
    let server = Server::start(vec![TestReply::says("a")]);
    let mut settings = settings(&server);
    // Bound without listening, so no other process gets this port.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    settings.url = format!("http://{}/v1", socket.local_addr().unwrap());
    settings.retries = 1;
    let (error, kind, text) = fails(&HttpModel::new(settings.clone()).unwrap(), false).await;
    assert_eq!(
        (error, kind),
        (ModelError::Unavailable { retry_after_ms: None }, ModelDiagnosticKind::Unreachable)
    );
    assert!(
        text.contains("connection refused: is the server running?")
            && text.contains("tried 2 times"),
        "{text}"
    );
    assert_eq!(
        HttpModel::new(settings).unwrap().probe().await.unwrap_err().trouble.kind,
        ModelDiagnosticKind::Unreachable
    );
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_told_as_not_secure() {
    let server = Server::start(vec![TestReply::says("a")]);
    let mut settings = settings(&server);
    settings.url = settings.url.replace("http:", "https:");
    settings.retries = 0;
    match HttpModel::new(settings) {
        Ok(client) => {
            let (_, kind, text) = fails(&client, false).await;
            assert_eq!(kind, ModelDiagnosticKind::Unreachable, "{text}");
        }
        // A machine without certificates fails earlier.
        Err(error) => assert!(error.to_string().contains("certificates"), "{error}"),
    }
}

#[tokio::test]
async fn a_probe_tells_what_stands_in_the_way() {
    let server = Server::answering(|_| TestReply::error(401, &format!("no {SECRET}")));
    let trouble = client(&server).probe().await.unwrap_err().trouble;
    assert!(
        trouble.kind == ModelDiagnosticKind::Key && !trouble.text.contains(SECRET),
        "{}",
        trouble.text
    );
    let server = Server::answering(|_| TestReply::bytes(200, "text/html", "<html>"));
    assert_eq!(
        client(&server).probe().await.unwrap_err().trouble.kind,
        ModelDiagnosticKind::Malformed
    );
}

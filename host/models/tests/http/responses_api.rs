//! The Responses API over HTTP: address, headers, answers and errors.

use conclave_core::types::completion::{ModelApi, ModelDiagnosticKind, ModelError, StopReason};
use conclave_models::http::{HttpModel, HttpModelError, HttpModelSettings};
use conclave_models::test_server::{Server, TestReply};
use serde_json::{Value, json};

use crate::world::{self, SECRET, ask, fails};

fn settings(server: &Server) -> HttpModelSettings {
    HttpModelSettings { api: ModelApi::Responses, ..world::settings(server) }
}

fn client(server: &Server) -> HttpModel {
    HttpModel::new(settings(server)).unwrap()
}

fn response(text: &str) -> Value {
    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
    json!({"id": "resp_1", "object": "response", "status": "completed", "model": "test-model-1",
        "output": [{"type": "message", "id": "msg_1", "role": "assistant", "content": content}],
        "usage": {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 2},
            "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 1}}})
}

fn error(status: u16, code: &str, message: &str) -> TestReply {
    let error = json!({"message": message, "type": "invalid_request_error", "code": code});
    TestReply::json(status, &json!({ "error": error }))
}

#[tokio::test]
async fn a_request_has_the_path_the_key_and_the_whole_input() {
    let server = Server::start(vec![TestReply::json(200, &response("Hello"))]);
    let completion = ask(&client(&server), false).await.0.unwrap();
    assert_eq!((completion.content.as_deref(), completion.stop), (Some("Hello"), StopReason::End));
    assert_eq!((completion.id.as_str(), completion.model.as_str()), ("resp_1", "test-model-1"));
    let usage = completion.usage;
    assert_eq!((usage.input_tokens, usage.cached_input_tokens, usage.output_tokens), (7, 2, 3));
    let request = &server.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/responses"));
    assert_eq!(request.headers["authorization"], format!("Bearer {SECRET}"));
    assert_eq!(
        request.json(),
        json!({"model": "test-model", "store": false, "instructions": "be good",
            "input": [{"type": "message", "role": "user", "content": "Begin."}]})
    );
}

#[tokio::test]
async fn a_stream_is_heard_while_it_comes_and_ends_with_its_last_event() {
    let delta = |text: &str| json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": text});
    let events = [
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}),
        delta("Hé"),
        delta("llo"),
        json!({"type": "response.completed", "response": response("Héllo")}),
    ];
    let complete = TestReply::events(&events);
    for reply in [complete.clone(), complete.in_pieces_of(1)] {
        let server = Server::start(vec![reply]);
        let (completion, pieces) = ask(&client(&server), true).await;
        assert_eq!(pieces, ["Hé", "llo"]);
        assert_eq!(completion.unwrap().content.as_deref(), Some("Héllo"));
        assert_eq!(server.requests()[0].json()["stream"], true);
    }
}

#[tokio::test]
async fn refusals_have_the_kinds_of_the_other_apis() {
    for (reply, expected, kind) in [
        (
            error(400, "context_length_exceeded", "Your input exceeds the context window."),
            ModelError::ContextTooLong { tokens: 0 },
            ModelDiagnosticKind::Refused,
        ),
        (
            error(404, "model_not_found", "The model `test-model` does not exist."),
            ModelError::UnknownModel { name: "test-model".to_owned() },
            ModelDiagnosticKind::NotFound,
        ),
        (
            error(401, "invalid_api_key", &format!("Incorrect API key: {SECRET}")),
            ModelError::Other {
                message: "the model's server did not accept the operator's key".to_owned(),
            },
            ModelDiagnosticKind::Key,
        ),
        (
            error(429, "insufficient_quota", "You exceeded your current quota."),
            ModelError::Unavailable { retry_after_ms: None },
            ModelDiagnosticKind::Unavailable,
        ),
    ] {
        let server = Server::start(vec![reply]);
        let (error, found, _) = fails(&client(&server), false).await;
        assert_eq!((error, found), (expected, kind));
        let posts = server.requests().iter().filter(|request| request.method == "POST").count();
        assert_eq!(posts, 1);
    }
}

#[tokio::test]
async fn what_ties_a_request_to_the_server_s_store_is_no_option() {
    let server = Server::start(vec![TestReply::says("never")]);
    for name in ["input", "instructions", "previous_response_id", "conversation", "background"] {
        let mut settings = settings(&server);
        settings.options.insert(name.to_owned(), json!("x"));
        let refused = HttpModel::new(settings.clone());
        assert!(matches!(refused, Err(HttpModelError::Option { .. })), "{name}");
        settings.api = ModelApi::ChatCompletions;
        assert!(HttpModel::new(settings).is_ok(), "{name}");
    }
}

#[tokio::test]
async fn a_server_without_the_api_is_named_as_such() {
    let server = Server::start(vec![TestReply::says("Hello")]);
    let (_, kind, text) = fails(&client(&server), false).await;
    assert_eq!(kind, ModelDiagnosticKind::Malformed);
    assert!(text.contains("is not the Responses API. Are its url and its kind right?"), "{text}");
}

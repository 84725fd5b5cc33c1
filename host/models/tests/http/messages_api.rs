//! The Messages API over HTTP: addresses, headers, answers and errors. What is not of the API is
//! tested with Chat Completions.

use std::sync::Arc;

use conclave_core::types::completion::{ModelApi, ModelDiagnosticKind, ModelError, StopReason};
use conclave_core::types::tool::ToolSummary;
use conclave_models::http::{HttpModel, HttpModelError, HttpModelSettings};
use conclave_models::test_server::{Server, TestReply};
use conclave_models::{ModelClient, NoText};
use serde_json::{Value, json};

use crate::world::{self, SECRET, ask, fails, prompt};

fn settings(server: &Server) -> HttpModelSettings {
    HttpModelSettings { api: ModelApi::Messages, ..world::settings(server) }
}

fn client(server: &Server) -> HttpModel {
    HttpModel::new(settings(server)).unwrap()
}

fn message(content: Value, stop_reason: &str) -> TestReply {
    TestReply::json(
        200,
        &json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "test-model-1",
            "content": content, "stop_reason": stop_reason, "stop_sequence": null,
            "usage": {"input_tokens": 7, "cache_read_input_tokens": 2, "output_tokens": 3}}),
    )
}

fn says(text: &str) -> TestReply {
    message(json!([{"type": "text", "text": text}]), "end_turn")
}

fn error(status: u16, kind: &str, message: &str) -> TestReply {
    let error = json!({"type": kind, "message": message});
    TestReply::json(status, &json!({"type": "error", "error": error, "request_id": "req_1"}))
}

fn streams(pieces: &[&str], end: &[Value]) -> TestReply {
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "msg_2", "model": "test-model-1",
            "content": [], "usage": {"input_tokens": 7, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "ping"}),
    ];
    events.extend(pieces.iter().map(|piece| {
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
    }));
    events.extend_from_slice(end);
    TestReply::events(&events)
}

fn stop(reason: &str) -> Vec<Value> {
    vec![
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ]
}

#[tokio::test]
async fn a_request_has_the_path_the_key_and_the_version_of_the_api() {
    let server = Server::start(vec![says("Hello")]);
    let completion = ask(&client(&server), false).await.0.unwrap();
    assert_eq!((completion.content.as_deref(), completion.stop), (Some("Hello"), StopReason::End));
    let usage = completion.usage;
    assert_eq!((usage.input_tokens, usage.cached_input_tokens, usage.output_tokens), (9, 2, 3));
    let request = &server.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/messages"));
    assert_eq!(request.headers["x-api-key"], SECRET);
    assert_eq!(request.headers["anthropic-version"], "2023-06-01");
    assert!(!request.headers.contains_key("authorization"));
    assert_eq!(
        request.json(),
        json!({"model": "test-model", "max_tokens": 4096,
            "system": [{"type": "text", "text": "be good"}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Begin."}]}]})
    );
}

#[tokio::test]
async fn the_operator_may_set_the_version_and_not_the_header_of_the_key() {
    let server = Server::start(vec![says("a")]);
    let mut settings = settings(&server);
    settings.headers.insert("Anthropic-Version".to_owned(), "2031-01-01".to_owned());
    settings.headers.insert("anthropic-beta".to_owned(), "x".to_owned());
    ask(&HttpModel::new(settings.clone()).unwrap(), false).await.0.unwrap();
    let headers = &server.requests()[0].headers;
    assert_eq!(
        (headers["anthropic-version"].as_str(), headers["anthropic-beta"].as_str()),
        ("2031-01-01", "x")
    );
    settings.headers.insert("X-Api-Key".to_owned(), "sk-other".to_owned());
    assert!(matches!(HttpModel::new(settings), Err(HttpModelError::Header { .. })));
}

#[tokio::test]
async fn a_stream_is_heard_while_it_comes_also_byte_by_byte() {
    let stream_body = streams(&["Hé", "llo"], &stop("end_turn"));
    for reply in [stream_body.clone(), stream_body.in_pieces_of(1)] {
        let server = Server::start(vec![reply]);
        let (completion, pieces) = ask(&client(&server), true).await;
        let completion = completion.unwrap();
        assert_eq!(pieces, ["Hé", "llo"]);
        assert_eq!(completion.content.as_deref(), Some("Héllo"));
        assert_eq!((completion.usage.input_tokens, completion.usage.output_tokens), (7, 3));
        assert_eq!(server.requests()[0].json()["stream"], true);
    }
}

#[tokio::test]
async fn a_stream_that_broke_off_is_tried_again_unless_text_was_heard() {
    let server = Server::start(vec![streams(&[], &[]), streams(&["a"], &stop("end_turn"))]);
    assert_eq!(ask(&client(&server), true).await.0.unwrap().content.as_deref(), Some("a"));
    let busy =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let server = Server::start(vec![streams(&["a"], &[busy]), says("never")]);
    let (error, kind, text) = fails(&client(&server), true).await;
    assert_eq!(
        (error, kind),
        (ModelError::Unavailable { retry_after_ms: None }, ModelDiagnosticKind::Unavailable)
    );
    assert!(text.contains("Overloaded"), "{text}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn tool_calls_come_back_under_the_host_s_names() {
    let call =
        json!({"type": "tool_use", "id": "toolu_1", "name": "search__find", "input": {"q": "x"}});
    let server = Server::start(vec![message(json!([call]), "tool_use")]);
    let mut prompt = prompt(false);
    prompt.tools = vec![ToolSummary {
        name: "search.find".to_owned(),
        description: "finds".to_owned(),
        input_schema: json!({"type": "object"}),
    }];
    let completion = client(&server).complete(prompt, Arc::new(NoText)).await.unwrap();
    let call = &completion.tool_calls[0];
    assert_eq!((call.id.as_str(), call.name.as_str()), ("toolu_1", "search.find"));
    assert_eq!((&*call.arguments, completion.stop), (&json!({"q": "x"}), StopReason::ToolCalls));
}

#[tokio::test]
async fn a_busy_server_is_asked_again_when_it_says() {
    let busy = error(529, "overloaded_error", "Overloaded");
    let limited = error(429, "rate_limit_error", "slow down").header("retry-after", "0.05");
    let server = Server::start(vec![busy, limited, says("a")]);
    assert_eq!(ask(&client(&server), false).await.0.unwrap().content.as_deref(), Some("a"));
    assert_eq!(server.requests().len(), 3);

    let server =
        Server::start(vec![error(429, "rate_limit_error", "slow").header("retry-after", "7")]);
    let mut settings = settings(&server);
    settings.retries = 0;
    let (error, ..) = fails(&HttpModel::new(settings).unwrap(), false).await;
    assert_eq!(error, ModelError::Unavailable { retry_after_ms: Some(7_000) });
}

#[tokio::test]
async fn refusals_are_told_apart_and_not_repeated() {
    let too_long = "prompt is too long: 208310 tokens > 200000 maximum";
    for (reply, expected, kind) in [
        (
            error(400, "invalid_request_error", too_long),
            ModelError::ContextTooLong { tokens: 200_000 },
            ModelDiagnosticKind::Refused,
        ),
        (
            error(404, "not_found_error", "model: test-model"),
            ModelError::UnknownModel { name: "test-model".to_owned() },
            ModelDiagnosticKind::NotFound,
        ),
        (
            error(401, "authentication_error", &format!("invalid x-api-key {SECRET}")),
            ModelError::Other {
                message: "the model's server did not accept the operator's key".to_owned(),
            },
            ModelDiagnosticKind::Key,
        ),
    ] {
        let server = Server::start(vec![reply]);
        let (error, found, _) = fails(&client(&server), false).await;
        assert_eq!((error, found), (expected, kind));
        let requests = server.requests();
        assert_eq!(requests.iter().filter(|request| request.method == "POST").count(), 1);
    }
}

#[tokio::test]
async fn a_server_with_the_other_api_is_named_as_such() {
    let server = Server::start(vec![TestReply::says("Hello")]);
    let (_, kind, text) = fails(&client(&server), false).await;
    assert_eq!(kind, ModelDiagnosticKind::Malformed);
    assert!(text.contains("is not the Messages API. Are its url and its kind right?"), "{text}");
}

#[tokio::test]
async fn the_server_s_models_are_listed_with_the_key() {
    let server = Server::answering(|_| {
        TestReply::json(200, &json!({"data": [{"type": "model", "id": "a"}], "has_more": false}))
    });
    assert_eq!(client(&server).probe().await.unwrap(), ["a"]);
    let request = &server.requests()[0];
    assert_eq!(request.path, "/v1/models?limit=1000");
    assert_eq!(
        (request.headers["x-api-key"].as_str(), request.headers.contains_key("anthropic-version")),
        (SECRET, true)
    );
}

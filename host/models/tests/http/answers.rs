//! Correct and nearly correct answers.

use std::sync::Arc;
use std::time::Duration;

use conclave_core::types::completion::StopReason;
use conclave_core::types::tool::ToolSummary;
use conclave_models::http::HttpModel;
use conclave_models::test_server::{Server, TestReply};
use conclave_models::{ModelClient, NoText};
use serde_json::json;

use crate::world::{SECRET, ask, client, prompt, settings};

#[tokio::test]
async fn a_whole_answer_is_read_and_the_request_is_as_it_should_be() {
    let server = Server::start(vec![TestReply::says("Hello")]);
    let (completion, pieces) = ask(&client(&server), false).await;
    let completion = completion.unwrap();
    assert_eq!((completion.content.as_deref(), completion.stop), (Some("Hello"), StopReason::End));
    assert_eq!((completion.usage.input_tokens, completion.usage.output_tokens), (7, 3));
    assert_eq!((completion.id.as_str(), completion.model.as_str()), ("chatcmpl-1", "test-model-1"));
    assert!(pieces.is_empty());
    let request = &server.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(request.headers["authorization"], format!("Bearer {SECRET}"));
    assert!(request.headers["user-agent"].starts_with("conclave/"));
    assert_eq!(request.headers["content-type"], "application/json");
    assert_eq!(
        request.json(),
        json!({"model": "test-model", "messages": [{"role": "system", "content": "be good"}]})
    );
}

#[tokio::test]
async fn text_is_heard_in_order_while_it_comes() {
    let server = Server::start(vec![TestReply::streams(&["Hel", "lo ", "wörld"])]);
    let (completion, pieces) = ask(&client(&server), true).await;
    assert_eq!(pieces, ["Hel", "lo ", "wörld"]);
    let completion = completion.unwrap();
    assert_eq!(
        (completion.content.as_deref(), completion.usage.input_tokens),
        (Some("Hello wörld"), 7)
    );
    assert_eq!(server.requests()[0].json()["stream_options"], json!({"include_usage": true}));
}

#[tokio::test]
async fn a_stream_may_come_byte_by_byte() {
    let server = Server::start(vec![TestReply::streams(&["Hé", "llo"]).in_pieces_of(1)]);
    let (completion, pieces) = ask(&client(&server), true).await;
    assert_eq!(
        (pieces.concat().as_str(), completion.unwrap().content.as_deref()),
        ("Héllo", Some("Héllo"))
    );
}

#[tokio::test]
async fn tool_calls_come_back_under_the_host_s_names() {
    let server = Server::start(vec![TestReply::calls(&[
        ("search__find", json!({"q": "x"})),
        ("unknown__tool", json!({})),
    ])]);
    let mut prompt = prompt(false);
    prompt.tools = vec![ToolSummary {
        name: "search.find".to_owned(),
        description: "finds".to_owned(),
        input_schema: json!({"type": "object"}),
    }];
    let completion = client(&server).complete(prompt, Arc::new(NoText)).await.unwrap();
    let names: Vec<&str> = completion.tool_calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(
        (names, completion.stop),
        (vec!["search.find", "unknown__tool"], StopReason::ToolCalls)
    );
    assert_eq!(*completion.tool_calls[0].arguments, json!({"q": "x"}));
    assert_eq!(server.requests()[0].json()["tools"][0]["function"]["name"], "search__find");
}

#[tokio::test]
async fn a_whole_answer_to_a_request_for_a_stream_is_heard_at_once() {
    let server = Server::start(vec![TestReply::says("Hello")]);
    let (completion, pieces) = ask(&client(&server), true).await;
    assert_eq!(
        (pieces, completion.unwrap().content.as_deref()),
        (vec!["Hello".to_owned()], Some("Hello"))
    );
}

#[tokio::test]
async fn a_stream_nobody_asked_for_is_read_and_not_heard() {
    let server = Server::start(vec![TestReply::streams(&["a", "b"])]);
    let (completion, pieces) = ask(&client(&server), false).await;
    assert_eq!((pieces.len(), completion.unwrap().content.as_deref()), (0, Some("ab")));
}

#[tokio::test]
async fn a_stream_that_is_finished_needs_no_proper_end() {
    let last = r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#;
    let impatient = |server: &Server| {
        let mut settings = settings(server);
        settings.idle_timeout = Duration::from_secs(3);
        HttpModel::new(settings).unwrap()
    };
    for answer in [
        TestReply::events(&[last]),
        TestReply::events(&[last]).then_cut(),
        TestReply::events(&[last]).then_silence(),
    ] {
        let server = Server::start(vec![answer]);
        assert_eq!(ask(&impatient(&server), true).await.0.unwrap().content.as_deref(), Some("a"));
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn one_connection_carries_many_requests() {
    let server =
        Server::start(vec![TestReply::says("a"), TestReply::streams(&["b"]), TestReply::says("c")]);
    let client = client(&server);
    for stream in [false, true, false] {
        ask(&client, stream).await.0.unwrap();
    }
    assert_eq!((server.requests().len(), server.connections()), (3, 1));
}

#[tokio::test]
async fn a_query_and_headers_of_the_operator_s_are_sent() {
    let server = Server::start(vec![TestReply::says("a")]);
    let mut settings = settings(&server);
    settings.url += "/?api-version=7";
    settings.headers.insert("X-Team".to_owned(), "blue".to_owned());
    ask(&HttpModel::new(settings).unwrap(), false).await.0.unwrap();
    let request = &server.requests()[0];
    assert_eq!(
        (request.path.as_str(), request.headers["x-team"].as_str()),
        ("/v1/chat/completions?api-version=7", "blue")
    );
}

#[tokio::test]
async fn a_proxy_gets_what_is_for_the_server() {
    let proxy = Server::start(vec![TestReply::says("by proxy")]);
    let mut settings = settings(&proxy);
    settings.url = "http://model.invalid/v1".to_owned();
    settings.proxy = Some(proxy.url().trim_end_matches("/v1").to_owned());
    let completion = ask(&HttpModel::new(settings).unwrap(), false).await.0.unwrap();
    assert_eq!(completion.content.as_deref(), Some("by proxy"));
    assert_eq!(proxy.requests()[0].path, "http://model.invalid/v1/chat/completions");
}

#[tokio::test]
async fn the_server_s_models_are_listed() {
    let server = Server::start(vec![TestReply::says("a")]);
    assert_eq!(client(&server).probe().await.unwrap(), ["test-model"]);
    let request = &server.requests()[0];
    assert_eq!(
        (request.path.as_str(), request.headers["authorization"].contains(SECRET)),
        ("/v1/models", true)
    );
    let both = Server::answering(|_| {
        TestReply::json(
            200,
            &json!({"models": [{"name": "x", "model": "x"}], "data": [{"id": "y", "name": "z"}]}),
        )
    });
    assert_eq!(client(&both).probe().await.unwrap(), ["y"]);
    let listing = Server::answering(|_| TestReply::json(200, &json!({"models": [{"name": "x"}]})));
    assert_eq!(client(&listing).probe().await.unwrap(), ["x"]);
}

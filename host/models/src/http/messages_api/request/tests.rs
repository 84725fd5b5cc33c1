//! Whole request bodies of the Messages API for the requests of a plugin.

use std::sync::Arc;

use conclave_core::types::completion::{
    DraftMessage, ModelApi, Prompt, PromptPiece, ToolChoice, ToolFormat,
};
use conclave_core::types::history::History;
use conclave_core::types::message::{Blob, Message, Role, ToolCall, ToolResult};
use conclave_core::types::tool::ToolSummary;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::http::HttpModelSettings;
use crate::http::names::ToolNames;
use crate::http::request::body;
use crate::{BlobSource, BlobsUnavailable};

struct Kept;

impl BlobSource for Kept {
    fn read(&self, _sha256: &str) -> Result<Option<Arc<[u8]>>, BlobsUnavailable> {
        Ok(Some(b"abc".as_slice().into()))
    }
}

fn prompt(pieces: Vec<PromptPiece>) -> Prompt {
    Prompt {
        pieces,
        tools: Vec::new(),
        tool_format: ToolFormat::Native,
        tool_choice: ToolChoice::Auto,
        output_schema: None,
        stream: false,
        options: Vec::new(),
    }
}

fn system(text: &str) -> PromptPiece {
    PromptPiece::System { text: text.into() }
}

fn draft(role: Role, content: &str) -> PromptPiece {
    let draft = DraftMessage {
        role,
        content: content.to_owned(),
        tool_calls: Vec::new(),
        tool_results: Vec::new(),
    };
    PromptPiece::Draft { draft }
}

fn history(messages: Vec<Message>) -> PromptPiece {
    let end = messages.len();
    let mut history = History::default();
    for (seq, message) in (0..).zip(messages) {
        history.push(&Arc::new(Message { seq, ..message }));
    }
    PromptPiece::History { messages: history, start: 0, end }
}

fn calling(calls: &[(&str, &str, Value)]) -> Message {
    let mut message = Message::new(0, Role::Llm, "agent");
    message.tool_calls = calls
        .iter()
        .map(|(id, name, arguments)| ToolCall {
            id: (*id).to_owned(),
            ..ToolCall::new(*name, arguments.clone())
        })
        .collect();
    message
}

fn answering(results: &[(&str, &str, &str, bool)]) -> Message {
    let mut message = Message::new(0, Role::Agent, "agent");
    message.content = Some("as in the results".to_owned());
    message.tool_results = results
        .iter()
        .map(|(id, name, content, is_error)| ToolResult {
            call_id: (*id).to_owned(),
            name: (*name).to_owned(),
            content: (*content).to_owned(),
            value: None,
            is_error: *is_error,
        })
        .collect();
    message
}

fn tool(name: &str) -> ToolSummary {
    let input_schema = json!({"type": "object", "properties": {"q": {"type": "string"}}});
    ToolSummary { name: name.to_owned(), description: "finds".to_owned(), input_schema }
}

fn sent_with(prompt: &Prompt, options: Value) -> Value {
    let Value::Object(options) = options else { panic!("options are an object") };
    let settings = HttpModelSettings {
        api: ModelApi::Messages,
        model: "m".to_owned(),
        options,
        images: Arc::new(Kept),
        ..HttpModelSettings::default()
    };
    serde_json::from_slice(&body(prompt, &ToolNames::of(prompt), &settings).unwrap()).unwrap()
}

fn sent(prompt: &Prompt) -> Value {
    sent_with(prompt, json!({}))
}

fn message(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn a_small_prompt_makes_a_small_request() {
    assert_eq!(
        sent(&prompt(vec![system("be good"), draft(Role::User, "hi")])),
        json!({"model": "m", "max_tokens": 4096, "system": [message("be good")],
            "messages": [{"role": "user", "content": [message("hi")]}]})
    );
}

#[test]
fn every_system_text_stands_beside_the_messages() {
    let pieces = vec![
        system("be good"),
        draft(Role::User, "hi"),
        draft(Role::System, "be quick"),
        draft(Role::System, " "),
    ];
    let body = sent(&prompt(pieces));
    assert_eq!(body["system"], json!([message("be good"), message("be quick")]));
    assert_eq!(body["messages"], json!([{"role": "user", "content": [message("hi")]}]));
}

#[test]
fn a_history_with_calls_alternates_and_its_results_come_first() {
    let mut question = Message::new(0, Role::User, "user");
    question.content = Some("what is this?".to_owned());
    question.attachments = vec![Blob {
        sha256: "x".to_owned(),
        media_type: "image/png".to_owned(),
        length: 3,
        name: None,
    }];
    let mut hurry = Message::new(0, Role::User, "user");
    hurry.content = Some("hurry".to_owned());
    let messages = vec![
        question,
        calling(&[("a", "search.find", json!({"q": "x"})), ("b", "search.find", json!("{bad"))]),
        hurry,
        answering(&[("a", "search.find", "found", false)]),
        answering(&[("b", "search.find", "no JSON", true)]),
    ];
    let body = sent(&prompt(vec![history(messages)]));
    let image = json!({"type": "base64", "media_type": "image/png", "data": "YWJj"});
    let result = |id: &str, content: &str| json!({"type": "tool_result", "tool_use_id": id, "content": content});
    let mut failed = result("call00001", "no JSON");
    failed["is_error"] = true.into();
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [message("what is this?"), {"type": "image", "source": image}]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "call00000", "name": "search__find", "input": {"q": "x"}},
                {"type": "tool_use", "id": "call00001", "name": "search__find", "input": {"not_an_object": "{bad"}}]},
            {"role": "user", "content": [result("call00000", "found"), failed, message("hurry")]},
        ])
    );
    // Without tools the API refuses such a history.
    assert_eq!(body["tools"][0]["name"], "search__find");
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
}

#[test]
fn a_conversation_begins_and_ends_with_the_user() {
    let roles = |pieces| {
        let body = sent(&prompt(pieces));
        let messages = body["messages"].as_array().unwrap().clone();
        messages
            .iter()
            .map(|message| message["role"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(roles(vec![draft(Role::Llm, "a")]), ["user", "assistant", "user"]);
    assert_eq!(roles(vec![draft(Role::User, "a"), draft(Role::Agent, "b")]), ["user"]);
    assert_eq!(roles(vec![system("be good")]), ["user"]);
}

#[test]
fn tools_are_offered_and_chosen() {
    let mut prompt = prompt(vec![draft(Role::User, "hi")]);
    prompt.tools = vec![tool("search.find")];
    let choice = |prompt: &Prompt, options| sent_with(prompt, options)["tool_choice"].clone();
    assert_eq!(
        sent(&prompt)["tools"],
        json!([{"name": "search__find", "description": "finds",
            "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}}])
    );
    let serial = json!({"parallel_tool_calls": false});
    for (chosen, kind) in
        [(ToolChoice::Auto, "auto"), (ToolChoice::Required, "any"), (ToolChoice::None, "none")]
    {
        prompt.tool_choice = chosen;
        assert_eq!(choice(&prompt, json!({})), json!({"type": kind}));
        let is_serial = choice(&prompt, serial.clone())["disable_parallel_tool_use"] == true;
        assert_eq!(is_serial, kind != "none", "{kind}");
    }
    prompt.tool_choice = ToolChoice::Named { name: "search.find".to_owned() };
    assert_eq!(choice(&prompt, json!({})), json!({"type": "tool", "name": "search__find"}));
    prompt.tool_format = ToolFormat::Json;
    let body = sent_with(&prompt, serial);
    assert!(
        ["tools", "tool_choice", "parallel_tool_calls"].iter().all(|key| body.get(key).is_none())
    );
    assert_eq!(
        body["system"],
        json!([message("Your next answer must call the tool `search.find`.")])
    );
}

#[test]
fn a_schema_becomes_a_sentence_and_options_their_own_fields() {
    let mut prompt = prompt(vec![system("be good"), draft(Role::User, "hi")]);
    prompt.output_schema = Some(json!({"type": "object"}));
    prompt.stream = true;
    prompt.options =
        vec![("max-output-tokens".to_owned(), json!(50)), ("stop".to_owned(), json!("END"))];
    let body = sent_with(&prompt, json!({"top_k": 4, "max_tokens": 900}));
    let schema = body["system"][1]["text"].as_str().unwrap();
    assert!(
        schema.starts_with("Your answer must be JSON") && schema.ends_with(r#"{"type":"object"}"#)
    );
    assert_eq!(
        (&body["stream"], &body["max_tokens"], &body["stop_sequences"], &body["top_k"]),
        (&json!(true), &json!(50), &json!(["END"]), &json!(4))
    );
}

fn any_piece() -> impl Strategy<Value = PromptPiece> {
    let message = prop_oneof![
        "[a ]{0,2}".prop_map(|text| {
            let mut message = Message::new(0, Role::User, "user");
            message.content = Some(text);
            message
        }),
        ("[ab]", "[xy]").prop_map(|(id, name)| calling(&[(&id, &name, json!({}))])),
        ("[ab]", "[xy]").prop_map(|(id, name)| answering(&[(&id, &name, "r", false)])),
    ];
    prop_oneof![
        prop::collection::vec(message, 1..8).prop_map(history),
        ("[a ]{0,2}", any::<bool>())
            .prop_map(|(text, llm)| draft(if llm { Role::Llm } else { Role::User }, &text)),
    ]
}

proptest! {
    /// The rules by which the API refuses messages.
    #[test]
    fn any_prompt_becomes_messages_that_the_api_accepts(
        pieces in prop::collection::vec(any_piece(), 0..5),
    ) {
        let body = sent(&prompt([vec![system("s")], pieces].concat()));
        let messages = body["messages"].as_array().unwrap();
        let mut open: Vec<String> = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            prop_assert_eq!(message["role"] == "user", index % 2 == 0);
            let blocks = message["content"].as_array().unwrap();
            prop_assert!(!blocks.is_empty());
            let of = |kind: &str, field: &str| -> Vec<String> {
                let blocks = blocks.iter().filter(|block| block["type"] == kind);
                blocks.map(|block| block[field].as_str().unwrap().to_owned()).collect()
            };
            prop_assert!(of("text", "text").iter().all(|text| !text.trim().is_empty()));
            let results = of("tool_result", "tool_use_id");
            prop_assert!(blocks[..results.len()].iter().all(|block| block["type"] == "tool_result"));
            prop_assert_eq!(&results, &open);
            open = of("tool_use", "id");
        }
        prop_assert!(open.is_empty() && messages.len() % 2 == 1);
        let has_calls = body["messages"].to_string().contains("tool_use");
        prop_assert_eq!(body.get("tools").is_some(), has_calls);
    }
}

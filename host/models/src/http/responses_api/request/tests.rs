//! Requests of the Responses API.

use std::sync::Arc;

use conclave_core::types::completion::{
    DraftMessage, ModelApi, Prompt, PromptPiece, ToolChoice, ToolFormat,
};
use conclave_core::types::history::History;
use conclave_core::types::message::{Blob, Message, Role, ToolCall, ToolResult};
use conclave_core::types::tool::ToolSummary;
use serde_json::{Value, json};

use crate::http::HttpModelSettings;
use crate::http::names::ToolNames;
use crate::http::request::body;
use crate::{BlobSource, BlobsUnavailable};

struct Kept;

impl BlobSource for Kept {
    fn read(&self, _: &str) -> Result<Option<Arc<[u8]>>, BlobsUnavailable> {
        Ok(Some(Arc::from(*b"\x01\x02\xff")))
    }
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

fn sent_with(prompt: &Prompt, options: Value) -> Value {
    let Value::Object(options) = options else { panic!("options are an object") };
    let settings = HttpModelSettings {
        api: ModelApi::Responses,
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

fn message(role: &str, text: &str) -> Value {
    json!({"type": "message", "role": role, "content": text})
}

#[test]
fn the_first_system_texts_are_the_instructions_and_nothing_is_stored() {
    let pieces = vec![
        PromptPiece::System { text: "be good".into() },
        draft(Role::System, "be quick"),
        draft(Role::User, "hi"),
        draft(Role::System, "be brief"),
        draft(Role::Llm, "hello"),
    ];
    let input =
        [message("user", "hi"), message("system", "be brief"), message("assistant", "hello")];
    assert_eq!(
        sent(&prompt(pieces)),
        json!({"model": "m", "store": false, "instructions": "be good\n\nbe quick", "input": input})
    );
    let instructions = sent(&prompt(vec![PromptPiece::System { text: "be good".into() }]));
    assert_eq!(instructions["input"], json!([message("user", "Begin.")]));
}

#[test]
fn calls_and_results_are_items_without_the_server_s_ids() {
    let mut called = Message::new(0, Role::Llm, "agent");
    called.content = Some("Let me look.".to_owned());
    called.tool_calls = vec![
        ToolCall { id: "fc_1".to_owned(), ..ToolCall::new("search.find", json!({"q": "x"})) },
        ToolCall { id: "fc_2".to_owned(), ..ToolCall::new("search.find", json!("x")) },
    ];
    let mut answered = Message::new(1, Role::Agent, "agent");
    answered.tool_results = vec![ToolResult {
        call_id: "fc_1".to_owned(),
        name: "search.find".to_owned(),
        content: "found".to_owned(),
        value: None,
        is_error: false,
    }];
    let mut messages = History::default();
    [called, answered].into_iter().for_each(|message| messages.push(&Arc::new(message)));
    let mut prompt = prompt(vec![PromptPiece::History { messages, start: 0, end: 2 }]);
    let input_schema = json!({"type": "object", "properties": {}});
    let name = "search.find".to_owned();
    prompt.tools =
        vec![ToolSummary { name: name.clone(), description: "finds".to_owned(), input_schema }];
    prompt.tool_choice = ToolChoice::Named { name };
    let call = |id: &str, arguments: &str| {
        json!({"type": "function_call", "call_id": id, "name": "search__find",
            "arguments": arguments})
    };
    let output = |id: &str, output: &str| json!({"type": "function_call_output", "call_id": id, "output": output});
    let sent = sent(&prompt);
    assert_eq!(
        sent["input"],
        json!([
            message("assistant", "Let me look."),
            call("call00000", "{\"q\":\"x\"}"),
            call("call00001", "{\"not_an_object\":\"x\"}"),
            output("call00000", "found"),
            output("call00001", "There is no result of this call."),
        ])
    );
    assert_eq!(
        sent["tools"],
        json!([{"type": "function", "name": "search__find", "description": "finds",
            "parameters": {"type": "object", "properties": {}}, "strict": false}])
    );
    assert_eq!(sent["tool_choice"], json!({"type": "function", "name": "search__find"}));
}

#[test]
fn an_image_is_a_part_of_the_input() {
    let mut message = Message::new(0, Role::User, "User");
    message.content = Some("look".to_owned());
    let blob = |media_type: &str| Blob {
        sha256: "x".to_owned(),
        media_type: media_type.to_owned(),
        length: 3,
        name: None,
    };
    message.attachments = vec![blob("image/png"), blob("image/tiff")];
    let mut messages = History::default();
    messages.push(&Arc::new(message));
    let sent = sent(&prompt(vec![PromptPiece::History { messages, start: 0, end: 1 }]));
    let content = &sent["input"][0]["content"];
    assert_eq!(content[0]["type"], "input_text");
    assert_eq!(
        content[1],
        json!({"type": "input_image", "image_url": "data:image/png;base64,AQL/"})
    );
    assert!(content[2]["text"].as_str().unwrap().contains("cannot be shown"), "{content}");
}

#[test]
fn the_operator_s_options_join_what_the_host_writes() {
    let mut prompt = prompt(vec![draft(Role::User, "hi")]);
    prompt.output_schema = Some(json!({"type": "object"}));
    prompt.options = vec![
        ("max-output-tokens".to_owned(), json!(5)),
        ("reasoning-effort".to_owned(), json!("low")),
        ("stop".to_owned(), json!("END")),
        ("seed".to_owned(), json!(7)),
        ("parallel-tool-calls".to_owned(), json!(false)),
    ];
    let options = json!({"store": true, "text": {"verbosity": "low"}, "max_output_tokens": 9,
        "reasoning": {"summary": "auto", "effort": "high"},
        "stream_options": {"include_obfuscation": false}});
    let format = json!({"type": "json_schema", "name": "answer", "strict": false,
        "schema": {"type": "object"}});
    let mut expected = json!({"model": "m", "store": true, "input": [message("user", "hi")],
        "text": {"verbosity": "low", "format": format}, "max_output_tokens": 5,
        "reasoning": {"summary": "auto", "effort": "low"}});
    assert_eq!(sent_with(&prompt, options.clone()), expected);
    prompt.stream = true;
    expected["stream"] = json!(true);
    expected["stream_options"] = json!({"include_obfuscation": false});
    assert_eq!(sent_with(&prompt, options), expected);
}

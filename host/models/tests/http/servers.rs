//! The table of the forms in which servers answer, `tests/data/servers/streams.json`. Each form is
//! played through the client: streamed byte by byte, and whole.

use std::sync::Arc;

use conclave_core::types::completion::{Completion, ModelApi, ModelError, Prompt, StopReason};
use conclave_core::types::tool::ToolSummary;
use conclave_models::http::HttpModel;
use conclave_models::test_server::{Server, TestReply};
use conclave_models::{ModelClient, ModelFailure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::world::{Heard, prompt, settings};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/servers/streams.json");

/// One form of an answer, and its meaning.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerForm {
    name: String,
    /// A server that answers so, for the reader.
    #[serde(rename = "server")]
    _server: String,
    api: String,
    /// The data of events; a text is sent as it is, anything else as its JSON.
    #[serde(default)]
    chunks: Vec<Value>,
    /// The whole body.
    body: Option<String>,
    /// The whole body, as JSON.
    reply: Option<Value>,
    /// Names and arguments. Arguments that are a text are no object, so the call does not run.
    #[serde(default)]
    calls: Vec<(String, Value)>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    thinking: String,
    stop: Option<StopReason>,
    /// The length in tokens that is asked for.
    max_output: Option<u64>,
    /// Tokens of input and output.
    tokens: Option<(u64, u64)>,
    /// `again` for a failed attempt that is repeated if no text was shown, or the kind of the error.
    error: Option<String>,
}

impl AnswerForm {
    fn api(&self) -> ModelApi {
        ModelApi::ALL.into_iter().find(|api| api.kind() == self.api).unwrap()
    }

    fn answer(&self) -> TestReply {
        match (&self.body, &self.reply) {
            (Some(body), _) => TestReply::bytes(200, "text/event-stream", body.as_str()),
            (None, Some(reply)) => TestReply::json(200, reply),
            (None, None) => {
                let data =
                    |chunk: &Value| chunk.as_str().map_or_else(|| chunk.to_string(), str::to_owned);
                TestReply::events(&self.chunks.iter().map(data).collect::<Vec<_>>())
            }
        }
    }

    /// Plays the form, and returns what differs from the table.
    async fn differences(&self, is_streamed: bool) -> Vec<String> {
        let second = match self.api() {
            ModelApi::ChatCompletions => TestReply::says("second"),
            ModelApi::Responses => TestReply::json(
                200,
                &json!({"object": "response", "status": "completed", "output": [
                    {"type": "message", "content": [{"type": "output_text", "text": "second"}]}]}),
            ),
            ModelApi::Messages => TestReply::json(
                200,
                &json!({"type": "message", "content": [{"type": "text", "text": "second"}],
                    "stop_reason": "end_turn"}),
            ),
        };
        let first = match is_streamed {
            true => self.answer().in_pieces_of(1),
            false => self.answer(),
        };
        let server = Server::start(vec![first, second]);
        let mut settings = settings(&server);
        settings.api = self.api();
        settings.retries = 1;
        if let Some(most) = self.max_output {
            let name = match self.api() {
                ModelApi::Responses => "max_output_tokens",
                ModelApi::ChatCompletions | ModelApi::Messages => "max_tokens",
            };
            settings.options.insert(name.to_owned(), most.into());
        }
        let sink = Arc::new(Heard::default());
        let client = HttpModel::new(settings).unwrap();
        let outcome = client.complete(with_tools(is_streamed), Arc::<Heard>::clone(&sink)).await;
        let streamed = sink.pieces().concat();
        let posts = server.requests().iter().filter(|request| request.method == "POST").count();
        let streamed = streamed.strip_suffix("second").unwrap_or(&streamed);
        let is_again = self.error.as_deref() == Some("again");
        let attempts = if is_again && streamed.is_empty() { 2 } else { 1 };
        let mut wrong = Vec::new();
        let mut differ = |what: &str, found: String, expected: String| {
            if found != expected {
                wrong.push(format!("{}: {what}: {found} and not {expected}", self.name));
            }
        };
        differ("attempts", posts.to_string(), attempts.to_string());
        match (&self.error, outcome) {
            (None, Ok(completion)) => {
                differ("calls", json_text(&calls(&completion)), json_text(&self.calls));
                let text = completion.content.clone().unwrap_or_default();
                differ("text", json_text(&text), json_text(&self.text));
                let is_end = !is_streamed || streamed.ends_with(&self.text);
                differ("what was heard is the text", is_end.to_string(), "true".to_owned());
                let thinking = completion.reasoning.clone().unwrap_or_default();
                differ("thinking", json_text(&thinking), json_text(&self.thinking));
                let usual = match self.calls.is_empty() {
                    true => StopReason::End,
                    false => StopReason::ToolCalls,
                };
                differ("stop", json_text(&completion.stop), json_text(&self.stop.unwrap_or(usual)));
                let usage = (completion.usage.input_tokens, completion.usage.output_tokens);
                differ("tokens", json_text(&usage), json_text(&self.tokens.unwrap_or(usage)));
                let mut ids: Vec<_> = completion.tool_calls.iter().map(|call| &call.id).collect();
                ids.sort_unstable();
                ids.dedup();
                let are_unique =
                    ids.len() == completion.tool_calls.len() && ids.iter().all(|id| !id.is_empty());
                differ("ids are unique", are_unique.to_string(), "true".to_owned());
            }
            (Some(_), Ok(completion)) if is_again && streamed.is_empty() => {
                differ(
                    "second attempt",
                    json_text(&completion.content),
                    json_text(&Some("second")),
                );
            }
            (Some(kind), Err(failure)) => {
                let kind = if is_again { "unavailable" } else { kind.as_str() };
                differ("error", kind_of(&failure).to_owned(), kind.to_owned());
            }
            (expected, outcome) => {
                differ("outcome", format!("{outcome:?}"), format!("{expected:?}"))
            }
        }
        wrong
    }
}

fn kind_of(failure: &ModelFailure) -> &'static str {
    match failure.error {
        ModelError::UnknownModel { .. } => "unknown-model",
        ModelError::ContextTooLong { .. } => "context-too-long",
        ModelError::Unavailable { .. } => "unavailable",
        _ => "other",
    }
}

fn calls(completion: &Completion) -> Vec<(String, Value)> {
    let call = |call: &conclave_core::types::message::ToolCall| {
        (call.name.clone(), Value::clone(&call.arguments))
    };
    completion.tool_calls.iter().map(call).collect()
}

fn json_text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

fn with_tools(stream: bool) -> Prompt {
    let tool = |name: &str| ToolSummary {
        name: name.to_owned(),
        description: String::new(),
        input_schema: json!({"type": "object"}),
    };
    Prompt {
        tools: ["search.find", "search.read", "files.write"].map(tool).into(),
        ..prompt(stream)
    }
}

#[tokio::test]
async fn answers_of_servers_mean_what_the_table_says() {
    let table = std::fs::read(TABLE).unwrap();
    let forms: Vec<AnswerForm> = serde_json::from_slice(&table).unwrap();
    for (api, least) in
        [(ModelApi::ChatCompletions, 120), (ModelApi::Responses, 70), (ModelApi::Messages, 40)]
    {
        assert!(forms.iter().filter(|form| form.api() == api).count() >= least);
    }
    let mut wrong = Vec::new();
    for form in &forms {
        for is_streamed in [true, false] {
            wrong.extend(form.differences(is_streamed).await);
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

//! Asks a model behind Chat Completions: `ask URL#MODEL MESSAGE [stream] [tools] [key=KEY]
//! [models]`. It tries the client against real servers.

use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;

use conclave_core::types::completion::{DraftMessage, Prompt, PromptPiece, ToolChoice, ToolFormat};
use conclave_core::types::message::Role;
use conclave_core::types::tool::ToolSummary;
use conclave_models::http::{HttpModel, HttpModelSettings};
use conclave_models::{ApiKey, KeySource, ModelClient, TextSink};
use serde_json::json;

struct Terminal;

impl TextSink for Terminal {
    fn text(&self, piece: &str) {
        print!("[{piece}]");
        drop(io::stdout().flush());
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (address, message) = arguments
        .next()
        .zip(arguments.next())
        .ok_or("ask URL#MODEL MESSAGE [stream] [tools] [key=KEY] [models]")?;
    let rest: Vec<String> = arguments.collect();
    let is_set = |name: &str| rest.iter().any(|word| word == name);
    let (url, model) = address.split_once('#').ok_or("the address is URL#MODEL")?;
    let key = rest
        .iter()
        .find_map(|word| word.strip_prefix("key="))
        .map(|key| Arc::new(ApiKey::new(key.to_owned())) as Arc<dyn KeySource>);
    let client = HttpModel::new(HttpModelSettings {
        url: url.to_owned(),
        model: model.to_owned(),
        key,
        ..HttpModelSettings::default()
    })?;
    if is_set("models") {
        println!("{:#?}", client.probe().await);
        return Ok(());
    }
    let schema =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let weather = ToolSummary {
        name: "weather.now".to_owned(),
        description: "The weather in a city, now.".to_owned(),
        input_schema: schema,
    };
    let draft = DraftMessage {
        role: Role::User,
        content: message,
        tool_calls: Vec::new(),
        tool_results: Vec::new(),
    };
    let prompt = Prompt {
        pieces: vec![
            PromptPiece::System { text: "You are brief.".into() },
            PromptPiece::Draft { draft },
        ],
        tools: if is_set("tools") { vec![weather] } else { Vec::new() },
        tool_format: ToolFormat::Native,
        tool_choice: ToolChoice::Auto,
        output_schema: None,
        stream: is_set("stream"),
        options: Vec::new(),
    };
    let outcome = client.complete(prompt, Arc::new(Terminal)).await;
    println!("{outcome:#?}");
    Ok(())
}

//! Helpers of the tests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conclave_core::types::completion::{
    Completion, ModelDiagnosticKind, ModelError, Prompt, PromptPiece, ToolChoice, ToolFormat,
};
use conclave_models::http::{HttpModel, HttpModelSettings};
use conclave_models::test_server::Server;
use conclave_models::{ApiKey, ModelClient, ModelFailure, TextSink};

pub(crate) const SECRET: &str = "sk-very-secret-1234";

/// Settings with delays of a millisecond, and timeouts that only some tests reach.
pub(crate) fn settings(server: &Server) -> HttpModelSettings {
    HttpModelSettings {
        url: server.url(),
        model: "test-model".to_owned(),
        key: Some(Arc::new(ApiKey::new(SECRET.to_owned()))),
        backoff: Duration::from_millis(1),
        ..HttpModelSettings::default()
    }
}

pub(crate) fn client(server: &Server) -> HttpModel {
    HttpModel::new(settings(server)).unwrap()
}

pub(crate) fn prompt(stream: bool) -> Prompt {
    Prompt {
        pieces: vec![PromptPiece::System { text: "be good".into() }],
        tools: Vec::new(),
        tool_format: ToolFormat::Native,
        tool_choice: ToolChoice::Auto,
        output_schema: None,
        stream,
        options: Vec::new(),
    }
}

#[derive(Default)]
pub(crate) struct Heard(Mutex<Vec<String>>);

impl Heard {
    pub(crate) fn pieces(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl TextSink for Heard {
    fn text(&self, piece: &str) {
        self.0.lock().unwrap().push(piece.to_owned());
    }
}

pub(crate) async fn ask(
    client: &HttpModel,
    stream: bool,
) -> (Result<Completion, ModelFailure>, Vec<String>) {
    let sink = Arc::new(Heard::default());
    let outcome = client.complete(prompt(stream), Arc::<Heard>::clone(&sink)).await;
    (outcome, sink.pieces())
}

/// Returns the error, and the kind and text of the diagnosis. Checks that neither contains the
/// secret, and that the plugin's error has no address.
pub(crate) async fn fails(
    client: &HttpModel,
    stream: bool,
) -> (ModelError, ModelDiagnosticKind, String) {
    let failure = ask(client, stream).await.0.unwrap_err();
    let trouble = failure.trouble.unwrap();
    let error = format!("{:?}", failure.error);
    assert!(!error.contains(SECRET) && !error.contains("127.0.0.1"), "{error}");
    assert!(!trouble.text.contains(SECRET), "{}", trouble.text);
    assert!(!trouble.text.chars().any(char::is_control), "{:?}", trouble.text);
    (failure.error, trouble.kind, trouble.text)
}

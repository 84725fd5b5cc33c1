//! Native model clients made of a closure, for programs that call a model themselves, and for
//! tests.

use std::sync::Arc;

use conclave_core::types::completion::{Completion, Prompt, StopReason, TokenUsage};
use conclave_models::{ModelClient, ModelFailure, TextSink};

use crate::support::clock::BoxFuture;

/// A client for `[models.NAME]` with `kind = "native"`: a closure from the prompt to the
/// completion. Its future is dropped when the request is abandoned. A client that streams its text
/// implements [`ModelClient`] itself.
///
/// ```
/// use conclave_runtime::completion::Prompt;
/// use conclave_runtime::native::{self, Plugin, Step};
/// use conclave_runtime::{Host, HostOptions, RunOptions, config::Config, Capability};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let parrot = native::model(|prompt: Prompt| async move { Ok(native::answer(format!("{}!", prompt.last_text()))) });
/// let desk = Plugin::agent("desk", |step: Step| async move {
///     let completion = step.complete().await?;
///     Ok(native::finish(completion.content.unwrap_or_default()))
/// })
/// .asks(Capability::Model, "Answers.");
/// let host = Host::new(HostOptions {
///     native: vec![desk],
///     models: [("default".to_owned(), parrot)].into(),
///     ..HostOptions::default()
/// })?;
/// let config = Config::parse("desk.toml", "", r#"
///     entry = "desk"
///     [models.default]
///     kind = "native"
///     [plugins.desk]
///     source = "native:desk"
///     grants.model = { names = ["default"], calls = 5 }
///     [tasks.desk]
///     agent = "desk"
/// "#)?;
/// let run = host.load(&config).await?.start(Some("Hello".to_owned()), RunOptions::default())?;
/// assert_eq!(run.outcome().await?.content.as_deref(), Some("Hello!"));
/// # Ok(())
/// # }
/// ```
pub fn model<F, W>(body: F) -> Arc<dyn ModelClient>
where
    F: Fn(Prompt) -> W + Send + Sync + 'static,
    W: Future<Output = Result<Completion, ModelFailure>> + Send + 'static,
{
    Arc::new(Closure(body))
}

/// A completion that is only text and reports no usage.
pub fn answer(text: impl Into<String>) -> Completion {
    Completion {
        id: String::new(),
        content: Some(text.into()),
        reasoning: None,
        tool_calls: Vec::new(),
        stop: StopReason::End,
        usage: TokenUsage::default(),
        model: "native".to_owned(),
    }
}

struct Closure<F>(F);

impl<F, W> ModelClient for Closure<F>
where
    F: Fn(Prompt) -> W + Send + Sync + 'static,
    W: Future<Output = Result<Completion, ModelFailure>> + Send + 'static,
{
    fn complete(
        &self,
        prompt: Prompt,
        _: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
        Box::pin((self.0)(prompt))
    }
}

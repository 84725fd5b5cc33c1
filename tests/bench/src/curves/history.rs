//! The history of an agent: a step in a long run, and a step with a model, whose prompt
//! refers to the whole history.

use std::sync::Arc;
use std::time::Instant;

use conclave_core::types::ids::TaskName;
use conclave_core::types::message::{Message, Role};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::completion::{Completion, Prompt};
use conclave_runtime::event::HistoryChange;
use conclave_runtime::models::{ModelClient, ModelFailure, TextSink};
use conclave_runtime::native;
use conclave_runtime::{Host, HostOptions, RunInput, RunOptions};

use super::series::{Curve, Rounds};
use super::{Place, failed};
use crate::BenchError;

const LENGTHS: [u64; 4] = [10, 100, 1_000, 10_000];

const CONFIG: &str = r#"
entry = "chat"
[plugins.chat]
source = "../stock/chat.wasm"
grants.model = ["default"]
[models.default]
kind = "native"
[tasks.chat]
agent = "chat"
turns = 1
restart = false
"#;

pub(super) async fn curve(place: &Place<'_>) -> Result<Curve, BenchError> {
    let lengths = place.sizes(&LENGTHS);
    let mut step = Rounds::new("a step and the host's answer");
    for _ in 0..place.rounds() {
        // Each time has two messages, so that the history is twice as long.
        let times = place.hosted.run_steps().await?;
        for &length in lengths {
            let end = (length / 2) as usize;
            let begin = end - (end / 5).max(2);
            step.take(length, times.iter().take(end).skip(begin).copied().collect());
        }
    }
    let mut prompt = Rounds::new("a step with a model");
    for _ in 0..place.rounds() {
        for &length in lengths {
            prompt.take(length, prompts(place, length).await?);
        }
    }
    Ok(Curve {
        what: super::HISTORY.to_owned(),
        axis: "messages in the history".to_owned(),
        series: vec![step.series(), prompt.series()],
        remark: None,
    })
}

/// Returns the times of runs of one step, each with a history of this length.
async fn prompts(place: &Place<'_>, length: u64) -> Result<Vec<std::time::Duration>, BenchError> {
    const SAMPLES: usize = 20;
    let host = Host::new(HostOptions {
        models: [("default".to_owned(), Arc::new(Ready) as Arc<dyn ModelClient>)].into(),
        ..HostOptions::default()
    })
    .map_err(failed)?;
    let prepared = place.load(&host, CONFIG).await?;
    let mut session = prepared.session(RunOptions::default()).map_err(failed)?;
    let message = |seq| Message {
        content: Some(crate::rows::QUESTION.to_owned()),
        ..Message::new(seq, Role::User, "terminal")
    };
    let messages = (0..length).map(message).collect();
    let task = TaskName::from("chat");
    session.change_history(&task, HistoryChange::Import { messages }).await.map_err(failed)?;
    let mut times = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let began = Instant::now();
        let outcome = session.run(RunInput::from("go on")).await.map_err(failed)?;
        times.push(began.elapsed());
        if outcome.content.as_deref() != Some(crate::rows::QUESTION) {
            return Err(BenchError::Answer(format!("{outcome:?}")));
        }
    }
    if session.history(&task).len() < length as usize {
        return Err(BenchError::Answer("the history was not kept".to_owned()));
    }
    Ok(times)
}

/// A model that answers at once and always alike.
pub(super) struct Ready;

impl ModelClient for Ready {
    fn complete(
        &self,
        prompt: Prompt,
        _: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
        // The prompt is what the step is about: it must not be optimised away.
        std::hint::black_box(&prompt);
        Box::pin(std::future::ready(Ok(native::answer(crate::rows::QUESTION))))
    }
}

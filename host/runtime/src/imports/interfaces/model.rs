//! The `model` import: completions. The room decides on permissions and budgets; here requests are
//! parsed, numbered, sent and awaited.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conclave_core::types::capability::Capability;
use conclave_core::types::completion::{Completion, ModelError};
use conclave_core::types::limits::TICK_MS;
use wasmtime::component::Resource;

use crate::imports::bindings::conclave::plugin::model;
use crate::imports::call::CallState;
use crate::imports::convert::{completion_out, model_error_out, request_in};

type Answer = Result<Completion, ModelError>;

/// A completion in progress. Dropping it cancels the request.
#[expect(unreachable_pub, reason = "the bindings export it again")]
pub struct CompletionStream {
    ordinal: u32,
    answer: Option<Arc<Answer>>,
    text_given: bool,
}

impl CallState {
    /// Parses a request, checks the grant, sends it, and returns its ordinal.
    ///
    /// Invalid JSON in the request is returned to the guest as an error.
    fn ask(&mut self, request: model::Request) -> wasmtime::Result<Result<u32, model::ModelError>> {
        self.enter()?;
        self.meter.check_lists(&request)?;
        let model = request.model.as_deref().unwrap_or("default");
        let smallest =
            || Some(format!("[plugins.{}] grants.model = [{model:?}]", self.plugin.name));
        if let Err(record) = self.rights().require(Capability::Model, model, smallest) {
            return Ok(Err(model::ModelError::Denied(self.refuse(*record))));
        }
        let request = match request_in(request) {
            Ok(request) => request,
            Err(fault) => return Ok(Err(model::ModelError::Other(fault.message))),
        };
        let ordinal = self.requests;
        self.requests = self.requests.saturating_add(1);
        self.replay.ask_model(ordinal, request)?;
        Ok(Ok(ordinal))
    }

    /// Waits for an answer. The error means that the call released its instance during a long wait.
    async fn answer(&mut self, ordinal: u32) -> wasmtime::Result<Answer> {
        let began = Instant::now();
        let answer = self.replay.answer(ordinal, self.due()).await?;
        self.note_wait_since(began);
        Ok(answer)
    }

    /// Returns the answer to a started request.
    async fn pending_answer(
        &mut self,
        pending: &Resource<CompletionStream>,
    ) -> wasmtime::Result<Arc<Answer>> {
        let CompletionStream { ordinal, answer, .. } = self.table.get(pending)?;
        if let Some(answer) = answer {
            return Ok(Arc::clone(answer));
        }
        let answer = Arc::new(self.answer(*ordinal).await?);
        self.table.get_mut(pending)?.answer = Some(Arc::clone(&answer));
        Ok(answer)
    }

    /// Excludes the time since `began` from the guest's computing time.
    pub(crate) fn note_wait_since(&mut self, began: Instant) {
        let waited = began.elapsed();
        self.note_waited(waited);
        // A tick that passes in a short wait is seen after it. Many short ones add up to it.
        self.uncharged += waited;
        if self.uncharged >= Duration::from_millis(TICK_MS) {
            self.uncharged = Duration::ZERO;
            self.meter.note_wait();
        }
    }
}

impl model::Host for CallState {
    fn start(
        &mut self,
        request: model::Request,
    ) -> wasmtime::Result<Result<Resource<CompletionStream>, model::ModelError>> {
        let ordinal = match self.ask(request)? {
            Ok(ordinal) => ordinal,
            Err(error) => return Ok(Err(error)),
        };
        Ok(Ok(self.table.push(CompletionStream { ordinal, answer: None, text_given: false })?))
    }

    async fn complete(
        &mut self,
        request: model::Request,
    ) -> wasmtime::Result<Result<model::Completion, model::ModelError>> {
        let ordinal = match self.ask(request)? {
            Ok(ordinal) => ordinal,
            Err(error) => return Ok(Err(error)),
        };
        let answer = self.answer(ordinal).await?;
        Ok(answer.as_ref().map(completion_out).map_err(model_error_out))
    }
}

impl model::HostCompletionStream for CallState {
    /// Returns the whole text at once, since clients do not stream to guests yet.
    async fn next_text(
        &mut self,
        pending: Resource<CompletionStream>,
    ) -> wasmtime::Result<Result<Option<String>, model::ModelError>> {
        self.enter()?;
        let answer = self.pending_answer(&pending).await?;
        let first = !std::mem::replace(&mut self.table.get_mut(&pending)?.text_given, true);
        let text = |completion: &Completion| completion.content.clone().filter(|_| first);
        Ok(answer.as_ref().as_ref().map(text).map_err(model_error_out))
    }

    async fn wait(
        &mut self,
        pending: Resource<CompletionStream>,
    ) -> wasmtime::Result<Result<model::Completion, model::ModelError>> {
        self.enter()?;
        let answer = self.pending_answer(&pending).await?;
        Ok(answer.as_ref().as_ref().map(completion_out).map_err(model_error_out))
    }

    fn drop(&mut self, pending: Resource<CompletionStream>) -> wasmtime::Result<()> {
        let pending = self.table.delete(pending)?;
        self.replay.give_up_model(pending.ordinal);
        Ok(())
    }
}

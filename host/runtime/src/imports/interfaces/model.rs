//! The `model` import: completions. The room decides on permissions and budgets; here requests are
//! parsed, numbered, sent and awaited.

use std::sync::Arc;
use std::time::Instant;

use conclave_core::types::capability::Capability;
use conclave_core::types::completion::{Completion, ModelError};
use wasmtime::component::Resource;

use crate::imports::bindings::plugin::model;
use crate::imports::convert::{completion_out, model_error_out, request_in};
use crate::imports::resources::CompletionStream;

type Answer = Result<Completion, ModelError>;
/// A result for the guest; the outer error traps.
type Fallible<T> = wasmtime::Result<Result<T, model::ModelError>>;

import_view! {
    /// The `model` import of a call.
    ModelImport
}

impl ModelImport<'_> {
    /// Parses a request, checks the grant, sends it, and returns its ordinal.
    ///
    /// Invalid JSON in the request is returned to the guest as an error.
    fn ask(&mut self, request: model::Request) -> Fallible<u32> {
        self.core.enter()?;
        self.core.meter.check_lists(&request)?;
        let model = request.model.as_deref().unwrap_or("default");
        let smallest =
            || Some(format!("[plugins.{}] grants.model = [{model:?}]", self.core.plugin.name));
        if let Err(record) = self.core.rights().require(Capability::Model, model, smallest) {
            return Ok(Err(model::ModelError::Denied(self.core.refuse(*record))));
        }
        let request = match request_in(request) {
            Ok(request) => request,
            Err(fault) => return Ok(Err(model::ModelError::Other(fault.message))),
        };
        Ok(Ok(self.core.replay.ask_model(request)?))
    }

    /// Waits for an answer. The error means that the call released its instance during a long wait.
    async fn answer(&mut self, ordinal: u32) -> wasmtime::Result<Answer> {
        let began = Instant::now();
        let answer = self.core.replay.answer(ordinal, self.core.due()).await?;
        self.core.note_wait_since(began);
        Ok(answer)
    }

    /// Returns the answer to a started request.
    async fn pending_answer(
        &mut self,
        pending: &Resource<CompletionStream>,
    ) -> wasmtime::Result<Arc<Answer>> {
        let CompletionStream { ordinal, answer, .. } = self.core.table.get(pending)?;
        if let Some(answer) = answer {
            return Ok(Arc::clone(answer));
        }
        let answer = Arc::new(self.answer(*ordinal).await?);
        self.core.table.get_mut(pending)?.answer = Some(Arc::clone(&answer));
        Ok(answer)
    }
}

impl model::Host for ModelImport<'_> {
    fn start(&mut self, request: model::Request) -> Fallible<Resource<CompletionStream>> {
        let ordinal = match self.ask(request)? {
            Ok(ordinal) => ordinal,
            Err(error) => return Ok(Err(error)),
        };
        Ok(Ok(self.core.table.push(CompletionStream {
            ordinal,
            answer: None,
            text_given: false,
        })?))
    }

    async fn complete(&mut self, request: model::Request) -> Fallible<model::Completion> {
        let ordinal = match self.ask(request)? {
            Ok(ordinal) => ordinal,
            Err(error) => return Ok(Err(error)),
        };
        let answer = self.answer(ordinal).await?;
        Ok(answer.as_ref().map(completion_out).map_err(model_error_out))
    }
}

impl model::HostCompletionStream for ModelImport<'_> {
    /// Returns the whole text at once, since clients do not stream to guests yet.
    async fn next_text(&mut self, pending: Resource<CompletionStream>) -> Fallible<Option<String>> {
        self.core.enter()?;
        let answer = self.pending_answer(&pending).await?;
        let first = !std::mem::replace(&mut self.core.table.get_mut(&pending)?.text_given, true);
        let text = |completion: &Completion| completion.content.clone().filter(|_| first);
        Ok(answer.as_ref().as_ref().map(text).map_err(model_error_out))
    }

    async fn wait(&mut self, pending: Resource<CompletionStream>) -> Fallible<model::Completion> {
        self.core.enter()?;
        let answer = self.pending_answer(&pending).await?;
        Ok(answer.as_ref().as_ref().map(completion_out).map_err(model_error_out))
    }

    fn drop(&mut self, pending: Resource<CompletionStream>) -> wasmtime::Result<()> {
        let pending = self.core.table.delete(pending)?;
        self.core.replay.give_up_model(pending.ordinal);
        Ok(())
    }
}

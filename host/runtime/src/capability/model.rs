//! `model`: completions. The room decides who may ask which model and what is left to spend; here the request is read, numbered, handed
//! over and waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conclave_core::limits::TICK_MS;
use conclave_core::manifest::Capability;
use conclave_core::model::{Completion, ModelError};
use wasmtime::component::Resource;

use crate::bindings::conclave::plugin::model;
use crate::clock::BoxFuture;
use crate::convert::{completion_out, model_error_out, request_in};
use crate::sandbox::CallState;

type Answer = Result<Completion, ModelError>;

/// A completion under way. Dropping it gives up waiting, which cancels the request.
pub struct Pending {
    state: State,
    text_given: bool,
}

enum State {
    /// Handed over already; it is only waited for here, so dropping it gives up at once and not when another thread finds time.
    Asked(BoxFuture<'static, Answer>),
    Answered(Arc<Answer>),
}

impl Pending {
    async fn answer(&mut self) -> Arc<Answer> {
        if let State::Asked(asked) = &mut self.state {
            self.state = State::Answered(Arc::new(asked.await));
        }
        match &self.state {
            State::Answered(answer) => Arc::clone(answer),
            State::Asked(_) => unreachable!("it was answered above"),
        }
    }
}

impl CallState {
    /// Reads a request, checks that the plugin may ask at all, and hands it over.
    ///
    /// The request's own JSON is the guest's business: what is wrong with it is an answer.
    fn ask(&mut self, request: model::Request) -> wasmtime::Result<Result<BoxFuture<'static, Answer>, model::ModelError>> {
        self.enter()?;
        self.meter.check_lists(&request)?;
        let wanted = request.model.as_deref().unwrap_or("default");
        let smallest = || Some(format!("[plugins.{}] grants.model = [{wanted:?}]", self.grantee.name));
        if let Err(record) = self.rights().require(Capability::Model, wanted, smallest) {
            return Ok(Err(model::ModelError::Denied(self.refuse(*record))));
        }
        let request = match request_in(request) {
            Ok(request) => request,
            Err(fault) => return Ok(Err(model::ModelError::Other(fault.message))),
        };
        let ordinal = self.requests;
        self.requests = self.requests.saturating_add(1);
        Ok(Ok(self.start.models.ask(self.start.call, ordinal, request)))
    }

    /// Waiting for the host is not the guest's computing.
    pub(crate) fn note_wait_since(&self, began: Instant) {
        if began.elapsed() >= Duration::from_millis(TICK_MS) {
            self.meter.note_wait();
        }
    }
}

impl model::Host for CallState {
    fn start(&mut self, request: model::Request) -> wasmtime::Result<Result<Resource<Pending>, model::ModelError>> {
        let asked = match self.ask(request)? {
            Ok(asked) => asked,
            Err(error) => return Ok(Err(error)),
        };
        Ok(Ok(self.table.push(Pending { state: State::Asked(asked), text_given: false })?))
    }

    async fn complete(&mut self, request: model::Request) -> wasmtime::Result<Result<model::Completion, model::ModelError>> {
        let asked = match self.ask(request)? {
            Ok(asked) => asked,
            Err(error) => return Ok(Err(error)),
        };
        let began = Instant::now();
        let answer = asked.await;
        self.note_wait_since(began);
        Ok(answer.as_ref().map(completion_out).map_err(model_error_out))
    }
}

impl model::HostPending for CallState {
    /// The whole text at once: clients do not give pieces yet.
    async fn next_text(&mut self, pending: Resource<Pending>) -> wasmtime::Result<Result<Option<String>, model::ModelError>> {
        self.enter()?;
        let began = Instant::now();
        let pending = self.table.get_mut(&pending)?;
        let answer = pending.answer().await;
        let first = !std::mem::replace(&mut pending.text_given, true);
        self.note_wait_since(began);
        let text = |completion: &Completion| completion.content.clone().filter(|_| first);
        Ok(answer.as_ref().as_ref().map(text).map_err(model_error_out))
    }

    async fn finish(&mut self, pending: Resource<Pending>) -> wasmtime::Result<Result<model::Completion, model::ModelError>> {
        self.enter()?;
        let began = Instant::now();
        let answer = self.table.get_mut(&pending)?.answer().await;
        self.note_wait_since(began);
        Ok(answer.as_ref().as_ref().map(completion_out).map_err(model_error_out))
    }

    fn drop(&mut self, pending: Resource<Pending>) -> wasmtime::Result<()> {
        self.table.delete(pending)?;
        Ok(())
    }
}

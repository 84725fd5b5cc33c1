//! Requests of a call that the room answers: model requests and nested calls. Each is sent and answered
//! once, even if the call is replayed.

use std::collections::{BTreeSet, HashMap};

use conclave_core::protocol::call_log::{Asked, AskedByOrdinal, Before, CallLog};
use conclave_core::types::completion::{Completion, ModelError, ModelRequest};
use conclave_core::types::tool::{NestedAnswer, NestedCall};

use super::{CallReplay, ReplayMismatch, ReplayState};
use crate::calls::not_run;
use crate::support::clock::BoxFuture;
use crate::support::suspension::Parked;

/// The outcome of a model request.
pub(crate) type Answer = Result<Completion, ModelError>;

/// The requests of one kind that are in progress in this process.
pub(super) struct Requests<A> {
    /// The ordinal of the next request of this attempt.
    pub(super) next: u32,
    pending: HashMap<u32, BoxFuture<'static, A>>,
    /// Requests that the guest dropped.
    given_up: BTreeSet<u32>,
}

impl<A> Default for Requests<A> {
    fn default() -> Self {
        Self { next: 0, pending: HashMap::new(), given_up: BTreeSet::new() }
    }
}

/// A request that a suspended call waits for.
#[derive(Clone, Copy)]
pub(super) enum Awaited {
    Model(u32),
    Tools(u32),
}

/// A kind of request.
trait Kind {
    type Request: Clone + PartialEq;
    type Answer: Clone;
    /// Its name for people.
    const NAME: &str;

    fn log(log: &mut CallLog) -> &mut AskedByOrdinal<Self::Request, Self::Answer>;
    fn requests(state: &mut ReplayState) -> &mut Requests<Self::Answer>;
    fn send(
        call: &CallReplay,
        ordinal: u32,
        request: Self::Request,
    ) -> BoxFuture<'static, Self::Answer>;
    fn awaited(ordinal: u32) -> Awaited;
}

struct Model;

impl Kind for Model {
    type Request = ModelRequest;
    type Answer = Answer;
    const NAME: &str = "model request";

    fn log(log: &mut CallLog) -> &mut AskedByOrdinal<ModelRequest, Answer> {
        &mut log.models
    }

    fn requests(state: &mut ReplayState) -> &mut Requests<Answer> {
        &mut state.models
    }

    fn send(call: &CallReplay, ordinal: u32, request: ModelRequest) -> BoxFuture<'static, Answer> {
        call.models.ask(call.call, ordinal, request)
    }

    fn awaited(ordinal: u32) -> Awaited {
        Awaited::Model(ordinal)
    }
}

struct Tools;

impl Kind for Tools {
    type Request = Vec<NestedCall>;
    type Answer = Vec<NestedAnswer>;
    const NAME: &str = "request of tool calls";

    fn log(log: &mut CallLog) -> &mut AskedByOrdinal<Vec<NestedCall>, Vec<NestedAnswer>> {
        &mut log.tools
    }

    fn requests(state: &mut ReplayState) -> &mut Requests<Vec<NestedAnswer>> {
        &mut state.tools
    }

    fn send(
        call: &CallReplay,
        ordinal: u32,
        calls: Vec<NestedCall>,
    ) -> BoxFuture<'static, Vec<NestedAnswer>> {
        call.tools.ask(call.call, ordinal, calls)
    }

    fn awaited(ordinal: u32) -> Awaited {
        Awaited::Tools(ordinal)
    }
}

impl CallReplay {
    /// Sends a model request, unless it was sent before, and returns its ordinal.
    ///
    /// # Errors
    /// If it differs from the recorded one.
    pub(crate) fn ask_model(&self, request: ModelRequest) -> Result<u32, ReplayMismatch> {
        self.ask::<Model>(request)
    }

    /// Waits for the answer to a model request, until the instance is `due` to be released.
    ///
    /// # Errors
    /// If it was due first; [`parked_answer`](Self::parked_answer) then waits for the answer.
    pub(crate) async fn answer(
        &self,
        ordinal: u32,
        due: impl Future<Output = ()>,
    ) -> Result<Answer, Parked> {
        let given_up = || Err(ModelError::Other { message: "the request was given up".to_owned() });
        Ok(self.wait::<Model>(ordinal, due).await?.unwrap_or_else(given_up))
    }

    /// Makes nested calls, unless they were made before, and waits as [`answer`](Self::answer).
    ///
    /// # Errors
    /// If they differ from the recorded ones, or if the instance was due first.
    pub(crate) async fn call_tools(
        &self,
        calls: Vec<NestedCall>,
        due: impl Future<Output = ()>,
    ) -> wasmtime::Result<Vec<NestedAnswer>> {
        let ordinal = self.ask::<Tools>(calls.clone())?;
        let answers = self.wait::<Tools>(ordinal, due).await?;
        Ok(answers.unwrap_or_else(|| not_run(&calls, "the calls were given up")))
    }

    fn ask<K: Kind>(&self, request: K::Request) -> Result<u32, ReplayMismatch> {
        self.check()?;
        let mut state = self.state();
        let state = &mut *state;
        let requests = K::requests(state);
        let ordinal = requests.next;
        requests.next = ordinal.saturating_add(1);
        let is_known =
            requests.pending.contains_key(&ordinal) || requests.given_up.contains(&ordinal);
        let before = K::log(&mut state.trace).get(&ordinal).map(|logged| logged.before(&request));
        match before.unwrap_or(Before::New) {
            Before::Answered(_) => return Ok(ordinal),
            // Still in progress in this process, or cancelled by the guest.
            Before::Open if is_known => return Ok(ordinal),
            // The room has journalled the request and only waits for its answer.
            Before::Open => {}
            Before::Otherwise => {
                self.lose(&format!(
                    "it asked for something else than before the host stopped: {} {ordinal}",
                    K::NAME
                ));
                return Err(ReplayMismatch);
            }
            Before::New => {
                // Reads come first, because the request may depend on them.
                self.keep_reads(state);
                K::log(&mut state.trace).insert(ordinal, Box::new(Asked::new(request.clone())));
            }
        }
        let answer = K::send(self, ordinal, request);
        K::requests(state).pending.insert(ordinal, answer);
        Ok(ordinal)
    }

    /// Waits for an answer; `None` if the guest dropped the request.
    async fn wait<K: Kind>(
        &self,
        ordinal: u32,
        due: impl Future<Output = ()>,
    ) -> Result<Option<K::Answer>, Parked> {
        let pending = {
            let mut state = self.state();
            if let Some(answer) =
                K::log(&mut state.trace).get(&ordinal).and_then(|logged| logged.answer.clone())
            {
                return Ok(Some(answer));
            }
            K::requests(&mut state).pending.remove(&ordinal)
        };
        let Some(mut pending) = pending else { return Ok(None) };
        tokio::select! {
            biased;
            answer = &mut pending => {
                self.record_answer::<K>(ordinal, &answer);
                Ok(Some(answer))
            }
            () = due => {
                let mut state = self.state();
                // The future stays alive, so that the request is not sent twice.
                K::requests(&mut state).pending.insert(ordinal, pending);
                state.waits_for = Some(K::awaited(ordinal));
                Err(Parked)
            }
        }
    }

    /// Waits for the answer that a suspended call needs.
    pub(crate) async fn parked_answer(&self) {
        let awaited = self.state().waits_for.take();
        match awaited {
            Some(Awaited::Model(ordinal)) => self.wait_parked::<Model>(ordinal).await,
            Some(Awaited::Tools(ordinal)) => self.wait_parked::<Tools>(ordinal).await,
            None => {}
        }
    }

    /// Whether the suspended call waits for other tools, which have limits of their own and may
    /// wait for an approver.
    pub(crate) fn waits_for_tools(&self) -> bool {
        matches!(self.state().waits_for, Some(Awaited::Tools(_)))
    }

    async fn wait_parked<K: Kind>(&self, ordinal: u32) {
        let pending = K::requests(&mut self.state()).pending.remove(&ordinal);
        if let Some(pending) = pending {
            let answer = pending.await;
            self.record_answer::<K>(ordinal, &answer);
        }
    }

    fn record_answer<K: Kind>(&self, ordinal: u32, answer: &K::Answer) {
        if let Some(logged) = K::log(&mut self.state().trace).get_mut(&ordinal) {
            logged.answer = Some(answer.clone());
        }
    }

    /// Cancels a model request that the guest dropped.
    pub(crate) fn give_up_model(&self, ordinal: u32) {
        let mut state = self.state();
        if let Some(pending) = state.models.pending.remove(&ordinal) {
            state.models.given_up.insert(ordinal);
            drop(pending);
        }
    }
}

//! The requests that a plugin call has made so far, with their answers. A call that runs again from
//! its log gets the same answers, so no side effect happens twice. Does not run plugins; the host
//! does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::protocol::event::Event;
use crate::types::completion::{Completion, ModelError, ModelRequest};
use crate::types::denial::Denial;
use crate::types::side_effect::{SideEffect, SideEffectAnswer};
use crate::types::tool::{NestedAnswer, NestedCall};

/// The requests and answers of one call; empty for a new call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallLog {
    /// Model requests, by ordinal.
    pub models: AskedByOrdinal<ModelRequest, Result<Completion, ModelError>>,
    /// Requests of nested calls, by ordinal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: AskedByOrdinal<Vec<NestedCall>, Vec<NestedAnswer>>,
    /// Side effects, by ordinal.
    pub side_effects: BTreeMap<u32, Box<AskedSideEffect>>,
    /// The values that the call has read, in order. They can be large, so a snapshot names their
    /// records instead.
    #[serde(skip)]
    pub reads: Vec<LoggedRead>,
    /// Whether a side effect whose result is unknown may be repeated.
    pub may_repeat: bool,
}

/// The requests of one kind. They are boxed, because most calls make one and a map's node has room
/// for eleven.
pub type AskedByOrdinal<R, A> = BTreeMap<u32, Box<Asked<R, A>>>;

/// A request of a call that the room answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked<R, A> {
    pub request: R,
    /// The answer; `None` while the request is pending.
    pub answer: Option<A>,
}

/// A side effect of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AskedSideEffect {
    pub side_effect: SideEffect,
    /// The room's permission or refusal.
    pub leave: Result<(), Denial>,
    /// The result; `None` if it is unknown whether the side effect happened.
    pub answer: Option<SideEffectAnswer>,
}

/// A value that a call has read and that may have changed since.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedRead {
    /// The name of the import, such as `kv.get`.
    pub import: String,
    /// The target of the read, such as a key or a path with a range.
    pub target: String,
    /// The import's answer, in the import's own form.
    pub answer: Value,
}

/// The entry of a call log for one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Before<'a, T> {
    /// The log has no such request.
    New,
    /// The request was answered.
    Answered(&'a T),
    /// The request has no answer yet.
    Open,
    /// The log has another request in this position: the replayed call does not run as it did.
    Otherwise,
}

impl<R: PartialEq, A> Asked<R, A> {
    /// Returns a request without an answer.
    #[must_use]
    pub fn new(request: R) -> Self {
        Self { request, answer: None }
    }

    /// The entry for a request in this position, which may be another one.
    #[must_use]
    pub fn before(&self, request: &R) -> Before<'_, A> {
        match &self.answer {
            _ if self.request != *request => Before::Otherwise,
            Some(answer) => Before::Answered(answer),
            None => Before::Open,
        }
    }
}

impl CallLog {
    /// The log's entry for a side effect that was permitted. A refused one counts as new, so the
    /// room decides again.
    #[must_use]
    pub fn side_effect(
        &self,
        ordinal: u32,
        side_effect: &SideEffect,
    ) -> Before<'_, SideEffectAnswer> {
        match self.side_effects.get(&ordinal) {
            None => Before::New,
            Some(request) if request.side_effect != *side_effect => Before::Otherwise,
            Some(request) => request.answer.as_ref().map_or(Before::Open, Before::Answered),
        }
    }

    /// Whether the log is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
            && self.tools.is_empty()
            && self.side_effects.is_empty()
            && self.reads.is_empty()
    }

    /// The first side effect that began and whose result is unknown.
    #[must_use]
    pub fn cut_off(&self) -> Option<(u32, &SideEffect)> {
        let open = |request: &AskedSideEffect| request.leave.is_ok() && request.answer.is_none();
        self.side_effects
            .iter()
            .find(|(_, request)| open(request))
            .map(|(ordinal, request)| (*ordinal, &request.side_effect))
    }

    /// Adds a request, a read or an answer of the plugin to the log.
    pub(crate) fn take(&mut self, event: &Event) {
        match event {
            Event::ModelAsked { ordinal, request, .. } => {
                self.models.insert(*ordinal, Box::new(Asked::new(request.clone())));
            }
            Event::ToolsAsked { ordinal, calls, .. } => {
                self.tools.insert(*ordinal, Box::new(Asked::new(calls.clone())));
            }
            Event::SideEffectAsked { ordinal, side_effect, .. } => {
                let request = AskedSideEffect {
                    side_effect: side_effect.clone(),
                    leave: Ok(()),
                    answer: None,
                };
                self.side_effects.insert(*ordinal, Box::new(request));
            }
            Event::SideEffectEnded { ordinal, answer, .. } => {
                if let Some(request) = self.side_effects.get_mut(ordinal) {
                    request.answer = Some(answer.clone());
                }
            }
            Event::ReadsRecorded { reads, .. } => self.reads.extend(reads.iter().cloned()),
            _ => {}
        }
    }
}

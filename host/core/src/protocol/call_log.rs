//! What a call that goes on has asked and was told so far. A call that is run again from its trace
//! gets the same answers, so it does nothing twice and goes on where it was. Not how a plugin is
//! run again, which is the host's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::protocol::event::Event;
use crate::types::completion::{Completion, ModelError, ModelRequest};
use crate::types::denial::Denial;
use crate::types::side_effect::{SideEffect, SideEffectAnswer};

/// What one call has asked and was told; empty for a call that begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallLog {
    /// Model requests, by ordinal.
    pub models: BTreeMap<u32, AskedModel>,
    /// Side effects, by ordinal.
    pub side_effects: BTreeMap<u32, AskedSideEffect>,
    /// What it has read, in order.
    pub reads: Vec<LoggedRead>,
    /// A side effect whose end is not known may be done again.
    pub may_repeat: bool,
}

/// A model request of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedModel {
    pub request: ModelRequest,
    /// None: the answer is still to come, and comes by itself.
    pub answer: Option<Result<Completion, ModelError>>,
}

/// A side effect of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedSideEffect {
    pub side_effect: SideEffect,
    /// What the room said.
    pub leave: Result<(), Denial>,
    /// None: nobody can say whether it happened.
    pub answer: Option<SideEffectAnswer>,
}

/// Something that a call has read, and that may read otherwise later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedRead {
    /// The import, such as `kv.get`.
    pub import: String,
    /// What was asked for, such as a key or a path with a range.
    pub target: String,
    /// What the import answered, in its own form.
    pub answer: Value,
}

/// What a trace knows of something that a call asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Before<'a, T> {
    /// It was not asked for.
    New,
    /// It was, and this was the answer.
    Answered(&'a T),
    /// It was, and there was no answer.
    Open,
    /// Something else was asked for in its place: the call does not run as it did.
    Otherwise,
}

impl CallLog {
    /// What became of a model request.
    #[must_use]
    pub fn model(
        &self,
        ordinal: u32,
        request: &ModelRequest,
    ) -> Before<'_, Result<Completion, ModelError>> {
        match self.models.get(&ordinal) {
            None => Before::New,
            Some(asked) if asked.request != *request => Before::Otherwise,
            Some(AskedModel { answer: Some(answer), .. }) => Before::Answered(answer),
            Some(_) => Before::Open,
        }
    }

    /// What became of a side effect that was let through; one that was refused is asked for again.
    #[must_use]
    pub fn side_effect(
        &self,
        ordinal: u32,
        side_effect: &SideEffect,
    ) -> Before<'_, SideEffectAnswer> {
        match self.side_effects.get(&ordinal) {
            None => Before::New,
            Some(asked) if asked.side_effect != *side_effect => Before::Otherwise,
            Some(AskedSideEffect { answer: Some(answer), .. }) => Before::Answered(answer),
            Some(_) => Before::Open,
        }
    }

    /// Nothing was asked yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.models.is_empty() && self.side_effects.is_empty() && self.reads.is_empty()
    }

    /// The first side effect that began, and of whose end nobody knows.
    #[must_use]
    pub fn cut_off(&self) -> Option<(u32, &SideEffect)> {
        let open = |asked: &AskedSideEffect| asked.leave.is_ok() && asked.answer.is_none();
        self.side_effects
            .iter()
            .find(|(_, asked)| open(asked))
            .map(|(ordinal, asked)| (*ordinal, &asked.side_effect))
    }

    /// Takes what a plugin asked or read.
    pub(crate) fn take(&mut self, event: &Event) {
        match event {
            Event::ModelAsked { ordinal, request, .. } => {
                self.models.insert(*ordinal, AskedModel { request: request.clone(), answer: None });
            }
            Event::SideEffectAsked { ordinal, side_effect, .. } => {
                let asked = AskedSideEffect {
                    side_effect: side_effect.clone(),
                    leave: Ok(()),
                    answer: None,
                };
                self.side_effects.insert(*ordinal, asked);
            }
            Event::SideEffectEnded { ordinal, answer, .. } => {
                if let Some(asked) = self.side_effects.get_mut(ordinal) {
                    asked.answer = Some(answer.clone());
                }
            }
            Event::ReadsKept { reads, .. } => self.reads.extend(reads.iter().cloned()),
            _ => {}
        }
    }
}

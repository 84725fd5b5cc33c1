//! `model`: completions of models.

use serde::{Deserialize, Serialize};

use super::texts::{in_brackets, joined, run_limits};
use super::{
    AccessRequest, Capability, Destination, Grant, GrantTexts, Refused, Rights, TaskScope, has_any,
};
use crate::permissions::overlap::{common, smaller_of};
use crate::types::ids::ModelName;
use crate::types::wording::{count, money};

/// The grant of models, with its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelGrant {
    /// The models; `default` is used if a request names none.
    pub names: Vec<ModelName>,
    /// The limit of tokens in the whole run.
    pub tokens: Option<u64>,
    pub cost_micro_usd: Option<u64>,
    pub calls: Option<u64>,
}

impl<'a> Rights<'a> {
    /// Returns the model of this name; without a name `default` if it was granted, else the first
    /// granted one.
    ///
    /// # Errors
    /// The record, if the model is not requested, not granted, or only others are granted.
    pub fn may_use_model(&self, name: Option<&str>) -> Result<&'a ModelName, Refused> {
        let target = name.unwrap_or("default");
        let granted = self.grants.model.as_ref().map_or(&[][..], |grant| &grant.names);
        let smallest = || Some(self.line_with(Capability::Model, granted, target));
        let model = self.require_entry(Capability::Model, target, smallest, || {
            let Some(name) = name else {
                let mut in_scope = granted.iter().filter(|model| self.leaves_model(model).is_ok());
                let first = in_scope.clone().next();
                let default = in_scope.find(|granted| granted.as_str() == "default");
                return default.or(first).or_else(|| granted.first());
            };
            granted.iter().find(|granted| granted.as_str() == name)
        })?;
        self.leaves_model(model).map(|()| model)
    }

    fn leaves_model(&self, model: &ModelName) -> Result<(), Refused> {
        self.check_scope(Capability::Model, model.as_str(), |scope| {
            scope.model.as_ref().is_none_or(|models| models.contains(model))
        })
    }
}

impl Grant for ModelGrant {
    fn decide(request: &AccessRequest<'_>) -> Result<(), Refused> {
        request.rights.may_use_model(Some(request.target)).map(drop)
    }

    fn remains(scope: &TaskScope, _writes: bool) -> Option<bool> {
        Some(has_any(&scope.model))
    }

    fn narrowed_by(&self, today: &Self) -> Option<Self> {
        let both = smaller_of! {
            self, today: ; tokens cost_micro_usd calls; names: common(&self.names, &today.names)
        };
        Some(both).filter(|grant| !grant.names.is_empty())
    }

    fn needs_approval(&self) -> bool {
        true
    }

    fn destinations(&self) -> Vec<Destination<'_>> {
        self.names.iter().map(Destination::Model).collect()
    }

    fn texts(&self, request: &AccessRequest<'_>) -> GrantTexts {
        let bounds = in_brackets([
            self.tokens.map(|tokens| count(tokens, "token")),
            self.cost_micro_usd.map(money),
            self.calls.map(|calls| count(calls, "call")),
        ]);
        let noun = if self.names.len() == 1 { "model" } else { "models" };
        let limits = [
            (self.calls, "calls"),
            (self.tokens, "tokens"),
            (self.cost_micro_usd, "micro-dollars"),
        ];
        GrantTexts {
            summary: vec![format!("use {noun} {}{bounds}", joined(&self.names))],
            effect: format!("spend on the model {}", joined(&self.names)),
            bounds: run_limits(limits),
            ..GrantTexts::of_names(&self.names, |name| name == request.target)
        }
    }
}

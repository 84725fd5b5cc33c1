//! `model`: completions of models.

use serde::{Deserialize, Serialize};

use super::texts::{in_brackets, names, run_limits};
use super::{AccessRequest, Destination, Grant, GrantLayers, Refused, Rights};
use crate::permissions::overlap::{common, smaller};
use crate::permissions::task_scope::TaskScope;
use crate::types::capability::Capability;
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
    fn decide(rights: &Rights<'_>, request: &AccessRequest<'_>) -> Result<(), Refused> {
        rights.may_use_model(Some(request.target)).map(drop)
    }

    fn remains(scope: &TaskScope, _writes: bool) -> Option<bool> {
        Some(scope.model.as_ref().is_none_or(|names| !names.is_empty()))
    }

    fn verb(_writes: bool) -> &'static str {
        "use the model"
    }

    fn narrowed_by(&self, today: &Self) -> Option<Self> {
        let both = Self {
            names: common(&self.names, &today.names),
            tokens: smaller(self.tokens, today.tokens),
            cost_micro_usd: smaller(self.cost_micro_usd, today.cost_micro_usd),
            calls: smaller(self.calls, today.calls),
        };
        Some(both).filter(|grant| !grant.names.is_empty())
    }

    fn needs_approval(&self) -> bool {
        true
    }

    fn effect(&self) -> String {
        format!("spend on the model {}", names(&self.names))
    }

    fn destinations(&self) -> Vec<Destination<'_>> {
        self.names.iter().map(Destination::Model).collect()
    }

    fn layers(&self, target: &str, _writes: bool) -> GrantLayers {
        let limits = [
            (self.calls, "calls"),
            (self.tokens, "tokens"),
            (self.cost_micro_usd, "micro-dollars"),
        ];
        GrantLayers {
            bounds: run_limits(limits),
            ..GrantLayers::of_names(&self.names, |name| name == target)
        }
    }

    fn summary(&self, _rights: &Rights<'_>) -> Vec<String> {
        let bounds = in_brackets([
            self.tokens.map(|tokens| count(tokens, "token")),
            self.cost_micro_usd.map(money),
            self.calls.map(|calls| count(calls, "call")),
        ]);
        let noun = if self.names.len() == 1 { "model" } else { "models" };
        vec![format!("use {noun} {}{bounds}", names(&self.names))]
    }
}

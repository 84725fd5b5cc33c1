//! Explanations for external tool servers. Their own actions pass no layer of this host; only their
//! requests to the host would.

use super::{AccessQuestion, Explanation, LayerAnswer, LayerVerdict};
use crate::types::capability::Capability;
use crate::types::denial::Layer;

/// Whether a program outside the sandbox can use the capability without asking this host.
pub(super) fn is_meant(capability: Capability) -> bool {
    matches!(
        capability,
        Capability::Files | Capability::Fetch | Capability::Exec | Capability::Secrets
    )
}

pub(super) fn answer(question: &AccessQuestion) -> Explanation {
    let text =
        format!("{} runs outside the sandbox, as you; no grant holds it back", question.plugin);
    let key = Some(format!("plugins.{}.source", question.plugin));
    Explanation {
        plugin: question.plugin.clone(),
        capability: question.capability.as_str().to_owned(),
        target: question.target.clone().unwrap_or_default(),
        verdict: LayerVerdict::Yes,
        layers: vec![LayerAnswer { layer: Layer::Host, verdict: LayerVerdict::Yes, text, key }],
        suggestion: None,
        no_suggestion: None,
    }
}

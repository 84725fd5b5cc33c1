//! What a question can be about: the options of each capability, and the targets that a config has.

use super::AccessQuestion;
use crate::setup::Setup;
use crate::types::capability::Capability;
use crate::types::host_tool::HostTool;

/// The options of a question, each with the only capability for which it has a meaning.
const OPTIONS: [(&str, Capability); 5] = [
    ("write", Capability::Files),
    ("method", Capability::Fetch),
    ("header", Capability::Fetch),
    ("host", Capability::Secrets),
    ("arguments", Capability::Tools),
];

/// A target that the config lacks, and that no grant could give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownTarget {
    #[error("{0} is a tool of the host, which no grant of `tools` covers")]
    HostTool(String),
    #[error("the tool {0} does not exist")]
    Tool(String),
    #[error("the model {0} does not exist")]
    Model(String),
    #[error("the task {0} does not exist")]
    Task(String),
}

/// Whether questions about the capability can have a target.
#[must_use]
pub fn has_target(capability: Capability) -> bool {
    capability != Capability::History && !capability.is_own()
}

/// The first given option that has no meaning for the capability, with the one that has it. An
/// answer would be about another question.
pub fn foreign_option(
    capability: Capability,
    is_given: impl Fn(&str) -> bool,
) -> Option<(&'static str, Capability)> {
    OPTIONS.into_iter().find(|(option, of)| *of != capability && is_given(option))
}

/// The target of the question, if the config lacks it.
#[must_use]
pub fn unknown_target(setup: &Setup, question: &AccessQuestion) -> Option<UnknownTarget> {
    let target = question.target.as_deref()?;
    let unknown = match question.capability {
        Capability::Tools if HostTool::from_name(target).is_some() => UnknownTarget::HostTool,
        Capability::Tools if setup.tool(target).is_none() => UnknownTarget::Tool,
        Capability::Model if !setup.models.is_empty() && !setup.models.contains_key(target) => {
            UnknownTarget::Model
        }
        Capability::Delegate if !setup.tasks.contains_key(target) => UnknownTarget::Task,
        _ => return None,
    };
    Some(unknown(target.to_owned()))
}

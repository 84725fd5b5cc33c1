//! Explanations of permissions: every layer in order, the layer that refuses, and the smallest
//! grant that would allow it. Asks the same functions as the room and the imports; decides nothing
//! itself.

mod layers;
mod options;
mod outside;
mod tasks;
#[cfg(test)]
pub(super) mod tests;

use serde::Serialize;
use serde_json::{Value, json};

use crate::permissions::grants::{Refused, kind_of};
use crate::permissions::paths::rest_below;
use crate::policy::decision::{PolicyDecision, decide_for_participants};
use crate::setup::{PluginSetup, Setup};
use crate::types::approval::{Delegator, participants};
use crate::types::capability::Capability;
use crate::types::denial::{DenialRecord, Layer};
use crate::types::ids::{PluginName, TaskName};

pub use options::{UnknownTarget, foreign_option, has_target, unknown_target};

/// A layer's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerVerdict {
    Yes,
    /// An approver is asked each time.
    Ask,
    No,
    /// An earlier layer refused.
    NotReached,
}

/// A layer with its verdict and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerAnswer {
    pub layer: Layer,
    pub verdict: LayerVerdict,
    /// The reason in words, for the operator. It may hold text of the plugin's author.
    pub text: String,
    /// The deciding key of the config, such as `plugins.notes.grants.files[0]`:
    /// [`crate::config::Config::locate`] finds its line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The answer to an [`AccessQuestion`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub plugin: PluginName,
    pub capability: String,
    /// The target; empty for the capability as a whole.
    pub target: String,
    /// Yes, ask or no.
    pub verdict: LayerVerdict,
    /// The layers, from the manifest to the grant's own limits.
    pub layers: Vec<LayerAnswer>,
    /// The smallest line of config that would allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// The reason for offering no line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_suggestion: Option<String>,
}

impl Explanation {
    /// The layer that refuses; `None` if none does.
    #[must_use]
    pub fn denied_by(&self) -> Option<Layer> {
        self.layers
            .iter()
            .find(|answer| answer.verdict == LayerVerdict::No)
            .map(|answer| answer.layer)
    }
}

/// A question about access: may this plugin use this capability on this target?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessQuestion {
    pub plugin: PluginName,
    pub capability: Capability,
    /// A name, a path, an address; `None` for the capability as a whole.
    pub target: Option<String>,
    /// Whether a file is written; ignored for other capabilities.
    pub writes: bool,
    /// The method of a `fetch`.
    pub method: String,
    /// The headers of a `fetch`, in lower case.
    pub headers: Vec<String>,
    /// The host that a secret is sent to.
    pub host: Option<String>,
    /// The arguments of a tool call, for policy rules that match them.
    pub arguments: Value,
    /// The task on whose behalf the plugin acts; `None` for every task of this agent.
    pub task: Option<TaskName>,
    /// The delegations that led to a tool call, the outermost first.
    pub delegators: Vec<Delegator>,
    /// The tools that led to a tool call of this plugin, in order.
    pub led_by: Vec<PluginName>,
}

impl AccessQuestion {
    /// The decision of the rules about a tool call, for all that led to it.
    fn ruling<'a>(&self, setup: &'a Setup, tool: &str) -> PolicyDecision<'a> {
        let participants = participants(&self.delegators, &self.plugin, &self.led_by);
        decide_for_participants(setup, participants, tool, &self.arguments)
    }

    /// Returns a question about the capability as a whole.
    #[must_use]
    pub fn new(plugin: impl Into<PluginName>, capability: Capability) -> Self {
        let (plugin, method) = (plugin.into(), "GET".to_owned());
        Self {
            plugin,
            capability,
            target: None,
            writes: false,
            method,
            headers: Vec::new(),
            host: None,
            arguments: json!({}),
            task: None,
            delegators: Vec::new(),
            led_by: Vec::new(),
        }
    }

    /// Sets the target of the question.
    #[must_use]
    pub fn of(self, target: impl Into<String>) -> Self {
        Self { target: Some(target.into()), ..self }
    }
}

/// A question about a plugin or a task that the config does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    #[error("the config has no plugin {0}")]
    Plugin(PluginName),
    #[error("the config has no task {0}")]
    Task(TaskName),
    #[error("the agent of the task {task} is {agent}, not {plugin}")]
    OtherAgent { task: TaskName, agent: PluginName, plugin: PluginName },
}

/// Returns the answer by the current decisions. Facts that only a run has, such as usage or
/// resolved addresses, are described in words.
///
/// # Errors
/// `NoAnswer` if the question names an unknown plugin or task.
pub fn explain(setup: &Setup, question: &AccessQuestion) -> Result<Explanation, NoAnswer> {
    let plugin = setup
        .plugins
        .get(&question.plugin)
        .ok_or_else(|| NoAnswer::Plugin(question.plugin.clone()))?;
    if let Some(task) = &question.task {
        let found = setup.tasks.get(task).ok_or_else(|| NoAnswer::Task(task.clone()))?;
        if found.agent != question.plugin && question.capability == Capability::Tools {
            let (task, agent, plugin) =
                (task.clone(), found.agent.clone(), question.plugin.clone());
            return Err(NoAnswer::OtherAgent { task, agent, plugin });
        }
    }
    if plugin.facts.is_unconfined_server() && outside::is_meant(question.capability) {
        return Ok(outside::answer(question));
    }
    let by_place = by_place(plugin, question);
    let question = by_place.as_ref().unwrap_or(question);
    let refused = layers::decide(setup, question).err();
    Ok(with(setup, question, refused))
}

/// The question about a file of a confined server, which has its folders at their places on the
/// machine, by the name of the folder in its grant; `None` for any other question.
fn by_place(plugin: &PluginSetup, question: &AccessQuestion) -> Option<AccessQuestion> {
    plugin.facts.confinement.as_ref().filter(|_| question.capability == Capability::Files)?;
    let target = question.target.as_ref()?;
    let mut grants = plugin.grants.files.iter();
    grants.find_map(|grant| {
        let rest = rest_below(grant.dir.trim_end_matches('/'), target)?;
        let at = format!("{}/{rest}", grant.at);
        Some(question.clone().of(at.trim_end_matches('/').to_owned()))
    })
}

/// Explains a recorded refusal.
#[must_use]
pub fn explain_denial(
    setup: &Setup,
    plugin: &PluginName,
    record: &DenialRecord,
    task: Option<&TaskName>,
) -> Explanation {
    let mut explanation =
        with(setup, &question_of(plugin, record, task), Some(Box::new(record.clone())));
    explanation.capability.clone_from(&record.denial.capability);
    explanation
}

/// The question that led to this refusal.
fn question_of(
    plugin: &PluginName,
    record: &DenialRecord,
    task: Option<&TaskName>,
) -> AccessQuestion {
    let denial = &record.denial;
    let capability = Capability::from_name(&denial.capability);
    let question = AccessQuestion::new(plugin.clone(), capability.unwrap_or(Capability::Exec))
        .of(denial.target.clone());
    AccessQuestion { task: task.cloned(), writes: record.writes, ..question }
}

fn with(setup: &Setup, question: &AccessQuestion, refused: Option<Refused>) -> Explanation {
    let layers = layers::answers(setup, question, refused.as_deref());
    let verdict = match &refused {
        Some(_) => LayerVerdict::No,
        None if layers.iter().any(|answer| answer.verdict == LayerVerdict::Ask) => {
            LayerVerdict::Ask
        }
        None => LayerVerdict::Yes,
    };
    Explanation {
        plugin: question.plugin.clone(),
        capability: question.capability.as_str().to_owned(),
        target: question.target.clone().unwrap_or_default(),
        verdict,
        layers,
        no_suggestion: refused
            .as_ref()
            .filter(|record| record.suggestion.is_none())
            .map(|record| why_no_suggestion(question, record)),
        suggestion: refused.and_then(|record| record.suggestion),
    }
}

/// The reason for offering no line, for requests that no operator should allow by copying a line.
fn why_no_suggestion(question: &AccessQuestion, record: &DenialRecord) -> String {
    let plugin = &question.plugin;
    match record.layer {
        Layer::Manifest => {
            format!("{plugin} does not ask for it: only its author can put that into its manifest")
        }
        Layer::Host => "this host never gives it".to_owned(),
        Layer::Policy => {
            "the policy decided it, not a grant; change the rule if it is not what you meant"
                .to_owned()
        }
        Layer::Task => {
            "it is the task that leaves it out; change the task if that is not what you meant"
                .to_owned()
        }
        Layer::Config | Layer::Runtime => kind_of(question.capability)
            .and_then(|kind| (kind.why_no_line)(question.target.as_deref(), record.layer))
            .unwrap_or_else(|| {
                "no grant is suggested: a larger one is for you to weigh".to_owned()
            }),
    }
}

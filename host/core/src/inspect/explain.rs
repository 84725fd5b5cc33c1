//! Why a plugin may do something, or may not: every layer in order, which of them said no, and the
//! smallest grant. Explains what the decisions of the room and the imports are, by asking the same
//! functions; decides nothing itself.

mod layers;
mod outside;
mod tasks;
#[cfg(test)]
mod tests;

use serde::Serialize;
use serde_json::{Value, json};

use crate::permissions::authorize::Refused;
use crate::permissions::paths::why_no_offer;
use crate::setup::Setup;
use crate::types::capability::Capability;
use crate::types::denial::{DenialRecord, Layer};
use crate::types::ids::{PluginName, TaskName};

/// What a layer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerVerdict {
    Yes,
    /// An approver is asked each time.
    Ask,
    No,
    /// A layer before it said no.
    NotReached,
}

/// A layer, and why it says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerAnswer {
    pub layer: Layer,
    pub verdict: LayerVerdict,
    /// In words, for the operator. It may hold words of the plugin's author.
    pub text: String,
    /// The key of the config that decides it, such as `plugins.notes.grants.files[0]`:
    /// [`crate::config::Config::locate`] finds its line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The answer to "may it?".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub plugin: PluginName,
    pub capability: String,
    /// Empty: the capability as such.
    pub target: String,
    /// Yes, ask or no.
    pub verdict: LayerVerdict,
    /// From the manifest to the grant's own bounds.
    pub layers: Vec<LayerAnswer>,
    /// The smallest line of config that would allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallest: Option<String>,
    /// Why no line is offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_line: Option<String>,
}

impl Explanation {
    /// The layer that said no.
    #[must_use]
    pub fn refused_by(&self) -> Option<Layer> {
        self.layers
            .iter()
            .find(|answer| answer.verdict == LayerVerdict::No)
            .map(|answer| answer.layer)
    }
}

/// What somebody wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessQuestion {
    pub plugin: PluginName,
    pub capability: Capability,
    /// A name, a path, an address; none: the capability as such.
    pub target: Option<String>,
    /// Of files: to write. Of everything else it means nothing.
    pub writes: bool,
    /// Of `fetch`.
    pub method: String,
    /// Of `fetch`: names of headers, in lower case.
    pub headers: Vec<String>,
    /// Of a secret: the host that it is to be sent to.
    pub host: Option<String>,
    /// Of a tool: what it is called with; the policy may look at it.
    pub arguments: Value,
    /// On behalf of this task; none: of any task that the plugin is the agent of.
    pub task: Option<TaskName>,
}

impl AccessQuestion {
    /// May it use this capability at all?
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
        }
    }

    /// This one?
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

/// Answers with what the decisions say now. What only a run can know (what was used up, what a name
/// resolves to) is said in words.
///
/// # Errors
/// When the question names what is not there.
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
    if plugin.facts.mcp && outside::is_meant(question.capability) {
        return Ok(outside::answer(question));
    }
    let refused = layers::decide(setup, question).err();
    Ok(with(setup, question, refused))
}

/// Explains a refusal that has happened, as it was recorded.
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

/// What was asked when this was refused.
fn question_of(
    plugin: &PluginName,
    record: &DenialRecord,
    task: Option<&TaskName>,
) -> AccessQuestion {
    let denial = &record.denial;
    let capability = Capability::named(&denial.capability);
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
        no_line: refused
            .as_ref()
            .filter(|record| record.suggestion.is_none())
            .map(|record| why_no_line(question, record)),
        smallest: refused.and_then(|record| record.suggestion),
    }
}

/// Why no line is offered, in the manners of the host: not for what nobody should paste.
fn why_no_line(question: &AccessQuestion, record: &DenialRecord) -> String {
    let plugin = &question.plugin;
    match record.layer {
        Layer::Manifest => format!("{plugin} does not ask for it: only its author can put that into its manifest"),
        Layer::Host => "this host never gives it".to_owned(),
        Layer::Policy => "the policy decided it, not a grant; change the rule if it is not what you meant".to_owned(),
        Layer::Task => "it is the task that leaves it out; change the task if that is not what you meant".to_owned(),
        Layer::Config | Layer::Runtime => match (question.capability, question.target.as_deref()) {
            (Capability::Files, Some(path)) => {
                let why = why_no_offer(path).unwrap_or("what is granted covers the path, and what stands there does not allow it");
                format!("{why}: no grant is suggested")
            }
            (Capability::Fetch, Some(url)) if crate::permissions::fetch::target(url).is_err() => {
                "it is no address that a request could be sent to, so no grant covers it".to_owned()
            }
            (Capability::Fetch, _) if record.layer == Layer::Config => {
                "no grant is suggested for this address: one inside your own network, or with a `*` in it, is for you to weigh".to_owned()
            }
            (Capability::Secrets, _) if record.layer == Layer::Config => {
                "no grant is suggested: where a secret may go is for you to weigh".to_owned()
            }
            (Capability::Fetch, _) => {
                "no grant is suggested: it was refused by where it leads or by a limit, and a wider grant is for you to weigh".to_owned()
            }
            (Capability::Delegate | Capability::Rooms, _) if record.layer == Layer::Config => {
                "the config has nothing of that name".to_owned()
            }
            _ => "no grant is suggested: a larger one is for you to weigh".to_owned(),
        },
    }
}

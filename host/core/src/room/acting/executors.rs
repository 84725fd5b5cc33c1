//! Executors: plugins whose tools carry out an agent's actions. The operator chooses them
//! (`tasks.NAME.action_plugins`). The agent's `tools` grant and the rules apply as for any call. An
//! executor's answer is data.

use std::sync::Arc;

use serde_json::{Value, json};

use super::jobs::{KILL, has_room_for_a_job};
use super::{has_effect, text_of, unsupported};
use crate::room::messages::{text_form, unknown_plugin};
use crate::room::state::consent::Consent;
use crate::room::state::rounds::{CallOutcome, Slot};
use crate::room::{Frames, Histories, RoomContext, ToolRounds};
use crate::tool_calls::toolbox::ToolTarget;
use crate::tool_calls::truncate;
use crate::trajectory::observation::MAX_COMMAND_OUTPUT;
use crate::trajectory::{self, Era, truncate};
use crate::types::action::{Action, Observation, exit_code};
use crate::types::capability::Capability;
use crate::types::denial::Layer;
use crate::types::ids::{FrameId, PluginName};
use crate::types::message::ToolCall;
use crate::types::tool::{ToolError, ToolOutcome};

/// Bytes of an observation's text; a command's has a lower limit (O-043).
const MAX_CONTENT: u64 = 1 << 20;

impl ToolRounds<'_> {
    /// Runs the action with the first of the task's executors that offers a tool of its kind.
    pub(super) fn start_executor(
        &mut self,
        id: FrameId,
        index: usize,
        action: &Action,
        consent: Consent,
    ) {
        let kind = action.name();
        if let Action::Custom { name, arguments } = action
            && let Err(malformed) = Action::from_args(name, arguments)
        {
            // O-006: an error for the model to read.
            self.frames.observe(self.cx, id, index, Err(malformed.text));
            return;
        }
        // Refused before the executor runs, or the command that it starts would have to be killed.
        if matches!(action, Action::Run { background: true, .. })
            && let Err(full) = has_room_for_a_job(self.frames, id)
        {
            self.frames.observe(self.cx, id, index, Err(full));
            return;
        }
        match executor_of(self.frames, self.cx, id, kind) {
            Some(plugin) => self.run_executor(id, index, (&plugin, kind), consent),
            None => without_executor(self.frames, self.cx, id, index, kind),
        }
    }

    /// Starts the executor's tool, under the agent's grant and the rules on it.
    pub(super) fn run_executor(
        &mut self,
        id: FrameId,
        index: usize,
        (plugin, tool): (&PluginName, &str),
        consent: Consent,
    ) {
        let name = self.histories.name_of_tool(self.cx, self.frames, id, plugin, tool);
        let Some(slot) = self.frames.slot_mut(self.cx, id, index) else { return };
        // `call` keeps the name of the action, by which the observation is checked.
        slot.now = Arc::new(ToolCall { name, ..ToolCall::clone(&slot.call) });
        let now = slot.now.clone();
        // An approval of the action covers its tool call. Rules that deny are still applied.
        let consent = if consent == Consent::Approved { Consent::Edited } else { consent };
        if let Some(result) = self.start_tool(id, index, &now, consent) {
            self.frames.refuse_act(self.cx, id, index, result);
        }
    }

    /// Returns the outcome and the observation of an executor's answer. Calls that it asks for are
    /// not made, because it answers an action only.
    pub(in crate::room) fn executed(
        &mut self,
        id: FrameId,
        slot: &Slot,
        plugin: &PluginName,
        untrusted: bool,
        answer: &Result<ToolOutcome, ToolError>,
    ) -> (CallOutcome, Observation) {
        let kind = slot.call.name.as_str();
        let observed = match answer {
            Ok(outcome) => observed(slot, outcome).and_then(|observation| {
                self.with_job(id, slot, (plugin, untrusted), outcome, observation)
            }),
            // C-307: an error in the executor's own words is not reworded.
            Err(ToolError::Other { message }) if !message.trim().is_empty() => Err(message.clone()),
            Err(error) => Err(error.to_text(kind)),
        };
        let mut observation = observed.unwrap_or_else(|content| Observation::Error { content });
        if let Some(content) = observation.content_mut() {
            cut(content);
        }
        let text = words(&observation);
        let text = self.dialogue().cut_result(id, &slot.now.name, text, untrusted);
        let mut message = self.frames.host_message(self.cx, id, text);
        if let Ok(outcome) = answer {
            message.attachments.clone_from(&outcome.attachments);
        }
        let is_error = matches!(observation, Observation::Error { .. });
        (CallOutcome { message: Some(Box::new(message)), is_error, is_result: true }, observation)
    }
}

pub(in crate::room) fn executor_of(
    frames: &Frames,
    cx: &RoomContext,
    id: FrameId,
    kind: &str,
) -> Option<PluginName> {
    let (_, task) = frames.task_of(cx, id)?;
    task.action_plugins.iter().find(|plugin| offers(cx, plugin, kind)).cloned()
}

/// The `plugin.tool` that carries out an action; `None` if the host does, or nothing.
pub(in crate::room) fn tool_of_action(
    frames: &Frames,
    cx: &RoomContext,
    id: FrameId,
    action: &Action,
) -> Option<String> {
    let is_of_host =
        matches!(action, Action::Delegate { .. } | Action::DelegateTask(_) | Action::Recall { .. });
    if is_of_host || !has_effect(action) {
        return None;
    }
    let plugin = match action {
        // The plugin that runs the command ends it.
        Action::Kill { command_id } => {
            let job = frames.get(&id)?.acting.jobs.get(command_id)?;
            Some(job.plugin.clone()).filter(|plugin| offers(cx, plugin, KILL))?
        }
        _ => executor_of(frames, cx, id, action.name())?,
    };
    Some(format!("{plugin}.{}", action.name()))
}

/// Answers an action without an executor with an observation (O-132), and reports the missing
/// one to the operator.
pub(super) fn without_executor(
    frames: &mut Frames,
    cx: &mut RoomContext,
    id: FrameId,
    index: usize,
    kind: &str,
) {
    // An unknown kind has no executor to suggest.
    if let Some((frame, task)) = frames.task_of(cx, id)
        && trajectory::Action::KINDS.contains(&kind)
    {
        let (name, agent) = (frame.task.clone(), task.agent.clone());
        let setup = Arc::clone(&cx.setup);
        let offering = setup.plugins.keys().find(|plugin| offers(cx, plugin, kind));
        let (reason, wider) = match offering {
            Some(plugin) => (
                format!(
                    "no executor of tasks.{name} carries out {kind}; the plugin {plugin} could"
                ),
                Some(format!("add \"{plugin}\" to tasks.{name}.action_plugins")),
            ),
            None => (
                format!(
                    "no executor of tasks.{name} carries out {kind}: a plugin with a tool named {kind} is wanted, and none is admitted"
                ),
                None,
            ),
        };
        let record = match setup.rights_in(&agent, &name) {
            Some(rights) => rights.refuse(Capability::Tools, kind, Layer::Config, &reason, wider),
            None => unknown_plugin(&agent, Capability::Tools, kind),
        };
        cx.denied(&agent, *record);
    }
    frames.observe(cx, id, index, Err(unsupported(kind)));
}

pub(super) fn offers(cx: &RoomContext, plugin: &PluginName, tool: &str) -> bool {
    cx.setup
        .plugins
        .get(plugin)
        .is_some_and(|plugin| plugin.facts.tools.iter().any(|spec| spec.name == tool))
}

impl Histories {
    /// The name of a plugin's tool in this task.
    pub(super) fn name_of_tool(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        id: FrameId,
        plugin: &PluginName,
        tool: &str,
    ) -> String {
        let toolbox =
            frames.get(&id).map(|frame| self.toolbox(cx, &frame.task)).unwrap_or_default();
        let is_it = |target: &ToolTarget| matches!(target, ToolTarget::Plugin { plugin: of, tool: own } if of == plugin && own == tool);
        toolbox
            .iter()
            .find(|entry| is_it(&entry.target))
            .map_or_else(|| format!("{plugin}.{tool}"), |entry| entry.summary.name.clone())
    }
}

/// Returns the observation in an outcome's value, or else one made of its text.
fn observed(slot: &Slot, outcome: &ToolOutcome) -> Result<Observation, String> {
    let kind = slot.call.name.as_str();
    // The JSON form has its kind under this same key: with a text there, the value itself is the
    // observation.
    let json = outcome.value.as_ref().and_then(|value| match value.get("observation")? {
        Value::String(_) => Some(value),
        nested => Some(nested),
    });
    if let Some(json) = json.filter(|json| !json.is_null()) {
        // The background part next to it is not a part of the observation.
        let json = without_background(json);
        let mut observation = Observation::from_json(&json)
            .map_err(|error| format!("The executor of {kind} gave no observation: {error}"))?;
        if !answers(kind, observation.name()) {
            return Err(format!(
                "The executor of {kind} gave an observation of the kind {:?}, which is no answer to it.",
                observation.name()
            ));
        }
        if let Observation::Command { content, .. } = &mut observation {
            *content = truncate(content, MAX_COMMAND_OUTPUT);
        }
        return Ok(observation);
    }
    Ok(made_of(slot, outcome))
}

fn made_of(slot: &Slot, outcome: &ToolOutcome) -> Observation {
    let (args, value) = (&slot.now.arguments, outcome.value.as_ref());
    let field = |key: &str| value.and_then(|value| value.get(key));
    let content = outcome
        .content
        .clone()
        .or_else(|| value.and_then(Value::as_str).map(str::to_owned))
        .unwrap_or_default();
    let code = field("exit_code").and_then(Value::as_i64).map_or(0, exit_code);
    match slot.call.name.as_str() {
        "run" => Observation::Command {
            // -1 stands for a foreground command; `with_job` sets the id of a background one.
            command_id: -1,
            command: text_of(args, "command"),
            exit_code: code,
            content: truncate(&content, MAX_COMMAND_OUTPUT),
        },
        "run_ipython" => Observation::Cell { code: text_of(args, "code"), content },
        "browse" => {
            Observation::Browsed { url: text_of(args, "url"), status: 200, content, error: false }
        }
        "read" => Observation::File { path: text_of(args, "path"), content },
        "write" => Observation::Written { path: text_of(args, "path") },
        "kill" => {
            let command_id = args.get("command_id").and_then(Value::as_i64).unwrap_or(-1);
            Observation::Command {
                command_id,
                command: String::new(),
                exit_code: 0,
                content: truncate(&content, MAX_COMMAND_OUTPUT),
            }
        }
        name => {
            // `null` counts as no value, because a journal in JSON holds the same for both.
            let extras =
                outcome.value.clone().filter(|value| !value.is_null()).unwrap_or_else(|| json!({}));
            let content = if content.is_empty()
                && !extras.as_object().is_some_and(serde_json::Map::is_empty)
            {
                text_form(&extras)
            } else {
                content
            };
            Observation::Custom { name: name.to_owned(), content, extras }
        }
    }
}

/// Whether an observation of this kind may answer such an action.
fn answers(kind: &str, observed: &str) -> bool {
    match kind {
        _ if observed == "error" || observed == kind => true,
        "kill" => observed == "run",
        "browse" | "browse_interactive" => matches!(observed, "browse" | "download"),
        _ => false,
    }
}

fn without_background(json: &Value) -> Value {
    match json {
        Value::Object(map) if map.contains_key("background") => {
            let mut map = map.clone();
            map.remove("background");
            Value::Object(map)
        }
        other => other.clone(),
    }
}

/// The text of an observation for the model.
fn words(observation: &Observation) -> String {
    let content = observation.content();
    if content.trim().is_empty() {
        let line = observation
            .to_wire()
            .map(|observation| observation.message(Era::V2025))
            .filter(|line| !line.is_empty());
        return line.unwrap_or_else(|| format!("{} was carried out.", observation.name()));
    }
    match observation {
        Observation::Command { exit_code, .. } if *exit_code != 0 => {
            format!("{content}\n[exit code {exit_code}]")
        }
        _ => content.to_owned(),
    }
}

/// Cuts a text over the limit.
pub(super) fn cut(content: &mut String) {
    if content.len() as u64 > MAX_CONTENT {
        *content = truncate::cut(content, MAX_CONTENT, 1);
    }
}

//! The prompt of a model call: the task's system text with its tool instructions, the requested
//! part of the history, the offered tools. Calls in the text of an answer are parsed here too.
//! `models` decides about access and cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::state::responder::Responder;
use super::{Dialogue, Frames, Histories, Purpose, RoomContext};
use crate::setup::TaskSetup;
use crate::tool_calls::instructions::Instructions;
use crate::tool_calls::parse::CallParser;
use crate::tool_calls::toolbox::{TaskTool, Toolbox};
use crate::types::action::Reply;
use crate::types::completion::{
    Completion, ModelError, ModelRequest, Prompt, PromptPart, PromptPiece, StopReason, ToolChoice,
    ToolFormat,
};
use crate::types::host_tool::HostTool;
use crate::types::ids::{CallId, FrameId, TaskName};
use crate::types::message::{Message, Role, ToolCall};

/// System texts cached for a task. A plugin seldom uses more than one form of request, but their
/// number is not limited.
const TEXTS: usize = 4;

/// The text in place of an answer that its provider filtered (L-028).
const FILTERED: &str = "The model's provider held its answer back: its content filter stopped it.";

/// Cached system texts. They follow from other state, so two caches always compare equal.
#[derive(Clone, Debug, Default)]
pub(super) struct SystemTexts(BTreeMap<TaskName, Vec<CachedText>>);

impl PartialEq for SystemTexts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A system text with its inputs.
#[derive(Clone, Debug)]
struct CachedText {
    system: Arc<str>,
    toolbox: Arc<Toolbox>,
    note: PromptNote,
    text: Arc<str>,
}

/// The parts of a request that its system text depends on.
#[derive(Clone, Debug, PartialEq)]
struct PromptNote {
    format: ToolFormat,
    /// Names of the tools to explain; `None` for all offered tools.
    tools: Option<Vec<String>>,
    schema: Option<Value>,
}

impl CachedText {
    fn fits(&self, system: &Arc<str>, toolbox: &Arc<Toolbox>, note: &PromptNote) -> bool {
        // The cache keeps both alive, so no other value can have the same address.
        Arc::ptr_eq(&self.system, system)
            && Arc::ptr_eq(&self.toolbox, toolbox)
            && self.note == *note
    }
}

impl Dialogue<'_> {
    /// Builds the prompt of a request.
    ///
    /// # Errors
    /// `other` if the request names parts that only a step has.
    pub(super) fn prompt(
        &mut self,
        call: CallId,
        task: Option<&TaskName>,
        request: ModelRequest,
    ) -> Result<Prompt, ModelError> {
        let other = |message: &str| ModelError::Other { message: message.to_owned() };
        let task =
            task.and_then(|name| Some((name.clone(), Arc::clone(self.cx.setup.tasks.get(name)?))));
        let format = request
            .tool_format
            .or(task.as_ref().map(|(_, setup)| setup.tool_format))
            .unwrap_or(ToolFormat::Off);
        let toolbox = task
            .as_ref()
            .map_or_else(Arc::default, |(name, _)| self.histories.toolbox(self.cx, name));
        let parts = if request.prompt.is_empty() {
            vec![PromptPart::System, PromptPart::History { start: 0, end: u64::MAX }]
        } else {
            request.prompt
        };
        // If calls are written as text, the schema goes into the text too. A provider that enforces
        // a schema would allow no call.
        let is_told = is_text(format) && parts.contains(&PromptPart::System);
        let (text_schema, output_schema) =
            if is_told { (request.output_schema, None) } else { (None, request.output_schema) };
        let note = PromptNote {
            format,
            tools: explained(format, request.tools.as_ref(), &request.tool_choice),
            schema: text_schema,
        };
        let history = task.as_ref().map(|(name, _)| self.histories.history(name));
        let system = task.as_ref().map(|(_, setup)| system_of(self.frames, self.cx, call, setup));
        let mut pieces = Vec::with_capacity(parts.len());
        for part in parts {
            pieces.push(match (part, task.as_ref().zip(system.as_ref())) {
                (PromptPart::System, Some(((name, _), system))) => PromptPiece::System {
                    text: self.histories.system_text(name, system, &toolbox, &note),
                },
                (PromptPart::System, None) => {
                    return Err(other("only a step has a system message"));
                }
                (PromptPart::History { start, end }, _) => {
                    let messages =
                        history.clone().ok_or_else(|| other("only a step has a history"))?;
                    // The plugin counts places as they were when its call began.
                    let place = |place: u64| {
                        self.histories
                            .place_now(call, usize::try_from(place).unwrap_or(usize::MAX))
                            .min(messages.len())
                    };
                    let (start, end) = (place(start), place(end));
                    PromptPiece::History { start: start.min(end), end, messages }
                }
                (PromptPart::Draft { draft }, _) => PromptPiece::Draft { draft },
            });
        }
        let is_wanted =
            |name: &String| request.tools.as_ref().is_none_or(|names| names.contains(name));
        let tools: Vec<_> =
            toolbox.offered().iter().filter(|tool| is_wanted(&tool.name)).cloned().collect();
        let forced = task.as_ref().and_then(|(_, setup)| setup.force_tool.clone());
        // A tool can be forced only if the request offers it.
        let forced = forced.filter(|name| {
            format != ToolFormat::Off && tools.iter().any(|tool| tool.name == *name)
        });
        let tool_choice = match (request.tool_choice, forced) {
            // L-101: the task's forced tool applies unless the request chooses itself.
            (ToolChoice::Auto, Some(name)) => ToolChoice::Named { name },
            (choice, _) => choice,
        };
        Ok(Prompt {
            pieces,
            tools,
            tool_format: format,
            tool_choice,
            output_schema,
            stream: request.stream,
            options: request.options,
        })
    }
}

/// The system text of the frame that the call belongs to, or else the task's own.
fn system_of(frames: &Frames, cx: &RoomContext, call: CallId, task: &TaskSetup) -> Arc<str> {
    let frame = match cx.calls.get(&call) {
        Some(Purpose::Step { frame } | Purpose::Respond { frame }) => frames.get(frame),
        _ => None,
    };
    Arc::clone(frame.and_then(|frame| frame.system.as_ref()).unwrap_or(&task.system))
}

impl Histories {
    /// Returns the full system text (L-024, L-106), from the cache unless its inputs have changed.
    fn system_text(
        &mut self,
        name: &TaskName,
        system: &Arc<str>,
        toolbox: &Arc<Toolbox>,
        note: &PromptNote,
    ) -> Arc<str> {
        let known = self
            .texts
            .0
            .get(name)
            .into_iter()
            .flatten()
            .find(|made| made.fits(system, toolbox, note));
        if let Some(made) = known {
            return Arc::clone(&made.text);
        }
        let narrowed_toolbox = note.tools.as_ref().map(|names| only(toolbox, names));
        let instructions = Instructions {
            system,
            toolbox: narrowed_toolbox.as_ref().unwrap_or(toolbox),
            format: note.format,
            output_schema: note.schema.as_ref(),
            recipients: &recipients(toolbox),
        };
        let text: Arc<str> = instructions.to_text().into();
        let made = CachedText {
            system: Arc::clone(system),
            toolbox: Arc::clone(toolbox),
            note: note.clone(),
            text: Arc::clone(&text),
        };
        let texts = self.texts.0.entry(name.clone()).or_default();
        if texts.len() >= TEXTS {
            texts.remove(0);
        }
        texts.push(made);
        text
    }

    /// Adds the calls in an answer's text to its calls (L-108): all that the task's agent knows.
    /// Invalid ones are left out; the room explains them when the agent's message arrives.
    pub(super) fn find_calls(
        &self,
        cx: &RoomContext,
        task: &TaskName,
        completion: &mut Completion,
    ) {
        let Some(setup) = cx.setup.tasks.get(task) else { return };
        if completion.tool_calls.is_empty()
            && let Some(text) = completion.content.clone()
        {
            let is_cut = completion.stop == StopReason::Length;
            completion.tool_calls = self.calls_in_text(cx, task, setup, text, is_cut);
        }
    }

    fn calls_in_text(
        &self,
        cx: &RoomContext,
        name: &TaskName,
        task: &TaskSetup,
        text: String,
        is_cut: bool,
    ) -> Vec<ToolCall> {
        let toolbox = self.toolbox(cx, name);
        let mut message = Message::new(0, Role::Llm, task.agent.as_str());
        message.content = Some(text);
        message.is_cut = is_cut;
        let name = task.rules().arguments_address.then_some(name.as_str());
        let parser = CallParser {
            toolbox: &toolbox,
            text: true,
            name,
            for_handlers: false,
            after_model: false,
            wrong_call_stops_others: task.rules().wrong_call_stops_others,
        };
        parser.read(&message).all
    }

    /// Removes calls from a step's answer that only repeat those in its text. They are parsed from
    /// the text again, and are not native calls. If the agent has added or removed calls, all stay
    /// as they are.
    pub(super) fn without_repeats(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        frame: FrameId,
        mut reply: Reply,
        is_cut: bool,
    ) -> Reply {
        let Some((frame, task)) = frames.task_of(cx, frame) else { return reply };
        let is_step = frame.attempt().is_some_and(|attempt| attempt.responder == Responder::Llm);
        let reads = task.text_rules.calls || is_text(task.tool_format);
        // Calls with ids are native, so they do not repeat the text.
        let may_repeat =
            !reply.tool_calls.is_empty() && reply.tool_calls.iter().all(|call| call.id.is_empty());
        if is_step && reads && may_repeat {
            let found = self.calls_in_text(
                cx,
                &frame.task,
                task,
                reply.content.clone().unwrap_or_default(),
                is_cut,
            );
            let is_same = |(one, other): (&ToolCall, &ToolCall)| {
                one.name == other.name && one.arguments == other.arguments
            };
            if found.len() == reply.tool_calls.len()
                && found.iter().zip(&reply.tool_calls).all(is_same)
            {
                reply.tool_calls.clear();
            }
        }
        reply
    }
}

/// Explains a filtered empty answer to its reader (L-028). The agent's history keeps the
/// original.
pub(super) fn say_if_filtered(
    incomplete: Option<IncompleteAnswer>,
    message: Arc<Message>,
) -> Arc<Message> {
    if incomplete != Some(IncompleteAnswer::Filtered) || !message.is_empty() {
        return message;
    }
    let mut message = Arc::unwrap_or_clone(message);
    message.content = Some(FILTERED.to_owned());
    Arc::new(message)
}

/// The reason why a model's answer is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum IncompleteAnswer {
    /// The provider filtered it before any content came.
    Filtered,
    /// The limit of tokens cut it.
    Cut,
}

/// Why the answer is not whole; `None` if it is.
pub(super) fn incomplete(completion: &Completion) -> Option<IncompleteAnswer> {
    let says_nothing = completion.content.iter().all(|text| text.trim().is_empty());
    match completion.stop {
        StopReason::Length => Some(IncompleteAnswer::Cut),
        StopReason::ContentFilter if says_nothing && completion.tool_calls.is_empty() => {
            Some(IncompleteAnswer::Filtered)
        }
        _ => None,
    }
}

pub(super) fn is_text(format: ToolFormat) -> bool {
    matches!(format, ToolFormat::Json | ToolFormat::Xml)
}

/// The tools that the system text explains; `None` for all. With native calls, the text explains
/// none.
fn explained(
    format: ToolFormat,
    tools: Option<&Vec<String>>,
    choice: &ToolChoice,
) -> Option<Vec<String>> {
    match choice {
        _ if !is_text(format) => None,
        // The model may call none of them.
        ToolChoice::None => Some(Vec::new()),
        _ => tools.cloned(),
    }
}

/// The toolbox with only these tools on offer.
fn only(toolbox: &Toolbox, names: &[String]) -> Toolbox {
    let narrow_offer = |tool: &TaskTool| TaskTool {
        offered: tool.offered && names.contains(&tool.summary.name),
        ..tool.clone()
    };
    toolbox.iter().map(narrow_offer).collect::<Vec<_>>().into()
}

/// The names that the agent may address with `recipient_message`, if the operator listed any
/// (L-148).
fn recipients(toolbox: &Toolbox) -> Vec<String> {
    let tool = toolbox.host_tool(HostTool::RecipientMessage).filter(|tool| tool.offered);
    let names = tool.and_then(|tool| {
        tool.summary.input_schema.pointer("/properties/intended_recipient/enum")?.as_array()
    });
    names.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

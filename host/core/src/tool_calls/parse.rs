//! The parser of the calls in a message, from one agent's view: known calls, those that its task
//! carries out, and errors (L-108…L-116). Does not carry anything out.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{arguments, json, xml};
use crate::tool_calls::toolbox::{TaskTool, ToolTarget, Toolbox};
use crate::types::host_tool::HostTool;
use crate::types::message::{Label, Message, Role, ToolCall, lead};

/// The parser with the reader's toolbox and options.
#[derive(Clone, Copy, Debug)]
pub struct CallParser<'a> {
    pub toolbox: &'a Toolbox,
    /// Whether calls are read from text too.
    pub text: bool,
    /// The agent's name, if a call may state its recipient (L-116); `None` if it may not.
    pub name: Option<&'a str>,
    /// Whether a model may call tools that are only for handlers (L-141, L-147); the reference
    /// carries them out.
    pub for_handlers: bool,
    /// Whether wrong arguments of any author are answered, because the agent's history ends with
    /// the model's message (L-114).
    pub after_model: bool,
    /// Whether the first wrong call in a text stands for all calls of the text (L-114).
    pub wrong_call_stops_others: bool,
}

/// A message from the reader's view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedCalls {
    /// The calls of tools that the reader knows.
    pub all: Vec<ToolCall>,
    /// The calls that it carries out.
    pub own: Vec<ToolCall>,
    /// The names that match no tool of the reader.
    pub unknown: Vec<String>,
    /// The calls that its model must correct; the others do not wait for them.
    pub wrong: Vec<WrongCall>,
}

/// A call that cannot be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct WrongCall {
    /// The call as it was written; its tool's name is empty if it cannot be read.
    pub call: ToolCall,
    /// The error, for the model.
    pub text: String,
    /// The number of calls in [`ParsedCalls::own`] that stand before it.
    pub after: usize,
}

impl ParsedCalls {
    /// A message without calls.
    pub(crate) const NONE: Self =
        Self { all: Vec::new(), own: Vec::new(), unknown: Vec::new(), wrong: Vec::new() };

    /// Whether the message has calls, or attempts at calls, that concern the reader (L-052).
    #[must_use]
    pub fn is_attempt(&self) -> bool {
        !self.own.is_empty() || !self.wrong.is_empty()
    }

    /// Whether the reader knows calls in the message and carries out none of them (L-032).
    #[must_use]
    pub fn is_for_others(&self) -> bool {
        !self.all.is_empty() && self.own.is_empty()
    }
}

/// The limit of calls in one text; the rest stays text.
const MAX_IN_TEXT: usize = 129;

/// The key of a call's tool, in JSON.
const REQUEST: &str = "request";

/// The result of reading one call.
enum CallAttempt {
    Call(ToolCall),
    Unknown(String),
    /// The call as it was written, and the error for the model.
    Wrong(ToolCall, String),
    Nothing,
}

impl CallParser<'_> {
    /// Reads the calls of a message.
    #[must_use]
    pub fn read(&self, message: &Message) -> ParsedCalls {
        if message.tools.is_empty() {
            return self.parse(message);
        }
        // Parsed when the message was added; parsing the text again could find other calls. Wrong
        // and unknown calls are not attached.
        let own = message.tools.iter().filter(|call| self.carries_out(call)).cloned().collect();
        let reparsed = match message.sender {
            Role::Llm => self.parse(message),
            _ => ParsedCalls::NONE,
        };
        ParsedCalls { all: message.tools.clone(), own, ..reparsed }
    }

    fn parse(&self, message: &Message) -> ParsedCalls {
        let from_llm = message.sender == Role::Llm;
        let native = !message.tool_calls.is_empty();
        let found: Vec<CallAttempt> = if native {
            message.tool_calls.iter().map(|call| self.native(call, from_llm)).collect()
        } else if self.text {
            self.in_text(message, from_llm)
        } else {
            Vec::new()
        };
        let untrusted = message.labels.contains(&Label::Untrusted);
        let mut reading = ParsedCalls::default();
        // Only text is cut: a provider requires a result for each native call.
        for found in found.into_iter().take(if native { usize::MAX } else { MAX_IN_TEXT }) {
            match found {
                CallAttempt::Call(mut call) => {
                    // L-172: calls inherit the message's origin.
                    call.untrusted |= untrusted;
                    lead(&mut call.led_by, &message.led_by);
                    let is_own = self.carries_out(&call);
                    // Of a model's native calls, the reference knows only those that the task
                    // carries out.
                    if is_own || !native {
                        reading.all.push(call.clone());
                    }
                    reading.own.extend(is_own.then_some(call));
                }
                CallAttempt::Unknown(name) => reading.unknown.push(name),
                CallAttempt::Wrong(call, text) if from_llm || self.after_model => {
                    let wrong = WrongCall { call, text, after: reading.own.len() };
                    if self.wrong_call_stops_others && !native {
                        return ParsedCalls {
                            unknown: reading.unknown,
                            wrong: vec![WrongCall { after: 0, ..wrong }],
                            ..ParsedCalls::default()
                        };
                    }
                    reading.wrong.push(wrong);
                }
                // L-114: from an author other than a model it is not a call.
                CallAttempt::Wrong(..) => return ParsedCalls::default(),
                CallAttempt::Nothing => {}
            }
        }
        reading
    }

    /// Whether the task carries out the call, and the call is for this agent (L-116).
    fn carries_out(&self, call: &ToolCall) -> bool {
        let Some(tool) = self.toolbox.get(&call.name).filter(|tool| tool.handled) else {
            return false;
        };
        let recipient = call
            .arguments
            .get("recipient")
            .and_then(Value::as_str)
            .filter(|recipient| !recipient.is_empty());
        match (self.name, recipient) {
            (Some(name), Some(recipient)) if matches!(tool.target, ToolTarget::Plugin { .. }) => {
                recipient.eq_ignore_ascii_case(name)
            }
            _ => true,
        }
    }

    /// The tool that a model may mean; `None` for tools that are only for handlers.
    fn known(&self, name: &str) -> Option<&TaskTool> {
        let for_handlers = |tool: &TaskTool| matches!(tool.target, ToolTarget::Host(tool) if tool.is_for_handlers());
        // A tool of the host that the task does not have is unknown. L-149: there is no message to
        // add a recipient to before the agent is asked for one.
        let too_early = |tool: &TaskTool| match tool.target {
            ToolTarget::Host(HostTool::AddRecipient) => !tool.offered,
            ToolTarget::Host(_) => !tool.offered && !tool.handled,
            ToolTarget::Plugin { .. } => false,
        };
        self.toolbox
            .get(name)
            .filter(|tool| (self.for_handlers || !for_handlers(tool)) && !too_early(tool))
    }

    fn native(&self, call: &ToolCall, from_llm: bool) -> CallAttempt {
        match self.known(&call.name) {
            None if from_llm => CallAttempt::Unknown(call.name.clone()),
            None => CallAttempt::Nothing,
            Some(tool) if !tool.handled => CallAttempt::Nothing,
            // Some models omit empty arguments.
            Some(tool) if call.arguments.is_null() => {
                checked(tool, call.id.clone(), &Value::Object(Map::new()))
            }
            Some(tool) => checked(tool, call.id.clone(), &call.arguments),
        }
    }

    /// The calls in a message's text. A call that the limit of tokens cut does not run, not even
    /// where the rest could be completed, and its model is told (L-115a).
    fn in_text(&self, message: &Message, from_llm: bool) -> Vec<CallAttempt> {
        let text = message.text();
        let in_xml = xml::unfinished(text).filter(|_| message.is_cut);
        let (complete, rest) =
            text.split_at_checked(in_xml.unwrap_or(text.len())).unwrap_or_default();
        let candidates = xml::candidates(complete);
        if !candidates.is_empty() || in_xml.is_some() {
            let mut found = self.in_xml(&candidates, from_llm);
            found.extend(in_xml.map(|_| self.cut_call(rest, xml::tool_of(rest))));
            return found;
        }
        // What follows an open brace may be a part of the call, so nothing in it is a call.
        let in_json = json::unfinished(text).filter(|_| message.is_cut);
        let (complete, rest) =
            text.split_at_checked(in_json.unwrap_or(text.len())).unwrap_or_default();
        let found = json::first_objects(complete, MAX_IN_TEXT);
        let mut found: Vec<CallAttempt> =
            found.into_iter().map(|object| self.object(object, from_llm)).collect();
        if in_json.is_some() && may_be_call(rest) {
            let beginning = json::beginning(rest);
            found.push(self.cut_call(rest, beginning.as_ref().and_then(tool_of)));
        }
        found
    }

    /// The attempt at a call of which the text holds only a part.
    fn cut_call(&self, part: &str, name: Option<&str>) -> CallAttempt {
        // A name at the very end may be cut itself.
        let name = name
            .filter(|name| !part.trim_end().ends_with(name))
            .and_then(|name| self.known(name))
            .map(|tool| tool.summary.name.clone())
            .unwrap_or_default();
        let of = if name.is_empty() { String::new() } else { format!(" of `{name}`") };
        let text = format!(
            "The answer was cut at its limit of tokens, within a call{of}: the call does not run. \
             Send the whole call again, with less text or in several calls."
        );
        CallAttempt::Wrong(ToolCall::new(name, Value::from(part)), text)
    }

    /// L-109: calls in XML, and only if there are none, in JSON.
    fn in_xml(&self, candidates: &[String], from_llm: bool) -> Vec<CallAttempt> {
        let element = |candidate: &String| match xml::fields(candidate, None) {
            Ok(Value::Object(fields)) => {
                let tool =
                    fields.get(REQUEST).and_then(Value::as_str).and_then(|name| self.known(name));
                // Parse again with the tool's schema, which decides on verbatim texts and lists.
                let typed = tool
                    .and_then(|tool| xml::fields(candidate, Some(&tool.summary.input_schema)).ok());
                self.object(typed.unwrap_or(Value::Object(fields)), from_llm)
            }
            Ok(_) => CallAttempt::Nothing,
            // L-115
            Err(error) => CallAttempt::Wrong(
                ToolCall::new(String::new(), Value::from(candidate.as_str())),
                format!("The call in XML cannot be read: {error}"),
            ),
        };
        candidates.iter().take(MAX_IN_TEXT).map(element).collect()
    }

    fn object(&self, object: Value, from_llm: bool) -> CallAttempt {
        let Value::Object(mut fields) = object else { return CallAttempt::Nothing };
        // L-111: some models wrap the call like a schema.
        if let Some(Value::Object(inner)) = fields.get("properties") {
            fields = inner.clone();
        }
        match fields.remove(REQUEST) {
            None | Some(Value::Null) => self.inferred(&fields),
            Some(Value::String(name)) => match self.known(&name) {
                Some(tool) => checked(tool, String::new(), &Value::Object(fields)),
                None if from_llm => CallAttempt::Unknown(name),
                None => CallAttempt::Nothing,
            },
            Some(_) => CallAttempt::Nothing,
        }
    }

    /// L-112
    fn inferred(&self, fields: &Map<String, Value>) -> CallAttempt {
        let handled = self.toolbox.iter().filter(|tool| tool.handled);
        match arguments::infer(handled, fields) {
            Some(tool) => checked(tool, String::new(), &Value::Object(fields.clone())),
            None => CallAttempt::Nothing,
        }
    }
}

/// The tool that an object names as a call of it would.
fn tool_of(object: &Value) -> Option<&str> {
    let inner = object.get("properties").filter(|inner| inner.is_object());
    inner.unwrap_or(object).get(REQUEST)?.as_str()
}

/// Whether a group in braces without its end could have become a call: it has the key of one, or
/// ends before any key could be read.
fn may_be_call(group: &str) -> bool {
    let first = group.strip_prefix('{').unwrap_or(group).trim_start();
    let first = first.strip_prefix(['"', '\'']).unwrap_or(first);
    group.contains(REQUEST) || REQUEST.starts_with(first)
}

fn checked(tool: &TaskTool, id: String, value: &Value) -> CallAttempt {
    let name = tool.summary.name.clone();
    match arguments::check(&tool.summary.input_schema, value) {
        Ok(arguments) => {
            let arguments = Arc::new(arguments);
            CallAttempt::Call(ToolCall { id, ..ToolCall::new(name, arguments) })
        }
        // the room reports the error, in a form of its own.
        Err(_) if tool.target == ToolTarget::Host(HostTool::DelegateTask) && value.is_object() => {
            let arguments = Arc::new(value.clone());
            CallAttempt::Call(ToolCall { id, ..ToolCall::new(name, arguments) })
        }
        Err(wrong) => {
            let text = arguments::explain(&name, &wrong);
            let call = ToolCall { id, ..ToolCall::new(name, Arc::new(value.clone())) };
            CallAttempt::Wrong(call, text)
        }
    }
}

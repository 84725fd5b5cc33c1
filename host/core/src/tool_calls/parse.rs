//! Reads the calls in a message, once, as one agent understands them: which it knows, which its
//! task carries out, what is wrong with them (L-108…L-116). Nothing is carried out here.

use serde_json::{Map, Value};

use super::{arguments, json, xml};
use crate::tool_calls::toolbox::{TaskTool, ToolTarget, Toolbox};
use crate::types::host_tool::HostTool;
use crate::types::message::{Entity, Label, Message, ToolCall};

/// Who reads, and how.
#[derive(Clone, Copy, Debug)]
pub struct CallParser<'a> {
    pub toolbox: &'a Toolbox,
    /// Calls are looked for in text too.
    pub text: bool,
    /// What the agent is called, where a call may say whom it is for (L-116); none: a call says no
    /// such thing.
    pub name: Option<&'a str>,
    /// A model may call what only handlers should (L-141, L-147); the reference carries it out.
    pub for_handlers: bool,
    /// Wrong arguments are answered, whoever wrote them: the last word in the agent's history was
    /// the model's (L-114).
    pub after_model: bool,
}

/// A message as its reader understands it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedCalls {
    /// Calls of tools that the reader knows.
    pub all: Vec<ToolCall>,
    /// Those that it carries out.
    pub mine: Vec<ToolCall>,
    /// Names that no tool of its goes by.
    pub unknown: Vec<String>,
    /// What its model must put right before any of it is carried out.
    pub wrong: Option<WrongCall>,
}

/// A call that cannot be carried out as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongCall {
    /// Empty when not even that can be read.
    pub tool: String,
    /// What is wrong, for the model.
    pub text: String,
}

impl ParsedCalls {
    /// There are calls, or there was an attempt at one, that the reader has to do with (L-052).
    #[must_use]
    pub fn is_attempt(&self) -> bool {
        !self.mine.is_empty() || self.wrong.is_some()
    }

    /// It knows calls in it and carries out none of them (L-032).
    #[must_use]
    pub fn is_for_others(&self) -> bool {
        !self.all.is_empty() && self.mine.is_empty()
    }
}

/// Calls that a text may hold; what comes after is text.
const MAX_IN_TEXT: usize = 129;

/// What an attempt to read one call came to.
enum CallAttempt {
    Call(ToolCall),
    Unknown(String),
    Wrong(WrongCall),
    Nothing,
}

impl CallParser<'_> {
    /// Reads a message.
    #[must_use]
    pub fn read(&self, message: &Message) -> ParsedCalls {
        let from_llm = message.sender == Entity::Llm;
        if !message.tools.is_empty() {
            let mine =
                message.tools.iter().filter(|call| self.carries_out(call)).cloned().collect();
            return ParsedCalls { all: message.tools.clone(), mine, ..ParsedCalls::default() };
        }
        let found: Vec<CallAttempt> = if message.tool_calls.is_empty() {
            if self.text { self.in_text(message.text(), from_llm) } else { Vec::new() }
        } else {
            message.tool_calls.iter().map(|call| self.native(call, from_llm)).collect()
        };
        let native = !message.tool_calls.is_empty();
        let untrusted = message.labels.contains(&Label::Untrusted);
        let mut reading = ParsedCalls::default();
        for found in found.into_iter().take(if native { usize::MAX } else { MAX_IN_TEXT }) {
            match found {
                CallAttempt::Call(mut call) => {
                    call.untrusted |= untrusted;
                    let mine = self.carries_out(&call);
                    // Of a model's native calls the reference knows only those that it carries out.
                    if mine || !native {
                        reading.all.push(call.clone());
                    }
                    reading.mine.extend(mine.then_some(call));
                }
                CallAttempt::Unknown(name) => reading.unknown.push(name),
                // L-114: the first that is wrong stands for all; of others than a model it makes no
                // call at all.
                CallAttempt::Wrong(wrong) if from_llm || self.after_model => {
                    return ParsedCalls {
                        unknown: reading.unknown,
                        wrong: Some(wrong),
                        ..ParsedCalls::default()
                    };
                }
                CallAttempt::Wrong(_) => return ParsedCalls::default(),
                CallAttempt::Nothing => {}
            }
        }
        reading
    }

    /// The task carries out the call, and it is for this agent (L-116).
    fn carries_out(&self, call: &ToolCall) -> bool {
        let Some(tool) = self.toolbox.get(&call.name).filter(|tool| tool.handled) else {
            return false;
        };
        let wanted = call
            .arguments
            .get("recipient")
            .and_then(Value::as_str)
            .filter(|wanted| !wanted.is_empty());
        match (self.name, wanted) {
            (Some(name), Some(wanted)) if matches!(tool.target, ToolTarget::Plugin { .. }) => {
                wanted.eq_ignore_ascii_case(name)
            }
            _ => true,
        }
    }

    /// The tool that a model may mean: none that is only for handlers.
    fn known(&self, name: &str) -> Option<&TaskTool> {
        let for_handlers = |tool: &TaskTool| matches!(tool.target, ToolTarget::Host(tool) if tool.is_for_handlers());
        // A tool of the host that the task does without is none. L-149: there is nothing to add a
        // recipient to before the agent is asked for one.
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
            // Some models leave the arguments out where there are none.
            Some(tool) if call.arguments.is_null() => {
                checked(tool, call.id.clone(), &Value::Object(Map::new()))
            }
            Some(tool) => checked(tool, call.id.clone(), &call.arguments),
        }
    }

    /// L-109: calls in XML, and only if there are none, in JSON.
    fn in_text(&self, text: &str, from_llm: bool) -> Vec<CallAttempt> {
        let candidates = xml::candidates(text);
        if candidates.is_empty() {
            return json::first_objects(text, MAX_IN_TEXT)
                .into_iter()
                .map(|object| self.object(object, from_llm))
                .collect();
        }
        let element = |candidate: &String| match xml::fields(candidate, None) {
            Ok(Value::Object(fields)) => {
                let named =
                    fields.get("request").and_then(Value::as_str).and_then(|name| self.known(name));
                // Read again as the tool's schema has it: which text is kept as it is, which
                // children are a list.
                let typed = named
                    .and_then(|tool| xml::fields(candidate, Some(&tool.summary.input_schema)).ok());
                self.object(typed.unwrap_or(Value::Object(fields)), from_llm)
            }
            Ok(_) => CallAttempt::Nothing,
            // L-115
            Err(error) => CallAttempt::Wrong(WrongCall {
                tool: String::new(),
                text: format!("The call in XML cannot be read: {error}"),
            }),
        };
        candidates.iter().take(MAX_IN_TEXT).map(element).collect()
    }

    fn object(&self, object: Value, from_llm: bool) -> CallAttempt {
        let Value::Object(mut fields) = object else { return CallAttempt::Nothing };
        // L-111: some models wrap the call like a schema.
        if let Some(Value::Object(inner)) = fields.get("properties") {
            fields = inner.clone();
        }
        match fields.remove("request") {
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

fn checked(tool: &TaskTool, id: String, given: &Value) -> CallAttempt {
    let name = tool.summary.name.clone();
    match arguments::check(&tool.summary.input_schema, given) {
        Ok(arguments) => CallAttempt::Call(ToolCall { id, name, arguments, untrusted: false }),
        // the room says what is wrong with it, in a form of its own.
        Err(_) if tool.target == ToolTarget::Host(HostTool::DelegateTask) && given.is_object() => {
            CallAttempt::Call(ToolCall { id, name, arguments: given.clone(), untrusted: false })
        }
        Err(wrong) => {
            CallAttempt::Wrong(WrongCall { text: arguments::explain(&name, &wrong), tool: name })
        }
    }
}

//! The instructions at the beginning of a prompt: the task's own text, the format of tool calls,
//! the form of the answer. Made once for each task. Does not check what a model writes; `parse` and
//! `arguments` do.

use serde_json::Value;

use super::xml;
use crate::tool_calls::toolbox::{TaskTool, Toolbox};
use crate::types::completion::ToolFormat;
use crate::types::tool::ToolExample;

mod form;
mod shown_schema;

const JSON: &str = "You can call tools. To call one, write a JSON object with its name and its arguments:
{\"request\": \"NAME\", \"ARGUMENT\": VALUE}
`request` must always be there, and be the exact name of a tool. The result comes in the next message.";

const XML: &str = "You can call tools. To call one, write its name and its arguments as XML:
<tool>
  <request>NAME</request>
  <ARGUMENT>VALUE</ARGUMENT>
</tool>
`request` must always be there, and be the exact name of a tool. Each item of a list is an `<item>`. The result comes in the next message.";

const VERBATIM: &str = "Where a form shows CDATA, write the text within `<![CDATA[` and `]]>` exactly as it is, with nothing escaped.";

/// The parts of a task's instructions.
#[derive(Clone, Copy, Debug)]
pub struct Instructions<'a> {
    /// The task's own text.
    pub system: &'a str,
    pub toolbox: &'a Toolbox,
    pub format: ToolFormat,
    /// The schema of the answer, unless the provider enforces it.
    pub output_schema: Option<&'a Value>,
    /// The possible recipients of messages; empty to leave them out (L-148).
    pub recipients: &'a [String],
}

impl Instructions<'_> {
    /// The text: parts separated by blank lines (L-024). Tools are described only if they are
    /// called in text (L-106, L-107, L-130).
    #[must_use]
    pub fn to_text(&self) -> String {
        let offered: Vec<&TaskTool> = match self.format {
            ToolFormat::Json | ToolFormat::Xml => {
                self.toolbox.iter().filter(|tool| tool.offered).collect()
            }
            ToolFormat::Native | ToolFormat::Off => Vec::new(),
        };
        let mut parts = vec![self.system.trim().to_owned()];
        if !offered.is_empty() {
            parts.push(self.how_to_call(&offered));
            parts.extend(offered.iter().map(|tool| self.about(tool)));
        }
        if !self.recipients.is_empty() {
            parts.push(format!("Messages can be addressed to: {}.", self.recipients.join(", ")));
        }
        if let Some(schema) = self.output_schema {
            let when = if self.may_call() { "An answer that calls no tool" } else { "Your answer" };
            parts.push(format!(
                "{when} must be JSON, with nothing around it, that fits this JSON Schema:\n{}",
                shown_schema::cleaned(schema)
            ));
        }
        parts.retain(|part| !part.is_empty());
        parts.join("\n\n")
    }

    fn may_call(&self) -> bool {
        self.format != ToolFormat::Off && self.toolbox.iter().any(|tool| tool.offered)
    }

    fn how_to_call(&self, offered: &[&TaskTool]) -> String {
        match self.format {
            ToolFormat::Xml if offered.iter().any(|tool| form::has_verbatim(tool)) => {
                format!("{XML} {VERBATIM}")
            }
            ToolFormat::Xml => XML.to_owned(),
            _ => JSON.to_owned(),
        }
    }

    fn about(&self, tool: &TaskTool) -> String {
        let mut lines = vec![format!("Tool `{}`", tool.summary.name)];
        if !tool.summary.description.trim().is_empty() {
            lines.push(tool.summary.description.trim().to_owned());
        }
        lines.push(format!(
            "JSON Schema: {}",
            shown_schema::with_request(&tool.summary.name, &tool.summary.input_schema)
        ));
        if self.format == ToolFormat::Xml {
            lines.push(format!("Form:\n{}", form::form(tool)));
        }
        lines.extend(tool.examples.iter().map(|example| self.example(tool, example)));
        lines.join("\n")
    }

    fn example(&self, tool: &TaskTool, example: &ToolExample) -> String {
        let call = match self.format {
            ToolFormat::Xml => {
                xml::render(&tool.summary.name, &example.arguments, &tool.summary.input_schema)
            }
            _ => json_call(&tool.summary.name, &example.arguments),
        };
        match &example.thought {
            Some(thought) => format!("Example: {}\n{call}", thought.trim()),
            None => format!("Example:\n{call}"),
        }
    }
}

/// A call in JSON, its name first.
fn json_call(name: &str, arguments: &Value) -> String {
    let rest = arguments.as_object().into_iter().flatten().filter(|(key, _)| *key != "request");
    let rest = rest.map(|(key, value)| format!(", {}: {value}", Value::from(key.as_str())));
    format!("{{\"request\": {}{}}}", Value::from(name), rest.collect::<String>())
}

#[cfg(test)]
mod tests;

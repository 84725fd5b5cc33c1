//! Prompts: tasks whose agent is a prompt file, filled in for the person who chooses one. A line
//! `![…](URI)` of the file stands for a served resource, which the model gets as an attachment.

use std::collections::BTreeMap;

use conclave_core::config::micro::render;
use conclave_core::setup::{MicroAgent, TaskSetup};
use conclave_core::types::ids::TaskName;
use conclave_runtime::Prepared;
use rmcp::model::{
    ContentBlock, GetPromptResult, Prompt, PromptArgument, PromptMessage, ResourceContents, Role,
};
use serde_json::{Map, Value};

use super::OfferError;
use super::arguments::texts;
use super::desk::Desk;

/// Maximum prompts that a wrong name lists.
const KNOWN: usize = 20;

/// The prompts that clients see, by the names of their tasks.
pub(super) struct Prompts(BTreeMap<String, PromptFile>);

struct PromptFile {
    prompt: Prompt,
    /// The schema of its arguments.
    schema: Map<String, Value>,
    text: String,
}

impl Prompts {
    /// Returns the prompts of these tasks.
    ///
    /// # Errors
    /// `NoPrompt` if one of them has no prompt file.
    pub(super) fn new(prepared: &Prepared, tasks: &[TaskName]) -> Result<Self, OfferError> {
        let setup = prepared.setup();
        let file = |task: &TaskName| {
            let setup = setup.tasks.get(task)?;
            Some((task.to_string(), prompt_file(task, setup, setup.prompt_agent.as_ref()?)))
        };
        let with_files = setup.tasks.iter().filter(|(_, task)| task.prompt_agent.is_some());
        let known: Vec<&str> = with_files.map(|(name, _)| name.as_str()).take(KNOWN).collect();
        let known = known.join(", ");
        tasks
            .iter()
            .map(|task| {
                file(task).ok_or_else(|| OfferError::NoPrompt(task.to_string(), known.clone()))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn list(&self) -> Vec<Prompt> {
        self.0.values().map(|file| file.prompt.clone()).collect()
    }

    /// The schema of a prompt's arguments.
    pub(super) fn schema(&self, name: &str) -> Option<&Map<String, Value>> {
        self.0.get(name).map(|file| &file.schema)
    }

    /// Renders a prompt with its arguments. Placeholders without an argument stay, and so do references
    /// to resources that are not served. Each read is reported.
    pub(super) async fn fill(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        desk: &Desk,
    ) -> Option<GetPromptResult> {
        let file = self.0.get(name)?;
        let inputs = Value::Object(arguments);
        let mut messages = Vec::new();
        let mut text = String::new();
        let add_text = |text: &mut String, messages: &mut Vec<PromptMessage>| {
            let filled = render(text, &inputs);
            text.clear();
            if !filled.trim().is_empty() {
                messages.push(PromptMessage::new_text(Role::User, filled.trim()));
            }
        };
        for line in file.text.split_inclusive('\n') {
            // Looked for before the inputs are inserted, which therefore add no attachment.
            let attachment = match reference(line) {
                Some(uri) => desk.read(&render(uri, &inputs)).await.ok(),
                None => None,
            };
            match attachment {
                Some(contents) => {
                    add_text(&mut text, &mut messages);
                    messages.push(PromptMessage::new(Role::User, block(contents)));
                }
                None => text.push_str(line),
            }
        }
        add_text(&mut text, &mut messages);
        let result = GetPromptResult::new(messages);
        Some(match &file.prompt.description {
            Some(description) => result.with_description(description.clone()),
            None => result,
        })
    }
}

fn prompt_file(name: &TaskName, task: &TaskSetup, agent: &MicroAgent) -> PromptFile {
    let arguments = agent.inputs.iter().map(|(name, description)| {
        PromptArgument::new(name).with_description(description).with_required(true)
    });
    let arguments: Vec<PromptArgument> = arguments.collect();
    let description = match task.description.trim() {
        "" => format!("The prompt of the task `{name}`."),
        description => description.to_owned(),
    };
    let arguments = (!arguments.is_empty()).then_some(arguments);
    PromptFile {
        prompt: Prompt::new(name.to_string(), Some(description), arguments),
        schema: texts(agent.inputs.iter()),
        text: task.system.to_string(),
    }
}

/// The address of a line that is a reference alone.
fn reference(line: &str) -> Option<&str> {
    let (_, rest) = line.trim().strip_prefix("![")?.split_once("](")?;
    rest.strip_suffix(')')
}

/// The contents as a model gets them.
fn block(contents: ResourceContents) -> ContentBlock {
    match contents {
        ResourceContents::BlobResourceContents { blob, mime_type: Some(media_type), .. }
            if media_type.starts_with("image/") =>
        {
            ContentBlock::image(blob, media_type)
        }
        ResourceContents::BlobResourceContents { blob, mime_type: Some(media_type), .. }
            if media_type.starts_with("audio/") =>
        {
            ContentBlock::audio(blob, media_type)
        }
        contents => ContentBlock::resource(contents),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_a_line_of_its_own() {
        assert_eq!(reference("![plan](notes://plan)\n"), Some("notes://plan"));
        assert_eq!(reference("see ![plan](notes://plan)"), None);
        assert_eq!(reference("![plan](notes://plan) here"), None);
    }
}

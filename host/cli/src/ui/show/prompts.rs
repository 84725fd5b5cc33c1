//! The prompts of a run's model calls: a list with addresses, one prompt in full, and the text for
//! the page.

use anstyle::Style;
use conclave_core::inspect::prompts::{ModelPrompt, PromptMessage, RowPrompts};
use conclave_core::inspect::timeline::TimelineRow;
use conclave_core::types::ids::RoomId;
use conclave_core::types::text::cut_bytes;
use serde_json::{Value, json};

use super::amounts::thousands;
use super::{FAINT, NAME, foreign, one_line, paint, plural, tool};

/// Bytes of all prompts on a page or in one object of JSON.
const TOGETHER: usize = 4 << 20;
/// Bytes of one prompt on a page.
const ON_PAGE: usize = 64 << 10;
/// Columns of a tool's description on a page.
const ON_PAGE_COLUMNS: usize = 120;
/// Columns of a name in a list.
const TEXT: usize = 40;
/// Columns by which a message is indented.
const INDENT: usize = 2;

/// The prompts of a run, in order of room and record.
#[derive(Debug, Default)]
pub(crate) struct RunPrompts(Vec<ModelPrompt>);

impl RunPrompts {
    pub(crate) fn new(prompts: Vec<ModelPrompt>) -> Self {
        Self(prompts)
    }

    /// The prompts that an address names: those of a request, or of a call.
    pub(crate) fn at(&self, room: &RoomId, seq: u64) -> Vec<&ModelPrompt> {
        let in_room = || self.0.iter().filter(|prompt| prompt.room == *room);
        let exact: Vec<&ModelPrompt> = in_room().filter(|prompt| prompt.seq == seq).collect();
        if exact.is_empty() {
            in_room().filter(|prompt| prompt.is_at(seq)).collect()
        } else {
            exact
        }
    }

    pub(crate) fn all(&self) -> &[ModelPrompt] {
        &self.0
    }

    /// Adds the prompts to the model rows of a timeline in JSON. Those beyond the limit have their
    /// size alone: each holds the whole history.
    pub(crate) fn add_to(&self, timeline: &mut Value) {
        let mut rows_left = TOGETHER;
        let mut queues = RowPrompts::of(&self.0);
        let rows = timeline["rows"].as_array_mut().into_iter().flatten();
        for row in rows.filter(|row| row["type"] == "model") {
            let address = (row["room"].as_str().unwrap_or_default(), row["seq"].as_u64());
            let (room, Some(seq)) = address else { continue };
            let Some(prompt) = queues.of_record(&RoomId::from(room), seq) else { continue };
            let written = json!(prompt.written());
            let bytes = written.to_string().len();
            rows_left = rows_left.saturating_sub(bytes);
            row["prompt"] = if rows_left > 0 { written } else { json!({ "bytes": bytes }) };
        }
    }
}

/// The prompts that a page has space for.
pub(super) struct PagePrompts<'a> {
    queues: RowPrompts<'a>,
    bytes_left: usize,
}

impl<'a> PagePrompts<'a> {
    pub(super) fn new(prompts: &'a RunPrompts) -> Self {
        Self { queues: RowPrompts::of(&prompts.0), bytes_left: TOGETHER }
    }

    /// Returns the text of a row's prompt; `None` for other rows than those of model calls.
    pub(super) fn take(&mut self, row: &TimelineRow) -> Option<String> {
        let prompt = self.queues.take(row)?;
        let more = format!("conclave show {} --prompt", address(prompt));
        if self.bytes_left == 0 {
            return Some(more);
        }
        let mut text = text(prompt);
        if text.len() > ON_PAGE {
            text = format!("{}\n\nThe rest: {more}", cut_bytes(&text, ON_PAGE));
        }
        self.bytes_left = self.bytes_left.saturating_sub(text.len());
        Some(text)
    }
}

/// The address of a request: `run:seq`.
pub(crate) fn address(prompt: &ModelPrompt) -> String {
    format!("{}:{}", prompt.room, prompt.seq)
}

/// The line of a list.
pub(crate) fn listed(prompt: &ModelPrompt) -> String {
    let task = prompt.task.as_ref().map_or(prompt.plugin.as_str(), |task| task.as_str());
    let messages = prompt.messages();
    let bytes: u64 = messages.iter().map(PromptMessage::bytes).sum();
    format!(
        "{} {} {}",
        paint(NAME, format_args!("{:<16}", address(prompt))),
        one_line(&format!("{task} asks {}", prompt.model), TEXT),
        paint(
            FAINT,
            format_args!(
                "{}, {} bytes, {}",
                plural(messages.len() as u64, "message", "messages"),
                thousands(bytes),
                plural(prompt.prompt.tools.len() as u64, "tool", "tools")
            )
        )
    )
}

/// A prompt in full, in rows of at most `columns`.
pub(crate) fn rows(prompt: &ModelPrompt, columns: usize) -> Vec<String> {
    let mut rows = vec![head(prompt)];
    rows.extend(facts(prompt).into_iter().map(|fact| paint(FAINT, one_line(&fact, columns))));
    rows.extend(prompt.prompt.tools.iter().flat_map(|tool| tool::summary(tool, columns)));
    for message in prompt.messages() {
        rows.push(String::new());
        rows.push(paint(NAME, message.role));
        rows.push(foreign::block(&message_text(&message), Style::new(), INDENT, columns));
    }
    rows
}

/// A prompt as text, for an element of a page.
fn text(prompt: &ModelPrompt) -> String {
    let tools = prompt.prompt.tools.iter().flat_map(|tool| tool::summary(tool, ON_PAGE_COLUMNS));
    let tools = tools.map(|row| anstream::adapter::strip_str(&row).to_string());
    let mut text = facts(prompt).into_iter().chain(tools).collect::<Vec<_>>().join("\n");
    for message in prompt.messages() {
        text.push_str(&format!("\n\n[{}]\n{}", message.role, message_text(&message)));
    }
    text.trim_start().to_owned()
}

fn head(prompt: &ModelPrompt) -> String {
    let whose = prompt.task.as_ref().map_or(prompt.plugin.as_str(), |task| task.as_str());
    paint(NAME, one_line(&format!("{} · {whose} asks {}", address(prompt), prompt.model), 200))
}

/// The options of a request, and the line that introduces its tools.
fn facts(prompt: &ModelPrompt) -> Vec<String> {
    let written = prompt.written();
    let mut facts = Vec::new();
    if written.output_schema.is_some() {
        facts.push("the answer has a schema: --json shows it".to_owned());
    }
    facts.extend(written.options.iter().map(|(name, value)| format!("{name} = {value}")));
    if !written.tools.is_empty() {
        let format = json!(written.tool_format);
        let tools = plural(written.tools.len() as u64, "tool", "tools");
        facts.push(format!("{tools} ({}):", format.as_str().unwrap_or_default()));
    }
    facts
}

/// The text of a message, with its calls, results and attachments.
fn message_text(message: &PromptMessage) -> String {
    let mut parts: Vec<String> = Vec::new();
    if !message.text.is_empty() {
        parts.push(message.text.clone());
    }
    for call in &message.tool_calls {
        parts.push(format!("calls {} {}", call.name, call.arguments));
    }
    for result in &message.tool_results {
        let failed = if result.is_error { " failed" } else { "" };
        parts.push(format!("{}{failed}: {}", result.name, result.content));
    }
    for blob in &message.attachments {
        parts.push(format!("attached: {}", json!(blob)));
    }
    if parts.is_empty() { "(nothing)".to_owned() } else { parts.join("\n") }
}

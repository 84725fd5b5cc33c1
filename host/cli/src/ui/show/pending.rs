//! A message's content for the lines of a trace, shortened or whole in blocks. This module knows
//! nothing of columns.

use std::collections::BTreeMap;

use anstyle::Style;
use conclave_core::types::action::Action;
use conclave_core::types::ids::TaskName;
use conclave_core::types::message::{Label, Message, Role, Signal, ToolCall, ToolResult};
use conclave_core::types::text::show_size;
use serde_json::Value;

use super::columns::StyledText;
use super::{BAD, FAINT, GOOD, ODD, delegation};

/// Calls or results of one message that are listed one by one.
const SINGLY: usize = 3;
/// The style of a tool's name.
const TOOL: Style = Style::new().bold();

/// The message in a line.
pub(crate) fn line(message: &Message) -> Vec<StyledText> {
    let delegates = delegation::delegates(message);
    let mut parts = if delegates.is_empty() { marks(message) } else { Vec::new() };
    for delegate in delegates {
        parts.push(StyledText::new(TOOL, format!("→ {}", delegate.task)));
        parts.push(StyledText::new(FAINT, delegate.brief));
    }
    let (calls, has_text) = (calls(message), !message.text().trim().is_empty());
    if calls.len() > SINGLY {
        parts.push(together(calls.iter().map(|call| call.name.as_str())));
    } else {
        for call in calls {
            parts.push(tool(&call.name));
            // If both are there, the text is more useful.
            if !has_text {
                parts.push(StyledText::new(FAINT, call.arguments.to_string()));
            }
        }
    }
    let results = &message.tool_results;
    if results.len() > SINGLY {
        parts.push(together(results.iter().map(|result| result.name.as_str())));
        let failed = results.iter().filter(|result| result.is_error).count();
        if failed > 0 {
            parts.push(StyledText::new(BAD, format!("{failed} failed")));
        }
    } else {
        parts.extend(results.iter().flat_map(|result| [tool(&result.name), short_answer(result)]));
    }
    if results.is_empty() && has_text {
        parts.push(StyledText::plain(message.text()));
    }
    if results.is_empty()
        && !has_text
        && let Some(value) = &message.value
    {
        parts.push(StyledText::new(FAINT, value.to_string()));
    }
    parts.extend(attachments(message));
    if parts.is_empty() {
        parts.push(StyledText::new(FAINT, "no text"));
    }
    parts
}

/// The host's facts about a message: its number, its sender's name, the origin of its content.
pub(crate) fn facts(message: &Message, task: &TaskName, by: &str) -> String {
    let mut facts = vec![format!("message {}", message.seq)];
    if let Some(parent) = message.parent {
        facts.push(format!("answers {parent}"));
    }
    if ![task.as_str(), by].contains(&message.sender_name.as_str()) {
        let verb = if message.sender == Role::User { "from" } else { "by" };
        facts.push(format!("{verb} {}", message.sender_name));
    }
    if !message.labels.is_empty() {
        let labels: Vec<&str> = message.labels.iter().copied().map(Label::as_str).collect();
        facts.push(labels.join(", "));
    }
    facts.join(" · ")
}

/// The whole message, with a block for each part. Arguments that fit into `columns` columns take
/// one line.
pub(crate) fn blocks(message: &Message, columns: usize) -> Vec<StyledText> {
    let mut blocks = marks(message);
    // An action's arguments follow its name.
    for call in calls(message) {
        blocks.push(StyledText::new(
            TOOL,
            format!("{}{}", head(&call.name), if call.untrusted { " untrusted" } else { "" }),
        ));
        blocks.push(StyledText::new(FAINT, json(&call.arguments, columns)));
    }
    for result in &message.tool_results {
        blocks.extend([tool(&result.name), answer(result)]);
        blocks.extend(
            result
                .value
                .as_ref()
                .filter(|value| !is_text(value, &result.content))
                .map(|value| StyledText::new(FAINT, json(value, columns))),
        );
    }
    if message.tool_results.is_empty() {
        if !message.text().trim().is_empty() {
            blocks.push(StyledText::plain(message.text()));
        }
        blocks.extend(
            message
                .value
                .as_ref()
                .filter(|value| !is_text(value, message.text()))
                .map(|value| StyledText::new(FAINT, json(value, columns))),
        );
    }
    blocks.extend(attachments(message));
    if blocks.is_empty() {
        blocks.push(StyledText::new(FAINT, "no text"));
    }
    blocks
}

/// The effects of a message besides its text.
fn marks(message: &Message) -> Vec<StyledText> {
    match (&message.signal, &message.action) {
        (Some(Signal::Done { .. }), _) => vec![StyledText::new(GOOD, "done")],
        (Some(Signal::Rejected), _) => vec![StyledText::new(ODD, "gives up")],
        (None, None | Some(Action::Null | Action::Reply(_))) => Vec::new(),
        (None, Some(action)) => {
            let arguments =
                serde_json::to_value(action).ok().and_then(|action| action.get("args").cloned());
            let arguments =
                arguments.map(|arguments| StyledText::new(FAINT, arguments.to_string()));
            std::iter::once(tool(action.name())).chain(arguments).collect()
        }
    }
}

/// The calls that the model made, or else those that the message carries.
fn calls(message: &Message) -> &[ToolCall] {
    if message.tool_calls.is_empty() { &message.tools } else { &message.tool_calls }
}

fn head(name: &str) -> String {
    format!("[{name}]")
}

fn tool(name: &str) -> StyledText {
    StyledText::new(TOOL, head(name))
}

/// Each name once, in order, with its count: `[search.read ×29]`.
fn together<'a>(names: impl Iterator<Item = &'a str>) -> StyledText {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    let counts: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} ×{count}")).collect();
    StyledText::new(TOOL, head(&counts.join(", ")))
}

/// A result in one line: a background task's output without the JSON around it.
fn short_answer(result: &ToolResult) -> StyledText {
    match delegation::answer(&result.content).filter(|_| !result.is_error) {
        Some(text) => StyledText::plain(text),
        None => answer(result),
    }
}

fn answer(result: &ToolResult) -> StyledText {
    match result.is_error {
        // The host's message names the tool itself.
        true if result.content.starts_with(&result.name) => StyledText::new(BAD, &result.content),
        true => StyledText::new(BAD, format!("failed: {}", result.content)),
        false => StyledText::plain(&result.content),
    }
}

fn attachments(message: &Message) -> impl Iterator<Item = StyledText> {
    message.attachments.iter().map(|blob| {
        let name = blob.name.as_deref().map(|name| format!("{name}, ")).unwrap_or_default();
        StyledText::new(FAINT, format!("({name}{}, {})", blob.media_type, show_size(blob.length)))
    })
}

/// Whether the value says the same as the text.
fn is_text(value: &Value, text: &str) -> bool {
    value.as_str() == Some(text)
        || serde_json::from_str::<Value>(text).is_ok_and(|read| read == *value)
}

/// The value in one line if it fits.
fn json(value: &Value, columns: usize) -> String {
    let line = value.to_string();
    if line.len() <= columns { line } else { serde_json::to_string_pretty(value).unwrap_or(line) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str) -> ToolCall {
        ToolCall::new(name, json!({ "query": "q" }))
    }

    fn result(name: &str, content: &str, is_error: bool) -> ToolResult {
        ToolResult {
            call_id: String::new(),
            name: name.to_owned(),
            content: content.to_owned(),
            value: None,
            is_error,
        }
    }

    fn texts(parts: &[StyledText]) -> String {
        parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_line_says_what_is_called_answered_and_said() {
        let message = |change: &dyn Fn(&mut Message)| {
            let mut message = Message::new(3, Role::Llm, "chat");
            change(&mut message);
            texts(&line(&message))
        };
        assert_eq!(message(&|_| {}), "no text");
        assert_eq!(message(&|message| message.content = Some("hi".into())), "hi");
        assert_eq!(message(&|message| message.value = Some(json!([1]))), "[1]");
        assert_eq!(
            message(&|message| message.tool_calls = vec![call("search.find")]),
            r#"[search.find] {"query":"q"}"#
        );
        let both = |message: &mut Message| {
            (message.content, message.tools) = (Some("hi".into()), vec![call("agent_done")])
        };
        assert_eq!(message(&both), "[agent_done] hi");
        assert_eq!(
            message(&|message| message.tool_calls =
                vec![call("a.b"), call("a.c"), call("a.b"), call("a.b")]),
            "[a.b ×3, a.c ×1]"
        );
        let answered = |message: &mut Message| {
            message.tool_results =
                vec![result("a.b", "found", false), result("a.c", "no file", true)];
            message.content = Some("both, in other words".into());
        };
        assert_eq!(message(&answered), "[a.b] found [a.c] failed: no file");
        let stopped = result("a.b", "a.b was stopped", true);
        assert_eq!(
            message(&|message| message.tool_results = vec![stopped.clone()]),
            "[a.b] a.b was stopped"
        );
        assert_eq!(
            message(&|message| message.tool_results = vec![stopped.clone(); 5]),
            "[a.b ×5] 5 failed"
        );
        let finish = |message: &mut Message| {
            (message.signal, message.content) =
                (Some(Signal::Done { value: None }), Some("42".into()))
        };
        assert_eq!(message(&finish), "done 42");
    }

    #[test]
    fn blocks_hold_everything_once() {
        let mut message = Message::new(3, Role::Agent, "chat");
        let found = ToolResult {
            value: Some(json!({ "hits": [1, 2] })),
            ..result("search.find", "2 hits", false)
        };
        message.tool_results = vec![found, result("search.list", "", true)];
        (message.content, message.value) = (Some("2 hits".into()), Some(json!({ "hits": [1, 2] })));
        assert_eq!(
            texts(&blocks(&message, 80)),
            r#"[search.find] 2 hits {"hits":[1,2]} [search.list] failed: "#
        );
        assert!(texts(&blocks(&message, 5)).contains("{\n  \"hits\""));
    }

    #[test]
    fn facts_name_the_plugin_only_where_the_columns_do_not() {
        let mut message = Message::new(3, Role::Llm, "librarian");
        (message.parent, message.labels) = (Some(2), vec![Label::Untrusted, Label::Tool]);
        assert_eq!(
            facts(&message, &"answer".into(), "llm"),
            "message 3 · answers 2 · by librarian · untrusted, tool"
        );
        message.sender_name = "answer".into();
        assert_eq!(
            facts(&message, &"answer".into(), "llm"),
            "message 3 · answers 2 · untrusted, tool"
        );
    }
}

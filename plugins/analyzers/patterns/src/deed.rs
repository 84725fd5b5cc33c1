//! An action in the form that rules match: a kind, the tool of a call, and texts.

use conclave_sdk::actions::Action;
use serde_json::Value;

/// The depth to which arguments are searched. Deeper values are matched as one text.
const DEEPEST: usize = 16;

/// An action as rules see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deed {
    /// Its discriminator in the fixed JSON, such as `run`; `call` for a tool call.
    pub(crate) kind: String,
    /// `plugin.tool` of a tool call.
    pub(crate) tool: Option<String>,
    /// All texts in it: commands, paths, addresses, arguments.
    pub(crate) texts: Vec<String>,
    /// The path that it writes.
    pub(crate) writes: Option<String>,
}

/// The deeds of an action: one for each call of a reply, and otherwise one.
pub(crate) fn deeds(action: &Action) -> Vec<Deed> {
    match action {
        Action::Reply(reply) if !reply.tool_calls.is_empty() => {
            reply.tool_calls.iter().map(|call| called(&call.name, &call.arguments)).collect()
        }
        Action::Null => vec![deed("null", [])],
        Action::Reply(reply) => {
            vec![deed("message", [reply.content.as_deref().unwrap_or_default()])]
        }
        Action::Run(run) => vec![deed("run", [run.command.as_str()])],
        Action::Kill(id) => vec![deed("kill", [id.to_string().as_str()])],
        Action::RunCell(cell) => {
            vec![deed("run_ipython", [cell.code.as_str(), cell.kernel_init_code.as_str()])]
        }
        Action::Browse(url) => vec![deed("browse", [url.as_str()])],
        Action::Read(read) => vec![deed("read", [read.path.as_str()])],
        Action::Write(write) => {
            vec![Deed {
                writes: Some(write.path.clone()),
                ..deed("write", [write.path.as_str(), write.content.as_str()])
            }]
        }
        Action::Recall(query) => vec![deed("recall", [query.as_str()])],
        Action::AddTask(task) => vec![deed("add_task", [task.goal.as_str()])],
        Action::ModifyTask(task) => vec![deed("modify_task", [task.task_id.as_str()])],
        Action::Delegate(delegate) => vec![json("delegate", &[&delegate.task], &delegate.inputs)],
        Action::DelegateTask(task) => {
            vec![json("delegate_task", &[&task.worker, &task.description], &task.context)]
        }
        Action::Think(thought) => vec![deed("think", [thought.as_str()])],
        Action::Talk(text) => vec![deed("talk", [text.as_str()])],
        Action::Finish(outputs) => vec![json("finish", &[], outputs)],
        Action::Reject(outputs) => vec![json("reject", &[], outputs)],
        Action::Custom(custom) => vec![custom_deed(&custom.name, &custom.arguments)],
    }
}

fn deed<'t>(kind: &str, texts: impl IntoIterator<Item = &'t str>) -> Deed {
    let texts = texts.into_iter().filter(|text| !text.is_empty()).map(str::to_owned).collect();
    Deed { kind: kind.to_owned(), tool: None, texts, writes: None }
}

fn json(kind: &str, texts: &[&str], more: &str) -> Deed {
    let mut deed = deed(kind, texts.iter().copied());
    deed.texts.extend(texts_of(more));
    deed
}

fn called(tool: &str, arguments: &str) -> Deed {
    let last = tool.rsplit('.').next().unwrap_or(tool);
    let writes = matches!(last, "write" | "edit" | "create" | "delete" | "remove")
        .then(|| path_of(arguments))
        .flatten();
    Deed { kind: "call".into(), tool: Some(tool.to_owned()), texts: texts_of(arguments), writes }
}

/// The deed of an action of a later kind. An MCP call is a call of the tool that it names.
fn custom_deed(name: &str, arguments: &str) -> Deed {
    let value: Value = serde_json::from_str(arguments).unwrap_or_default();
    let is_view = value.get("command").and_then(Value::as_str) == Some("view");
    let tool = (name == "call_tool_mcp")
        .then(|| value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned());
    let writes = (name == "edit" && !is_view).then(|| path_of(arguments)).flatten();
    // Viewing a file through the editor counts as reading it.
    let kind = if name == "edit" && is_view { "read" } else { name };
    Deed { kind: kind.to_owned(), tool, texts: texts_of(arguments), writes }
}

fn path_of(arguments: &str) -> Option<String> {
    let value: Value = serde_json::from_str(arguments).ok()?;
    ["path", "file", "file_path"]
        .iter()
        .find_map(|key| value.get(*key)?.as_str())
        .map(str::to_owned)
}

/// All texts of a JSON value, keys included, or the text itself if it is not JSON.
fn texts_of(arguments: &str) -> Vec<String> {
    let Ok(value) = serde_json::from_str(arguments) else { return vec![arguments.to_owned()] };
    let mut texts = Vec::new();
    collect(&value, 0, &mut texts);
    texts
}

fn collect(value: &Value, depth: usize, texts: &mut Vec<String>) {
    match value {
        _ if depth > DEEPEST => texts.push(value.to_string()),
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => {
            items.iter().for_each(|item| collect(item, depth + 1, texts));
            // An argument list is matched as the command that it stands for.
            let words: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            texts.extend(words.filter(|words| words.len() > 1).map(|words| words.join(" ")));
        }
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            texts.push(key.clone());
            collect(value, depth + 1, texts);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

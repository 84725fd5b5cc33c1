//! The verbs of an agent that acts: one function for each action of the fixed list. The verbs for
//! speaking, calling, asking and finishing are at the crate's root. Kinds without a type in the
//! contract travel in its `custom` case, in the fixed JSON form.
//!
//! ```
//! use conclave_sdk::act;
//!
//! let look = act::run("cargo test").because("the fix must hold");
//! let mend = act::edit("/project/src/lib.rs").replace("fn mian()", "fn main()").because("a typo");
//! let both = act::delegate_all([("study", serde_json::json!({})), ("verify", serde_json::json!({ "strict": true }))]);
//! # let _ = (look, mend, both);
//! ```

use serde_json::{Map, Value, json};

use crate::Turn;
use crate::bindings::agent::conclave::plugin::actions::{
    Action, AddTask, CustomAction, Delegate, ModifyTask, PlanState, ReadFile, RunCell, RunCommand,
    WriteFile,
};

/// Does nothing in this turn.
pub fn nothing() -> Turn {
    Action::Null.into()
}

/// Runs a command in the shell. Its output arrives with the next step.
pub fn run(command: impl Into<String>) -> Turn {
    Action::Run(RunCommand { command: command.into(), background: false }).into()
}

/// Starts a command that runs beside the agent. Its output arrives as it is printed, and its end is
/// reported.
pub fn run_in_background(command: impl Into<String>) -> Turn {
    Action::Run(RunCommand { command: command.into(), background: true }).into()
}

/// Stops a background command, by the id that its start reported.
pub fn kill(command_id: i64) -> Turn {
    Action::Kill(command_id).into()
}

/// Runs a Python cell.
pub fn run_cell(code: impl Into<String>) -> Turn {
    Action::RunCell(RunCell { code: code.into(), kernel_init_code: String::new() }).into()
}

/// Reads a whole file.
pub fn read(path: impl Into<String>) -> Turn {
    read_lines(path, 0, -1)
}

/// Reads lines of a file. `start` counts from 0, `end` is excluded, and -1 is the end of the file.
pub fn read_lines(path: impl Into<String>, start: i64, end: i64) -> Turn {
    Action::Read(ReadFile { path: path.into(), start, end }).into()
}

/// Writes a whole file.
pub fn write(path: impl Into<String>, content: impl Into<String>) -> Turn {
    write_lines(path, content, 0, -1)
}

/// Replaces lines of a file. `start` counts from 0, `end` is excluded, and -1 is the end of the
/// file.
pub fn write_lines(
    path: impl Into<String>,
    content: impl Into<String>,
    start: i64,
    end: i64,
) -> Turn {
    Action::Write(WriteFile { path: path.into(), content: content.into(), start, end }).into()
}

/// Opens a page.
pub fn browse(url: impl Into<String>) -> Turn {
    Action::Browse(url.into()).into()
}

/// Acts in the browser. `browser_actions` is code in the browser's own language.
pub fn browse_interactive(browser_actions: impl Into<String>) -> Turn {
    custom("browse_interactive", json!({ "browser_actions": browser_actions.into() }))
}

/// Queries the agent's long-term memory.
pub fn recall(query: impl Into<String>) -> Turn {
    Action::Recall(query.into()).into()
}

/// Adds a task to the plan. `parent` is an id, or empty for a task at the top.
pub fn add_task(parent: impl Into<String>, goal: impl Into<String>) -> Turn {
    add_tasks(parent, goal, json!([]))
}

/// Adds a task with tasks below it: a list of `{"goal": …, "subtasks": […]}`, as deep as needed.
pub fn add_tasks(
    parent: impl Into<String>,
    goal: impl Into<String>,
    subtasks: impl Into<Value>,
) -> Turn {
    Action::AddTask(AddTask {
        parent: parent.into(),
        goal: goal.into(),
        subtasks: subtasks.into().to_string(),
    })
    .into()
}

/// Changes the state of a task of the plan.
pub fn modify_task(id: impl Into<String>, state: PlanState) -> Turn {
    Action::ModifyTask(ModifyTask { task_id: id.into(), state }).into()
}

/// Records a thought, without any effect.
pub fn think(thought: impl Into<String>) -> Turn {
    Action::Think(thought.into()).into()
}

/// Says something to the user, without waiting for an answer.
pub fn talk(text: impl Into<String>) -> Turn {
    Action::Talk(text.into()).into()
}

/// Asks the user, and waits for the answer.
pub fn ask(question: impl Into<String>) -> Turn {
    talk(question).and_wait_for_user()
}

/// Delegates work to a task of the operator's config, and waits for its outputs. `inputs` is an
/// object, whose `task` describes the work.
pub fn delegate(task: impl Into<String>, inputs: impl Into<Value>) -> Turn {
    Action::Delegate(Delegate { task: task.into(), inputs: inputs.into().to_string() }).into()
}

/// Delegates work to several tasks at once, and waits for all of them.
pub fn delegate_all<A: Into<String>>(delegates: impl IntoIterator<Item = (A, Value)>) -> Turn {
    let delegates: Vec<_> = delegates
        .into_iter()
        .map(|(agent, inputs)| json!({ "agent": agent.into(), "inputs": inputs }))
        .collect();
    custom("delegate_all", json!({ "delegates": delegates }))
}

/// Views the flat list of tasks, for agents without a plan.
pub fn view_tasks() -> Turn {
    custom("task_tracking", json!({ "command": "view", "task_list": [] }))
}

/// Replaces the flat list of tasks: each is `{"title": …, "status": "todo" | "in_progress" |
/// "done", "notes": …}`.
pub fn track_tasks(tasks: impl IntoIterator<Item = Value>) -> Turn {
    custom(
        "task_tracking",
        json!({ "command": "plan", "task_list": tasks.into_iter().collect::<Vec<_>>() }),
    )
}

/// Asks the host to shorten this agent's history.
pub fn request_condensation() -> Turn {
    custom("condensation_request", json!({}))
}

/// Calls a tool of an MCP server by its name on the server, or by `server.tool` if two servers have
/// the name. It is a tool like any other, so this is [`call`](crate::call) for agents that know
/// this action.
pub fn call_mcp(tool: impl Into<String>, arguments: impl Into<Value>) -> Turn {
    crate::call(tool, arguments)
}

/// Sends a text and calls to another task: pairs of a tool and its arguments. Only a responder may,
/// since it is a tool of the host for handlers; it needs `route` with the tool's name.
pub fn agent_send<T: Into<String>>(
    to: impl Into<String>,
    content: impl Into<String>,
    calls: impl IntoIterator<Item = (T, Value)>,
) -> Turn {
    let (to, content, tools) = (to.into(), content.into(), crate::outcome::listed(calls));
    crate::call("agent_send", json!({ "to": to, "content": content, "tools": tools }))
}

/// Sends a text to a recipient with the host's tool of that name, where the task offers it.
/// [`Turn::to`] needs no tool.
pub fn recipient_message(recipient: impl Into<String>, content: impl Into<String>) -> Turn {
    let (recipient, content) = (recipient.into(), content.into());
    let arguments = json!({ "intended_recipient": recipient, "content": content });
    crate::call("recipient_message", arguments)
}

/// An action without a verb here, in the fixed JSON form: its discriminator, and its arguments as
/// an object.
pub fn custom(name: impl Into<String>, arguments: impl Into<Value>) -> Turn {
    Action::Custom(CustomAction { name: name.into(), arguments: arguments.into().to_string() })
        .into()
}

/// Begins an edit of a file. The verbs of [`Edit`] complete it.
pub fn edit(path: impl Into<String>) -> Edit {
    Edit { path: path.into() }
}

/// An edit without its command yet.
///
/// ```
/// let _ = conclave_sdk::act::edit("/project/a.md").insert_after(0, "# Title");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "say what to do: view, create, replace, insert_after or undo"]
pub struct Edit {
    path: String,
}

impl Edit {
    /// Shows the file with line numbers, or a folder's entries.
    pub fn view(self) -> Turn {
        self.with("view", [])
    }

    /// Shows lines of the file. Both ends count from 1 and are included; a `last` of -1 is the end
    /// of the file.
    pub fn view_lines(self, first: i64, last: i64) -> Turn {
        // The fixed form of an edit has no range, but the `read` of the same era has one.
        custom(
            "read",
            json!({ "path": self.path, "impl_source": "oh_aci", "view_range": [first, last] }),
        )
    }

    /// Creates the file, which must not exist.
    pub fn create(self, text: impl Into<String>) -> Turn {
        self.with("create", [("file_text", text.into().into())])
    }

    /// Replaces text that occurs in the file exactly once.
    pub fn replace(self, old: impl Into<String>, new: impl Into<String>) -> Turn {
        self.with("str_replace", [("old_str", old.into().into()), ("new_str", new.into().into())])
    }

    /// Inserts text after a line; 0 is the beginning of the file.
    pub fn insert_after(self, line: i64, text: impl Into<String>) -> Turn {
        self.with("insert", [("insert_line", line.into()), ("new_str", text.into().into())])
    }

    /// Reverts the last edit of this file.
    pub fn undo(self) -> Turn {
        self.with("undo_edit", [])
    }

    fn with<const N: usize>(self, command: &str, rest: [(&str, Value); N]) -> Turn {
        let mut arguments: Map<String, Value> =
            rest.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        arguments.insert("path".into(), self.path.into());
        arguments.insert("command".into(), command.into());
        custom("edit", arguments)
    }
}

/// The name, JSON and meaning of the actions for a model's prompt.
const FORMS: [(&str, &str, &str); 15] = [
    ("run", r#""command": "ls""#, "runs a command in the shell"),
    ("run_ipython", r#""code": "1 + 1""#, "runs a Python cell"),
    ("read", r#""path": "/folder/a.md""#, "reads a file"),
    ("write", r#""path": "/folder/a.md", "content": "text""#, "writes a file"),
    (
        "edit",
        r#""path": "/folder/a.md", "command": "str_replace", "old_str": "a", "new_str": "b""#,
        "replaces what stands there once",
    ),
    ("browse", r#""url": "https://example.org""#, "opens a page"),
    ("recall", r#""query": "words""#, "searches your memory"),
    ("call_tool_mcp", r#""name": "plugin.tool", "arguments": {}"#, "calls a tool"),
    (
        "delegate",
        r#""agent": "task", "inputs": {"task": "what to do"}"#,
        "hands work to another agent and waits",
    ),
    (
        "add_task",
        r#""parent": "", "goal": "what", "subtasks": [{"goal": "first part"}]"#,
        "adds to the plan; parent is an id, empty at the top",
    ),
    (
        "modify_task",
        r#""task_id": "0", "state": "completed""#,
        "open, in_progress, completed, verified or abandoned",
    ),
    ("think", r#""thought": "why""#, "notes a thought"),
    (
        "message",
        r#""content": "text", "wait_for_response": true"#,
        "says something to the user, and waits or does not",
    ),
    ("finish", r#""outputs": {"answer": "text"}"#, "is done, and gives what came of it"),
    ("reject", r#""outputs": {"reason": "text"}"#, "gives up, and says why"),
];

/// The JSON of these actions for a model's prompt, one per line. Without names, returns all of
/// them.
pub fn form(names: &[&str]) -> String {
    let forms = FORMS.iter().filter(|(name, ..)| names.is_empty() || names.contains(name));
    let lines = forms.map(|(name, arguments, meaning)| {
        format!(r#"{{"action": "{name}", "args": {{{arguments}}}}}  {meaning}"#)
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Action, FORMS};
    use crate::{Turn, act};

    #[test]
    fn what_models_are_told_can_be_read() {
        let form = act::form(&[]);
        assert_eq!(form.lines().count(), FORMS.len());
        for line in form.lines() {
            assert!(Turn::from_json(line).is_ok(), "{line}");
        }
        assert_eq!(
            act::form(&["recall"]),
            r#"{"action": "recall", "args": {"query": "words"}}  searches your memory"#
        );
    }

    fn arguments(turn: &Turn) -> (String, Value) {
        let Action::Custom(custom) = turn.action() else { panic!("no custom action: {turn:?}") };
        (custom.name.clone(), serde_json::from_str(&custom.arguments).unwrap())
    }

    #[test]
    fn a_question_waits_and_talk_does_not() {
        let turn: crate::actions::Turn = act::ask("Which one?").into();
        assert!(turn.wait_for_response);
        let turn: crate::actions::Turn = act::talk("Going on.").into();
        assert!(!turn.wait_for_response);
    }

    #[test]
    fn whole_files_are_lines_from_the_first_to_the_end() {
        let Action::Read(read) = act::read("/a").action().clone() else { panic!("no read") };
        assert_eq!((read.start, read.end), (0, -1));
        let Action::Write(write) = act::write_lines("/a", "x", 2, 3).action().clone() else {
            panic!("no write")
        };
        assert_eq!((write.content.as_str(), write.start, write.end), ("x", 2, 3));
    }

    #[test]
    fn edits_are_in_the_fixed_form() {
        let cases = [
            (act::edit("/a").view(), json!({ "path": "/a", "command": "view" })),
            (
                act::edit("/a").create("x"),
                json!({ "path": "/a", "command": "create", "file_text": "x" }),
            ),
            (
                act::edit("/a").replace("x", "y"),
                json!({ "path": "/a", "command": "str_replace", "old_str": "x", "new_str": "y" }),
            ),
            (
                act::edit("/a").insert_after(3, "y"),
                json!({ "path": "/a", "command": "insert", "insert_line": 3, "new_str": "y" }),
            ),
            (act::edit("/a").undo(), json!({ "path": "/a", "command": "undo_edit" })),
        ];
        for (turn, expected) in cases {
            assert_eq!(arguments(&turn), ("edit".to_owned(), expected));
        }
    }

    #[test]
    fn tools_of_the_host_and_of_servers_are_calls() {
        let called = |turn: Turn| {
            let Action::Reply(reply) = turn.action().clone() else { panic!("no reply") };
            let [call] = reply.tool_calls.as_slice() else { panic!("no single call") };
            (call.name.clone(), serde_json::from_str::<Value>(&call.arguments).unwrap())
        };
        let cases = [
            (act::call_mcp("maps.find", json!({ "q": 1 })), "maps.find", json!({ "q": 1 })),
            (
                act::agent_send("desk", "lit?", [("a.b", json!({ "n": 1 }))]),
                "agent_send",
                json!({
                    "to": "desk",
                    "content": "lit?",
                    "tools": [{ "name": "a.b", "arguments": { "n": 1 } }],
                }),
            ),
            (
                act::recipient_message("desk", "lit?"),
                "recipient_message",
                json!({ "intended_recipient": "desk", "content": "lit?" }),
            ),
        ];
        for (turn, name, arguments) in cases {
            assert_eq!(called(turn), (name.to_owned(), arguments));
        }
    }

    #[test]
    fn several_delegates_are_one_action() {
        let turn = act::delegate_all([("study", json!({})), ("verify", json!({ "n": 1 }))]);
        let delegates = json!([{ "agent": "study", "inputs": {} }, { "agent": "verify", "inputs": { "n": 1 } }]);
        assert_eq!(
            arguments(&turn),
            ("delegate_all".to_owned(), json!({ "delegates": delegates }))
        );
    }
}

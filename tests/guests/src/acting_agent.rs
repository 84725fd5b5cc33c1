//! An agent that follows a script of actions, one in each step, and finishes with its inputs of all
//! steps.
//!
//! A line of the script is an action in its fixed JSON, `{"action": "read", "args": {"path":
//! "a"}}`, and may also hold `thought` and `wait` (for the user), or it is `{"call": "plugin.tool",
//! "arguments": {}}`, `{"calls": [[tool, arguments], …]}`, `{"say": text}`, `{"error": text}`,
//! `{"malformed": text}`, `{"panic": text}`, `{"spin": true}`.

use conclave_sdk::actions::{
    Action, AddTask, CustomAction, Delegate, ModifyTask, Observation, PlanState, ReadFile, RunCell,
    RunCommand, WriteFile,
};
use conclave_sdk::{
    Agent, Blob, Error, PastAction, Result, Turn, View, blobs, call, config, delegate, finish, say,
    scratch,
};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(default)]
struct Settings {
    script: Vec<Value>,
    /// Begins anew after the last line.
    repeat: bool,
    /// Keeps what it was told; `false` for very long scripts.
    report: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { script: Vec::new(), repeat: false, report: true }
    }
}

struct Acting;

impl Agent for Acting {
    fn step(view: &View) -> Result<Turn> {
        let settings: Settings = config::get()?;
        let mut told: Vec<Value> = scratch::get()?.unwrap_or_default();
        if settings.report {
            told.push(seen(view)?);
            scratch::set(&told)?;
        }
        let step = view.iteration() as usize;
        let line = if settings.repeat {
            settings.script.get(step % settings.script.len().max(1))
        } else {
            settings.script.get(step)
        };
        line.map_or_else(|| Ok(finish(json!({ "steps": told }))), turn)
    }
}

/// Returns the visible part of a step.
fn seen(view: &View) -> Result<Value> {
    let since: Vec<Value> = view.since_last_step().iter().map(past).collect();
    let pending = view.pending();
    let attached = pending.iter().flat_map(|message| &message.attachments);
    let attached = attached.map(opened).collect::<Result<Vec<String>>>()?;
    Ok(json!({
        "since": since,
        "pending": pending.map(|message| message.content),
        "attached": attached,
        "intent": view.latest_user_message(),
        "plan": view.plan()?,
        "current_plan_node": view.current_plan_node(),
        "last_error": view.last_error(),
        "outputs": view.outputs()?,
        "level": view.delegate_level(),
        "inputs": view.inputs::<Value>()?,
    }))
}

/// Returns an attachment's name, type and content.
fn opened(blob: &Blob) -> Result<String> {
    let name = blob.name.as_deref().unwrap_or_default();
    let content = blobs::read_all(blob)?;
    Ok(format!("{name} ({}): {}", blob.media_type, String::from_utf8_lossy(&content)))
}

fn past(past: &PastAction) -> Value {
    json!({ "action": past.action.as_ref().map(action_name), "observation": past.observation.as_ref().map(observation) })
}

fn action_name(action: &Action) -> String {
    let name = match action {
        Action::Null => "null",
        Action::Reply(_) => "message",
        Action::Run(_) => "run",
        Action::Kill(_) => "kill",
        Action::RunCell(_) => "run_ipython",
        Action::Browse(_) => "browse",
        Action::Read(_) => "read",
        Action::Write(_) => "write",
        Action::Recall(_) => "recall",
        Action::AddTask(_) => "add_task",
        Action::ModifyTask(_) => "modify_task",
        Action::Delegate(_) => "delegate",
        Action::DelegateTask(_) => "delegate_task",
        Action::Think(_) => "think",
        Action::Talk(_) => "talk",
        Action::Finish(_) => "finish",
        Action::Reject(_) => "reject",
        Action::Custom(custom) => &custom.name,
    };
    name.to_owned()
}

fn observation(observation: &Observation) -> Value {
    match observation {
        Observation::Null => json!({ "null": true }),
        Observation::Command(output) => {
            json!({ "command": output.command, "id": output.command_id, "exit_code": output.exit_code, "content": output.content })
        }
        Observation::Cell((code, output)) => json!({ "code": code, "content": output }),
        Observation::Browsed(page) => {
            json!({ "url": page.url, "status": page.status, "error": page.is_error, "content": page.content })
        }
        Observation::File((path, content)) => json!({ "path": path, "content": content }),
        Observation::Written(path) => json!({ "written": path }),
        Observation::Recalled(memories) => json!({ "memories": memories }),
        Observation::Delegated((task, outputs)) => {
            json!({ "delegate": task, "outputs": value(outputs) })
        }
        Observation::Tool(output) => {
            json!({ "tool": output.name, "content": output.content, "is_error": output.is_error })
        }
        Observation::Success(text) => json!({ "success": text }),
        Observation::Error(text) => json!({ "error": text }),
        Observation::Custom(custom) => {
            json!({ "custom": custom.name, "content": custom.content, "extras": value(&custom.extras) })
        }
    }
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

fn turn(line: &Value) -> Result<Turn> {
    let text = |key: &str| line.get(key).and_then(Value::as_str).map(str::to_owned);
    let turn = if let Some(kind) = text("action") {
        Turn::from(action(&kind, line.get("args").unwrap_or(&json!({})))?)
    } else if let Some(tool) = text("call") {
        call(tool, line.get("arguments").cloned().unwrap_or_else(|| json!({})))
    } else if let Some(calls) = line.get("calls").and_then(Value::as_array) {
        let add = |turn: Turn, made: &Value| {
            turn.and_call(made[0].as_str().unwrap_or_default(), made[1].clone())
        };
        let Some((first, rest)) = calls.split_first() else {
            return Err(Error::other("the script calls nothing"));
        };
        rest.iter().fold(call(first[0].as_str().unwrap_or_default(), first[1].clone()), add)
    } else if let Some(said) = text("say") {
        say(said)
    } else if let Some(error) = text("error") {
        return Err(Error::other(error));
    } else if let Some(error) = text("malformed") {
        return Err(Error::invalid_arguments(error));
    } else if let Some(message) = text("panic") {
        panic!("{message}");
    } else if line.get("spin").is_some() {
        loop {
            std::hint::black_box(0);
        }
    } else {
        return Err(Error::other(format!("a line of the script is none: {line}")));
    };
    let turn = text("thought").into_iter().fold(turn, Turn::because);
    Ok(if line.get("wait") == Some(&json!(true)) { turn.and_wait_for_user() } else { turn })
}

/// Returns the typed action if the contract has one, else an action with this kind.
fn action(kind: &str, args: &Value) -> Result<Action> {
    let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number =
        |key: &str, otherwise: i64| args.get(key).and_then(Value::as_i64).unwrap_or(otherwise);
    let json = |key: &str| args.get(key).cloned().unwrap_or_else(|| json!({})).to_string();
    Ok(match kind {
        "null" => Action::Null,
        "run" => Action::Run(RunCommand {
            command: text("command"),
            background: args.get("background") == Some(&json!(true)),
        }),
        "kill" => Action::Kill(number("command_id", -1)),
        "run_ipython" => Action::RunCell(RunCell {
            code: text("code"),
            kernel_init_code: text("kernel_init_code"),
        }),
        "browse" => Action::Browse(text("url")),
        "read" => Action::Read(ReadFile {
            path: text("path"),
            start: number("start", 0),
            end: number("end", -1),
        }),
        "write" => Action::Write(WriteFile {
            path: text("path"),
            content: text("content"),
            start: number("start", 0),
            end: number("end", -1),
        }),
        "recall" => Action::Recall(text("query")),
        "add_task" => {
            let subtasks = args.get("subtasks").cloned().unwrap_or_else(|| json!([])).to_string();
            Action::AddTask(AddTask { parent: text("parent"), goal: text("goal"), subtasks })
        }
        "modify_task" => Action::ModifyTask(ModifyTask {
            task_id: text("task_id"),
            state: plan_state(&text("state"))?,
        }),
        "delegate" => Action::Delegate(Delegate { task: text("agent"), inputs: json("inputs") }),
        "delegate_task" => {
            let mut task = delegate(text("agent"))
                .task(text("task"))
                .context(args.get("context").cloned().unwrap_or_else(|| json!({})));
            if text("wait") == "true" {
                task = task.wait();
            }
            if text("structured") == "true" {
                task = task.submitted(3);
            }
            task.start().action().clone()
        }
        "think" => Action::Think(text("thought")),
        "talk" => Action::Talk(text("content")),
        "finish" => Action::Finish(json("outputs")),
        "reject" => Action::Reject(json("outputs")),
        other => {
            Action::Custom(CustomAction { name: other.to_owned(), arguments: args.to_string() })
        }
    })
}

fn plan_state(word: &str) -> Result<PlanState> {
    match word {
        "open" => Ok(PlanState::Open),
        "in_progress" => Ok(PlanState::InProgress),
        "completed" => Ok(PlanState::Completed),
        "verified" => Ok(PlanState::Verified),
        "abandoned" => Ok(PlanState::Abandoned),
        _ => Err(Error::invalid_arguments(format!("there is no state {word} of a task"))),
    }
}

conclave_sdk::export!(agent: Acting, manifest: "manifests/acting_agent.toml");

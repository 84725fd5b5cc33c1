//! Tests the codec with the table that the SDKs of all languages share. Its turns and observations
//! are written as cases of the contract, `{"tag": …, "val": …}`.

use serde_json::{Map, Value, json};

use super::events_of_message;
use crate::actions::{self, Action, CommandOutput, CustomObservation, Page, PlanState, Reply};
use crate::trajectory::{Action as Logged, Era, Observation as LoggedObservation};
use crate::{Error, Message, Observation, Role, ToolCall, ToolOutput, ToolResult, Turn, act};

const TABLE: &str = include_str!("../../../../tests/data/trajectory/codec.json");
const ERAS: [Era; 2] = [Era::V2024, Era::V2025];

fn rows(name: &str) -> Vec<Value> {
    let table: Value = serde_json::from_str(TABLE).expect("the table is JSON");
    let rows = table[name].as_array().cloned().unwrap_or_default();
    assert!(!rows.is_empty(), "the table has no {name}");
    rows
}

fn problem<T: std::fmt::Debug>(read: crate::Result<T>) -> String {
    match read {
        Err(Error::InvalidArguments(text)) => text,
        other => panic!("it was not refused: {other:?}"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn number(value: &Value) -> i64 {
    value.as_i64().expect("a whole number")
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).expect("the contract's JSON")
}

fn calls(val: &Value) -> Vec<ToolCall> {
    let call = |call: &Value| ToolCall {
        id: String::new(),
        name: text(&call["name"]),
        arguments: call["arguments"].to_string(),
    };
    val["toolCalls"].as_array().into_iter().flatten().map(call).collect()
}

fn turn_of(row: &Value) -> Turn {
    let mut turn = Turn::from(action_of(&row["action"]));
    if let Some(thought) = row.get("thought") {
        turn = turn.because(text(thought));
    }
    if row["wait"] == true {
        turn = turn.and_wait_for_user();
    }
    for (key, value) in row["extra"].as_object().into_iter().flatten() {
        turn = turn.with_extra(key, value.clone());
    }
    turn
}

fn action_of(row: &Value) -> Action {
    let val = &row["val"];
    let turn = match text(&row["tag"]).as_str() {
        "null" => act::nothing(),
        "reply" => {
            return Action::Reply(Reply {
                completion: None,
                content: val.get("content").map(text),
                tool_calls: calls(val),
                recipient: None,
                attachments: Vec::new(),
            });
        }
        "run" if val["background"] == true => act::run_in_background(text(&val["command"])),
        "run" => act::run(text(&val["command"])),
        "kill" => act::kill(number(val)),
        "run-cell" => {
            return Action::RunCell(actions::RunCell {
                code: text(&val["code"]),
                kernel_init_code: text(&val["kernelInitCode"]),
            });
        }
        "browse" => act::browse(text(val)),
        "read" => act::read_lines(text(&val["path"]), number(&val["start"]), number(&val["end"])),
        "write" => act::write_lines(
            text(&val["path"]),
            text(&val["content"]),
            number(&val["start"]),
            number(&val["end"]),
        ),
        "recall" => act::recall(text(val)),
        "add-task" => {
            act::add_tasks(text(&val["parent"]), text(&val["goal"]), val["subtasks"].clone())
        }
        "modify-task" => act::modify_task(text(&val["taskId"]), state(&text(&val["state"]))),
        "delegate" => act::delegate(text(&val["task"]), val["inputs"].clone()),
        "delegate-task" => crate::delegate(text(&val["worker"]))
            .task(text(&val["description"]))
            .context(val["context"].clone())
            .share(texts(&val["shareChannels"]))
            .start(),
        "think" => act::think(text(val)),
        "talk" => act::talk(text(val)),
        "finish" => crate::finish(val),
        "reject" => crate::reject(val.clone()),
        "custom" => act::custom(text(&val["name"]), val["arguments"].clone()),
        tag => panic!("the contract has no action {tag}"),
    };
    turn.action().clone()
}

const STATES: [(&str, PlanState); 5] = [
    ("open", PlanState::Open),
    ("in-progress", PlanState::InProgress),
    ("completed", PlanState::Completed),
    ("verified", PlanState::Verified),
    ("abandoned", PlanState::Abandoned),
];

fn state(name: &str) -> PlanState {
    STATES.into_iter().find(|(known, _)| *known == name).expect("a state of the contract").1
}

fn row_of(turn: &Turn) -> Value {
    let turn = actions::Turn::from(turn.clone());
    let mut row = json!({ "action": row_of_action(turn.action) });
    if !turn.thought.is_empty() {
        row["thought"] = turn.thought.into();
    }
    if turn.wait_for_response {
        row["wait"] = true.into();
    }
    for extra in turn.extra {
        row["extra"][extra.key] = parsed(&extra.value);
    }
    row
}

fn row_of_action(action: Action) -> Value {
    let (tag, val) = match action {
        Action::Null => return json!({ "tag": "null" }),
        Action::Reply(reply) => {
            let mut val = Map::new();
            val.extend(reply.content.map(|content| ("content".to_owned(), content.into())));
            let call =
                |call: ToolCall| json!({ "name": call.name, "arguments": parsed(&call.arguments) });
            if !reply.tool_calls.is_empty() {
                let calls = reply.tool_calls.into_iter().map(call).collect();
                val.insert("toolCalls".to_owned(), Value::Array(calls));
            }
            ("reply", val.into())
        }
        Action::Run(run) => {
            ("run", json!({ "command": run.command, "background": run.background }))
        }
        Action::Kill(id) => ("kill", id.into()),
        Action::RunCell(cell) => {
            ("run-cell", json!({ "code": cell.code, "kernelInitCode": cell.kernel_init_code }))
        }
        Action::Browse(url) => ("browse", url.into()),
        Action::Read(it) => ("read", json!({ "path": it.path, "start": it.start, "end": it.end })),
        Action::Write(it) => (
            "write",
            json!({ "path": it.path, "content": it.content, "start": it.start, "end": it.end }),
        ),
        Action::Recall(query) => ("recall", query.into()),
        Action::AddTask(it) => (
            "add-task",
            json!({ "parent": it.parent, "goal": it.goal, "subtasks": parsed(&it.subtasks) }),
        ),
        Action::ModifyTask(it) => {
            let state = STATES.into_iter().find(|(_, state)| *state == it.state);
            ("modify-task", json!({ "taskId": it.task_id, "state": state.map(|(name, _)| name) }))
        }
        Action::Delegate(it) => {
            ("delegate", json!({ "task": it.task, "inputs": parsed(&it.inputs) }))
        }
        Action::DelegateTask(it) => (
            "delegate-task",
            json!({
                "worker": it.worker,
                "description": it.description,
                "context": parsed(&it.context),
                "shareChannels": it.share_channels,
            }),
        ),
        Action::Think(thought) => ("think", thought.into()),
        Action::Talk(content) => ("talk", content.into()),
        Action::Finish(outputs) => ("finish", parsed(&outputs)),
        Action::Reject(outputs) => ("reject", parsed(&outputs)),
        Action::Custom(it) => {
            ("custom", json!({ "name": it.name, "arguments": parsed(&it.arguments) }))
        }
    };
    json!({ "tag": tag, "val": val })
}

fn observation_of(row: &Value) -> Observation {
    let val = &row["val"];
    match text(&row["tag"]).as_str() {
        "null" => Observation::Null,
        "command" => Observation::Command(CommandOutput {
            command_id: number(&val["commandId"]),
            command: text(&val["command"]),
            exit_code: number(&val["exitCode"]).try_into().expect("an exit code"),
            content: text(&val["content"]),
        }),
        "cell" => Observation::Cell((text(&val["code"]), text(&val["output"]))),
        "browsed" => Observation::Browsed(Page {
            url: text(&val["url"]),
            status: number(&val["status"]).try_into().expect("a status"),
            content: text(&val["content"]),
            is_error: val["isError"] == true,
        }),
        "file" => Observation::File((text(&val["path"]), text(&val["content"]))),
        "written" => Observation::Written(text(val)),
        "recalled" => Observation::Recalled(texts(val)),
        "delegated" => Observation::Delegated((text(&val["task"]), val["outputs"].to_string())),
        "tool" => Observation::Tool(ToolOutput {
            call_id: String::new(),
            name: text(&val["name"]),
            content: text(&val["content"]),
            value: None,
            is_error: val["isError"] == true,
        }),
        "success" => Observation::Success(text(val)),
        "error" => Observation::Error(text(val)),
        "custom" => Observation::Custom(CustomObservation {
            name: text(&val["name"]),
            content: text(&val["content"]),
            extras: val["extras"].to_string(),
        }),
        tag => panic!("the contract has no observation {tag}"),
    }
}

fn row_of_observation(observation: Observation) -> Value {
    let (tag, val) = match observation {
        Observation::Null => return json!({ "tag": "null" }),
        Observation::Command(it) => (
            "command",
            json!({
                "commandId": it.command_id,
                "command": it.command,
                "exitCode": it.exit_code,
                "content": it.content,
            }),
        ),
        Observation::Cell((code, output)) => ("cell", json!({ "code": code, "output": output })),
        Observation::Browsed(it) => (
            "browsed",
            json!({
                "url": it.url,
                "status": it.status,
                "content": it.content,
                "isError": it.is_error,
            }),
        ),
        Observation::File((path, content)) => ("file", json!({ "path": path, "content": content })),
        Observation::Written(path) => ("written", path.into()),
        Observation::Recalled(memories) => ("recalled", memories.into()),
        Observation::Delegated((task, outputs)) => {
            ("delegated", json!({ "task": task, "outputs": parsed(&outputs) }))
        }
        Observation::Tool(it) => {
            ("tool", json!({ "name": it.name, "content": it.content, "isError": it.is_error }))
        }
        Observation::Success(text) => ("success", text.into()),
        Observation::Error(text) => ("error", text.into()),
        Observation::Custom(it) => (
            "custom",
            json!({ "name": it.name, "content": it.content, "extras": parsed(&it.extras) }),
        ),
    };
    json!({ "tag": tag, "val": val })
}

/// The row that a form is read as: `again` of an era, or the row itself.
fn expected_again(row: &Value, at: usize, itself: &str) -> Value {
    row.get("again").map_or_else(|| row[itself].clone(), |forms| forms[at].clone())
}

#[test]
fn each_turn_has_its_form_in_both_eras_and_is_read_again() {
    for row in rows("turns") {
        let turn = turn_of(&row["turn"]);
        for (at, era) in ERAS.into_iter().enumerate() {
            let form = turn.to_json(era);
            assert_eq!(form, row[era.name()], "{}", row["turn"]);
            let reread = match Turn::from_value(&form) {
                Ok(turn) => row_of(&turn),
                refused => problem(refused).into(),
            };
            assert_eq!(reread, expected_again(&row, at, "turn"), "{form}");
        }
    }
}

#[test]
fn each_text_of_a_model_is_read_or_refused_in_its_words() {
    for row in rows("texts") {
        let turn = Turn::from_json(&text(&row["text"]));
        assert_eq!(row_of(&turn.expect("an action")), row["turn"], "{}", row["text"]);
    }
    for row in rows("refused") {
        let refused = problem(Turn::from_json(&text(&row["text"])));
        assert_eq!(refused, text(&row["error"]), "{}", row["text"]);
    }
    for row in rows("no JSON") {
        let refused = problem(Turn::from_json(&text(&row["text"])));
        assert!(refused.starts_with("what was written is no JSON: "), "{refused}");
    }
}

#[test]
fn each_observation_has_its_form_in_both_eras_and_is_read_again() {
    for row in rows("observations") {
        let observation = observation_of(&row["observation"]);
        for (at, era) in ERAS.into_iter().enumerate() {
            let form = observation.to_json(era);
            assert_eq!(form, row[era.name()], "{}", row["observation"]);
            let reread = match Observation::from_json(&form) {
                Ok(observation) => row_of_observation(observation),
                refused => problem(refused).into(),
            };
            assert_eq!(reread, expected_again(&row, at, "observation"), "{form}");
        }
    }
    for row in rows("observed") {
        let observation = Observation::from_json(&row["form"]).expect("an observation");
        assert_eq!(row_of_observation(observation), row["observation"], "{}", row["form"]);
    }
    for row in rows("refused observations") {
        let refused = problem(Observation::from_json(&row["form"]));
        assert_eq!(refused, text(&row["error"]), "{}", row["form"]);
    }
}

#[test]
fn each_message_is_its_events() {
    for row in rows("messages") {
        let fields = &row["message"];
        let result = |result: &Value| ToolResult {
            call_id: "call-1".to_owned(),
            name: text(&result["name"]),
            content: text(&result["content"]),
            is_error: result["isError"] == true,
        };
        let message = Message {
            seq: fields["seq"].as_u64().expect("a position"),
            sender: match text(&fields["sender"]).as_str() {
                "llm" => Role::Llm,
                "agent" => Role::Agent,
                "user" => Role::User,
                _ => Role::System,
            },
            sender_name: String::new(),
            recipient: None,
            content: text(&fields["content"]),
            tool_calls: calls(fields),
            tool_results: fields["toolResults"]
                .as_array()
                .into_iter()
                .flatten()
                .map(result)
                .collect(),
            attachments: Vec::new(),
            labels: Vec::new(),
            extra: Vec::new(),
        };
        let events = events_of_message(message);
        for era in ERAS {
            let forms: Vec<Value> = events.iter().map(|event| event.to_json(era)).collect();
            assert_eq!(Value::Array(forms), row[era.name()], "{fields}");
        }
    }
}

#[test]
fn the_table_has_each_kind() {
    let kinds = |name: &str, family: &str| -> Vec<String> {
        let forms = rows(name);
        let kinds = forms.iter().flat_map(|row| match &row["2025-11"] {
            Value::Array(forms) => forms.clone(),
            form => vec![form.clone()],
        });
        kinds.filter_map(|form| Some(form.get(family)?.as_str()?.to_owned())).collect()
    };
    let (turns, observations) = (kinds("turns", "action"), kinds("observations", "observation"));
    for kind in Logged::KINDS {
        assert!(turns.iter().any(|known| known == kind), "the table has no action {kind}");
    }
    for kind in LoggedObservation::KINDS {
        assert!(observations.iter().any(|known| known == kind), "the table has no {kind}");
    }
}

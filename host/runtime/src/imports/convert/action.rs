//! Conversions of turns and actions.

use conclave_core::types::action::{Action, PlanState, Reply, Turn};
use conclave_core::types::delegation::{
    Delegation, Deliver, OnClose, ResultForm, STRUCTURED_RETRIES,
};
use conclave_core::types::fault::Fault;
use conclave_core::types::ids::{PluginName, TaskName};

use super::message::{blob_in, blob_out, tool_call_in, tool_call_out};
use super::{extras_in, json_in, object_in};
use crate::imports::bindings::plugin::actions;

/// Converts the result of `step`.
///
/// # Errors
/// `BadAnswer` if it contains invalid JSON, or another value where the contract requires an object.
pub(crate) fn turn_in(turn: actions::Turn) -> Result<Turn, Fault> {
    Ok(Turn {
        action: action_in(turn.action)?,
        thought: turn.thought,
        wait_for_response: turn.wait_for_response,
        extra: extras_in(turn.extra, "extra")?,
    })
}

fn action_in(action: actions::Action) -> Result<Action, Fault> {
    use actions::Action as Guest;
    Ok(match action {
        Guest::Null => Action::Null,
        Guest::Reply(reply) => Action::Reply(reply_in(reply)?),
        Guest::Run(run) => Action::Run { command: run.command, background: run.background },
        Guest::Kill(command_id) => Action::Kill { command_id },
        Guest::RunCell(cell) => {
            Action::RunIpython { code: cell.code, kernel_init_code: cell.kernel_init_code }
        }
        Guest::Browse(url) => Action::Browse { url },
        Guest::Read(read) => Action::Read { path: read.path, start: read.start, end: read.end },
        Guest::Write(write) => Action::Write {
            path: write.path,
            content: write.content,
            start: write.start,
            end: write.end,
        },
        Guest::Recall(query) => Action::Recall { query },
        Guest::AddTask(task) => {
            let subtasks = json_in(&task.subtasks, || "`subtasks` of `add-task`".to_owned())?;
            Action::AddTask { parent: task.parent, goal: task.goal, subtasks }
        }
        Guest::ModifyTask(task) => {
            Action::ModifyTask { task_id: task.task_id, state: state_in(task.state) }
        }
        Guest::Delegate(delegate) => {
            let inputs = object_in(&delegate.inputs, || "`inputs` of `delegate`".to_owned())?;
            Action::Delegate { agent: delegate.task, inputs }
        }
        Guest::DelegateTask(background) => Action::DelegateTask(background_in(background)?),
        Guest::Think(thought) => Action::Think { thought },
        Guest::Talk(content) => Action::Talk { content },
        Guest::Finish(outputs) => {
            Action::Finish { outputs: json_in(&outputs, || "what `finish` carries".to_owned())? }
        }
        Guest::Reject(outputs) => {
            Action::Reject { outputs: json_in(&outputs, || "what `reject` carries".to_owned())? }
        }
        Guest::Custom(custom) => {
            let arguments = object_in(&custom.arguments, || {
                format!("`arguments` of the action {:?}", custom.name)
            })?;
            Action::Custom { name: custom.name, arguments }
        }
    })
}

fn reply_in(reply: actions::Reply) -> Result<Reply, Fault> {
    Ok(Reply {
        completion: reply.completion,
        content: reply.content,
        tool_calls: reply.tool_calls.into_iter().map(tool_call_in).collect::<Result<_, _>>()?,
        recipient: reply.recipient,
        attachments: reply.attachments.into_iter().map(blob_in).collect(),
    })
}

fn background_in(background: actions::BackgroundTask) -> Result<Box<Delegation>, Fault> {
    let context = object_in(&background.context, || "`context` of `delegate-task`".to_owned())?;
    let schema = background.structured.as_ref().and_then(|structured| structured.schema.as_ref());
    let result_schema = schema
        .map(|schema| object_in(schema, || "`structured.schema` of `delegate-task`".to_owned()))
        .transpose()?;
    Ok(Box::new(Delegation {
        worker: background.worker,
        description: background.description,
        context,
        share_channels: background.share_channels,
        brief: background.brief,
        conversation: background.conversation_messages,
        wait: background.wait,
        structured_retries: background.structured.map(|structured| structured.retries),
        result_schema,
        notify: background.notify.map(TaskName::from),
        deliver: match background.deliver {
            actions::DeliveryChoice::AsConfigured => Deliver::AsConfigured,
            actions::DeliveryChoice::Inbox => Deliver::Never,
            actions::DeliveryChoice::Strategy(name) => Deliver::By(PluginName::from(name)),
        },
        result_delivery: background.result_form.map(|form| match form {
            actions::ResultForm::AgentTurn => ResultForm::AgentTurn,
            actions::ResultForm::Text => ResultForm::Text,
        }),
        deadline_ms: background.deadline_ms,
        turns: background.turns,
        on_close: background.on_close.map(|fate| match fate {
            actions::OnClose::Cascade => OnClose::Cascade,
            actions::OnClose::Detach => OnClose::Detach,
            actions::OnClose::FinishSilently => OnClose::FinishSilently,
        }),
        key: background.key,
    }))
}

fn background_out(delegation: Delegation) -> actions::BackgroundTask {
    let schema = delegation.result_schema.map(|schema| schema.to_string());
    let is_structured = delegation.structured_retries.is_some() || schema.is_some();
    let retries = delegation.structured_retries.unwrap_or(STRUCTURED_RETRIES);
    actions::BackgroundTask {
        worker: delegation.worker,
        description: delegation.description,
        context: delegation.context.to_string(),
        share_channels: delegation.share_channels,
        brief: delegation.brief,
        conversation_messages: delegation.conversation,
        wait: delegation.wait,
        structured: is_structured.then_some(actions::StructuredResult { schema, retries }),
        deliver: match delegation.deliver {
            Deliver::AsConfigured => actions::DeliveryChoice::AsConfigured,
            Deliver::Never => actions::DeliveryChoice::Inbox,
            Deliver::By(name) => actions::DeliveryChoice::Strategy(name.to_string()),
        },
        result_form: delegation.result_delivery.map(|form| match form {
            ResultForm::AgentTurn => actions::ResultForm::AgentTurn,
            ResultForm::Text => actions::ResultForm::Text,
        }),
        notify: delegation.notify.map(|task| task.to_string()),
        deadline_ms: delegation.deadline_ms,
        turns: delegation.turns,
        on_close: delegation.on_close.map(|fate| match fate {
            OnClose::Cascade => actions::OnClose::Cascade,
            OnClose::Detach => actions::OnClose::Detach,
            OnClose::FinishSilently => actions::OnClose::FinishSilently,
        }),
        key: delegation.key,
    }
}

fn state_in(state: actions::PlanState) -> PlanState {
    match state {
        actions::PlanState::Open => PlanState::Open,
        actions::PlanState::InProgress => PlanState::InProgress,
        actions::PlanState::Completed => PlanState::Completed,
        actions::PlanState::Verified => PlanState::Verified,
        actions::PlanState::Abandoned => PlanState::Abandoned,
    }
}

fn state_out(state: PlanState) -> actions::PlanState {
    match state {
        PlanState::Open => actions::PlanState::Open,
        PlanState::InProgress => actions::PlanState::InProgress,
        PlanState::Completed => actions::PlanState::Completed,
        PlanState::Verified => actions::PlanState::Verified,
        PlanState::Abandoned => actions::PlanState::Abandoned,
    }
}

/// Converts an action for a guest.
pub(crate) fn action_out(action: &Action) -> actions::Action {
    use actions::Action as Guest;
    match action.clone() {
        Action::Null => Guest::Null,
        Action::Reply(reply) => Guest::Reply(reply_out(&reply)),
        Action::Run { command, background } => {
            Guest::Run(actions::RunCommand { command, background })
        }
        Action::Kill { command_id } => Guest::Kill(command_id),
        Action::RunIpython { code, kernel_init_code } => {
            Guest::RunCell(actions::RunCell { code, kernel_init_code })
        }
        Action::Browse { url } => Guest::Browse(url),
        Action::Read { path, start, end } => Guest::Read(actions::ReadFile { path, start, end }),
        Action::Write { path, content, start, end } => {
            Guest::Write(actions::WriteFile { path, content, start, end })
        }
        Action::Recall { query } => Guest::Recall(query),
        Action::AddTask { parent, goal, subtasks } => {
            Guest::AddTask(actions::AddTask { parent, goal, subtasks: subtasks.to_string() })
        }
        Action::ModifyTask { task_id, state } => {
            Guest::ModifyTask(actions::ModifyTask { task_id, state: state_out(state) })
        }
        Action::Delegate { agent, inputs } => {
            Guest::Delegate(actions::Delegate { task: agent, inputs: inputs.to_string() })
        }
        Action::DelegateTask(delegation) => Guest::DelegateTask(background_out(*delegation)),
        Action::Think { thought } => Guest::Think(thought),
        Action::Talk { content } => Guest::Talk(content),
        Action::Finish { outputs } => Guest::Finish(outputs.to_string()),
        Action::Reject { outputs } => Guest::Reject(outputs.to_string()),
        Action::Custom { name, arguments } => {
            Guest::Custom(actions::CustomAction { name, arguments: arguments.to_string() })
        }
    }
}

fn reply_out(reply: &Reply) -> actions::Reply {
    actions::Reply {
        completion: reply.completion.clone(),
        content: reply.content.clone(),
        tool_calls: reply.tool_calls.iter().map(tool_call_out).collect(),
        recipient: reply.recipient.clone(),
        attachments: reply.attachments.iter().map(blob_out).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Both directions are written by hand, and must agree.
    #[test]
    fn every_action_comes_back_as_it_went_out() {
        let s = str::to_owned;
        let actions = [
            Action::Null,
            Action::Reply(Reply {
                completion: Some(s("m-1")),
                content: Some(s("hi")),
                tool_calls: vec![conclave_core::types::message::ToolCall {
                    id: s("1"),
                    ..conclave_core::types::message::ToolCall::new("a.b", json!({ "x": 1 }))
                }],
                recipient: Some(s("user")),
                attachments: Vec::new(),
            }),
            Action::Run { command: s("ls"), background: true },
            Action::Kill { command_id: -1 },
            Action::RunIpython { code: s("1"), kernel_init_code: s("2") },
            Action::Browse { url: s("http://a") },
            Action::Read { path: s("/a"), start: 0, end: -1 },
            Action::Write { path: s("/a"), content: s("b"), start: 1, end: 2 },
            Action::Recall { query: s("q") },
            Action::AddTask { parent: s(""), goal: s("g"), subtasks: json!([]) },
            Action::ModifyTask { task_id: s("0"), state: PlanState::Verified },
            Action::Delegate { agent: s("a"), inputs: json!({}) },
            Action::DelegateTask(Box::new(Delegation {
                worker: s("a"),
                description: s("t"),
                context: json!({ "k": [] }),
                share_channels: vec![s("c")],
                brief: Some(s("b")),
                conversation: 3,
                wait: true,
                structured_retries: Some(2),
                result_schema: Some(json!({ "type": "object" })),
                notify: Some("n".into()),
                deliver: Deliver::By("s".into()),
                result_delivery: Some(ResultForm::Text),
                deadline_ms: Some(5),
                turns: Some(3),
                on_close: Some(OnClose::Detach),
                key: Some(s("k")),
            })),
            Action::Think { thought: s("t") },
            Action::Talk { content: s("t") },
            Action::Finish { outputs: json!("done") },
            Action::Reject { outputs: json!({ "reason": 1 }) },
            Action::Custom { name: s("n"), arguments: json!({}) },
        ];
        for action in actions {
            assert_eq!(action_in(action_out(&action)).unwrap(), action);
        }
    }

    #[test]
    fn a_finish_without_json_is_a_bad_answer() {
        let fault = action_in(actions::Action::Finish("done".to_owned())).unwrap_err();
        assert!(
            fault.message.starts_with("what `finish` carries is not JSON"),
            "{}",
            fault.message
        );
    }
}

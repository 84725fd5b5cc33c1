//! Conversions of an agent's view of its task.

use conclave_core::types::action::{Observation, PastAction};
use conclave_core::types::tool::ToolSummary;
use conclave_core::types::usage::Spent;
use conclave_core::types::view::Remaining;

use super::action::action_out;
use crate::imports::bindings::plugin::{actions, state};

pub(crate) fn past_out(action: &PastAction) -> state::PastAction {
    state::PastAction {
        action: action.action.as_ref().map(action_out),
        observation: action.observation.as_ref().map(observation_out),
        seq: action.seq,
    }
}

fn observation_out(observation: &Observation) -> actions::Observation {
    match observation {
        Observation::Null => actions::Observation::Null,
        Observation::Command { command_id, command, exit_code, content } => {
            actions::Observation::Command(actions::CommandOutput {
                command_id: *command_id,
                command: command.clone(),
                exit_code: *exit_code,
                content: content.clone(),
            })
        }
        Observation::Cell { code, content } => {
            actions::Observation::Cell((code.clone(), content.clone()))
        }
        Observation::Browsed { url, status, content, error } => {
            actions::Observation::Browsed(actions::Page {
                url: url.clone(),
                status: *status,
                content: content.clone(),
                is_error: *error,
            })
        }
        Observation::File { path, content } => {
            actions::Observation::File((path.clone(), content.clone()))
        }
        Observation::Written { path } => actions::Observation::Written(path.clone()),
        Observation::Recalled { memories } => actions::Observation::Recalled(memories.clone()),
        Observation::Tool(result) => actions::Observation::Tool(actions::ToolOutput {
            call_id: result.call_id.clone(),
            name: result.name.clone(),
            content: result.content.clone(),
            value: result.value.as_ref().map(ToString::to_string),
            is_error: result.is_error,
        }),
        Observation::Delegated { agent, outputs } => {
            actions::Observation::Delegated((agent.clone(), outputs.to_string()))
        }
        Observation::Success { content } => actions::Observation::Success(content.clone()),
        Observation::Error { content } => actions::Observation::Error(content.clone()),
        Observation::Custom { name, content, extras } => {
            let (name, content) = (name.clone(), content.clone());
            actions::Observation::Custom(actions::CustomObservation {
                name,
                content,
                extras: extras.to_string(),
            })
        }
    }
}

pub(crate) fn summary_out(tool: &ToolSummary) -> state::ToolSummary {
    state::ToolSummary {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.to_string(),
    }
}

pub(crate) fn remaining_out(remaining: Remaining) -> state::RemainingBudgets {
    state::RemainingBudgets {
        turns: remaining.turns,
        tokens: remaining.tokens,
        cost_micro_usd: remaining.cost_micro_usd,
        wall_ms: remaining.wall_ms,
        model_calls: remaining.model_calls,
        tool_calls: remaining.tool_calls,
    }
}

pub(crate) fn metrics_out(spent: Spent) -> state::RunMetrics {
    state::RunMetrics {
        turns: spent.turns,
        tokens: spent.tokens,
        cost_micro_usd: spent.cost_micro_usd,
        model_calls: spent.model_calls,
        tool_calls: spent.tool_calls,
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::message::ToolResult;
    use serde_json::json;

    use super::*;

    /// The parts of an observation must arrive complete and in their fields.
    #[test]
    fn every_observation_goes_out_as_what_it_is() {
        let s = str::to_owned;
        let result = ToolResult {
            call_id: s("1"),
            name: s("a.b"),
            content: s("c"),
            value: Some(json!({ "v": 1 })),
            is_error: true,
        };
        let observations = [
            (Observation::Null, "Null"),
            (
                Observation::Command {
                    command_id: -1,
                    command: s("ls"),
                    exit_code: 2,
                    content: s("none"),
                },
                r#"Command(CommandOutput { command-id: -1, command: "ls", exit-code: 2, content: "none" })"#,
            ),
            (Observation::Cell { code: s("1"), content: s("2") }, r#"Cell(("1", "2"))"#),
            (
                Observation::Browsed { url: s("u"), status: 404, content: s("gone"), error: true },
                r#"Browsed(Page { url: "u", status: 404, content: "gone", is-error: true })"#,
            ),
            (Observation::File { path: s("p"), content: s("c") }, r#"File(("p", "c"))"#),
            (Observation::Written { path: s("p") }, r#"Written("p")"#),
            (Observation::Recalled { memories: vec![s("a"), s("b")] }, r#"Recalled(["a", "b"])"#),
            (
                Observation::Tool(result),
                r#"Tool(ToolOutput { call-id: "1", name: "a.b", content: "c", value: Some("{\"v\":1}"), is-error: true })"#,
            ),
            (
                Observation::Delegated { agent: s("a"), outputs: json!({ "k": 1 }) },
                r#"Delegated(("a", "{\"k\":1}"))"#,
            ),
            (Observation::Success { content: s("ok") }, r#"Success("ok")"#),
            (Observation::Error { content: s("no") }, r#"Error("no")"#),
            (
                Observation::Custom { name: s("n"), content: s("c"), extras: json!({}) },
                r#"Custom(CustomObservation { name: "n", content: "c", extras: "{}" })"#,
            ),
        ];
        for (observation, expected) in observations {
            let guest = format!("{:?}", observation_out(&observation));
            assert_eq!(guest.trim_start_matches("Observation::"), expected);
        }
    }
}

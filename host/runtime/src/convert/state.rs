//! What an agent sees of its task.

use conclave_core::action::{Observation, Past};
use conclave_core::tool::ToolSummary;
use conclave_core::view::Remaining;

use super::action::action_out;
use crate::bindings::conclave::plugin::{actions, state};

pub(crate) fn past_out(past: &Past) -> state::Past {
    state::Past { action: past.action.as_ref().map(action_out), observation: past.observation.as_ref().map(observation_out), seq: past.seq }
}

fn observation_out(observation: &Observation) -> actions::Observation {
    match observation {
        Observation::Null => actions::Observation::Null,
        Observation::Tool(result) => actions::Observation::Tool(actions::ToolOutput {
            call_id: result.call_id.clone(),
            name: result.name.clone(),
            content: result.content.clone(),
            value: result.value.as_ref().map(ToString::to_string),
            is_error: result.is_error,
        }),
        Observation::Delegated { agent, outputs } => actions::Observation::Delegated((agent.clone(), outputs.to_string())),
        Observation::Success { content } => actions::Observation::Success(content.clone()),
        Observation::Error { content } => actions::Observation::Error(content.clone()),
    }
}

pub(crate) fn summary_out(tool: &ToolSummary) -> state::ToolSummary {
    state::ToolSummary { name: tool.name.clone(), description: tool.description.clone(), input_schema: tool.input_schema.to_string() }
}

pub(crate) fn remaining_out(remaining: Remaining) -> state::Remaining {
    state::Remaining {
        turns: remaining.turns,
        tokens: remaining.tokens,
        cost_micro_usd: remaining.cost_micro_usd,
        wall_ms: remaining.wall_ms,
    }
}

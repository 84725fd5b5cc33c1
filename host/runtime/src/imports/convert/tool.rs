//! Conversions of tool descriptions and tool outcomes.

use conclave_core::types::fault::Fault;
use conclave_core::types::tool::{ToolError, ToolOutcome, ToolSpec};

use super::message::{blob_in, tool_call_in};
use super::{denial_in, json_in, object_in, text_in};
use crate::imports::bindings::exports::conclave::plugin::tools;

/// Converts the description of a tool.
///
/// # Errors
/// `BadAnswer` if a schema is not JSON.
pub(crate) fn spec_in(spec: tools::ToolSpec) -> Result<ToolSpec, Fault> {
    let input_schema = object_in(&spec.input_schema, || "its input schema".to_owned())?;
    let output_schema = spec
        .output_schema
        .map(|schema| json_in(&schema, || "its output schema".to_owned()))
        .transpose()?;
    let mut tool = ToolSpec {
        name: spec.name,
        description: spec.description,
        input_schema,
        output_schema,
        idempotent: spec.idempotent,
        ..ToolSpec::default()
    };
    for extra in &spec.extra {
        // Keys of a later contract version are ignored, as the contract requires.
        let value = json_in(&extra.value, || format!("the extra {:?} of a tool", extra.key))?;
        match extra.key.as_str() {
            "title" => tool.title = value.as_str().map(str::to_owned),
            "result-tokens" => tool.result_tokens = value.as_u64(),
            "retained-tokens" => tool.retained_tokens = value.as_u64(),
            "examples" => tool.examples = serde_json::from_value(value).unwrap_or_default(),
            _ => {}
        }
    }
    Ok(tool)
}

/// Converts the outcome of a tool.
///
/// # Errors
/// `BadAnswer` if it contains invalid JSON.
pub(crate) fn outcome_in(outcome: tools::Outcome) -> Result<ToolOutcome, Fault> {
    Ok(ToolOutcome {
        content: outcome.content,
        value: outcome
            .value
            .map(|value| json_in(&value, || "the `value` that it returned".to_owned()))
            .transpose()?,
        attachments: outcome.attachments.into_iter().map(blob_in).collect(),
        follow_up_calls: outcome
            .follow_up_calls
            .into_iter()
            .map(tool_call_in)
            .collect::<Result<_, _>>()?,
    })
}

/// Converts the error of a tool. The caller decides whether a denial is one of the host.
pub(crate) fn tool_error_in(error: tools::ToolError) -> ToolError {
    match error {
        tools::ToolError::InvalidArguments(message) => {
            ToolError::InvalidArguments { message: text_in(&message) }
        }
        tools::ToolError::Denied(denial) => ToolError::Denied { denial: denial_in(&denial) },
        tools::ToolError::Unavailable(retry_after_ms) => ToolError::Unavailable { retry_after_ms },
        tools::ToolError::Other(message) => ToolError::Other { message: text_in(&message) },
    }
}

//! Conversions of model requests, completions and errors.

use conclave_core::types::completion::{
    Completion, DraftMessage, ModelError, ModelRequest, PromptPart, StopReason, TokenUsage,
    ToolChoice, ToolFormat,
};
use conclave_core::types::fault::Fault;

use super::message::{result_in, role_in, tool_call_in, tool_call_out};
use super::{denial_out, extras_in, json_in};
use crate::imports::bindings::plugin::{model, types};

/// Converts a guest's request.
///
/// # Errors
/// `BadAnswer` if it contains invalid JSON.
pub(crate) fn request_in(request: model::Request) -> Result<ModelRequest, Fault> {
    Ok(ModelRequest {
        model: request.model,
        prompt: request.prompt.into_iter().map(part_in).collect::<Result<_, _>>()?,
        tools: request.tools,
        tool_format: request.tool_format.map(format_in),
        tool_choice: choice_in(request.tool_choice),
        output_schema: request
            .output_schema
            .map(|schema| json_in(&schema, || "`output-schema`".to_owned()))
            .transpose()?,
        stream: request.stream,
        options: extras_in(request.options, "options")?,
    })
}

fn part_in(part: model::Part) -> Result<PromptPart, Fault> {
    Ok(match part {
        model::Part::System => PromptPart::System,
        model::Part::History(range) => PromptPart::History { start: range.start, end: range.end },
        model::Part::Draft(draft) => PromptPart::Draft { draft: draft_in(draft)? },
    })
}

fn draft_in(draft: types::Draft) -> Result<DraftMessage, Fault> {
    Ok(DraftMessage {
        role: role_in(draft.role),
        content: draft.content,
        tool_calls: draft.tool_calls.into_iter().map(tool_call_in).collect::<Result<_, _>>()?,
        tool_results: draft.tool_results.into_iter().map(result_in).collect(),
    })
}

fn format_in(format: model::ToolFormat) -> ToolFormat {
    match format {
        model::ToolFormat::Native => ToolFormat::Native,
        model::ToolFormat::Json => ToolFormat::Json,
        model::ToolFormat::Xml => ToolFormat::Xml,
        model::ToolFormat::Off => ToolFormat::Off,
    }
}

fn choice_in(choice: model::ToolChoice) -> ToolChoice {
    match choice {
        model::ToolChoice::Auto => ToolChoice::Auto,
        model::ToolChoice::None => ToolChoice::None,
        model::ToolChoice::Required => ToolChoice::Required,
        model::ToolChoice::Named(name) => ToolChoice::Named { name },
    }
}

pub(crate) fn completion_out(completion: &Completion) -> model::Completion {
    model::Completion {
        id: completion.id.clone(),
        content: completion.content.clone(),
        reasoning: completion.reasoning.clone(),
        tool_calls: completion.tool_calls.iter().map(tool_call_out).collect(),
        stop_reason: stop_out(completion.stop),
        usage: usage_out(completion.usage),
        model: completion.model.clone(),
    }
}

fn stop_out(stop: StopReason) -> model::StopReason {
    match stop {
        StopReason::End => model::StopReason::End,
        StopReason::Length => model::StopReason::Length,
        StopReason::ToolCalls => model::StopReason::ToolCalls,
        StopReason::ContentFilter => model::StopReason::ContentFilter,
        StopReason::Other => model::StopReason::Other,
    }
}

fn usage_out(usage: TokenUsage) -> types::Usage {
    types::Usage {
        input_tokens: usage.input_tokens,
        cached_input_tokens: usage.cached_input_tokens,
        output_tokens: usage.output_tokens,
        cost_micro_usd: usage.cost_micro_usd,
    }
}

pub(crate) fn model_error_out(error: &ModelError) -> model::ModelError {
    match error {
        ModelError::Denied { denial } => model::ModelError::Denied(denial_out(denial)),
        ModelError::BudgetExhausted { what } => model::ModelError::BudgetExhausted(what.clone()),
        ModelError::UnknownModel { name } => model::ModelError::UnknownModel(name.clone()),
        ModelError::ContextTooLong { tokens } => model::ModelError::ContextTooLong(*tokens),
        ModelError::Unavailable { retry_after_ms } => {
            model::ModelError::Unavailable(*retry_after_ms)
        }
        ModelError::Other { message } => model::ModelError::Other(message.clone()),
    }
}

//! The `toolbox` import: calls of other tools on behalf of the calling agent. The room decides about
//! each call; here they are parsed, numbered, sent and awaited.

use std::sync::Arc;
use std::time::Instant;

use conclave_core::types::tool::{CallableTool, NestedAnswer, NestedCall, NestedError};

use crate::imports::bindings::plugin::toolbox;
use crate::imports::convert::{denial_out, object_in};

import_view! {
    /// The `toolbox` import of a call.
    ToolboxImport
}

impl toolbox::Host for ToolboxImport<'_> {
    fn list_tools(&mut self) -> wasmtime::Result<Vec<toolbox::Tool>> {
        let callable = self.core.tool_input()?.callable.clone();
        Ok(callable.iter().flat_map(|tools| tools.iter()).map(tool_out).collect())
    }

    async fn call_all(
        &mut self,
        calls: Vec<toolbox::Request>,
    ) -> wasmtime::Result<Vec<Result<toolbox::Answer, toolbox::CallError>>> {
        self.core.tool_input()?;
        self.core.meter.check_lists(&calls)?;
        let mut parsed = Vec::with_capacity(calls.len());
        for toolbox::Request { name, arguments } in &calls {
            match object_in(arguments, || format!("the arguments of {name}")) {
                Ok(arguments) => {
                    parsed.push(NestedCall { name: name.clone(), arguments: Arc::new(arguments) });
                }
                // No call of the list runs: invalid JSON is a defect of the plugin, and half of its
                // effects would be harder to find than none.
                Err(fault) => {
                    let failed = |_| Err(toolbox::CallError::Failed(fault.message.clone()));
                    return Ok(calls.iter().map(failed).collect());
                }
            }
        }
        let began = Instant::now();
        let answers = self.core.replay.call_tools(parsed, self.core.due()).await?;
        self.core.note_wait_since(began);
        for answer in &answers {
            if let Err(NestedError::Denied { denial }) = answer {
                self.core.refusals.note_nested(denial);
            }
        }
        Ok(answers.into_iter().map(answer_out).collect())
    }
}

fn tool_out(tool: &CallableTool) -> toolbox::Tool {
    toolbox::Tool {
        name: tool.summary.name.clone(),
        description: tool.summary.description.clone(),
        input_schema: tool.summary.input_schema.to_string(),
        output_schema: tool.output_schema.as_ref().map(ToString::to_string),
    }
}

fn answer_out(answer: NestedAnswer) -> Result<toolbox::Answer, toolbox::CallError> {
    match answer {
        Ok(result) => Ok(toolbox::Answer {
            content: result.content,
            value: result.value.as_ref().map(ToString::to_string),
        }),
        Err(NestedError::Denied { denial }) => Err(toolbox::CallError::Denied(denial_out(&denial))),
        Err(NestedError::Failed { message }) => Err(toolbox::CallError::Failed(message)),
    }
}

//! Tools with fixed answers.

use super::{denied, fake};
use crate::bindings::tool::conclave::plugin::toolbox::{Answer, CallError, Request, Tool};

pub(crate) fn list_tools() -> Vec<Tool> {
    let tool = |name: &String| Tool {
        name: name.clone(),
        description: String::new(),
        input_schema: r#"{"type":"object"}"#.to_owned(),
        output_schema: None,
    };
    fake(|fake| fake.tools.keys().map(tool).collect())
}

pub(crate) fn call_all(calls: &[Request]) -> Vec<Result<Answer, CallError>> {
    let answer = |call: &Request| {
        fake(|fake| {
            let Some(content) = fake.tools.get(&call.name).cloned() else {
                return Err(CallError::Denied(denied("tools", &call.name)));
            };
            let arguments = serde_json::from_str(&call.arguments).unwrap_or_default();
            fake.calls.push((call.name.clone(), arguments));
            Ok(Answer { content: Some(content), value: None })
        })
    };
    calls.iter().map(answer).collect()
}

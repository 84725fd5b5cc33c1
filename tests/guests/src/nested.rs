//! Calls other tools while it runs: at once, one after the other, far too often, and such as it may
//! not call.

use conclave_sdk::bindings::tool::conclave::plugin::toolbox as import;
use conclave_sdk::toolbox::{self, Request};
use conclave_sdk::{Json, Result, tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize, JsonSchema)]
struct Call {
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

fn request(call: &Call) -> Request {
    Request::new(&call.tool, Value::Object(call.arguments.clone()))
}

fn told(answer: Result<toolbox::Answer>) -> String {
    match answer {
        Ok(answer) => answer.text().to_owned(),
        Err(error) => format!("ERROR {error}"),
    }
}

/// Makes the calls at the same time, and returns what came of each.
#[tool(idempotent)]
fn at_once(calls: Vec<Call>) -> Json<Vec<String>> {
    Json(toolbox::call_all(calls.iter().map(request)).into_iter().map(told).collect())
}

/// Makes the calls one after the other, and returns what came of each.
#[tool(idempotent)]
fn in_turn(calls: Vec<Call>) -> Json<Vec<String>> {
    Json(calls.iter().map(|call| told(toolbox::call(&call.tool, &call.arguments))).collect())
}

/// Makes the same call again and again, and returns the number of answers and the first error.
#[tool]
fn flood(call: Call, times: u32) -> Json<(u32, String)> {
    let mut answers = 0;
    for _ in 0..times {
        match toolbox::call(&call.tool, &call.arguments) {
            Ok(_) => answers += 1,
            Err(error) => return Json((answers, error.to_string())),
        }
    }
    Json((answers, String::new()))
}

/// Makes a call this many times in one request, without the library's batches, and returns the
/// number of answers and the last error.
#[tool]
fn crowd(call: Call, times: u32) -> Json<(u32, String)> {
    let arguments = Value::Object(call.arguments.clone()).to_string();
    let request = import::Request { name: call.tool.clone(), arguments };
    let (mut answers, mut last) = (0, String::new());
    for answer in import::call_all(&vec![request; times as usize]) {
        match answer {
            Ok(_) => answers += 1,
            Err(error) => last = format!("{error:?}"),
        }
    }
    Json((answers, last))
}

/// Makes a call and passes its error on.
#[tool]
fn pass_on(call: Call) -> Result<String> {
    Ok(toolbox::call(&call.tool, &call.arguments)?.text().to_owned())
}

/// The tools that it may call, with the names of their arguments.
#[tool]
fn list() -> Json<Vec<(String, Vec<String>)>> {
    let arguments = |schema: &str| -> Vec<String> {
        let schema: Value = serde_json::from_str(schema).unwrap_or_default();
        schema["properties"]
            .as_object()
            .map(|known| known.keys().cloned().collect())
            .unwrap_or_default()
    };
    let tools = toolbox::tools();
    Json(tools.iter().map(|tool| (tool.name.clone(), arguments(&tool.input_schema))).collect())
}

conclave_sdk::export!(tools: [at_once, in_turn, flood, crowd, pass_on, list], asks: [tools?]);

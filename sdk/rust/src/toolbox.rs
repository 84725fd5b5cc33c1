//! Calls of other tools, for the agent that called this one. They need the `tools` grant, and the agent
//! must be able to call them too; the host checks, approves, counts and journals each as a call of
//! that agent.
//!
//! ```no_run
//! use conclave_sdk::toolbox::{self, Request};
//! use serde_json::json;
//!
//! let found = toolbox::call("search.find", &json!({ "query": "tides" }))?;
//! let pages = ["a", "b"].map(|page| Request::new("notes.read", json!({ "page": page })));
//! for page in toolbox::call_all(pages) {
//!     println!("{}", page?.text());
//! }
//! # let _ = found;
//! # Ok::<(), conclave_sdk::Error>(())
//! ```

use serde::Serialize;
use serde_json::Value;

use crate::bindings::tool::conclave::plugin::toolbox as import;
#[cfg(not(target_family = "wasm"))]
use crate::native::toolbox as host;
use crate::{Error, Result};
#[cfg(target_family = "wasm")]
use import as host;

pub use import::Tool;

/// Calls that the host runs at the same time for one call of a tool.
const AT_ONCE: usize = 64;

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The name in the agent's task, such as `search.find`.
    pub name: String,
    /// A JSON object.
    pub arguments: Value,
}

impl Request {
    /// Returns a call with these arguments.
    pub fn new(name: impl Into<String>, arguments: Value) -> Self {
        Self { name: name.into(), arguments }
    }
}

/// The result of a tool, uncut.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The text; `None` if the tool returned none.
    pub content: Option<String>,
    /// The structured result; `None` if the tool returned none.
    pub value: Option<Value>,
}

impl Answer {
    /// The text, or an empty one.
    pub fn text(&self) -> &str {
        self.content.as_deref().unwrap_or_default()
    }
}

/// The tools that this call may use, in the order of the agent's task; none without the grant.
pub fn tools() -> Vec<Tool> {
    host::list_tools()
}

/// Calls a tool and waits for its answer.
pub fn call(name: &str, arguments: &impl Serialize) -> Result<Answer> {
    let mut answers = call_all([Request::new(name, serde_json::to_value(arguments)?)]);
    answers.pop().unwrap_or_else(|| Err(Error::other("the host answered nothing")))
}

/// Calls tools at the same time, and returns their answers in the order of the requests. More than 64
/// are sent in batches of 64.
pub fn call_all(requests: impl IntoIterator<Item = Request>) -> Vec<Result<Answer>> {
    let requests: Vec<import::Request> = requests
        .into_iter()
        .map(|Request { name, arguments }| import::Request {
            name,
            arguments: arguments.to_string(),
        })
        .collect();
    requests.chunks(AT_ONCE).flat_map(host::call_all).map(read).collect()
}

fn read(answer: Result<import::Answer, import::CallError>) -> Result<Answer> {
    let import::Answer { content, value } = answer.map_err(|error| match error {
        import::CallError::Denied(denial) => Error::Denied(denial),
        import::CallError::Failed(text) => Error::Other(text),
    })?;
    Ok(Answer { content, value: value.map(|text| serde_json::from_str(&text)).transpose()? })
}

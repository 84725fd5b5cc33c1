//! Write Conclave plugins in Rust. A tool is a function, an agent or a delivery strategy is one
//! impl, and one line exports them; a plugin needs no other dependency than this crate and, for its
//! own types, `serde` and `serde_json`.
//!
//! # A tool
//!
//! ```
//! //! Word counts.
//! use conclave_sdk::{Result, tool};
//!
//! /// How many words a text has. Use it when the user asks about length.
//! #[tool(idempotent)]
//! fn words(
//!     /// The text to count in.
//!     text: String,
//!     /// Words shorter than this do not count; 1 when absent.
//!     shortest: Option<usize>,
//! ) -> Result<usize> {
//!     let shortest = shortest.unwrap_or(1);
//!     Ok(text.split_whitespace().filter(|word| word.chars().count() >= shortest).count())
//! }
//!
//! # const REAL: &str = stringify!(
//! conclave_sdk::export!(tools: [words]);
//! # );
//! # conclave_sdk::export!(tools: [words], asks: []);
//! // It stays an ordinary function, so an ordinary test calls it.
//! assert_eq!(words("a fresh sandbox per call".into(), Some(2)).unwrap(), 4);
//! ```
//!
//! The model reads the doc comments: the function's, and each parameter's. An `Option` may be left
//! out.
//!
//! # An agent
//!
//! ```
//! use conclave_sdk::{Agent, Result, Turn, View, call, finish};
//! use serde_json::json;
//!
//! struct Librarian;
//!
//! impl Agent for Librarian {
//!     fn step(view: &View) -> Result<Turn> {
//!         if let Some(found) = view.tool_outputs().first() {
//!             return Ok(finish(found.content.as_str()));
//!         }
//!         let question = view.pending().map(|message| message.content);
//!         Ok(call("search.find", json!({ "query": question })).because("the folder may know"))
//!     }
//! }
//! # conclave_sdk::export!(agent: Librarian, asks: [tools]);
//! # assert!(true);
//! ```
//!
//! An agent that acts answers with the verbs of [`act`]: `act::run("ls")`, `act::delegate("study",
//! inputs)`. One whose model writes actions as JSON parses them with [`Turn::from_json`], or calls
//! [`model::act`]; [`View::observations`] has their results.
//!
//! Work that may take long goes to a background task: `delegate("writer").task("…").start()`, see
//! [`background`].
//!
//! An agent that knows some answers without its model implements [`Responder`] too:
//! `export!(agent: X, responder: X)`.
//!
//! # The other kinds
//!
//! [`memory`] answers agents' recalls, and [`analyzer`] assesses the risk of an action.
//! [`condenser`] shortens a history, [`delivery`] times background results, and [`gate`] checks
//! texts that enter a room, go to its workers or leave it. A [`judge`] overrules which answers count
//! in a task, which end it, and its result, and a [`simulated_user`] answers in the place of the
//! user. An [`observer`] receives the events of a run, and a [`channel`] carries messages to people
//! elsewhere. Each is one trait; `export!(memory: X, tools: [keep])` joins several in one component.
//!
//! # What a plugin asks for
//!
//! `conclave-plugin.toml` beside `Cargo.toml` describes the plugin and lists its capabilities.
//! `export!` checks it and embeds it into the component. It is an upper bound: the operator decides
//! which capabilities are granted, and every import returns [`Error::Denied`] for a refusal.
//!
//! # Build and test
//!
//! `cargo build --target wasm32-wasip2 --release`, with `crate-type = ["cdylib"]`. Tests run
//! natively, without a host. There [`log`] writes to stderr, [`progress`] does nothing, and
//! everything that needs a grant is denied; a [`testing::FakeHost`] grants what a test names, with
//! files, keys, answers and replies in memory. A [`testing::TaskSnapshot`] is the task that an agent
//! reads. `conclave plugin test` plays the cases of the component.

#![warn(missing_docs)]

// The generated code and the macros name this crate by its full path.
extern crate self as conclave_sdk;

pub mod act;
mod agent;
pub mod analyzer;
pub mod background;
#[doc(hidden)]
pub mod bindings;
pub mod blobs;
pub mod channel;
pub mod condenser;
pub mod config;
pub mod delivery;
mod error;
pub mod exec;
#[doc(hidden)]
pub mod export;
pub mod fetch;
pub mod files;
pub mod gate;
pub mod history;
pub mod judge;
pub mod kv;
pub mod log;
pub mod memory;
pub mod model;
#[cfg(not(target_family = "wasm"))]
mod native;
pub mod observer;
mod outcome;
pub mod progress;
pub mod scratch;
pub mod secrets;
pub mod simulated_user;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
mod tool;
pub mod toolbox;
mod turn;
mod wire;

pub use agent::{Agent, Responder, View};
pub use background::delegate;
pub use bindings::agent::conclave::plugin::actions;
pub use bindings::agent::conclave::plugin::actions::{Observation, PlanState, ToolOutput};
pub use bindings::agent::conclave::plugin::state::{
    PastAction, Peer, RemainingBudgets, RunMetrics, ToolSummary,
};
pub use bindings::imports::conclave::plugin::types::{
    Blob, Denial, Draft, Extra, Message, Role, ToolCall, ToolResult, Usage,
};
pub use bindings::tool::exports::conclave::plugin::tools::{Outcome, ToolSpec};
pub use conclave_sdk_macros::{export, tool};
/// Actions, observations and logs in their fixed JSON, as the host reads and writes them.
pub use conclave_trajectory as trajectory;
pub use error::{Error, Result};
pub use history::History;
pub use outcome::{IntoOutcome, Json, JsonResult};
pub use tool::{Call, Toolset};
pub use turn::{Turn, call, finish, reject, say};
pub use wire::value_in;

/// The items that the macros' output uses, so that a plugin depends on one crate.
#[doc(hidden)]
pub mod __private {
    pub use crate::bindings::tool::exports::conclave::plugin::tools::ToolSpec;
    pub use crate::tool::{Arguments, Tool, input_schema};
    pub use schemars;
    pub use wit_bindgen;
}

/// Returns the value at a JSON pointer, such as `/properties/timeseries/0`, as a `T`. Fails if it
/// is absent or does not have that shape.
///
/// ```
/// let report = serde_json::json!({ "air": { "temperature": 4.5 } });
/// let celsius: f64 = conclave_sdk::pick(&report, "/air/temperature")?;
/// assert_eq!(celsius, 4.5);
/// # Ok::<(), conclave_sdk::Error>(())
/// ```
pub fn pick<T: serde::de::DeserializeOwned>(value: &serde_json::Value, pointer: &str) -> Result<T> {
    let found = value
        .pointer(pointer)
        .ok_or_else(|| Error::Other(format!("there is nothing at {pointer}")))?;
    serde_json::from_value(found.clone())
        .map_err(|error| Error::Other(format!("{pointer}: {error}")))
}

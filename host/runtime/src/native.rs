//! Native plugins of the embedding program: plugins of any kind but delivery strategies that are
//! Rust closures. A config names one as `source = "native:NAME"`.
//!
//! To the core they are plugins like any other: they have a manifest with requests, grants, schemas
//! for arguments, limits and a journal. But their code runs **in this process and in no sandbox**:
//! it can do what the program can do, and no grant restricts it. The limits `wall`, `output`, `log`
//! and `at_once` apply; memory and computing are not counted. A panic is a fault of the call,
//! unless the program is built with `panic = "abort"`.
//!
//! ```
//! use conclave_runtime::native::{Call, Failure, Plugin, Tool};
//! use serde_json::json;
//!
//! let schema = json!({
//!     "type": "object",
//!     "required": ["name"],
//!     "properties": { "name": { "type": "string", "description": "Family name." } },
//! });
//! let lookup = Tool::new("lookup", "The telephone number of a person.", schema, |call: Call| async move {
//!     match call.arguments["name"].as_str() {
//!         Some("Stevenson") => Ok("1844".to_owned()),
//!         _ => Err(Failure::new("nobody of that name is in the book")),
//!     }
//! });
//! let plugin = Plugin::tools("book", [lookup]);
//! # assert_eq!(plugin.name(), "book");
//! ```

mod access;
mod advisor;
mod agent;
mod failure;
mod model;
mod plugin;
mod routes;
mod running;
mod tool;

pub use access::CallAccess;
pub use advisor::{
    AnswerAsUser, Assess, Check, Conclude, Condense, Deliver, Observe, Recall, Receive, Rule,
};
pub use agent::{IntoTurn, Step, call, finish, say};
pub use failure::{Failure, ModelCallFailure};
pub use model::{answer, model};
pub use plugin::Plugin;
pub use tool::{Call, IntoOutcome, Tool};

pub(crate) use routes::Routes;
pub(crate) use running::Native;

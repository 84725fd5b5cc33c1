//! Scripts that replace models, users and tool handlers in conformance scenarios: replies,
//! conditions, effects and their templates. The guests `script_agent` and `script_tools` run them
//! inside the sandbox, the runner of `tests/conformance` runs those of users. Pure; knows nothing
//! of the contract or the host.

mod condition;
mod effect;
mod reply;
mod settings;
mod template;
mod text;

pub use condition::Condition;
pub use effect::{Answer, Effect, Named};
pub use reply::{Call, Reply, Script};
pub use settings::{AgentSettings, ToolSettings, ToolsSettings};
pub use template::Scope;
pub use text::{json_text, text_of};

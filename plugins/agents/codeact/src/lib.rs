//! CodeAct: works by code that its model writes, one command of a shell or one cell of Python at a
//! time, and reads the observation before the next one. The loop is the host's; a step is one
//! answer of the model.
//!
//! The task's `tool_format` sets the form of the actions. By default the model calls the executors'
//! tools natively. If it is offered none (`"off"`), or its server has no tools, it writes the tags
//! of OpenHands, such as `<execute_bash>ls</execute_bash>`.
//!
//! ```toml
//! [plugins.codeact]
//! source = "stock:codeact"
//! grants.model = ["default"]
//! grants.tools = ["terminal.*", "python.*"]
//!
//! [tasks.mend]
//! agent = "codeact"
//! tools = ["terminal.*", "python.*", "done"]
//! action_plugins = ["terminal", "python"]
//! ```

mod observation;
mod prompt;
mod tags;

use conclave_sdk::model::{self, StopReason};
use conclave_sdk::{Agent, Result, Turn, View, config};
use serde::Deserialize;

/// The `config` table of this plugin.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Settings {
    browsing: Option<String>,
}

struct CodeAct;

impl Agent for CodeAct {
    fn step(view: &View) -> Result<Turn> {
        let Settings { browsing } = config::get()?;
        let completion = model::complete(&prompt::request(view, browsing.is_some()))?;
        if !completion.tool_calls.is_empty() {
            return Ok(completion.into());
        }
        let is_cut = completion.stop_reason == StopReason::Length;
        let text = completion.content.as_deref().unwrap_or_default();
        match tags::action(text, browsing.as_deref(), is_cut)? {
            Some(turn) => Ok(turn),
            // The task's `on_no_tool_call` says whether its user answers, or the agent continues.
            None => Ok(completion.into()),
        }
    }
}

conclave_sdk::export!(agent: CodeAct);

//! Terminal: a shell compatible with bash over the granted folders, without any process of the
//! machine. As an executor it handles the actions `run` and `kill` (O-012, O-013, O-094…O-096), and
//! follows background commands with `poll`. The shell itself is the library `bashkit`.

mod background;
mod chains;
mod commands;
mod folder;
mod output;
mod script;
mod shell;
mod state;
#[cfg(test)]
mod tests;
mod tools;

use conclave_sdk::{Call, Error, Outcome, Result, ToolSpec, Toolset};
use serde_json::Value;

struct Terminal;

impl Toolset for Terminal {
    fn list() -> Result<Vec<ToolSpec>> {
        Ok(tools::specs())
    }

    fn call(name: &str, arguments: Value, _: &Call) -> Result<Outcome> {
        match name {
            "run" => tools::run(tools::arguments(arguments)?),
            "poll" => tools::poll(tools::arguments(arguments)?),
            "kill" => tools::kill(tools::arguments(arguments)?),
            _ => Err(Error::other(format!("this plugin has no tool named {name}"))),
        }
    }
}

conclave_sdk::export!(toolset: Terminal);

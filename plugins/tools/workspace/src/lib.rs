//! Workspace: reads, writes and edits the text files of the granted folders. As an executor it
//! handles the actions `read`, `write` and `edit` (O-135…O-137). The trajectory crate implements
//! lines and edits, so that a stored log means the same here.

mod disk;
mod path;
mod tools;
mod work;

use conclave_sdk::{Call, Error, Outcome, Result, ToolSpec, Toolset, config};
use serde::Deserialize;
use serde_json::Value;

use disk::Granted;
use work::Workspace;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Settings {
    /// Empty: the first.
    root: String,
}

struct Files;

impl Toolset for Files {
    fn list() -> Result<Vec<ToolSpec>> {
        Ok(tools::specs())
    }

    fn call(name: &str, arguments: Value, _: &Call) -> Result<Outcome> {
        let Settings { root } = config::get()?;
        let mut workspace = Workspace::open(Granted, &root)?;
        match name {
            "read" => workspace.read(tools::arguments(arguments)?).map(Outcome::text),
            "write" => workspace.write(tools::arguments(arguments)?).map(Outcome::text),
            "edit" => workspace.edit(tools::arguments(arguments)?),
            _ => Err(Error::other(format!("this plugin has no tool named {name}"))),
        }
    }
}

conclave_sdk::export!(toolset: Files);

//! Edits of a config's text: the changes, the unchanged rest, and the refusals.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "config_edit/forms.rs"]
mod forms;
#[path = "config_edit/fragments.rs"]
mod fragments;
#[path = "config_edit/properties.rs"]
mod properties;

use conclave_core::config::edit::{ConfigEditError, ConfigText, EditedConfig, Fragment};

/// A config with comments at every place where users write them.
pub const DESK: &str = r#"#:schema ./conclave.schema.json
# A desk.
entry = "desk"                          # the task that gets the message

# -- plugins
[plugins.desk] # the one at the front
source = "stock:pipeline"               # inside the program
grants.route = ["answer"]               # whom it may pass messages to

[plugins.librarian]
source = "stock:chat"
# what it may call
grants.tools = [
  "search.find",                        # finds
  # reads too
  "search.read",
]                                       # no more than that
# grants.model = ["default"]

[plugins.search]
source = "stock:search"
grants.files = [{ dir = "docs", at = "/docs", mode = "read" }]
limits = { memory = "64 MiB", cpu = "5 s" } # small

# -- tasks: who works
[tasks.desk]
agent = "desk"
subtasks = ["answer"]

[tasks.answer]
agent = "librarian"
# the end
"#;

pub fn open(text: &str) -> ConfigText {
    ConfigText::open("conclave.toml", "", text).unwrap()
}

pub fn granted(text: &str, plugin: &str, fragment: &str) -> Result<EditedConfig, ConfigEditError> {
    let mut edit = open(text);
    edit.grant(plugin, &Fragment::parse(fragment).unwrap())?;
    edit.finish()
}

pub fn revoked(text: &str, plugin: &str, fragment: &str) -> Result<EditedConfig, ConfigEditError> {
    let mut edit = open(text);
    edit.revoke(plugin, &Fragment::parse_revoked(fragment).unwrap())?;
    edit.finish()
}

/// The changes, one per line.
pub fn render_changes(edited: &EditedConfig) -> String {
    edited.changes.iter().map(|change| format!("{change}\n")).collect()
}

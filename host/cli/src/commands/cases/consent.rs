//! What the cases of a plugin reach outside of sandboxes and of the plugin's folder, also through the
//! network: the cases come with the plugin, so the user is asked first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use conclave_core::config::edit::Fragment;
use conclave_core::config::{Config, KeyRef, McpReach, ModelKind, PluginSource};
use conclave_core::permissions::grants::FileMode;

use super::Case;
use crate::commands::add::fragments;
use crate::commands::call::granted;
use crate::program::error::CliError;
use crate::state::folders::canonicalize;
use crate::state::setup::{self, Models};
use crate::ui::ask;
use crate::ui::show::{ODD, one_line, paint, show_path};
use crate::ui::stderr;

/// Columns of a command.
const COMMAND: usize = 120;

/// The configs of the cases by their files, as they were read for the question.
pub(super) type CaseConfigs = BTreeMap<PathBuf, Config>;

/// Asks the user about files outside of the plugin's folder, programs and addresses. Returns the
/// configs that the answer covers: the cases run with these, whatever the files hold later.
///
/// # Errors
/// If the cases reach any and neither `yes` nor the user allows it, or a config cannot be read.
pub(super) fn require(
    cases: &[&Case],
    folder: &Path,
    beside: &Path,
    yes: bool,
) -> Result<CaseConfigs, CliError> {
    let mut reached = BTreeSet::new();
    let mut configs = CaseConfigs::new();
    for case in cases {
        if case.run.is_none() {
            let fragments: Vec<Fragment> = fragments(&case.grants)?;
            reach(&granted(&fragments, beside)?, folder, &mut reached);
        } else {
            let file = case.config_beside(beside);
            let config = setup::read_config(&file, &Models::new())?;
            reach(&config, folder, &mut reached);
            configs.insert(file, config);
        }
    }
    if yes || reached.is_empty() {
        return Ok(configs);
    }
    let list: Vec<String> = reached.iter().map(|what| format!("  {what}")).collect();
    let list = list.join("\n");
    if ask::is_user_there() {
        stderr::line(format_args!(
            "{}\n{list}",
            paint(ODD, "The cases reach more than the plugin's folder:")
        ));
        if ask::confirm("Play them?") {
            return Ok(configs);
        }
    }
    let what = format!("the cases reach more than the plugin's folder\n{list}");
    Err(CliError::policy(what).hint("read them, and play them with --yes"))
}

/// Adds what a config reaches outside of sandboxes and of the folder.
fn reach(config: &Config, folder: &Path, reached: &mut BTreeSet<String>) {
    // Canonical, as the paths below: a link inside of the folder may lead out of it.
    let own = canonicalize(folder);
    let mut keys: Vec<(String, &KeyRef)> = Vec::new();
    keys.extend(
        config.secrets.iter().map(|(name, secret)| (format!("the secret {name}"), &secret.from)),
    );
    for (name, model) in &config.models {
        if let ModelKind::Server(server) = &model.kind {
            let url = one_line(&server.url, COMMAND);
            reached.insert(format!("the model {name} is the server {url}"));
            keys.extend(
                server.key.as_ref().map(|key| (format!("the key of the model {name}"), key)),
            );
        }
    }
    for (name, plugin) in &config.plugins {
        let of = || format!("a key of the tool server {name}");
        if let PluginSource::Mcp(server) = &plugin.source {
            match &server.reach {
                McpReach::Program { command, keys: of_server, confined, .. } => {
                    keys.extend(of_server.values().map(|key| (of(), key)));
                    let command = one_line(&command.join(" "), COMMAND);
                    let how = if confined.is_none() { ", UNCONFINED" } else { "" };
                    reached.insert(format!("the tool server {name} is the program {command}{how}"));
                }
                McpReach::Address { url, key } => {
                    let url = one_line(url, COMMAND);
                    reached.insert(format!("the tool server {name} is at {url}"));
                    keys.extend(key.as_ref().map(|key| (of(), key)));
                }
            }
        }
        for rule in plugin.grants.fetch.iter().flat_map(|grant| &grant.rules) {
            let url = one_line(rule.url.as_str(), COMMAND);
            reached.insert(format!("{name} sends requests to {url}"));
        }
        for command in plugin.grants.exec.iter().flat_map(|grant| &grant.commands) {
            let command = one_line(command.as_str(), COMMAND);
            reached.insert(format!("{name} runs {command} outside the sandbox"));
        }
        for grant in &plugin.grants.files {
            let dir = canonicalize(Path::new(&grant.dir));
            if !dir.starts_with(&own) {
                let verb = match grant.mode {
                    FileMode::Read => "reads",
                    FileMode::ReadWrite => "reads and writes",
                    FileMode::Overlay => "reads and writes an overlay of",
                };
                reached.insert(format!("{name} {verb} {}", show_path(&dir)));
            }
        }
    }
    for (of, key) in keys {
        match key {
            KeyRef::Command(command) => {
                let command = one_line(&command.join(" "), COMMAND);
                reached.insert(format!("{of} starts {command}"));
            }
            KeyRef::Env(variable) => {
                let variable = one_line(variable, COMMAND);
                reached.insert(format!("{of} is the environment variable {variable}"));
            }
            KeyRef::File(file) if !canonicalize(Path::new(&file.path)).starts_with(&own) => {
                reached.insert(format!("{of} is in {}", show_path(&file.path)));
            }
            KeyRef::File(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_the_sandbox_or_the_folder_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("plugin");
        std::fs::create_dir_all(folder.join("data")).unwrap();
        let text = r#"
            entry = "t"
            [tasks.t]
            agent = "p"
            [secrets.token]
            from = { command = ["sh", "-c", "id"] }
            hosts = ["example.org"]
            [secrets.home]
            from = { env = "HOME" }
            hosts = ["example.org"]
            [plugins.p]
            source = "./p.wasm"
            grants.fetch = { urls = ["http://127.0.0.1/*"], private = ["127.0.0.1"] }
            grants.exec = ["/bin/sh -c *"]
            grants.files = [
                { dir = "data", at = "/data", mode = "read-write" },
                { dir = "..", at = "/all", mode = "read" },
            ]
            [plugins.server]
            source = { mcp = { command = ["python3", "server.py"] } }
            [plugins.far]
            source = { mcp = { url = "https://tools.example.org/mcp" } }
            [models.m]
            kind = "openai"
            model = "small"
            url = "http://127.0.0.1:8000/v1"
        "#;
        let config = Config::parse("c.toml", &folder.to_string_lossy(), text).unwrap();
        let mut reached = BTreeSet::new();
        reach(&config, &folder, &mut reached);
        let reached: Vec<String> = reached.into_iter().collect();
        let parent = canonicalize(temp.path());
        assert_eq!(
            reached,
            [
                format!("p reads {}", parent.display()),
                "p runs /bin/sh -c * outside the sandbox".to_owned(),
                "p sends requests to http://127.0.0.1/*".to_owned(),
                "the model m is the server http://127.0.0.1:8000/v1".to_owned(),
                "the secret home is the environment variable HOME".to_owned(),
                "the secret token starts sh -c id".to_owned(),
                "the tool server far is at https://tools.example.org/mcp".to_owned(),
                "the tool server server is the program python3 server.py".to_owned(),
            ]
        );
    }
}

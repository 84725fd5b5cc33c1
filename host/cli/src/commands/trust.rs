//! `conclave trust add|list|remove`: the keys in `[trust.keys]` of a config, under the operator's
//! names for them.

use std::path::Path;

use conclave_core::config::{Config, PublicKey, check_name};
use serde_json::json;

use crate::args::{OutputArgs, TrustAdd, TrustCommand, TrustList, TrustRemove};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::file_option;
use crate::state::config_file::{ConfigFile, tell};
use crate::ui::show::{NAME, paint, printable, show_path};
use crate::ui::{stderr, stdout};

/// The table of the config with the keys.
const KEYS: [&str; 2] = ["trust", "keys"];

pub(crate) fn trust(command: &TrustCommand, output: OutputArgs) -> Result<u8, CliError> {
    match command {
        TrustCommand::Add(args) => add(args, output),
        TrustCommand::List(args) => list(args, output),
        TrustCommand::Remove(args) => remove(args, output),
    }
}

/// Prints the command that trusts a key, if its publisher states it.
pub(crate) fn propose(key: &PublicKey, file: &Path) {
    let command = format!("conclave trust add NAME {key}{}", file_option(file));
    let what = format!("if its publisher states this key: {command}");
    stderr::note(printable(&what));
}

fn add(args: &TrustAdd, output: OutputArgs) -> Result<u8, CliError> {
    let key: PublicKey = args.key.parse().map_err(|error| {
        CliError::usage(format!("{} is no public key: {error}", args.key)).hint(
            "`conclave plugin inspect SOURCE` shows the keys that signed a component; compare the key with the one that its publisher states",
        )
    })?;
    check_name(&args.name).map_err(|error| {
        CliError::usage(format!("{} cannot be the name of a key: it {error}", args.name))
    })?;
    let file = ConfigFile::open(&args.file)?;
    let mut text = file.edit()?;
    // A config with errors can be edited too; its keys are then not compared.
    if let Some(config) = parsed(&args.file, text.text()) {
        let known = config.trust.keys.get(&args.name).filter(|known| **known != key);
        if let Some(known) = known {
            let what = format!("{} is the name of another key: {known}", args.name);
            return Err(CliError::usage(what).hint(format!(
                "choose another name, or remove that key first: conclave trust remove {}{}",
                args.name,
                file_option(&args.file)
            )));
        }
        if config.trust.revoked_keys.contains(&key) {
            let what = format!("{key} is revoked in {}", show_path(&args.file));
            return Err(CliError::usage(what)
                .hint("if it was revoked by mistake, remove it from `revoked` in [trust]"));
        }
    }
    let [table, keys] = KEYS;
    text.set(&[table, keys, args.name.as_str()], &format!("{:?}", key.to_string()))?;
    let edited = text.finish()?;
    file.write(&edited)?;
    tell(&file, &edited, json!({ "name": args.name, "key": key.to_string() }), output)?;
    Ok(exit::OK)
}

fn list(args: &TrustList, output: OutputArgs) -> Result<u8, CliError> {
    let file = ConfigFile::open(&args.file)?;
    let text = file.edit()?;
    let folder = file.folder().to_string_lossy().into_owned();
    let config =
        Config::parse(&show_path(&args.file), &folder, text.text()).map_err(|problems| {
            let what = format!("the config is invalid\n\n{}", problems.to_string().trim_end());
            CliError::usage(what).with_problems(&problems)
        })?;
    let trust = &config.trust;
    if output.json {
        let keys = trust.keys.iter().map(|(name, key)| (name.clone(), json!(key.to_string())));
        let revoked: Vec<String> = trust.revoked_keys.iter().map(ToString::to_string).collect();
        let keys: serde_json::Map<_, _> = keys.collect();
        stdout::json(json!({ "type": "trust", "keys": keys, "revoked": revoked }))?;
        return Ok(exit::OK);
    }
    for (name, key) in &trust.keys {
        let note = if trust.revoked_keys.contains(key) { " REVOKED" } else { "" };
        stdout::unbroken(format_args!("{} {key}{note}", paint(NAME, printable(name))))?;
    }
    if trust.keys.is_empty() && !output.quiet {
        let what = format!("{} trusts no key", show_path(&args.file));
        stderr::note(what);
    }
    Ok(exit::OK)
}

fn remove(args: &TrustRemove, output: OutputArgs) -> Result<u8, CliError> {
    let file = ConfigFile::open(&args.file)?;
    let mut text = file.edit()?;
    if let Some(config) = parsed(&args.file, text.text())
        && !config.trust.keys.contains_key(&args.name)
    {
        let what = format!("{} has no key {}", show_path(&args.file), args.name);
        let known = config.trust.keys.keys().map(String::as_str);
        return Err(CliError::usage(what).known(&args.name, "the keys are", known));
    }
    let [table, keys] = KEYS;
    text.remove(&[table, keys, args.name.as_str()])?;
    let edited = text.finish()?;
    file.write(&edited)?;
    tell(&file, &edited, json!({ "name": args.name }), output)?;
    Ok(exit::OK)
}

/// The config, if it is valid. Its problems are those of other commands.
fn parsed(path: &Path, text: &str) -> Option<Config> {
    let folder = path.parent().map(|folder| folder.to_string_lossy().into_owned());
    Config::parse(&show_path(path), &folder.unwrap_or_default(), text).ok()
}

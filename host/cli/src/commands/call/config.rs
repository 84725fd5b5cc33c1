//! The config of a single call: one plugin with the grants of the command line. A config needs a
//! task, so it has one that does nothing.

use std::sync::Arc;

use conclave_core::config::edit::{ConfigEditError, ConfigText, Fragment, proposed_name};
use conclave_core::config::{Config, ConfigProblem, check_name, config_value};
use conclave_core::types::wording::quoted;
use conclave_runtime::kv::KvStore;
use conclave_runtime::{Host, HostOptions, native};
use serde_json::Value;

use crate::args::CallArgs;
use crate::program::error::CliError;
use crate::program::json_object::object_of_option;
use crate::state::setup;
use crate::state::source::{ComponentPlace, LocatedComponent};

/// The name of the placeholder agent that the config needs. [`name`] returns it for no plugin.
const YOU: &str = "you";
const START: &str =
    "entry = \"you\"\n[plugins.you]\nsource = \"native:you\"\n[tasks.you]\nagent = \"you\"\n";
/// The name of the plugin in [`granted`].
const TRIED: &str = "plugin";
/// The place that problems of the grants name.
const SHOWN: &str = "command line";

/// Returns a host with the native placeholder agent, which is never called. `kv` replaces the
/// user's own keys.
pub(crate) fn host(kv: Option<Arc<dyn KvStore>>) -> Result<Host, CliError> {
    host_with(|options| {
        if let Some(kv) = kv {
            options.kv = kv;
        }
    })
}

/// Returns such a host with other options.
pub(crate) fn host_with(change: impl FnOnce(&mut HostOptions)) -> Result<Host, CliError> {
    let mut options = HostOptions { native: vec![placeholder()], ..setup::host_options() };
    change(&mut options);
    setup::open_host_with(options)
}

/// The agent that the config needs. It is never called.
pub(crate) fn placeholder() -> native::Plugin {
    native::Plugin::agent(YOU, |_| async { Ok(native::finish("")) })
}

/// What stands beside the plugin's source and grants.
#[derive(Clone, Copy, Default)]
pub(crate) struct PluginLines<'a> {
    pub(crate) limits: &'a [(String, String)],
    /// The plugin's settings, a JSON object.
    pub(crate) settings: Option<&'a str>,
}

impl<'a> From<&'a CallArgs> for PluginLines<'a> {
    fn from(args: &'a CallArgs) -> Self {
        Self { limits: &args.limits, settings: args.config.as_deref() }
    }
}

/// The plugin's name for the call: its own name if a config accepts it.
pub(crate) fn name(found: &LocatedComponent) -> String {
    proposed_name(&found.name())
        .filter(|name| name != YOU && check_name(name).is_ok())
        .unwrap_or_else(|| "plugin".to_owned())
}

/// Builds the config and parses it as usual, so that grants and limits are checked as in a file.
pub(crate) fn config(
    place: &ComponentPlace,
    name: &str,
    grants: &[Fragment],
    lines: PluginLines<'_>,
    folder: &std::path::Path,
) -> Result<Config, CliError> {
    let mut text = ConfigText::open(SHOWN, &folder.to_string_lossy(), START).map_err(refused)?;
    let source = match place {
        ComponentPlace::File(file) => {
            // Relative to the current folder, while the config is parsed for `folder`.
            std::path::absolute(file).unwrap_or_else(|_| file.clone()).display().to_string()
        }
        // No lock pins a tag here.
        ComponentPlace::Registry { artifact, .. } => artifact.to_string(),
        other => other.in_config(std::path::Path::new(".")),
    };
    text.add_plugin(name, &source, &[]).map_err(refused)?;
    grants.iter().try_for_each(|fragment| text.grant(name, fragment)).map_err(refused)?;
    for (key, value) in lines.limits {
        text.set(&["plugins", name, "limits", key], &config_value(value)).map_err(refused)?;
    }
    if let Some(settings) = lines.settings {
        let settings = object_of_option("--config", settings)?;
        let value = toml_of(&settings).ok_or_else(|| {
            CliError::usage("--config contains `null`, which a config cannot hold")
        })?;
        text.set(&["plugins", name, "config"], &value).map_err(refused)?;
    }
    let edited = text.finish().map_err(refused)?;
    edited
        .config
        .ok_or_else(|| CliError::internal("the grants, settings or limits of the call are invalid"))
}

/// Returns a config with these grants alone, for what they reach. Relative folders are in `folder`.
///
/// # Errors
/// If a grant is wrong.
pub(crate) fn granted(grants: &[Fragment], folder: &std::path::Path) -> Result<Config, CliError> {
    of_source(TRIED, "./plugin.wasm", grants, folder)
}

/// Returns a config with one plugin of this name and source, and these grants.
///
/// # Errors
/// If the source or a grant is wrong.
pub(crate) fn of_source(
    name: &str,
    source: &str,
    grants: &[Fragment],
    folder: &std::path::Path,
) -> Result<Config, CliError> {
    let mut text = ConfigText::open(SHOWN, &folder.to_string_lossy(), START).map_err(refused)?;
    text.add_plugin(name, source, &[]).map_err(refused)?;
    grants.iter().try_for_each(|fragment| text.grant(name, fragment)).map_err(refused)?;
    let edited = text.finish().map_err(refused)?;
    edited.config.ok_or_else(|| CliError::internal("the grants are invalid"))
}

/// The error without line numbers, since the user never sees the generated text.
fn refused(error: ConfigEditError) -> CliError {
    let (ConfigEditError::Wrong(problems) | ConfigEditError::Unreadable(problems)) = &error else {
        return CliError::usage(error.to_string());
    };
    let line = |problem: &ConfigProblem| match &problem.remedy {
        Some(remedy) => format!("{}\nhelp: {remedy}", problem.what),
        None => problem.what.clone(),
    };
    CliError::usage(problems.0.iter().map(line).collect::<Vec<_>>().join("\n"))
        .with_problems(problems)
}

/// Returns JSON as TOML on one line, or `None` for `null`.
fn toml_of(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(toml_of).collect::<Option<Vec<_>>>()?.join(", "))
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| Some(format!("{} = {}", quoted(key), toml_of(value)?)));
            format!("{{ {} }}", fields.collect::<Option<Vec<_>>>()?.join(", "))
        }
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_written_as_toml() {
        let settings = json!({ "a": 1, "b b": [true, "x\"y"], "c": { "d": 0.5 } });
        assert_eq!(
            toml_of(&settings).as_deref(),
            Some(r#"{ "a" = 1, "b b" = [true, "x\"y"], "c" = { "d" = 0.5 } }"#)
        );
        assert_eq!(toml_of(&json!([null])), None);
    }
}

//! A plugin's own settings against the declarations in its manifest: `{ type, default, required }`
//! for each. An undeclared setting is refused, because it is probably misspelt.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::authors_problem;
use crate::config::{Config, ProblemCode, Problems};
use crate::permissions::manifest::ANY_SETTING;
use crate::setup::PluginFacts;
use crate::types::ids::PluginName;
use crate::types::wording::{code, suggest};

/// The types that a manifest may name; those of JSON.
const TYPES: [&str; 6] = ["string", "integer", "number", "boolean", "array", "object"];

/// Checks the settings and returns them with the defaults filled in.
pub(super) fn check(
    config: &Config,
    plugin: &PluginName,
    facts: &PluginFacts,
    written: &Value,
    problems: &mut Problems,
) -> Value {
    let declared = &facts.manifest.config;
    let empty = Map::new();
    let written = written.as_object().unwrap_or(&empty);
    let mut settings = undeclared(config, plugin, (declared, written), problems);
    for (name, declaration) in declared.iter().filter(|(name, _)| *name != ANY_SETTING) {
        let kind = declaration.get("type").and_then(Value::as_str).unwrap_or_default();
        if !TYPES.contains(&kind) {
            let what = format!(
                "the manifest of `{plugin}` gives the setting {} no type of {}",
                code(name),
                TYPES.join(", ")
            );
            problems.push(authors_problem(config, plugin, what));
            continue;
        }
        if let Some(default) =
            declaration.get("default").filter(|default| !is_of_type(default, kind))
        {
            let what = format!(
                "the manifest of `{plugin}` gives the setting {} a default that is no {kind}: {}",
                code(name),
                setting_text(default)
            );
            problems.push(authors_problem(config, plugin, what));
            continue;
        }
        match written.get(name).or_else(|| declaration.get("default")) {
            Some(value) if is_of_type(value, kind) => {
                drop(settings.insert(name.clone(), value.clone()))
            }
            Some(value) => {
                let what = format!(
                    "the setting {} must be {} {kind}, not {}",
                    code(name),
                    article(kind),
                    setting_text(value)
                );
                let help = declaration
                    .get("default")
                    .map(|default| format!("its default is {}", setting_text(default)));
                problems.push(
                    config
                        .problem(ProblemCode::InvalidSetting, &path(plugin, name), what)
                        .maybe_help(help),
                );
            }
            None if declaration.get("required") == Some(&Value::Bool(true)) => {
                let what = format!(
                    "`{plugin}` needs the setting {}, {} {kind}",
                    code(name),
                    article(kind)
                );
                let help = format!(
                    "add {} to the `config` of [plugins.{plugin}]",
                    code(&format!("{name} = …"))
                );
                problems.push(
                    config
                        .problem(
                            ProblemCode::InvalidSetting,
                            &format!("plugins.{plugin}.config"),
                            what,
                        )
                        .help(help),
                );
            }
            None => {}
        }
    }
    Value::Object(settings)
}

/// Returns the settings that the manifest does not declare, if it accepts any name, and reports the
/// others.
fn undeclared(
    config: &Config,
    plugin: &PluginName,
    (declared, written): (&BTreeMap<String, Value>, &Map<String, Value>),
    problems: &mut Problems,
) -> Map<String, Value> {
    let any = declared.contains_key(ANY_SETTING);
    let names: Vec<&str> = declared.keys().map(String::as_str).collect();
    let mut settings = Map::new();
    for (name, value) in written.iter().filter(|(name, _)| !declared.contains_key(*name)) {
        let (what, help) = match value {
            Value::Array(_) | Value::Object(_) if any => (
                format!(
                    "the setting {} is read as a text, and it is {}",
                    code(name),
                    setting_text(value)
                ),
                "write a text, a number, or a boolean".to_owned(),
            ),
            value if any => {
                settings.insert(name.clone(), value.clone());
                continue;
            }
            _ => (
                format!("`{plugin}` has no setting {}", code(name)),
                suggest(name, &names, "its settings are")
                    .unwrap_or_else(|| "it has none at all: leave `config` out".to_owned()),
            ),
        };
        let problem = config.problem(ProblemCode::InvalidSetting, &path(plugin, name), what);
        problems.push(problem.help(help));
    }
    settings
}

fn is_of_type(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

fn path(plugin: &PluginName, setting: &str) -> String {
    format!("plugins.{plugin}.config.{setting}")
}

fn setting_text(value: &Value) -> String {
    code(&value.to_string())
}

fn article(kind: &str) -> &'static str {
    if kind.starts_with(['a', 'i', 'o']) { "an" } else { "a" }
}

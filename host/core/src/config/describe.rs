//! `describe` of a plugin: the operator's words for its tools and their arguments, in place of the
//! author's or the server's. A model reads them; the lock still pins the texts of the plugin.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::assemble::DESCRIPTION_MAX;
use super::invisible_chars::{code_point, hidden_char};
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue};
use super::{Config, Problems};
use crate::setup::PluginFacts;
use crate::types::ids::PluginName;
use crate::types::tool::ToolSpec;
use crate::types::wording::{code, suggest};

/// Returns the descriptions, by `TOOL` or `TOOL.ARGUMENT`.
pub(super) fn read(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> BTreeMap<String, String> {
    let mut described = BTreeMap::new();
    for (name, value) in item.members(reader) {
        let Some(text) = value.string(reader) else { continue };
        if text.trim().is_empty() {
            let help = "write what the model reads, or leave the line out".to_owned();
            value.wrong(reader, "is empty", help);
        } else if text.len() > DESCRIPTION_MAX {
            let what = format!("has {} bytes; {DESCRIPTION_MAX} are allowed", text.len());
            let help = "it is part of every prompt of every agent that may call the tool";
            value.reject(reader, ProblemCode::OutOfRange, &what, help.to_owned());
        } else if let Some(c) = hidden_char(text) {
            let what = format!("has an invisible character in it: {}", code_point(c));
            value.wrong(reader, &what, "write the text anew".to_owned());
        } else {
            described.insert(name.to_owned(), text.to_owned());
        }
    }
    described
}

impl Config {
    /// The plugin's facts with the operator's descriptions in place of its own. Entries that mean
    /// none of its tools are ignored; [`assemble`](super::assemble::assemble) reports them.
    #[must_use]
    pub fn described<'f>(
        &self,
        plugin: &PluginName,
        facts: &'f PluginFacts,
    ) -> Cow<'f, PluginFacts> {
        let described = self.plugins.get(plugin).map(|plugin| &plugin.describe);
        let Some(described) = described.filter(|described| !described.is_empty()) else {
            return Cow::Borrowed(facts);
        };
        let mut facts = facts.clone();
        for (key, text) in described {
            let (tool, argument) = parts(key);
            let Some(tool) = facts.tools.iter_mut().find(|spec| spec.name == tool) else {
                continue;
            };
            match argument {
                None => tool.description.clone_from(text),
                Some(argument) => {
                    let schema = argument_mut(tool, argument);
                    schema.into_iter().for_each(|schema| schema["description"] = json!(text));
                }
            }
        }
        Cow::Owned(facts)
    }
}

/// Warns of entries that mean no tool and no argument of the plugin.
pub(super) fn check(
    config: &Config,
    plugin: &PluginName,
    facts: &PluginFacts,
    problems: &mut Problems,
) {
    let described = config.plugins.get(plugin).into_iter().flat_map(|plugin| &plugin.describe);
    for key in described.map(|(key, _)| key) {
        let (tool, argument) = parts(key);
        let (what, help) = match (facts.tools.iter().find(|spec| spec.name == tool), argument) {
            (None, _) => {
                let names: Vec<&str> = facts.tools.iter().map(|spec| &*spec.name).collect();
                let help = suggest(tool, &names, "its tools are");
                (format!("`{plugin}` has no tool {}", code(tool)), help)
            }
            (Some(spec), Some(argument)) if argument_of(spec, argument).is_none() => {
                let help = suggest(argument, &arguments_of(spec), "its arguments are");
                let what = format!("`{plugin}.{tool}` has no argument {}", code(argument));
                (what, help)
            }
            (Some(_), _) => continue,
        };
        let path = format!("plugins.{plugin}.describe.{key}");
        let problem = config.problem(ProblemCode::UnknownTool, &path, what);
        let help = help.unwrap_or_else(|| "leave the line out".to_owned());
        problems.push(problem.because("the description reaches no model").help(help).as_warning());
    }
}

/// The tool's name, and the argument's if there is one. No tool has a dot in its name.
fn parts(key: &str) -> (&str, Option<&str>) {
    key.split_once('.').map_or((key, None), |(tool, argument)| (tool, Some(argument)))
}

fn arguments_of(tool: &ToolSpec) -> Vec<&str> {
    let properties = tool.input_schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

/// The schema of an argument, if it is one that can have a description.
fn argument_of<'t>(tool: &'t ToolSpec, argument: &str) -> Option<&'t Value> {
    tool.input_schema.get("properties")?.get(argument).filter(|schema| schema.is_object())
}

fn argument_mut<'t>(tool: &'t mut ToolSpec, argument: &str) -> Option<&'t mut Value> {
    let schema = tool.input_schema.get_mut("properties")?.get_mut(argument)?;
    schema.is_object().then_some(schema)
}

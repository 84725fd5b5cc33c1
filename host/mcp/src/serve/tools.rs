//! The tools that a client sees. Hints about their effects come from the operator's grants, never
//! from the plugin's description.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use conclave_core::config::foreign_names::with_hash;
use conclave_core::permissions::policy_rules::Decide;
use conclave_core::policy::decision::derived;
use conclave_core::setup::{PluginSetup, Setup};
use conclave_core::tool_calls::toolbox::ToolTarget;
use conclave_core::types::tool::ToolSpec;
use conclave_runtime::Prepared;
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use super::Selection;

/// The tool name of the entry task.
const ASK: &str = "ask";

/// A served tool.
#[derive(Clone, Debug)]
pub(super) struct Offered {
    pub(super) tool: Tool,
    pub(super) what: ServedTool,
}

/// The target of a served name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServedTool {
    /// A tool, `plugin.tool`.
    Tool(String),
    /// The entry task.
    Entry,
}

/// Why a selection cannot be served.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// The config has no task of the name in [`Selection::task`].
    #[error("the config has no task `{0}`")]
    NoTask(String),
    /// The selection has no tools.
    #[error("there is no tool to serve; these are there: {0}")]
    Nothing(String),
    /// A task of [`Selection::prompts`] has no prompt file. The second part lists those that have.
    #[error("the task `{0}` has no prompt file (`prompt_agent`); these have: {1}")]
    NoPrompt(String, String),
}

/// Returns the tools of a selection, ordered by name.
pub(super) fn offered(
    prepared: &Prepared,
    selection: &Selection,
) -> Result<Vec<Offered>, OfferError> {
    let setup = prepared.setup();
    let of_task = match &selection.task {
        None => None,
        Some(task) => Some(
            tools_of(setup, task.as_str()).ok_or_else(|| OfferError::NoTask(task.to_string()))?,
        ),
    };
    let is_meant = |name: &str| {
        of_task.as_ref().is_none_or(|names| names.contains(name))
            && (selection.patterns.is_empty()
                || selection.patterns.iter().any(|pattern| pattern.covers(name)))
    };
    let names = prepared.tools();
    let mut offered = BTreeMap::new();
    for name in names.iter().filter(|name| is_meant(name)) {
        let Some((plugin, spec)) = setup.tool(name) else { continue };
        let Some(plugin) = setup.plugins.get(plugin) else { continue };
        let display = if selection.underscores { underscored(name, &names) } else { name.clone() };
        let what = ServedTool::Tool(name.clone());
        offered.insert(display.clone(), Offered { tool: tool(display, plugin, spec), what });
    }
    // No other name is without a dot or an underscore.
    if selection.ask {
        offered.insert(ASK.to_owned(), Offered { tool: ask(setup), what: ServedTool::Entry });
    }
    if offered.is_empty() {
        return Err(OfferError::Nothing(prepared.tools().join(", ")));
    }
    Ok(offered.into_values().collect())
}

/// The name without dots. `a.b_c` and `a_b.c` would have the same, so each of them gets a hash:
/// clients remember names, and which tools are served must not exchange two of them.
fn underscored(name: &str, names: &[String]) -> String {
    let plain = |name: &str| name.replace('.', "_");
    let is_alone = names.iter().filter(|other| plain(other) == plain(name)).count() == 1;
    if is_alone { plain(name) } else { with_hash(&plain(name), name, 0) }
}

/// The tools of a task's agent, by their original names; `None` if there is no such task.
fn tools_of(setup: &Setup, task: &str) -> Option<BTreeSet<String>> {
    let task = setup.tasks.get(task)?;
    let targets =
        task.toolbox.iter().filter(|tool| tool.offered).filter_map(|tool| match &tool.target {
            ToolTarget::Plugin { plugin, tool } => Some(format!("{plugin}.{tool}")),
            ToolTarget::Host(_) => None,
        });
    Some(targets.collect())
}

fn tool(name: String, plugin: &PluginSetup, spec: &ToolSpec) -> Tool {
    let schema = spec.input_schema.as_object().cloned().unwrap_or_default();
    let mut tool = Tool::new(name, spec.description.clone(), Arc::new(with_type(schema)))
        .with_annotations(annotations(plugin));
    tool.title.clone_from(&spec.title);
    // Clients take objects only.
    let output = spec.output_schema.as_ref().and_then(Value::as_object);
    tool.output_schema =
        output.filter(|schema| schema["type"] == "object").map(|schema| Arc::new(schema.clone()));
    tool
}

/// Adds `type`, which clients require.
fn with_type(mut schema: Map<String, Value>) -> Map<String, Value> {
    schema.entry("type").or_insert_with(|| json!("object"));
    schema
}

fn annotations(plugin: &PluginSetup) -> ToolAnnotations {
    // Code outside a sandbox can do anything, and so can a plugin that calls other tools.
    let is_held = !plugin.facts.is_native() && !plugin.facts.mcp;
    let only_reads = is_held
        && derived(plugin) == Decide::Allow
        && plugin.grants.kv.is_none()
        && plugin.grants.tools.is_none();
    ToolAnnotations::new().read_only(only_reads).destructive(!only_reads).open_world(!only_reads)
}

fn ask(setup: &Setup) -> Tool {
    let task = setup.tasks.get(&setup.entry);
    let description = task.map(|task| task.description.trim()).filter(|text| !text.is_empty());
    let description = description.map_or_else(
        || format!("Asks the agent `{}` and gives its answer.", setup.entry),
        str::to_owned,
    );
    let schema = json!({
        "type": "object",
        "properties": { "message": { "type": "string", "description": "What the agent is asked." } },
        "required": ["message"],
        "additionalProperties": false,
    });
    let annotations = ToolAnnotations::new().read_only(false).destructive(true).open_world(true);
    Tool::new(ASK, description, Arc::new(schema.as_object().cloned().unwrap_or_default()))
        .with_annotations(annotations)
}

//! Converts a scenario into a `conclave.toml` with its agents, tools and tasks. Scripts go into the
//! settings of the two guests; everything else is an ordinary config key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use conclave_core::config::ORCHESTRATION_TOOLS;
use conclave_core::tool_calls::sequence::{Expected, Sequence};
use conclave_core::types::host_tool::HostTool;
use conclave_script::{AgentSettings, Answer, Effect, Scope, ToolSettings, ToolsSettings};
use serde_json::{Map, Value, json};

use crate::fields;
use crate::scenario::{Agent, Scenario, Task, Tool};
use crate::toml_text::{string, value};

/// The plugin that offers the tools of all agents.
const TOOLS: &str = "t";

/// The paths of the guests' components.
#[derive(Clone, Debug)]
pub struct Guests {
    pub agent: PathBuf,
    pub tools: PathBuf,
}

impl Guests {
    /// Returns the guests in a folder that `cargo xtask guests` filled.
    #[must_use]
    pub fn of_folder(folder: &Path) -> Self {
        Self { agent: folder.join("script_agent.wasm"), tools: folder.join("script_tools.wasm") }
    }
}

/// Returns the plugin of an agent, named by its index in the scenario.
#[must_use]
pub fn plugin_of(scenario: &Scenario, agent: &str) -> Option<String> {
    let index = scenario.agents.iter().position(|other| other.name == agent)?;
    Some(format!("a{index}"))
}

/// Returns the task of an agent that is asked alone: its first task, or one that is added for it.
#[must_use]
pub fn task_of(scenario: &Scenario, agent: &str) -> Option<String> {
    let own = scenario.tasks.iter().find(|task| task.agent == agent).map(|task| task.name.clone());
    own.or_else(|| spare_task(scenario, agent))
}

/// Returns a task named after the agent, or numbered if that name is taken or has another meaning.
fn spare_task(scenario: &Scenario, agent: &str) -> Option<String> {
    use conclave_core::config::{check_task_name, is_reserved_task};
    let index = scenario.agents.iter().position(|other| other.name == agent)?;
    let is_taken = scenario.tasks.iter().any(|task| task.name == agent);
    let is_name = check_task_name(agent).is_ok() && !is_reserved_task(agent);
    Some(if is_name && !is_taken { agent.to_owned() } else { format!("spare-{index}") })
}

/// Returns the config's text.
///
/// # Errors
/// Describes the part of the scenario that no config key can express.
pub fn text(scenario: &Scenario, guests: &Guests) -> Result<String, String> {
    let spares: Vec<Task> = scenario
        .agents
        .iter()
        .filter(|agent| !scenario.tasks.iter().any(|task| task.agent == agent.name))
        .filter_map(|agent| {
            let name = spare_task(scenario, &agent.name)?;
            Some(Task {
                name,
                agent: agent.name.clone(),
                options: Map::new(),
                subtasks: Vec::new(),
            })
        })
        .collect();
    let tasks: Vec<&Task> = scenario.tasks.iter().chain(&spares).collect();
    let entry = tasks.last().ok_or("the scenario has no agent")?;
    let catalog = Catalog::of(scenario);
    let mut out = format!("entry = {}\ncompat = \"langroid\"\n", string(&entry.name));
    let routes: Vec<&str> = tasks
        .iter()
        .map(|task| task.name.as_str())
        .chain(["user"])
        .chain(ORCHESTRATION_TOOLS)
        .collect();
    let routes = format!("grants.route = {}\n", list(&routes));
    for (agent, index) in scenario.agents.iter().zip(0..) {
        let settings = AgentSettings {
            llm: agent.llm.clone(),
            native: agent.native.clone(),
            no_tool: no_tool(agent)?.1,
        };
        plugin(&mut out, &format!("a{index}"), &guests.agent, &json!(settings), &routes);
        if !catalog.tools.is_empty() {
            out.push_str("grants.tools = [\"t.*\"]\n");
        }
    }
    if !catalog.tools.is_empty() {
        plugin(&mut out, TOOLS, &guests.tools, &json!(catalog.settings()?), &routes);
    }
    for task in tasks {
        let agent = scenario
            .agent(&task.agent)
            .ok_or_else(|| format!("there is no agent {}", task.agent))?;
        let table = self::task(scenario, task, agent, &catalog)
            .map_err(|problem| format!("task {}: {problem}", task.name))?;
        out.push_str(&table);
    }
    Ok(out)
}

fn plugin(out: &mut String, name: &str, source: &Path, settings: &Value, routes: &str) {
    let (source, script) = (string(&source.to_string_lossy()), string(&settings.to_string()));
    out.push_str(&format!(
        "\n[plugins.{name}]\nsource = {source}\nconfig = {{ script = {script} }}\n{routes}"
    ));
}

fn list(items: &[impl AsRef<str>]) -> String {
    format!("[{}]", items.iter().map(|item| string(item.as_ref())).collect::<Vec<_>>().join(", "))
}

/// The tools of all agents, each once. Tools with the same name are one tool, unless they are
/// redefined.
struct Catalog<'a> {
    tools: Vec<Shared<'a>>,
}

/// A tool and its handler in each agent that has it, by the agent's plugin.
struct Shared<'a> {
    tool: &'a Tool,
    effects: BTreeMap<String, Value>,
}

impl<'a> Catalog<'a> {
    fn of(scenario: &'a Scenario) -> Self {
        let mut tools: Vec<Shared<'_>> = Vec::new();
        for (agent, index) in scenario.agents.iter().zip(0..) {
            for tool in agent.tools.iter().filter(|tool| !tool.builtin) {
                let (plugin, effect) = (format!("a{index}"), tool.effect.clone());
                match tools.iter_mut().find(|known| known.tool.is_same(tool)) {
                    Some(known) => drop(known.effects.insert(plugin, effect)),
                    None => tools.push(Shared { tool, effects: [(plugin, effect)].into() }),
                }
            }
        }
        Self { tools }
    }

    /// Returns the tool's name in the plugin.
    fn name(&self, tool: &Tool) -> Option<String> {
        self.tools
            .iter()
            .position(|known| known.tool.is_same(tool))
            .map(|index| format!("t{index}"))
    }

    fn settings(&self) -> Result<ToolsSettings, String> {
        let mut tools = Vec::with_capacity(self.tools.len());
        for (Shared { tool, effects }, index) in self.tools.iter().zip(0..) {
            tools.push(ToolSettings {
                name: format!("t{index}"),
                description: format!("The tool {}.", tool.name),
                input_schema: fields::schema(&tool.fields)?,
                effects: effects.clone(),
            });
        }
        Ok(ToolsSettings { tools })
    }
}

/// Keys of a task's table and of its nested tables.
#[derive(Default)]
struct Keys {
    own: Map<String, Value>,
    loops: Map<String, Value>,
    text: Map<String, Value>,
}

impl Keys {
    /// Adds a key. Omits it if the value is null.
    fn put(&mut self, key: &str, value: Value) {
        if !value.is_null() {
            self.own.insert(key.to_owned(), value);
        }
    }

    fn put_option(&mut self, agent: &Agent, option: &str, given: &Value) -> Result<(), String> {
        let (table, key) = match option {
            "interactive"
            | "single_round"
            | "llm_delegate"
            | "restart"
            | "restart_as_subtask"
            | "erase_substeps"
            | "allow_null_result"
            | "max_stalled_steps"
            | "only_user_quits_root"
            | "done_if_tool"
            | "done_if_response"
            | "done_if_no_response"
            | "default_human_response" => (&mut self.own, option),
            "done_sequences" => {
                self.put(option, sequences(agent, given));
                return Ok(());
            }
            "allow_subtask_multi_oai_tools" => (&mut self.own, "allow_subtask_multi_tools"),
            "inf_loop_cycle_len" => (&mut self.loops, "cycle_len"),
            "inf_loop_dominance_factor" => (&mut self.loops, "dominance"),
            "inf_loop_wait_factor" => (&mut self.loops, "repeats"),
            "addressing_prefix" => (&mut self.text, "address_prefix"),
            "recognize_string_signals" => (&mut self.text, "signals"),
            other => return Err(format!("the option {other} is not known")),
        };
        if !given.is_null() {
            table.insert(key.to_owned(), given.clone());
        }
        Ok(())
    }

    fn text(mut self) -> Result<String, String> {
        for (name, table) in [("loop_detection", self.loops), ("text_rules", self.text)] {
            if !table.is_empty() {
                self.own.insert(name.to_owned(), Value::Object(table));
            }
        }
        let line = |(key, given): (&String, &Value)| {
            let given =
                value(given).ok_or_else(|| format!("null within {key} has no form in a config"))?;
            Ok(format!("{key} = {given}\n"))
        };
        self.own.iter().map(line).collect()
    }
}

fn task(
    scenario: &Scenario,
    task: &Task,
    agent: &Agent,
    catalog: &Catalog<'_>,
) -> Result<String, String> {
    let mut keys = Keys::default();
    let settings = &agent.config;
    let written = |text: &Option<String>| json!(text.as_deref().filter(|text| !text.is_empty()));
    keys.put("agent", json!(plugin_of(scenario, &agent.name)));
    keys.put("system", written(&agent.system_message));
    keys.put("user_message", written(&settings.user_message));
    if !task.subtasks.is_empty() {
        keys.put("subtasks", json!(task.subtasks));
    }
    if agent.llm.is_null() {
        keys.put("responders", json!(["agent", "user"]));
    }
    keys.put("allow_multiple_tools", json!(settings.allow_multiple_tools));
    keys.put("respond_tools_only", json!(settings.respond_tools_only));
    // Scenarios count a byte as a token.
    keys.put("bytes_per_token", json!(1));
    let (no_tool, by_component) = no_tool(agent)?;
    keys.put("on_no_tool_call", no_tool);
    let responder = match (agent.native.is_null(), by_component.is_null()) {
        (false, _) => "component",
        (true, false) => "host-then-component",
        (true, true) => "host",
    };
    keys.put("agent_responder", json!(responder));
    keys.put("tools", tools(agent, catalog));
    if let Some(recognize) = settings.recognize_recipient_in_content {
        keys.text.insert("recipients".to_owned(), json!(recognize));
    }
    for (option, given) in &task.options {
        keys.put_option(agent, option, given)?;
    }
    Ok(format!("\n[tasks.{}]\n{}", string(&task.name), keys.text()?))
}

/// Returns the sequences that can be reached. One that waits for a tool unknown to the agent is
/// omitted, because the config rejects it.
fn sequences(agent: &Agent, given: &Value) -> Value {
    let is_known = |name: &str| {
        let own = |tool: &Tool| tool.name == name || tool.class_name.as_deref() == Some(name);
        agent.tools.iter().any(own)
            || HostTool::ALL.into_iter().any(|tool| tool.langroid_name() == name)
    };
    let can_be_met = |text: &str| {
        let parsed = Sequence::parse(text);
        // A malformed sequence is kept, so that the config rejects it.
        parsed.map_or(true, |parsed| {
            parsed
                .events()
                .iter()
                .all(|event| !matches!(event, Expected::SpecificTool(name) if !is_known(name)))
        })
    };
    let kept =
        given.as_array().into_iter().flatten().filter(|text| text.as_str().is_none_or(can_be_met));
    kept.cloned().collect()
}

/// Returns the task's tool list: the enabled tools of the agent's scenario only.
fn tools(agent: &Agent, catalog: &Catalog<'_>) -> Value {
    let entry = |tool: &Tool| {
        let mut entry = Map::new();
        let mut put = |key: &str, value: Value| drop(entry.insert(key.to_owned(), value));
        match catalog.name(tool).filter(|_| !tool.builtin) {
            Some(name) => {
                put("tool", json!(format!("{TOOLS}.{name}")));
                put("as", json!(tool.name));
            }
            None => put("tool", json!(tool.name)),
        }
        if !tool.is_offered() {
            put("use", json!(false));
        }
        if !tool.handled {
            put("handle", json!(false));
        }
        if tool.is_final {
            put("final", json!(true));
        }
        for (key, given) in
            [("title", json!(tool.class_name)), ("result_tokens", json!(tool.max_result_tokens))]
        {
            put(key, given);
        }
        put("retained_tokens", json!(tool.max_retained_tokens));
        entry.retain(|_, given| !given.is_null());
        Value::Object(entry)
    };
    agent.tools.iter().map(entry).collect()
}

/// Returns `handle_llm_no_tool` in its config form, and the effect that the component carries out
/// if the config has no form for it.
fn no_tool(agent: &Agent) -> Result<(Value, Value), String> {
    let given = &agent.config.handle_llm_no_tool;
    match given {
        Value::Null => return Ok((json!("nothing"), Value::Null)),
        Value::String(word) if word == "user" || word == "done" => {
            return Ok((json!(word), Value::Null));
        }
        _ => {}
    }
    let effect: Effect = serde_json::from_value(given.clone())
        .map_err(|error| format!("handle_llm_no_tool of {}: {error}", agent.name))?;
    let by_component = Ok((json!("nothing"), given.clone()));
    if has_template(given) {
        return by_component;
    }
    match effect.run(&Scope::default()) {
        Answer::Text(text) if !text.trim().is_empty() => {
            Ok((json!({ "nudge": text }), Value::Null))
        }
        Answer::Call { name, arguments } if value(&arguments).is_some() => {
            Ok((json!({ "tool": name, "arguments": arguments }), Value::Null))
        }
        Answer::Nothing => Ok((json!("nothing"), Value::Null)),
        _ => by_component,
    }
}

/// Returns whether the effect has a template, so that its outcome may depend on a message.
fn has_template(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('{'),
        Value::Array(items) => items.iter().any(has_template),
        Value::Object(fields) => fields.contains_key("when") || fields.values().any(has_template),
        _ => false,
    }
}

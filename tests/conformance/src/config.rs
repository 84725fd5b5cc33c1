//! From a scenario to a `conclave.toml`: what its agents, tools and tasks are to an operator.
//! Scripts go into the settings of the two guests; everything else is a key of the config that
//! anybody could write.

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

/// Where the components of the guests are.
#[derive(Clone, Debug)]
pub struct Guests {
    pub agent: PathBuf,
    pub tools: PathBuf,
}

impl Guests {
    /// Those in a folder that `cargo xtask guests` filled.
    #[must_use]
    pub fn of_folder(folder: &Path) -> Self {
        Self { agent: folder.join("script_agent.wasm"), tools: folder.join("script_tools.wasm") }
    }
}

/// The plugin of an agent, by its place in the scenario.
#[must_use]
pub fn plugin_of(scenario: &Scenario, agent: &str) -> Option<String> {
    let index = scenario.agents.iter().position(|other| other.name == agent)?;
    Some(format!("a{index}"))
}

/// The task that stands for an agent where it is asked by itself: its first, or one that is made
/// for it.
#[must_use]
pub fn task_of(scenario: &Scenario, agent: &str) -> Option<String> {
    let own = scenario.tasks.iter().find(|task| task.agent == agent).map(|task| task.name.clone());
    own.or_else(|| spare_task(scenario, agent))
}

/// A task named after the agent, or numbered when that name is taken or means something else.
fn spare_task(scenario: &Scenario, agent: &str) -> Option<String> {
    use conclave_core::config::{check_task_name, is_reserved_task};
    let index = scenario.agents.iter().position(|other| other.name == agent)?;
    let is_taken = scenario.tasks.iter().any(|task| task.name == agent);
    let is_name = check_task_name(agent).is_ok() && !is_reserved_task(agent);
    Some(if is_name && !is_taken { agent.to_owned() } else { format!("spare-{index}") })
}

/// The config's text.
///
/// # Errors
/// What of the scenario has no form in a config.
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

/// The tools of all agents, each once: those of one name are one tool, unless they are defined
/// anew.
struct Catalog<'a> {
    tools: Vec<Shared<'a>>,
}

/// A tool, and what each agent that has it does with it, by the agent's plugin.
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

    /// What the plugin calls it.
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

/// Keys of a task's table, with those of the tables inside it.
#[derive(Default)]
struct Keys {
    own: Map<String, Value>,
    loops: Map<String, Value>,
    text: Map<String, Value>,
}

impl Keys {
    /// Null is as if it were not written.
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
            "inf_loop_wait_factor" => (&mut self.loops, "wait"),
            "addressing_prefix" => (&mut self.text, "prefix"),
            "recognize_string_signals" => (&mut self.text, "signals"),
            other => return Err(format!("the option {other} is not known")),
        };
        if !given.is_null() {
            table.insert(key.to_owned(), given.clone());
        }
        Ok(())
    }

    fn text(mut self) -> Result<String, String> {
        for (name, table) in [("loops", self.loops), ("text", self.text)] {
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
        keys.put("seats", json!(["agent", "user"]));
    }
    keys.put("allow_multiple_tools", json!(settings.allow_multiple_tools));
    keys.put("respond_tools_only", json!(settings.respond_tools_only));
    // The scenarios count a byte as a token.
    keys.put("bytes_per_token", json!(1));
    let (no_tool, by_component) = no_tool(agent)?;
    keys.put("handle_llm_no_tool", no_tool);
    let seat = match (agent.native.is_null(), by_component.is_null()) {
        (false, _) => "component",
        (true, false) => "host-then-component",
        (true, true) => "host",
    };
    keys.put("agent_seat", json!(seat));
    keys.put("tools", tools(agent, catalog));
    if let Some(recognize) = settings.recognize_recipient_in_content {
        keys.text.insert("recipients".to_owned(), json!(recognize));
    }
    for (option, given) in &task.options {
        keys.put_option(agent, option, given)?;
    }
    Ok(format!("\n[tasks.{}]\n{}", string(&task.name), keys.text()?))
}

/// Those that can be met. One that waits for a tool that the agent does not know never is, and the
/// config refuses it as a mistake.
fn sequences(agent: &Agent, given: &Value) -> Value {
    let is_known = |name: &str| {
        let own = |tool: &Tool| tool.name == name || tool.class_name.as_deref() == Some(name);
        agent.tools.iter().any(own)
            || HostTool::ALL.into_iter().any(|tool| tool.langroid_name() == name)
    };
    let can_be_met = |text: &str| {
        let parsed = Sequence::parse(text);
        // What cannot be read is for the config to refuse.
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

/// The task's list: what the agent's scenario enables, and nothing else.
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

/// `handle_llm_no_tool` as the config has it, and the effect that the component carries out where
/// the config has no form for it.
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

/// Its outcome may depend on what was said.
fn has_template(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('{'),
        Value::Array(items) => items.iter().any(has_template),
        Value::Object(fields) => fields.contains_key("when") || fields.values().any(has_template),
        _ => false,
    }
}

//! Plays a scenario: its config on the whole host, one session for all of its calls, and a report
//! of each call.

use std::collections::BTreeMap;
use std::sync::Arc;

use conclave_core::tool_calls::parse::CallParser;
use conclave_runtime::config::Config;
use conclave_runtime::event::{HistoryChange, RoleCall};
use conclave_runtime::ids::{PluginName, TaskName};
use conclave_runtime::limits::RunLimits;
use conclave_runtime::message::{Label, Message, Role, ToolCall};
use conclave_runtime::outcome::Outcome;
use conclave_runtime::setup::ReturnType;
use conclave_runtime::subscribe::{Subscriber, Subscribers};
use conclave_runtime::{Host, Prepared, RunInput, RunOptions, Session};
use conclave_script::Script;
use serde_json::{Map, Value, json};

use crate::case_store::any_journals;
use crate::config::{self, Guests, plugin_of, task_of};
use crate::people::People;
use crate::pure;
use crate::scenario::{Scenario, Task, Tool};
use crate::shown;
use crate::ticking::Ticking;
use crate::watch::{Kill, Seen, Watcher};

type Call = Map<String, Value>;

/// Returns the report of each call of a scenario.
///
/// # Errors
/// The reason why the scenario could not be played to its end.
pub(crate) async fn play(
    host: &Host,
    guests: &Guests,
    scenario: &Scenario,
) -> Result<Vec<Value>, String> {
    let mut shown = Vec::with_capacity(scenario.calls.len());
    let mut stage = None;
    for call in &scenario.calls {
        let op = op(call);
        let entry = match pure::answer(op, call).await {
            Some(value) => json!({ "value": value? }),
            None => {
                let stage = match &mut stage {
                    Some(stage) => stage,
                    None => stage.insert(Stage::open(host, guests, scenario.clone()).await?),
                };
                stage.perform(op, call).await.map_err(|error| format!("{op}: {error}"))?
            }
        };
        shown.push(entry);
    }
    Ok(shown)
}

fn op(call: &Call) -> &str {
    call.get("op").and_then(Value::as_str).unwrap_or("run")
}

/// A scenario with its session.
struct Stage<'a> {
    host: &'a Host,
    guests: &'a Guests,
    /// The scenario after its calls so far.
    scenario: Scenario,
    prepared: Prepared,
    session: Session,
    people: Arc<People>,
    watcher: Arc<Watcher>,
    /// The agents in the report. Clones are omitted.
    shown: Vec<String>,
}

async fn prepare(host: &Host, guests: &Guests, scenario: &Scenario) -> Result<Prepared, String> {
    let text = config::text(scenario, guests)?;
    let config = Config::parse("conclave.toml", "/", &text)
        .map_err(|problems| format!("the config is refused:\n{problems}"))?;
    host.load(&config).await.map_err(|error| format!("the config does not fit:\n{error}"))
}

impl<'a> Stage<'a> {
    async fn open(host: &'a Host, guests: &'a Guests, scenario: Scenario) -> Result<Self, String> {
        let prepared = prepare(host, guests, &scenario).await?;
        let (people, watcher) = (Arc::new(People::default()), Arc::new(Watcher::default()));
        let options = RunOptions {
            channels: Arc::clone(&people) as Arc<_>,
            clock: Arc::new(Ticking::default()),
            journals: any_journals()?,
            subscribers: Subscribers::new([
                Arc::clone(&watcher) as Arc<dyn Subscriber>,
                crate::bound::counter(),
            ]),
            ..RunOptions::default()
        };
        let session = prepared.session(options).map_err(|error| error.to_string())?;
        let shown = scenario
            .agents
            .iter()
            .filter(|agent| !agent.llm.is_null())
            .map(|agent| agent.name.clone())
            .collect();
        let stage = Self { host, guests, scenario, prepared, session, people, watcher, shown };
        stage.seat_people()?;
        Ok(stage)
    }

    fn seat_people(&self) -> Result<(), String> {
        let mut scripts = BTreeMap::new();
        for agent in self.scenario.agents.iter().filter(|agent| !agent.user.is_null()) {
            let script: Script = serde_json::from_value(agent.user.clone())
                .map_err(|error| format!("the user of {}: {error}", agent.name))?;
            scripts.insert(agent.name.clone(), script);
        }
        let spares =
            self.scenario.agents.iter().filter_map(|agent| {
                Some((task_of(&self.scenario, &agent.name)?, agent.name.clone()))
            });
        let own = self.scenario.tasks.iter().map(|task| (task.name.clone(), task.agent.clone()));
        self.people.set(
            spares.chain(own).map(|(task, agent)| (TaskName::from(task), agent)).collect(),
            scripts,
        );
        Ok(())
    }

    async fn perform(&mut self, op: &str, call: &Call) -> Result<Value, String> {
        match op {
            "run" => self.run(call).await,
            "steps" => self.steps(call).await,
            "agent_respond" | "handle_text" | "llm_respond" => self.ask_role(op, call).await,
            "apply_tool" => self.apply_tool(call).await,
            "known_tools" => self.known_tools(call),
            "enable" => self.enable(call).await,
            "disable_handling" => self.disable_handling(call).await,
            "set_llm" => {
                let llm = call.get("llm").cloned().unwrap_or_default();
                self.agent_mut(call)?.llm = llm;
                self.reconfigure().await
            }
            "clone" => self.clone_task(call).await,
            "clear_history" => {
                let start = entry_index(call, "start").unwrap_or_default();
                self.change_history(call, |messages| HistoryChange::Clear {
                    start: messages(start),
                })
                .await?;
                Ok(json!({}))
            }
            "prune" => {
                let start = entry_index(call, "index").ok_or("it has no index")?;
                self.change_history(call, |messages| HistoryChange::Prune {
                    start: messages(start),
                })
                .await?;
                Ok(json!({ "history": self.histories() }))
            }
            "preset_history" => {
                let messages = preset(call)?;
                self.change_history(call, |_| HistoryChange::Import { messages }).await?;
                Ok(json!({}))
            }
            other => Err(format!("there is no op {other}")),
        }
    }

    async fn run(&mut self, call: &Call) -> Result<Value, String> {
        let task = TaskName::from(word(call, "task")?);
        let returns = call.get("return_type").and_then(Value::as_str).map(return_type);
        let is_typed = returns.is_some();
        let turns =
            call.get("turns").and_then(Value::as_i64).and_then(|turns| u32::try_from(turns).ok());
        let ask = RunInput {
            entry: Some(task),
            turns,
            returns,
            limits: Some(limits(call)?),
            ..input(call)?
        };
        let kill_after = call
            .get("kill_after_step")
            .and_then(Value::as_u64)
            .and_then(|steps| u32::try_from(steps).ok());
        let ask = RunInput { kill_after, ..ask };
        let (outcome, seen) = self.follow(ask, None).await?;
        Ok(self.with_agents(shown::run(&outcome, &seen.steps, is_typed), &seen))
    }

    async fn steps(&mut self, call: &Call) -> Result<Value, String> {
        let turns =
            call.get("n").and_then(Value::as_u64).and_then(|turns| u32::try_from(turns).ok());
        let ask = RunInput {
            entry: Some(word(call, "task")?.into()),
            turns,
            limits: Some(limits(call)?),
            ..input(call)?
        };
        let (outcome, seen) = self.follow(ask, None).await?;
        Ok(self.with_agents(shown::pending(&outcome, &seen.steps), &seen))
    }

    /// Asks a single responder.
    async fn ask_role(&mut self, op: &str, call: &Call) -> Result<Value, String> {
        let entry = self.task(call)?;
        let role = if op == "llm_respond" { Role::Llm } else { Role::Agent };
        let chain =
            call.get("chain").and_then(Value::as_u64).and_then(|times| u32::try_from(times).ok());
        let mut ask = RunInput {
            entry: Some(entry.clone()),
            limits: Some(limits(call)?),
            ..RunInput::default()
        };
        let said = call.get(if op == "handle_text" { "text" } else { "message" });
        let mut of_role = RoleCall {
            role,
            sender: Role::User,
            untrusted: false,
            from_agent: true,
            times: chain.unwrap_or(1),
        };
        match said {
            // L-171: bare text is accepted from any source.
            Some(Value::String(text)) => ask.content = Some(text.clone()),
            Some(Value::Object(message)) => {
                ask.content = message.get("content").and_then(Value::as_str).map(str::to_owned);
                ask.recipient = recipient(message);
                of_role.sender = message
                    .get("sender")
                    .and_then(Value::as_str)
                    .and_then(Role::from_name)
                    .unwrap_or(Role::User);
                let flag =
                    |key: &str| message.get(key).and_then(Value::as_bool).unwrap_or_default();
                of_role.untrusted = flag("tainted");
                of_role.from_agent = flag("tools_from_agent") || of_role.sender == Role::Llm;
            }
            _ => {}
        }
        if op == "apply_tool" {
            ask.content = Some(String::new());
            ask.tools = vec![tool_call(call.get("tool"))?];
        }
        ask.role_call = Some(of_role);
        let (_, seen) = self.follow(ask, None).await?;
        let mut answers: Vec<Value> =
            seen.steps.iter().map(|step| shown::answer(step.message.as_deref())).collect();
        let mut shown = Map::new();
        if let Some(times) = chain {
            answers.resize(usize::try_from(times).unwrap_or(usize::MAX), Value::Null);
            shown.insert("value".to_owned(), Value::Array(answers));
            return Ok(Value::Object(shown));
        }
        let mut value = answers.pop().unwrap_or_default();
        if op == "llm_respond" {
            let entries = shown::history(&self.session.history(&entry)).len();
            if let Some(answer) = value.as_object_mut() {
                // The system message is number 0.
                answer.insert("position".to_owned(), json!(entries));
            }
            shown.insert("history".to_owned(), self.histories());
        }
        shown.insert("value".to_owned(), value);
        Ok(Value::Object(shown))
    }

    /// Calls a tool, whether or not the agent has it. An agent without it gets it for this call.
    async fn apply_tool(&mut self, call: &Call) -> Result<Value, String> {
        let name = call
            .get("tool")
            .and_then(|tool| tool.get("name"))
            .and_then(Value::as_str)
            .ok_or("it has no tool")?
            .to_owned();
        let before = self.scenario.clone();
        let tools = &mut self.agent_mut(call)?.tools;
        match tools.iter_mut().find(|tool| tool.name == name) {
            Some(tool) => tool.handled = true,
            None => {
                let mut tool = Tool::host(&name);
                tool.offered = false;
                tools.push(tool);
            }
        }
        self.reconfigure().await?;
        let shown = self.ask_role("apply_tool", call).await;
        self.scenario = before;
        self.reconfigure().await?;
        shown
    }

    fn known_tools(&self, call: &Call) -> Result<Value, String> {
        let task = self.task(call)?;
        let setup = self.prepared.setup().tasks.get(&task).ok_or("there is no such task")?;
        let said = call.get("message").ok_or("it has no message")?;
        let (text, sender) = match said {
            Value::String(text) => (text.as_str(), Role::User),
            message => {
                let sender =
                    message.get("sender").and_then(Value::as_str).and_then(Role::from_name);
                (
                    message.get("content").and_then(Value::as_str).unwrap_or_default(),
                    sender.unwrap_or(Role::User),
                )
            }
        };
        let mut message = Message::new(0, sender, "");
        message.content = Some(text.to_owned());
        if said.get("tainted").and_then(Value::as_bool) == Some(true) {
            message.labels.push(Label::Untrusted);
        }
        let reader = CallParser {
            toolbox: &setup.toolbox,
            text: true,
            name: None,
            for_handlers: true,
            after_model: false,
            wrong_call_stops_others: true,
        };
        let names: Vec<Value> = reader
            .read(&message)
            .all
            .iter()
            .map(|call| json!(shown::tool_name(&call.name)))
            .collect();
        Ok(json!({ "value": names }))
    }

    /// Enables tools. A different tool with a known name makes the config invalid, and then nothing
    /// changes.
    async fn enable(&mut self, call: &Call) -> Result<Value, String> {
        let tool = call.get("tool").cloned().ok_or("it has no tool")?;
        let tool: Tool = serde_json::from_value(tool).map_err(|error| error.to_string())?;
        let before = self.scenario.clone();
        let tools = &mut self.agent_mut(call)?.tools;
        let is_new = match tools.iter_mut().find(|known| known.is_same(&tool)) {
            Some(known) => {
                *known = tool.clone();
                false
            }
            None => {
                let is_new = tools.iter().any(|known| known.name == tool.name);
                tools.push(tool.clone());
                is_new
            }
        };
        match self.reconfigure().await {
            Ok(shown) => Ok(shown),
            Err(reason) if is_new && reason.contains(&tool.name) => {
                self.scenario = before;
                Ok(json!({ "error": "duplicate_tool" }))
            }
            Err(reason) => Err(reason),
        }
    }

    async fn disable_handling(&mut self, call: &Call) -> Result<Value, String> {
        let name = word(call, "tool")?.to_owned();
        let tools = &mut self.agent_mut(call)?.tools;
        match tools.iter_mut().find(|tool| tool.name == name) {
            Some(tool) => tool.handled = false,
            None => {
                let mut tool = Tool::host(&name);
                (tool.offered, tool.handled) = (false, false);
                tools.push(tool);
            }
        }
        self.reconfigure().await
    }

    /// L-045: a new agent and a new task, without sub-tasks.
    async fn clone_task(&mut self, call: &Call) -> Result<Value, String> {
        let name = word(call, "task")?;
        let number = call.get("i").map(ToString::to_string).ok_or("it has no i")?;
        let task = self
            .scenario
            .tasks
            .iter()
            .find(|task| task.name == name)
            .ok_or("there is no such task")?;
        let agent = self.scenario.agent(&task.agent).ok_or("the task has no agent")?;
        let mut agent = agent.clone();
        agent.name = format!("{}-{number}", agent.name);
        let mut options = task.options.clone();
        options.remove("only_user_quits_root");
        let task = Task {
            name: format!("{name}-{number}"),
            agent: agent.name.clone(),
            options,
            subtasks: Vec::new(),
        };
        self.scenario.agents.push(agent);
        self.scenario.tasks.push(task);
        self.seat_people()?;
        self.reconfigure().await
    }

    async fn reconfigure(&mut self) -> Result<Value, String> {
        let prepared = prepare(self.host, self.guests, &self.scenario).await?;
        self.session.reconfigure(&prepared);
        self.prepared = prepared;
        Ok(json!({}))
    }

    /// Changes a history. `change` receives a function from the number of an entry to that of a
    /// message.
    async fn change_history(
        &mut self,
        call: &Call,
        change: impl FnOnce(&dyn Fn(usize) -> usize) -> HistoryChange,
    ) -> Result<(), String> {
        let task = self.task(call)?;
        let history = self.session.history(&task);
        let change = change(&|entry| shown::messages_of(&history, entry));
        self.session.change_history(&task, change).await.map_err(|error| error.to_string())
    }

    async fn follow(
        &mut self,
        ask: RunInput,
        kill: Option<Kill>,
    ) -> Result<(Arc<Outcome>, Seen), String> {
        drop(self.watcher.take());
        self.watcher.set_kill(kill);
        let outcome = self.session.run(ask).await.map_err(|error| error.to_string());
        self.watcher.set_kill(None);
        Ok((outcome?, self.watcher.take()))
    }

    fn with_agents(&self, mut entry: Map<String, Value>, seen: &Seen) -> Value {
        let replies = |agent: &String| {
            let plugin = plugin_of(&self.scenario, agent).map(PluginName::from);
            (
                agent.clone(),
                json!(
                    plugin
                        .and_then(|plugin| seen.replies.get(&plugin))
                        .copied()
                        .unwrap_or_default()
                ),
            )
        };
        entry.insert("history".to_owned(), self.histories());
        entry.insert(
            "llm_calls".to_owned(),
            Value::Object(self.shown.iter().map(replies).collect()),
        );
        Value::Object(entry)
    }

    fn histories(&self) -> Value {
        let of_agent = |agent: &String| {
            let task = task_of(&self.scenario, agent).map(TaskName::from);
            let entries =
                task.map(|task| shown::history(&self.session.history(&task))).unwrap_or_default();
            (agent.clone(), Value::Array(entries))
        };
        Value::Object(self.shown.iter().map(of_agent).collect())
    }

    fn task(&self, call: &Call) -> Result<TaskName, String> {
        let agent = word(call, "agent")?;
        task_of(&self.scenario, agent)
            .map(TaskName::from)
            .ok_or_else(|| format!("there is no agent {agent}"))
    }

    fn agent_mut(&mut self, call: &Call) -> Result<&mut crate::scenario::Agent, String> {
        let name = word(call, "agent")?;
        self.scenario
            .agents
            .iter_mut()
            .find(|agent| agent.name == name)
            .ok_or_else(|| format!("there is no agent {name}"))
    }
}

fn word<'a>(call: &'a Call, key: &str) -> Result<&'a str, String> {
    call.get(key).and_then(Value::as_str).ok_or_else(|| format!("it has no {key}"))
}

fn entry_index(call: &Call, key: &str) -> Option<usize> {
    call.get(key).and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok())
}

/// Returns the input of a run.
fn input(call: &Call) -> Result<RunInput, String> {
    let mut ask = RunInput::default();
    if let Some(message) = call.get("input_message").and_then(Value::as_object) {
        ask.content = message.get("content").and_then(Value::as_str).map(str::to_owned);
        ask.recipient = recipient(message);
        ask.sender = message.get("sender").and_then(Value::as_str).and_then(Role::from_name);
    } else if call.get("input_tool").is_some_and(|tool| !tool.is_null()) {
        ask.content = Some(String::new());
        ask.tools = vec![tool_call(call.get("input_tool"))?];
    } else {
        ask.content = call.get("input").and_then(Value::as_str).map(str::to_owned);
    }
    Ok(ask)
}

fn recipient(message: &Call) -> Option<String> {
    message
        .get("recipient")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
}

fn tool_call(tool: Option<&Value>) -> Result<ToolCall, String> {
    let name = tool
        .and_then(|tool| tool.get("name"))
        .and_then(Value::as_str)
        .ok_or("the tool has no name")?;
    let arguments = tool.and_then(|tool| tool.get("args")).cloned().unwrap_or_else(|| json!({}));
    Ok(ToolCall::new(if name == "final_result" { "final_result_tool" } else { name }, arguments))
}

/// Returns the limits of the call. Everything else is unlimited.
fn limits(call: &Call) -> Result<RunLimits, String> {
    let amount = |key: &str, unit: f64| match call.get(key).map(Value::as_f64) {
        None => Ok(None),
        // Zero means no limit, in scenarios as in Langroid.
        Some(Some(amount)) if amount >= 0.0 => {
            Ok(Some((amount * unit).ceil()).filter(|amount| *amount > 0.0))
        }
        Some(_) => Err(format!("{key} is no amount")),
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number from 1, and a larger one ends at the largest"
    )]
    let whole = |amount: f64| amount as u64;
    Ok(RunLimits {
        turns: None,
        wall_ms: amount("max_time", 1_000.0)?.map(whole),
        tokens: amount("max_tokens", 1.0)?.map(whole),
        cost_micro_usd: amount("max_cost", 1e6)?.map(whole),
        task_turns: call
            .get("global_max_turns")
            .and_then(Value::as_u64)
            .filter(|turns| *turns > 0)
            .and_then(|turns| u32::try_from(turns).ok()),
        ..RunLimits::default()
    })
}

fn return_type(name: &str) -> ReturnType {
    match name {
        "int" => ReturnType::Int,
        "str" => ReturnType::Text,
        "float" => ReturnType::Float,
        "bool" => ReturnType::Bool,
        "any_tool" => ReturnType::AnyTool,
        tool => ReturnType::Tool(tool.to_owned()),
    }
}

/// Reads a history as rows of role and text.
fn preset(call: &Call) -> Result<Vec<Message>, String> {
    let rows = call.get("history").and_then(Value::as_array).ok_or("it has no history")?;
    let message = |(row, seq): (&Value, u64)| {
        let word = |index: usize| row.get(index).and_then(Value::as_str);
        let sender = match word(0) {
            Some("assistant") => Role::Llm,
            Some("system") => Role::System,
            Some(_) => Role::User,
            None => return Err(format!("{row} is no entry of a history")),
        };
        let mut message = Message::new(seq, sender, sender.as_str());
        message.content = word(1).map(str::to_owned);
        Ok(message)
    };
    rows.iter().zip(0..).map(message).collect()
}

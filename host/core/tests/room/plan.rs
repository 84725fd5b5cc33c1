//! The meaning of a script entry: the short forms of turns, tool answers, decisions, endings and
//! completions.

use std::sync::Arc;

use conclave_core::setup::plugin_query::PluginReply;
use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::completion::{
    Completion, ModelError, ModelRequest, StopReason, TokenUsage, ToolChoice,
};
use conclave_core::types::delegation::Delegation;
use conclave_core::types::delivery::{BackgroundStatus, Decision, EndedTask};
use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::ids::{BackgroundId, TaskName};
use conclave_core::types::message::ToolCall;
use conclave_core::types::tool::{ToolError, ToolOutcome};
use conclave_core::types::usage::Spent;
use serde::Deserialize;
use serde_json::{Value, json};

/// An agent's answer. A text is short for `{"say": text}`, `null` for a turn without a message.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Said {
    say: Option<String>,
    to: Option<String>,
    call: Vec<CallPlan>,
    finish: Option<Value>,
    reject: Option<Value>,
    think: Option<String>,
    talk: Option<String>,
    delegate: Option<String>,
    inputs: Option<Value>,
    background: Option<String>,
    task: Option<String>,
    custom: Option<String>,
    /// Any action in its journal form.
    action: Option<Action>,
    thought: String,
    /// Whether to ask the user before the task continues.
    wait: bool,
    /// The extra `turns` of the turn.
    turns: Option<Value>,
    fault: Option<String>,
    /// Whether `respond` returns no message.
    nothing: bool,
}

/// The common fields of all plugin calls.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Common {
    /// Model requests, made in order before the answer.
    pub(crate) ask: Vec<Value>,
    pub(crate) scratch: Option<String>,
    /// Never answers.
    pub(crate) hold: bool,
    /// Returns the last completion of its model with its calls, as the chat agent does.
    pub(crate) relay: bool,
    /// The consumed CPU ticks.
    pub(crate) cpu_ticks: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum CallPlan {
    Name(String),
    Whole {
        name: String,
        #[serde(default)]
        id: String,
        #[serde(default)]
        arguments: Value,
    },
}

impl CallPlan {
    fn call(&self) -> ToolCall {
        match self {
            Self::Name(name) => ToolCall {
                id: String::new(),
                name: name.clone(),
                arguments: Arc::new(json!({})),
                untrusted: false,
                led_by: Vec::new(),
            },
            Self::Whole { name, id, arguments } => ToolCall {
                id: id.clone(),
                name: name.clone(),
                arguments: Arc::new(arguments.clone()),
                untrusted: false,
                led_by: Vec::new(),
            },
        }
    }
}

/// An entry of a script.
pub(crate) struct Entry<T> {
    pub(crate) content: T,
    pub(crate) common: Common,
}

impl<T: for<'de> Deserialize<'de>> Entry<T> {
    /// Reads an entry. A value other than an object is stored under `short`.
    fn read(entry: &Value, short: &str) -> Self {
        let mut object = if entry.is_object() { entry.clone() } else { json!({ short: entry }) };
        let fields = object.as_object_mut().expect("made an object above");
        let common: serde_json::Map<String, Value> =
            ["ask", "scratch", "hold", "relay", "cpu_ticks"]
                .iter()
                .filter_map(|key| fields.remove_entry(*key))
                .collect();
        let content =
            serde_json::from_value(object).unwrap_or_else(|error| panic!("{entry}: {error}"));
        let common = serde_json::from_value(Value::Object(common))
            .unwrap_or_else(|error| panic!("{entry}: {error}"));
        Self { content, common }
    }
}

impl Said {
    pub(crate) fn read(entry: &Value) -> Entry<Self> {
        Entry::read(entry, "say")
    }

    pub(crate) fn answer(&self) -> Result<Option<Turn>, Fault> {
        if let Some(message) = &self.fault {
            return Err(Fault::new(FaultKind::Panic, message.clone()));
        }
        let action = self.action();
        if self.nothing {
            return Ok(None);
        }
        Ok(Some(Turn {
            action,
            thought: self.thought.clone(),
            wait_for_response: self.wait,
            extra: self.turns.iter().map(|turns| ("turns".to_owned(), turns.clone())).collect(),
        }))
    }

    fn action(&self) -> Action {
        if let Some(action) = &self.action {
            return action.clone();
        }
        let task = self.task.clone().unwrap_or_default();
        let inputs = self.inputs.clone().unwrap_or_else(|| json!({ "task": task }));
        if let Some(outputs) = &self.finish {
            Action::Finish { outputs: outputs.clone() }
        } else if let Some(outputs) = &self.reject {
            Action::Reject { outputs: outputs.clone() }
        } else if let Some(thought) = &self.think {
            Action::Think { thought: thought.clone() }
        } else if let Some(content) = &self.talk {
            Action::Talk { content: content.clone() }
        } else if let Some(agent) = &self.delegate {
            Action::Delegate { agent: agent.clone(), inputs }
        } else if let Some(agent) = &self.background {
            let context = self.inputs.clone().unwrap_or_else(|| json!({}));
            Action::DelegateTask(Box::new(Delegation {
                worker: agent.clone(),
                description: task,
                context,
                ..Delegation::default()
            }))
        } else if let Some(name) = &self.custom {
            Action::Custom { name: name.clone(), arguments: json!({}) }
        } else if self.say.is_none() && self.call.is_empty() && self.to.is_none() {
            Action::Null
        } else {
            Action::Reply(Reply {
                completion: None,
                content: self.say.clone(),
                tool_calls: self.call.iter().map(CallPlan::call).collect(),
                recipient: self.to.clone(),
                attachments: Vec::new(),
            })
        }
    }
}

/// A tool's answer. A text is short for `{"content": text}`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ToolSaid {
    content: Option<String>,
    value: Option<Value>,
    then: Vec<CallPlan>,
    error: Option<ToolError>,
}

impl ToolSaid {
    pub(crate) fn read(entry: &Value) -> Entry<Self> {
        Entry::read(entry, "content")
    }

    pub(crate) fn answer(&self) -> Result<ToolOutcome, ToolError> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => Ok(ToolOutcome {
                content: self.content.clone(),
                value: self.value.clone(),
                attachments: Vec::new(),
                follow_up_calls: self.then.iter().map(CallPlan::call).collect(),
            }),
        }
    }
}

/// A plugin's reply to a query: `{"advice": …}` in its journal form; `{"fault": text}` for a
/// failure.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Consulted {
    advice: Option<PluginReply>,
    fault: Option<String>,
}

impl Consulted {
    pub(crate) fn read(entry: &Value) -> Entry<Self> {
        Entry::read(entry, "fault")
    }

    pub(crate) fn answer(&self) -> Result<PluginReply, Fault> {
        let fault = || Fault::new(FaultKind::Trap, self.fault.clone().unwrap_or_default());
        self.advice.clone().ok_or_else(fault)
    }
}

/// A strategy's answer. A list is short for `{"decide": list}`; `{"fault": text}` for a failure.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Decided {
    decide: Vec<DecisionPlan>,
    fault: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DecisionPlan {
    Deliver {
        tasks: Vec<String>,
        #[serde(default)]
        channel: Option<String>,
        #[serde(default)]
        prompt: Option<String>,
    },
    MoveToInbox(Vec<String>),
    Wait(u64),
    GiveUp(String),
}

impl Decided {
    pub(crate) fn read(entry: &Value) -> Entry<Self> {
        Entry::read(entry, "decide")
    }

    pub(crate) fn answer(&self) -> Result<Vec<Decision>, Fault> {
        if let Some(message) = &self.fault {
            return Err(Fault::new(FaultKind::Trap, message.clone()));
        }
        let decision = |plan: &DecisionPlan| match plan.clone() {
            DecisionPlan::Deliver { tasks, channel, prompt } => {
                Decision::Deliver { tasks, channel, prompt, interrupt: false }
            }
            DecisionPlan::MoveToInbox(tasks) => Decision::MoveToInbox { tasks },
            DecisionPlan::Wait(timeout_ms) => Decision::Wait { channel: None, timeout_ms },
            DecisionPlan::GiveUp(reason) => Decision::GiveUp { reason },
        };
        Ok(self.decide.iter().map(decision).collect())
    }
}

/// The end of a child room. A text is short for `{"output": text}`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Ended {
    output: Option<String>,
    status: Option<BackgroundStatus>,
    error: Option<String>,
    /// The id that the child claims to have.
    claims: Option<String>,
    turns: u64,
    tokens: u64,
    cost: u64,
}

impl Ended {
    pub(crate) fn read(entry: &Value) -> Entry<Self> {
        Entry::read(entry, "output")
    }

    pub(crate) fn answer(&self) -> (EndedTask, Spent) {
        let claims = self.claims.clone().unwrap_or_default();
        let ended = EndedTask {
            id: BackgroundId::from(claims.as_str()),
            worker: TaskName::from(claims.as_str()),
            description: claims,
            status: self.status.unwrap_or(BackgroundStatus::Completed),
            output: self.output.clone(),
            error: self.error.clone(),
            cause: None,
            duration_ms: 0,
            attempts: 0,
            metadata: Value::Null,
        };
        (
            ended,
            Spent {
                turns: self.turns,
                tokens: self.tokens,
                cost_micro_usd: self.cost,
                ..Spent::default()
            },
        )
    }
}

/// A model's answer. A text is short for `{"content": text}`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Completed {
    content: Option<String>,
    input: u64,
    output: u64,
    cost: Option<u64>,
    error: Option<String>,
    calls: Vec<CallPlan>,
    filtered: bool,
    cut: bool,
}

impl Completed {
    pub(crate) fn read(entry: &Value) -> Entry<Self> {
        Entry::read(entry, "content")
    }

    pub(crate) fn answer(&self) -> Result<Completion, ModelError> {
        if let Some(message) = &self.error {
            return Err(ModelError::Other { message: message.clone() });
        }
        Ok(Completion {
            id: "completion".to_owned(),
            content: self.content.clone(),
            reasoning: None,
            tool_calls: self.calls.iter().map(CallPlan::call).collect(),
            stop: match (self.filtered, self.cut) {
                (true, _) => StopReason::ContentFilter,
                (false, true) => StopReason::Length,
                (false, false) => StopReason::End,
            },
            usage: TokenUsage {
                input_tokens: self.input,
                cached_input_tokens: 0,
                output_tokens: self.output,
                cost_micro_usd: self.cost,
            },
            model: "the provider's name".to_owned(),
        })
    }
}

/// Returns the chat agent's turn for a completion.
pub(crate) fn relayed(completion: Completion) -> Turn {
    let Completion { id, content, tool_calls, .. } = completion;
    let reply = Reply { completion: Some(id), content, tool_calls, ..Reply::default() };
    Turn {
        action: Action::Reply(reply),
        thought: String::new(),
        wait_for_response: false,
        extra: Vec::new(),
    }
}

/// Reads a model request: `null` for the default model, a name, or an object with `model`,
/// `prompt`, `tools`, `format`, `choice`, `schema` and `options`.
pub(crate) fn request(entry: &Value) -> ModelRequest {
    let field = |name: &str| entry.get(name).cloned().unwrap_or_default();
    let read = |error: serde_json::Error| panic!("{entry}: {error}");
    ModelRequest {
        model: entry
            .as_str()
            .map(str::to_owned)
            .or_else(|| field("model").as_str().map(str::to_owned)),
        prompt: entry
            .get("prompt")
            .map(|prompt| serde_json::from_value(prompt.clone()).unwrap_or_else(read))
            .unwrap_or_default(),
        tools: serde_json::from_value(field("tools"))
            .unwrap_or_else(|error| panic!("{entry}: {error}")),
        tool_format: serde_json::from_value(field("format"))
            .unwrap_or_else(|error| panic!("{entry}: {error}")),
        tool_choice: entry.get("choice").map_or(ToolChoice::Auto, |choice| {
            serde_json::from_value(choice.clone()).expect("a choice")
        }),
        output_schema: entry.get("schema").cloned(),
        stream: false,
        options: entry
            .get("options")
            .map(|options| serde_json::from_value(options.clone()).expect("options"))
            .unwrap_or_default(),
    }
}

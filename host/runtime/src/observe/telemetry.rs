//! Runs as `tracing` spans, with the names of OpenTelemetry's conventions for generative AI. This
//! is an ordinary subscriber and installs nothing; the program that sets up `tracing` decides where
//! spans go.
//!
//! A turn of the entry task is `invoke_agent`, below the span that awaits its outcome. Below it is
//! each step of an agent, `invoke_agent` too, which lasts until the next step of its task begins, so
//! that the tool calls are below it. A model call is `chat`, below the step or tool that asks. A tool
//! call is `execute_tool`. A background task is below the step that started it.

mod open;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use conclave_core::protocol::event::{Event, Record};
use conclave_core::protocol::notice::Notice;
use conclave_core::types::completion::Completion;
use conclave_core::types::ids::{PluginName, RoomId};
use serde::Serialize;
use serde_json::{Value, json};
use tracing::{Span, event};

use crate::observe::subscribe::{Level, Published, RunEvent, Subscriber};
use open::OpenSpans;

/// Names of attributes. Those with the prefixes `gen_ai.`, `error.` and `server.` are
/// OpenTelemetry's; all others are Conclave's.
pub mod names {
    /// The kind of span: `invoke_agent`, `execute_tool` or `chat`.
    pub const OPERATION: &str = "gen_ai.operation.name";
    /// The provider of the model, such as `openai`; `_OTHER` if it is unknown.
    pub const PROVIDER: &str = "gen_ai.provider.name";
    /// The name of the model in the config.
    pub const REQUEST_MODEL: &str = "gen_ai.request.model";
    /// The provider's name of the model.
    pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
    /// The number of tokens in the prompt, as the server counts them.
    pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    /// The number of tokens in the answer, as the server counts them.
    pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    /// The room.
    pub const CONVERSATION: &str = "gen_ai.conversation.id";
    /// The plugin.
    pub const AGENT: &str = "gen_ai.agent.name";
    /// The tool as `plugin.tool`.
    pub const TOOL: &str = "gen_ai.tool.name";
    /// The host's id of the call, not the id that the model chose.
    pub const TOOL_CALL: &str = "gen_ai.tool.call.id";
    /// Content: only with `with_content`.
    pub const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
    /// Content: only with `with_content`.
    pub const TOOL_RESULT: &str = "gen_ai.tool.call.result";
    /// Content: only with `with_content`. The message that a turn answers.
    pub const INPUT_MESSAGES: &str = "gen_ai.input.messages";
    /// Content: only with `with_content`.
    pub const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
    /// The kind of a fault or of a server failure; `_OTHER` without a kind.
    pub const ERROR: &str = "error.type";
    /// Host and port of a model server.
    pub const SERVER: &str = "server.address";
    /// `ERROR` beside an error's kind, which marks the span as failed in every viewer.
    pub const STATUS: &str = "otel.status_code";
    /// The displayed name of the span.
    pub const SHOWN: &str = "otel.name";
    /// The task of the agent, or of the agent that calls the tool.
    pub const TASK: &str = "conclave.task";
    /// Duration of a call into a plugin, in microseconds.
    pub const WALL: &str = "conclave.wall_us";
    /// The cost of a request in micro-US-dollars; absent if the model has no price.
    pub const COST: &str = "conclave.cost_micro_usd";
}

/// Maximum characters of content in one attribute: a trace should not hold whole files.
const CONTENT: usize = 16 << 10;
/// Maximum rooms with spans. Ended runs are removed, so only thousands of concurrent rooms reach
/// it.
const ROOMS: usize = 4096;

/// Creates spans of one or many runs. Messages, arguments and log lines are only recorded if
/// [`with_content`](Self::with_content) is set, because they can be confidential.
///
/// ```
/// use std::sync::Arc;
///
/// use conclave_runtime::RunOptions;
/// use conclave_runtime::subscribe::{Subscriber, Subscribers};
/// use conclave_runtime::telemetry::SpanSubscriber;
///
/// let spans: Arc<dyn Subscriber> = Arc::new(SpanSubscriber::new());
/// let options = RunOptions { subscribers: Subscribers::new([spans]), ..RunOptions::default() };
/// # drop(options);
/// ```
#[derive(Debug, Default)]
pub struct SpanSubscriber {
    content: bool,
    providers: HashMap<String, String>,
    rooms: Mutex<HashMap<RoomId, OpenSpans>>,
}

impl SpanSubscriber {
    /// Returns a subscriber without content.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether tool arguments and results, model texts and plugin logs are recorded.
    #[must_use]
    pub fn with_content(mut self, content: bool) -> Self {
        self.content = content;
        self
    }

    /// Sets the provider of a configured model. The default is the `kind` of a model behind a
    /// server, otherwise `_OTHER`.
    #[must_use]
    pub fn with_provider(mut self, model: &str, provider: &str) -> Self {
        self.providers.insert(model.to_owned(), provider.to_owned());
        self
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RoomId, OpenSpans>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recorded(&self, open: &mut OpenSpans, record: &Record) {
        if let Some(setup) = record.event.setup() {
            open.setup = Some(setup.clone());
        }
        if let Event::ModelAnswered { call, ordinal, answer: Ok(completion), .. } = &record.event
            && self.content
        {
            open.chat(*call, *ordinal).record(names::OUTPUT_MESSAGES, output_message(completion));
        }
        if let Event::RoomOpened { opening, .. } | Event::RunStarted { opening, .. } = &record.event
            && self.content
        {
            open.input = opening.content.as_deref().map(input_message);
        }
    }

    fn record_notice(&self, open: &mut OpenSpans, room: &RoomId, notice: &Notice) {
        match notice {
            Notice::StepStarted { call, task, agent } => {
                open.step_started(room, *call, task, agent)
            }
            Notice::PluginFaulted { call, fault, .. } => {
                record_error(open.call(*call), word(&fault.kind));
            }
            Notice::Inbound { text, .. } if self.content => open.input = Some(input_message(text)),
            Notice::ToolCalled { call, task, caller, name, arguments, within, .. } => {
                open.tool_called(room, *call, (task, caller), name, *within);
                if self.content {
                    open.call(*call).record(names::TOOL_ARGUMENTS, cut(&arguments.to_string()));
                }
            }
            Notice::ToolAnswered { call: Some(call), content, is_error, fault, report, .. } => {
                let span = open.tool_answered(*call);
                span.record(names::WALL, report.wall_us);
                if *is_error {
                    let kind = fault.as_ref().map(|fault| word(&fault.kind));
                    record_error(&span, kind.unwrap_or_else(|| "_OTHER".to_owned()));
                }
                if self.content {
                    span.record(names::TOOL_RESULT, cut(content));
                }
            }
            Notice::ModelCalled { call, ordinal, model, .. } => {
                let provider = self.providers.get(model.as_str()).map(String::as_str);
                open.model_called(room, *call, *ordinal, model, provider);
            }
            Notice::ModelAnswered { call, ordinal, usage, model, error, trouble, .. } => {
                let span = open.model_answered(*call, *ordinal);
                span.record(names::INPUT_TOKENS, usage.input_tokens)
                    .record(names::OUTPUT_TOKENS, usage.output_tokens);
                model.as_deref().map(|model| span.record(names::RESPONSE_MODEL, model));
                usage.cost_micro_usd.map(|cost| span.record(names::COST, cost));
                if error.is_some() {
                    let kind = trouble
                        .as_ref()
                        .map_or_else(|| "_OTHER".to_owned(), |trouble| word(&trouble.kind));
                    record_error(&span, kind);
                }
            }
            Notice::Denied { call, plugin, record } => {
                let span = call.map_or_else(|| open.latest(), |call| open.call(call));
                let (capability, layer) =
                    (record.denial.capability.as_str(), record.layer.as_str());
                let target = self.content.then(|| cut(&record.denial.target));
                event!(target: "conclave", parent: span, tracing::Level::WARN, plugin = plugin.as_str(), capability, layer, target, "denied");
            }
            Notice::ApprovalGiven { approval, .. } => {
                event!(target: "conclave", parent: open.latest(), tracing::Level::INFO, approval = tag(approval), "decided");
            }
            Notice::TaskEnded { task, status, .. } => {
                let (task_name, status) = (task.as_str(), status.as_str());
                event!(target: "conclave", parent: open.step_of(task), tracing::Level::INFO, task = task_name, status, "task ended");
                open.task_ended(task);
            }
            Notice::TurnStopped { task, .. } => {
                event!(target: "conclave", parent: open.step_of(task), tracing::Level::INFO, task = task.as_str(), "turn stopped");
                open.turn_stopped();
            }
            _ => {}
        }
    }

    fn logged(&self, span: &Span, plugin: &PluginName, level: Level, message: &str) {
        let (plugin, message) = (plugin.as_str(), self.content.then(|| cut(message)));
        // `tracing` needs the level at compile time, so each has its own call.
        match level {
            Level::Trace => {
                event!(target: "conclave::plugin", parent: span, tracing::Level::TRACE, plugin, message)
            }
            Level::Debug => {
                event!(target: "conclave::plugin", parent: span, tracing::Level::DEBUG, plugin, message)
            }
            Level::Info => {
                event!(target: "conclave::plugin", parent: span, tracing::Level::INFO, plugin, message)
            }
            Level::Warn => {
                event!(target: "conclave::plugin", parent: span, tracing::Level::WARN, plugin, message)
            }
            Level::Error => {
                event!(target: "conclave::plugin", parent: span, tracing::Level::ERROR, plugin, message)
            }
        }
    }
}

impl Subscriber for SpanSubscriber {
    fn shows_text(&self) -> bool {
        false
    }

    fn on(&self, happening: &Published) {
        let room = &happening.room;
        let mut rooms = self.lock();
        if let RunEvent::Notice { notice: Notice::BackgroundStarted { room: child, .. } } =
            &happening.what
        {
            let parent = rooms.get(room).map_or_else(Span::none, |open| open.latest().clone());
            if rooms.len() < ROOMS {
                rooms.insert(child.clone(), OpenSpans::below(parent));
            }
        }
        // Only the first event of a room adds it. A late event of a dropped run must not add it
        // again.
        let is_opening = matches!(&happening.what, RunEvent::Recorded { record } if matches!(record.event, Event::RoomOpened { .. }));
        if is_opening && rooms.len() < ROOMS {
            rooms.entry(room.clone()).or_default();
        }
        let Some(open) = rooms.get_mut(room) else { return };
        match &happening.what {
            RunEvent::Recorded { record } => self.recorded(open, record),
            RunEvent::Notice { notice } => self.record_notice(open, room, notice),
            RunEvent::Logged { call, plugin, level, message } => {
                self.logged(open.call(*call), plugin, *level, message)
            }
            RunEvent::ObserverStopped { observer, undelivered, reason } => {
                tracing::warn!(target: "conclave::observer", parent: open.latest(), %observer, undelivered, reason, "stopped");
            }
            RunEvent::ObserverQueueFull { observer, queued } => {
                tracing::warn!(target: "conclave::observer", parent: open.latest(), %observer, queued, "queue full");
            }
            RunEvent::Progressed { .. }
            | RunEvent::Streamed { .. }
            | RunEvent::ModelWaiting { .. }
            | RunEvent::ObserverQueueFree { .. } => {}
        }
    }

    /// Ends every open span, also when the run was dropped.
    fn over(&self, room: &RoomId) {
        let is_below = |name: &RoomId| {
            name.as_str().strip_prefix(room.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        let mut rooms = self.lock();
        rooms.retain(|name, _| name != room && !is_below(name));
    }
}

/// Marks a span as failed.
fn record_error(span: &Span, kind: String) {
    span.record(names::ERROR, kind).record(names::STATUS, "ERROR");
}

/// A person's text in the form of the conventions.
fn input_message(text: &str) -> String {
    let part = json!({ "type": "text", "content": cut(text) });
    json!([{ "role": "user", "parts": [part] }]).to_string()
}

/// A model's text in the form of the conventions.
fn output_message(completion: &Completion) -> String {
    let text =
        completion.content.iter().map(|content| json!({ "type": "text", "content": cut(content) }));
    let calls = completion.tool_calls.iter();
    let calls = calls.map(|call| json!({ "type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments }));
    let parts: Vec<Value> = text.chain(calls).collect();
    cut(&json!([{ "role": "assistant", "parts": parts, "finish_reason": completion.stop }])
        .to_string())
}

fn cut(text: &str) -> String {
    text.chars().take(CONTENT).collect()
}

/// A kind as the journal writes it.
fn word(kind: &impl Serialize) -> String {
    serde_json::to_value(kind)
        .ok()
        .and_then(|kind| kind.as_str().map(str::to_owned))
        .unwrap_or_else(|| "_OTHER".to_owned())
}

/// The decision without its subject.
fn tag(approval: &conclave_core::types::approval::Approval) -> &'static str {
    use conclave_core::types::approval::Approval::{Approved, Edited, Invalid, Refused};
    match approval {
        Approved => "approved",
        Edited { .. } => "edited",
        Refused { .. } => "refused",
        Invalid { .. } => "invalid",
    }
}

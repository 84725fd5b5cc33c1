//! The agents of a case as native plugins. Each follows the case's script and stores its inputs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_runtime::Capability;
use conclave_runtime::action::{Action, Reply, Turn};
use conclave_runtime::ids::RoomId;
use conclave_runtime::message::Message;
use conclave_runtime::native::{Failure, IntoTurn, Plugin, Step, call, finish};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The tool that submits a structured result.
const SUBMIT: &str = "submit_result";

/// An agent's behavior, from its entry in `registered` or in the parent's channels.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    pub(super) id: String,
    /// One reply for each step of a room; the last one repeats. `None` is a turn without a message.
    pub(super) replies: Vec<Option<String>>,
    /// The duration of a step in the time of the case, in milliseconds. That time passes with
    /// [`Agent::release`].
    pub(super) delay_ms: u64,
    pub(super) raises: Option<String>,
    /// The step that submits a structured result; 0 for never. `None` if no result is requested.
    pub(super) submits_on: Option<u64>,
    pub(super) system: Option<String>,
    /// The depth of rooms up to which it delegates to itself.
    pub(super) nests_to: u64,
}

impl Script {
    pub(super) fn read(entry: &Value) -> Option<Self> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let replies = entry.get("replies").and_then(Value::as_array);
        Some(Self {
            id: text("id")?,
            replies: replies.map_or_else(Vec::new, |replies| {
                replies.iter().map(|reply| reply.as_str().map(str::to_owned)).collect()
            }),
            delay_ms: entry.get("delay_ms").and_then(Value::as_u64).unwrap_or_default(),
            raises: text("raises").or_else(|| text("error")),
            submits_on: entry.get("submits_on_turn").map(|turn| turn.as_u64().unwrap_or_default()),
            system: text("system_prompt"),
            nests_to: 0,
        })
    }
}

/// One step with the agent's input.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) room: RoomId,
    pub(super) history: Vec<Arc<Message>>,
    pub(super) tools: Vec<String>,
    pub(super) results: Vec<String>,
}

/// A scripted agent and its inputs.
#[derive(Clone)]
pub(super) struct Agent(Arc<Inner>);

struct Inner {
    script: Script,
    /// Turns that it takes first, in any room.
    turns: Mutex<VecDeque<Turn>>,
    steps: Mutex<BTreeMap<RoomId, u64>>,
    seen: Mutex<Vec<Seen>>,
    /// The number of steps that have begun.
    begun: watch::Sender<usize>,
    /// Whether long steps may end.
    released: watch::Sender<bool>,
}

impl Agent {
    pub(super) fn new(script: Script) -> Self {
        Self(Arc::new(Inner {
            script,
            turns: Mutex::default(),
            steps: Mutex::default(),
            seen: Mutex::default(),
            begun: watch::Sender::new(0),
            released: watch::Sender::new(false),
        }))
    }

    pub(super) fn script(&self) -> &Script {
        &self.0.script
    }

    /// Makes its next turn a call of this tool.
    pub(super) fn will_call(&self, tool: &str, arguments: Value) {
        lock(&self.0.turns).push_back(call(tool, arguments));
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        lock(&self.0.seen).clone()
    }

    /// Waits until it has begun so many steps.
    pub(super) async fn has_begun(&self, steps: usize) {
        // Cannot fail: this agent owns the sender.
        let _ = self.0.begun.subscribe().wait_for(|begun| *begun >= steps).await;
    }

    /// Lets long steps end.
    pub(super) fn release(&self) {
        self.0.released.send_replace(true);
    }

    /// Returns the agent as a native plugin.
    pub(super) fn plugin(&self, name: &str) -> Plugin {
        let agent = self.clone();
        let plugin = Plugin::agent(name, move |step| agent.clone().step(step));
        plugin
            .may_use(Capability::Delegate, "The case's script says so.")
            .may_use(Capability::Tools, "The case's script says so.")
    }

    async fn step(self, step: Step) -> Result<Turn, Failure> {
        let Script { replies, delay_ms, raises, submits_on, nests_to, .. } = &self.0.script;
        let room = step.host.room().clone();
        let number = {
            let mut steps = lock(&self.0.steps);
            let number = steps.entry(room.clone()).or_default();
            *number += 1;
            *number
        };
        lock(&self.0.seen).push(Seen {
            history: step.view.history.iter().cloned().collect(),
            tools: step.view.tools.iter().map(|tool| tool.name.clone()).collect(),
            results: step.results().iter().map(|result| result.content.clone()).collect(),
            room: room.clone(),
        });
        self.0.begun.send_modify(|begun| *begun += 1);
        let next = lock(&self.0.turns).pop_front();
        if let Some(turn) = next {
            return Ok(turn);
        }
        if *delay_ms > 0 {
            // Cannot fail: this agent owns the sender and lives as long as its step.
            let _ = self.0.released.subscribe().wait_for(|released| *released).await;
        }
        if let Some(raises) = raises {
            return Err(Failure::new(raises.clone()));
        }
        let depth = room.as_str().matches('/').count() as u64;
        if number == 1 && depth < *nests_to {
            return Ok(call(
                "delegate_task",
                json!({ "agent": self.0.script.id, "task": format!("level {}", depth + 1) }),
            ));
        }
        let at = usize::try_from(number)
            .unwrap_or(usize::MAX)
            .saturating_sub(1)
            .min(replies.len().saturating_sub(1));
        let reply = replies.get(at).cloned();
        Ok(match (submits_on, reply) {
            (Some(turn), _) if number == *turn => {
                call(SUBMIT, json!({ "status": "completed", "summary": "done" }))
            }
            (Some(_), reply) => finish(reply.flatten().unwrap_or_else(|| "not yet".to_owned())),
            (None, Some(Some(text))) => finish(text),
            // The script has an empty reply.
            (None, Some(None)) => Action::Reply(Reply::default()).into_turn(),
            (None, None) => finish("noted"),
        })
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The agents of a case, as native plugins: each does what the case's script says, and keeps what
//! it was told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_runtime::Capability;
use conclave_runtime::action::{Action, Reply, Turn};
use conclave_runtime::ids::RoomId;
use conclave_runtime::message::Message;
use conclave_runtime::native::{Failure, IntoTurn, Plugin, Step, call, finish};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The tool with which a structured result is handed in.
const SUBMIT: &str = "submit_result";

/// What an agent does, from its entry in `registered` or in the parent's channels.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    pub(super) id: String,
    /// One for each step of a room, the last for all that follow; none says nothing at all.
    pub(super) replies: Vec<Option<String>>,
    /// How long a step takes in the time of the case, which passes when somebody waits for an end:
    /// [`Agent::release`].
    pub(super) delay_ms: u64,
    pub(super) raises: Option<String>,
    /// The step in which it hands a structured result in; 0: never. None: nobody asks for one.
    pub(super) submits_on: Option<u64>,
    pub(super) system: Option<String>,
    /// It delegates to itself in every room that is not so deep.
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

/// One step, as the agent saw it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) room: RoomId,
    pub(super) history: Vec<Arc<Message>>,
    pub(super) tools: Vec<String>,
    pub(super) results: Vec<String>,
}

/// An agent, and what it was told.
#[derive(Clone)]
pub(super) struct Agent(Arc<Inner>);

struct Inner {
    script: Script,
    /// Turns that it takes before anything else, whichever room it is in.
    turns: Mutex<VecDeque<Turn>>,
    steps: Mutex<BTreeMap<RoomId, u64>>,
    seen: Mutex<Vec<Seen>>,
    /// Steps that it has begun.
    begun: watch::Sender<usize>,
    /// Steps that take long may end.
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

    /// Its next turn is a call of this tool.
    pub(super) fn will_call(&self, tool: &str, arguments: Value) {
        lock(&self.0.turns).push_back(call(tool, arguments));
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        lock(&self.0.seen).clone()
    }

    /// It has begun so many steps.
    pub(super) async fn has_begun(&self, steps: usize) {
        // Its sender is this agent's.
        let _ = self.0.begun.subscribe().wait_for(|begun| *begun >= steps).await;
    }

    /// The time that its steps take has passed.
    pub(super) fn release(&self) {
        self.0.released.send_replace(true);
    }

    /// As a plugin of the program's own.
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
            // Its sender is this agent's, which lives as long as its step.
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
            // No reply at all.
            (None, Some(None)) => Action::Reply(Reply::default()).into_turn(),
            (None, None) => finish("noted"),
        })
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

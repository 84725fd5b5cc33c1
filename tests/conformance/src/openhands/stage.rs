//! Plays a conversation on a whole host whose plugins are native: an agent that follows a script
//! and tools with fixed answers. Collects what the host reports. Needs no component.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::inspect::export;
use conclave_core::trajectory::Era;
use conclave_core::types::agent_state::AgentState;
use conclave_runtime::Capability;
use conclave_runtime::action::{Action, PastAction, Reply, Turn};
use conclave_runtime::approval::{Approval, ApprovalAnswer, ApprovalRequest};
use conclave_runtime::approve::Approver;
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::config::Config;
use conclave_runtime::event::{Event, Record};
use conclave_runtime::ids::{ChannelId, TaskName};
use conclave_runtime::native::{Failure, IntoTurn, Plugin, Step, Tool, finish};
use conclave_runtime::notice::Notice;
use conclave_runtime::outcome::Outcome;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{Host, HostOptions, RunInput, RunOptions};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::case_store::any_journals;

/// One step of an agent.
#[derive(Clone, Debug)]
pub(super) enum Move {
    Turn(Turn),
    /// Fails with this text.
    Fails(String),
}

/// The answer of a tool to one call.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// A value, or an observation in its fixed form.
    Value(Value),
    Fails(String),
}

/// Converts an action in its fixed form into a turn of the agent. A message without
/// `wait_for_response` is posted, and the agent continues.
///
/// # Errors
/// If the arguments do not fit the kind of action.
pub(super) fn turn(form: &Value) -> Result<Turn, String> {
    let kind =
        form.get("action").and_then(Value::as_str).ok_or_else(|| format!("{form} is no action"))?;
    let args = form.get("args").cloned().unwrap_or_else(|| json!({}));
    let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let action = match kind {
        "message" => Action::Talk { content: text("content") },
        kind => Action::from_args(kind, &args).map_err(|error| format!("{form}: {error}"))?,
    };
    let wait_for_response =
        args.get("wait_for_response").and_then(Value::as_bool).unwrap_or_default();
    let thought = if kind == "think" { String::new() } else { text("thought") };
    Ok(Turn { thought, wait_for_response, ..action.into_turn() })
}

/// Returns a turn without a message or an action.
pub(super) fn nothing() -> Turn {
    Action::Reply(Reply::default()).into_turn()
}

/// A conversation to play. The entry agent's moves come in parts, one for each message of its user.
#[derive(Default)]
pub(super) struct Stage {
    pub(super) parts: Vec<(String, Vec<Move>)>,
    /// The name and moves of the agent that the entry agent may delegate to.
    pub(super) child: Option<(String, Vec<Move>)>,
    /// The answers of each tool by tool name, in call order.
    pub(super) tools: Vec<(String, Vec<Told>)>,
    /// Additional lines of `[tasks.main]`.
    pub(super) task: String,
    /// Additional config tables.
    pub(super) more: String,
    /// Additional plugins.
    pub(super) plugins: Vec<Plugin>,
    /// The user's answers in order. After the last one, prompts stay unanswered.
    pub(super) user: Vec<String>,
    /// The approver's decision. `None` if the approver never decides.
    pub(super) approval: Option<Approval>,
}

/// The observations of one part.
pub(super) struct Part {
    /// `None` if the user or the approver was asked and gave no answer.
    pub(super) outcome: Option<Arc<Outcome>>,
    pub(super) notices: Vec<Notice>,
    /// The number of moves made.
    pub(super) played: usize,
    /// Whether the agent was asked for more moves than its script has.
    pub(super) was_asked_for_more: bool,
}

/// The observations of a whole conversation.
pub(super) struct Seen {
    pub(super) parts: Vec<Part>,
    /// The entry agent's state when its script was used up, else its last state.
    pub(super) state: AgentState,
    /// All records until then.
    pub(super) records: Vec<Record>,
    /// The past actions passed to the entry agent before each of its steps.
    pub(super) since: Vec<Arc<Vec<PastAction>>>,
    /// The number of steps taken before each of the entry agent's steps.
    pub(super) iterations: Vec<u32>,
    /// The tools that ran, in the order in which they began.
    pub(super) executed: Vec<String>,
    /// The requests that the approver received.
    pub(super) asked: Vec<ApprovalRequest>,
}

impl Seen {
    pub(super) fn part(&self) -> Result<&Part, String> {
        self.parts.last().ok_or_else(|| "nothing was played".to_owned())
    }

    pub(super) fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.parts.iter().flat_map(|part| &part.notices)
    }

    /// Returns the states that the entry agent went through.
    pub(super) fn states(&self) -> Vec<&'static str> {
        let state = |notice: &Notice| match notice {
            Notice::AgentStateChanged { task, state, .. } if task.as_str() == "main" => {
                Some(state.as_str())
            }
            _ => None,
        };
        self.notices().filter_map(state).collect()
    }

    /// Returns the number of steps in the journal.
    pub(super) fn recorded_steps(&self) -> usize {
        self.records
            .iter()
            .filter(|record| matches!(record.event, Event::AgentStepped { .. }))
            .count()
    }

    /// Returns the step limit of the newest run, as recorded in the journal.
    pub(super) fn most_turns(&self) -> Option<u64> {
        self.records.iter().rev().find_map(|record| match &record.event {
            Event::RoomOpened { opening, .. } | Event::RunStarted { opening, .. } => {
                opening.limits.turns
            }
            _ => None,
        })
    }

    /// Returns the log that `conclave trajectory export` writes.
    pub(super) fn log(&self, era: Era) -> Vec<Value> {
        export::log(self.records.iter().cloned(), era)
    }
}

#[derive(Default)]
struct Inner {
    moves: VecDeque<Move>,
    child: VecDeque<Move>,
    tools: Vec<(String, VecDeque<Told>)>,
    user: VecDeque<String>,
    played: usize,
    was_asked_for_more: bool,
    /// The state and the number of records when the script was used up.
    at_end: Option<(AgentState, usize)>,
    state: AgentState,
    notices: Vec<Notice>,
    records: Vec<Record>,
    since: Vec<Arc<Vec<PastAction>>>,
    iterations: Vec<u32>,
    executed: Vec<String>,
    asked: Vec<ApprovalRequest>,
}

/// The state shared by the plugins and the user of the stage.
#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
    approval: Option<Approval>,
    /// Signals that a request stays unanswered.
    unanswered: Notify,
    /// Signals that the entry agent changed its state.
    changed: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once a request stays unanswered and the host has reported that its agent waits for
    /// it.
    async fn rests(&self) {
        self.unanswered.notified().await;
        loop {
            {
                let mut inner = self.lock();
                if matches!(
                    inner.state,
                    AgentState::AwaitingUserInput | AgentState::AwaitingUserConfirmation
                ) {
                    let at_end = (inner.state, inner.records.len());
                    inner.at_end.get_or_insert(at_end);
                    return;
                }
            }
            self.changed.notified().await;
        }
    }

    fn step(&self, step: &Step) -> Result<Turn, Failure> {
        let mut inner = self.lock();
        inner.since.push(Arc::clone(&step.view.since));
        inner.iterations.push(step.view.iteration);
        match inner.moves.pop_front() {
            Some(next) => {
                inner.played += 1;
                next.made()
            }
            None => {
                inner.was_asked_for_more = true;
                let at_end = (inner.state, inner.records.len());
                inner.at_end.get_or_insert(at_end);
                Ok(finish("the script is over"))
            }
        }
    }

    fn call(&self, tool: &str) -> Result<Value, Failure> {
        let mut inner = self.lock();
        inner.executed.push(tool.to_owned());
        let told = inner
            .tools
            .iter_mut()
            .find(|(name, _)| name == tool)
            .and_then(|(_, told)| told.pop_front());
        match told {
            Some(Told::Value(value)) => Ok(value),
            Some(Told::Fails(text)) => Err(Failure::new(text)),
            None => Ok(json!("done")),
        }
    }
}

impl Move {
    fn made(self) -> Result<Turn, Failure> {
        match self {
            Self::Turn(turn) => Ok(turn),
            Self::Fails(text) => Err(Failure::new(text)),
        }
    }
}

struct Following(Arc<Shared>);

impl Subscriber for Following {
    fn on(&self, happening: &Published) {
        let mut inner = self.0.lock();
        match &happening.what {
            RunEvent::Notice { notice: told } => {
                if let Notice::AgentStateChanged { task, state, .. } = told
                    && task.as_str() == "main"
                {
                    inner.state = *state;
                    self.0.changed.notify_one();
                }
                inner.notices.push(told.clone());
            }
            RunEvent::Recorded { record } => inner.records.push(Record::clone(record)),
            _ => {}
        }
    }
}

struct User(Arc<Shared>);

impl Channels for User {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        match self.0.lock().user.pop_front() {
            Some(text) => Box::pin(std::future::ready(Some(HumanAnswer::from(text)))),
            None => {
                self.0.unanswered.notify_one();
                Box::pin(std::future::pending())
            }
        }
    }

    fn send(&self, _: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

struct Approves(Arc<Shared>);

impl Approver for Approves {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        self.0.lock().asked.push(request);
        match self.0.approval.clone() {
            Some(approval) => Box::pin(std::future::ready(approval.into())),
            None => {
                self.0.unanswered.notify_one();
                Box::pin(std::future::pending())
            }
        }
    }
}

impl Stage {
    /// Creates a stage with one part, which the user's `go` begins.
    pub(super) fn of(moves: Vec<Move>) -> Self {
        Self { parts: vec![("go".to_owned(), moves)], ..Self::default() }
    }

    fn config(&self) -> String {
        let mut text = "entry = \"main\"\n[plugins.agent]\nsource = \"native:agent\"\n".to_owned();
        if !self.tools.is_empty() {
            text += "grants.tools = [\"world.*\"]\n";
        }
        if let Some((child, _)) = &self.child {
            text += &format!(
                "grants.delegate = {{ tasks = [\"{child}\"] }}\n[plugins.worker]\nsource = \"native:worker\"\n"
            );
            text += &format!("[tasks.{child}]\nagent = \"worker\"\n");
        }
        let executors = if self.tools.is_empty() { "" } else { "action_plugins = [\"world\"]\n" };
        if !self.tools.is_empty() {
            text += "[plugins.world]\nsource = \"native:world\"\n[[policy]]\ntool = \"world.*\"\ndecide = \"allow\"\n";
        }
        text + &self.more + "\n[tasks.main]\nagent = \"agent\"\n" + executors + &self.task
    }

    fn plugins(&mut self, shared: &Arc<Shared>) -> Vec<Plugin> {
        let mut plugins = std::mem::take(&mut self.plugins);
        let of = Arc::clone(shared);
        let agent = Plugin::agent("agent", move |step: Step| std::future::ready(of.step(&step)));
        let agent = agent.may_use(Capability::Delegate, "The case's script says so.");
        plugins.push(agent.may_use(Capability::Tools, "The case's script says so."));
        if self.child.is_some() {
            let of = Arc::clone(shared);
            plugins.push(Plugin::agent("worker", move |_| {
                let next =
                    of.lock().child.pop_front().unwrap_or_else(|| Move::Turn(finish("done")));
                std::future::ready(next.made())
            }));
        }
        if !self.tools.is_empty() {
            let tool = |(name, _): &(String, Vec<Told>)| {
                let (of, own) = (Arc::clone(shared), name.clone());
                Tool::new(
                    name,
                    "Does what the case says.",
                    json!({ "type": "object" }),
                    move |_| std::future::ready(of.call(&own)),
                )
            };
            plugins.push(Plugin::tools("world", self.tools.iter().map(tool)));
        }
        plugins
    }

    /// Returns the problems that the host finds in the config, or `None` if it can be played.
    pub(super) fn refused(&self) -> Option<String> {
        Config::parse("conclave.toml", "/", &self.config())
            .err()
            .map(|problems| problems.to_string())
    }

    /// Plays the conversation.
    ///
    /// # Errors
    /// If the conversation could not be played.
    pub(super) async fn play(mut self) -> Result<Seen, String> {
        let shared = Arc::new(Shared { approval: self.approval.take(), ..Shared::default() });
        {
            let mut inner = shared.lock();
            inner.child =
                self.child.iter_mut().flat_map(|(_, moves)| std::mem::take(moves)).collect();
            inner.tools = self
                .tools
                .iter()
                .map(|(name, told)| (name.clone(), told.iter().cloned().collect()))
                .collect();
            inner.user = std::mem::take(&mut self.user).into();
        }
        let native = self.plugins(&shared);
        let text = self.config();
        let host = Host::new(HostOptions { native, ..HostOptions::default() })
            .map_err(|error| error.to_string())?;
        let config = Config::parse("conclave.toml", "/", &text)
            .map_err(|problems| format!("the config is refused:\n{problems}\n{text}"))?;
        let prepared = host
            .load(&config)
            .await
            .map_err(|error| format!("the config does not fit:\n{error}\n{text}"))?;
        let options = RunOptions {
            subscribers: Subscribers::new([
                Arc::new(Following(Arc::clone(&shared))) as Arc<dyn Subscriber>
            ]),
            channels: Arc::new(User(Arc::clone(&shared))),
            approver: Arc::new(Approves(Arc::clone(&shared))),
            journals: any_journals()?,
            ..RunOptions::default()
        };
        let mut session = prepared.session(options).map_err(|error| error.to_string())?;
        let mut parts = Vec::new();
        for (said, moves) in std::mem::take(&mut self.parts) {
            {
                let mut inner = shared.lock();
                (inner.moves, inner.played, inner.was_asked_for_more, inner.at_end) =
                    (moves.into(), 0, false, None);
            }
            let outcome = tokio::select! {
                ended = session.run(RunInput { content: Some(said), ..RunInput::default() }) => Some(ended.map_err(|error| error.to_string())?),
                () = shared.rests() => None,
            };
            let is_over = outcome.is_none();
            let mut inner = shared.lock();
            let (played, was_asked_for_more) = (inner.played, inner.was_asked_for_more);
            parts.push(Part {
                outcome,
                notices: std::mem::take(&mut inner.notices),
                played,
                was_asked_for_more,
            });
            if is_over {
                break;
            }
        }
        drop(session);
        let mut inner = std::mem::take(&mut *shared.lock());
        let (state, records) = inner.at_end.unwrap_or((inner.state, inner.records.len()));
        inner.records.truncate(records);
        let Inner { records, since, iterations, executed, asked, .. } = inner;
        Ok(Seen { parts, state, records, since, iterations, executed, asked })
    }
}

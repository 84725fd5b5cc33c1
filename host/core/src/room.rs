//! The room: a state machine without IO, and the unit that is journalled. `handle` takes what
//! happened, `poll_effect` gives what to do next, `agent_view` and `delivery_view` show what a
//! plugin may see. Nothing else changes it, so a room is the fold of its events.
//!
//! A run is a tree of frames (a task and its sub-tasks) inside one room. Background tasks are rooms
//! of their own.

mod acting;
mod agent_states;
mod approvals;
mod background;
mod budgets;
mod calls;
mod condensing;
mod confirming;
mod context_window;
mod controls;
mod conversation;
mod delegates;
mod delivery;
mod frame;
mod gates;
mod handoff;
mod histories;
mod host_tools;
mod invariants;
mod knowledge;
mod lifecycle;
mod limit_increase;
mod links;
mod loop_detection;
mod messages;
mod models;
mod pausing;
mod planning;
mod prompt_agent;
mod prompts;
mod requests;
mod responders;
mod result_types;
mod resumed;
mod runs;
mod scratch;
mod side_effects;
mod steps;
mod stuck_detection;
mod termination;
mod tools;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::policy::budget::{Budget, LimitIncrease};
use crate::protocol::effect::Effect;
use crate::protocol::event::{Event, RunOpening};
use crate::protocol::notice::Notice;
use crate::setup::{Setup, TaskSetup};
use crate::types::fault::CallReport;
use crate::types::ids::{
    BackgroundId, CallId, ChannelId, ControlId, FrameId, Millis, ModelName, PluginName, RoomId,
    TaskName, TimerId,
};
use crate::types::limits::RunLimits;
use crate::types::outcome::{Outcome, Status};
use crate::types::room_secret::RoomSecret;
use crate::types::usage::{Spent, Used, UsedByPlugin};
use crate::types::view::{AgentView, Remaining};

pub use invariants::{Invariant, InvariantViolation};
pub use lifecycle::RoomStatus;
pub use stuck_detection::StuckKind;
pub(crate) use tools::{naming_task_list, wider_tools};

use agent_states::AgentStates;
use background::{BackgroundTask, TaskRecords};
use budgets::Short;
use calls::PendingCalls;
use context_window::Lost;
use controls::ReceivedControls;
use conversation::RoomChannels;
use delivery::{Deliveries, GatedSpeech};
use frame::Frame;
use gates::Gating;
use handoff::Handoffs;
use histories::{Histories, Links};
use limit_increase::HeldRequest;
use models::ModelCall;
use pausing::Pausing;
use prompts::Texts;
use scratch::ScratchKey;

/// Where a room is in its life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum RoomPhase {
    /// Waits for `RoomOpened`.
    Unopened,
    /// The entry task is at work.
    Running { root: FrameId },
    /// The entry task has ended; background work goes on.
    Draining { outcome: Arc<Outcome> },
    /// Nothing will happen any more.
    Finished { outcome: Arc<Outcome> },
}

/// What a call is for, so that its answer finds its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Purpose {
    Step {
        frame: FrameId,
    },
    Respond {
        frame: FrameId,
    },
    Tool {
        frame: FrameId,
        slot: usize,
        plugin: PluginName,
    },
    /// A tool call that waits for an approver.
    Approval {
        frame: FrameId,
        slot: usize,
    },
    /// A tool call that waits for more of a budget; nothing answers it by itself.
    HeldTool {
        frame: FrameId,
        slot: usize,
        asked: approvals::Consent,
    },
    /// A question for more of a budget.
    TopUp {
        top_up: Box<LimitIncrease>,
    },
    User {
        frame: FrameId,
    },
    /// A plugin was asked something beside steps and tool calls.
    Consult {
        frame: FrameId,
        plugin: PluginName,
        about: QueryPurpose,
    },
    /// A gate was asked about something on its way.
    Gate {
        plugin: PluginName,
        /// Of the thing on its way.
        number: u64,
    },
    /// An executor was asked about a background command, in no round.
    Job {
        task: TaskName,
        plugin: PluginName,
        about: acting::JobCall,
    },
    Background {
        id: BackgroundId,
    },
    /// Something that was said in the room is told on a channel.
    Post {
        channel: ChannelId,
        key: String,
    },
    Strategy {
        strategy: PluginName,
    },
    Speech {
        saying: Box<GatedSpeech>,
    },
}

/// What a plugin was consulted about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum QueryPurpose {
    /// For the recall action in this slot.
    Memories { slot: usize },
    /// Of the action or the call in this slot.
    Risk { slot: usize },
    /// Of the frame's history, before its next step.
    Condense,
}

impl Purpose {
    fn frame(&self) -> Option<FrameId> {
        match self {
            Self::Step { frame }
            | Self::Respond { frame }
            | Self::Tool { frame, .. }
            | Self::Approval { frame, .. }
            | Self::HeldTool { frame, .. }
            | Self::User { frame }
            | Self::Consult { frame, .. } => Some(*frame),
            Self::Gate { .. }
            | Self::Job { .. }
            | Self::TopUp { .. }
            | Self::Background { .. }
            | Self::Post { .. }
            | Self::Strategy { .. }
            | Self::Speech { .. } => None,
        }
    }
}

/// Why a timer was set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum TimerPurpose {
    /// The run's wall time is over.
    Wall,
    /// An approver has not decided in time.
    Approval { call: CallId },
    /// A call has been pending for as long as it may.
    Pending { call: CallId, after_ms: u64 },
    /// A background command is to be asked what it said.
    Poll { frame: FrameId, command_id: i64 },
    /// A gate has not answered in time.
    Gate { call: CallId },
    /// A strategy waits.
    Delivery { strategy: PluginName, at: Millis },
}

/// Numbers that only grow; the room's ids come from here, so folding gives the same ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Counters {
    call: u64,
    frame: u32,
    message: u64,
    timer: u64,
    background: u32,
}

/// A conversation and the work that goes on in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Room {
    phase: RoomPhase,
    now: Millis,
    opened: Millis,
    setup: Arc<Setup>,
    opening: RunOpening,
    /// None before the room is opened.
    #[serde(
        with = "crate::types::room_secret::in_state",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    secret: Option<RoomSecret>,
    frames: BTreeMap<FrameId, Frame>,
    memories: Histories,
    /// How messages followed from one another.
    links: Links,
    /// So many links are looked through again.
    #[serde(default)]
    links_due: usize,
    calls: PendingCalls,
    model_calls: Vec<ModelCall>,
    /// Steps that got no answer of a model, and go on still.
    #[serde(default)]
    without_model: BTreeSet<CallId>,
    /// Steps whose model's last answer was held back by its provider, and go on still.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    filtered: BTreeSet<CallId>,
    /// What histories have lost while a call went on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    lost: Lost,
    /// System texts that were made before.
    #[serde(skip)]
    texts: Texts,
    background: BTreeMap<BackgroundId, BackgroundTask>,
    /// Results that wait to be told, or for their agent's next turn.
    #[serde(default, skip_serializing_if = "Deliveries::is_new")]
    deliveries: Deliveries,
    /// Records of background tasks, ended ones included, and what was delegated before.
    #[serde(default, skip_serializing_if = "TaskRecords::is_new")]
    tasks: TaskRecords,
    #[serde(default, skip_serializing_if = "RoomChannels::is_new")]
    conversation: RoomChannels,
    #[serde(default, skip_serializing_if = "Gating::is_idle")]
    gating: Gating,
    #[serde(default, skip_serializing_if = "Handoffs::is_new")]
    handoff: Handoffs,
    timers: BTreeMap<TimerId, TimerPurpose>,
    #[serde(with = "scratch::as_pairs")]
    scratch: BTreeMap<ScratchKey, Arc<Vec<u8>>>,
    used: UsedByPlugin,
    counters: Counters,
    /// Used up, background tasks included.
    spent: Spent,
    /// Set aside for background tasks that still run, and for models that were asked.
    reserved: Spent,
    /// The question for more of a budget that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    top_up: Option<CallId>,
    /// Model requests that wait for more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held: Vec<HeldRequest>,
    /// Steps that could not ask their model, for want of this.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    out_of_budget: BTreeMap<CallId, Budget>,
    /// Models of which was said that nobody knows their price.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unpriced: BTreeSet<ModelName>,
    /// What is used up, and ends the run; none between events.
    #[serde(skip)]
    over: Option<Budget>,
    /// What agents are doing, as it was told last.
    #[serde(default, skip_serializing_if = "AgentStates::is_empty")]
    agent_states: AgentStates,
    /// Steps in a row in which nobody who was asked said anything: what only turns within the room
    /// must not turn for ever.
    #[serde(default)]
    idle_steps: u32,
    /// Pauses, and words that nobody has read yet.
    #[serde(default, skip_serializing_if = "Pausing::is_idle")]
    pausing: Pausing,
    /// Control messages that took effect, so that none does twice.
    #[serde(default, skip_serializing_if = "ReceivedControls::is_empty")]
    controls: ReceivedControls,
    /// Why a thing that is asked about is so risky; none between events.
    #[serde(skip)]
    risk_reason: Option<String>,
    /// Why the room was ended, where an invariant did not hold in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    violation: Option<InvariantViolation>,
    /// Met in the event that is being taken; none between events.
    #[serde(skip)]
    new_violation: Option<InvariantViolation>,
    /// Frames to go on with; empty between events.
    runnable: VecDeque<FrameId>,
    effects: VecDeque<Effect>,
    /// For people who follow; not part of what a fold must give back.
    #[serde(skip)]
    notices: VecDeque<Notice>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            phase: RoomPhase::Unopened,
            now: Millis::default(),
            opened: Millis::default(),
            setup: Arc::new(Setup {
                entry: TaskName::from(""),
                tasks: BTreeMap::new(),
                plugins: BTreeMap::new(),
                models: BTreeMap::new(),
                channels: BTreeMap::new(),
                gates: Vec::new(),
                policy: Vec::new(),
                limits: RunLimits::default(),
            }),
            opening: RunOpening::default(),
            secret: None,
            frames: BTreeMap::new(),
            memories: Histories::new(),
            links: Links::new(),
            links_due: 0,
            calls: PendingCalls::default(),
            model_calls: Vec::new(),
            without_model: BTreeSet::new(),
            filtered: BTreeSet::new(),
            lost: Lost::new(),
            texts: Texts::default(),
            background: BTreeMap::new(),
            deliveries: Deliveries::default(),
            tasks: TaskRecords::default(),
            conversation: RoomChannels::default(),
            gating: Gating::default(),
            handoff: Handoffs::default(),
            timers: BTreeMap::new(),
            scratch: BTreeMap::new(),
            used: BTreeMap::new(),
            counters: Counters::default(),
            spent: Spent::default(),
            reserved: Spent::default(),
            top_up: None,
            held: Vec::new(),
            out_of_budget: BTreeMap::new(),
            unpriced: BTreeSet::new(),
            over: None,
            agent_states: AgentStates::new(),
            idle_steps: 0,
            pausing: Pausing::default(),
            controls: ReceivedControls::default(),
            risk_reason: None,
            violation: None,
            new_violation: None,
            runnable: VecDeque::new(),
            effects: VecDeque::new(),
            notices: VecDeque::new(),
        }
    }
}

impl Room {
    /// A room that waits for `RoomOpened`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what happened. An event that answers nothing (an abandoned call, a second opening)
    /// changes nothing.
    pub fn handle(&mut self, event: Event, now: Millis) {
        self.now = self.now.max(now);
        self.calls.begin_event();
        self.count_pause();
        let event = match event {
            Event::ControlReceived { id, message } => {
                if !self.controls.insert(id) {
                    return;
                }
                *message
            }
            event => event,
        };
        match event {
            Event::RoomOpened { setup, opening, secret } => self.open(setup, opening, secret),
            Event::RunStarted { setup, opening } => self.start_run(setup, opening),
            Event::HistoryChanged { task, change } => self.change_history(&task, change),
            // Whoever asks a room that is over is told so.
            Event::Requested { request, what } => self.requested(request, what),
            _ if matches!(self.phase, RoomPhase::Unopened | RoomPhase::Finished { .. }) => {}
            Event::AgentStepped { call, answer, report } => {
                if let Some(Purpose::Step { frame }) = self.calls.get(&call) {
                    let frame = *frame;
                    self.end_call(call, answer.is_ok(), &report);
                    self.agent_stepped(frame, call, answer);
                }
            }
            Event::AgentResponded { call, answer, report } => {
                if let Some(Purpose::Respond { frame }) = self.calls.get(&call) {
                    let frame = *frame;
                    self.end_call(call, answer.is_ok(), &report);
                    self.agent_responded(frame, call, answer);
                }
            }
            Event::ToolAnswered { call, answer, report } => {
                self.tool_answered(call, answer, report)
            }
            Event::Consulted { call, answer, report } => self.consulted(call, answer, &report),
            Event::UserAnswered { call, text, attachments, .. } => {
                self.user_answered(call, text, attachments)
            }
            Event::ModelAsked { call, ordinal, request } => {
                self.model_asked(call, ordinal, request)
            }
            Event::ModelAnswered { call, ordinal, answer, trouble } => {
                self.model_answered(call, ordinal, answer, trouble)
            }
            Event::SideEffectAsked { call, ordinal, side_effect } => {
                self.side_effect_asked(call, ordinal, side_effect)
            }
            Event::SideEffectEnded { call, ordinal, answer } => {
                self.side_effect_ended(call, ordinal, answer)
            }
            Event::Refused { call, plugin, record } => {
                self.tell(Notice::Denied { call: Some(call), plugin, record })
            }
            Event::Decided { call, approval, author } => self.decided(call, approval.by(author)),
            Event::StrategyDecided { call, answer, report } => {
                self.strategy_decided(call, answer, &report)
            }
            Event::Spoken { call, failure } => {
                if !self.is_told(call, failure.as_deref()) {
                    self.spoken(call, failure);
                }
            }
            Event::BackgroundEnded { call, ended, spent, used } => {
                self.background_ended(call, ended, spent, &used)
            }
            Event::TimerFired { timer } => self.timer_fired(timer),
            Event::ReadsKept { .. } => {}
            Event::Resumed { down_ms } => self.resumed(down_ms),
            Event::PluginReplaced { plugin, sha256 } => {
                self.tell(Notice::PluginReplaced { plugin, sha256 })
            }
            Event::Paused { reason } => self.pause(&reason),
            Event::Unpaused => self.unpause(),
            Event::UserSaid { task, text, attachments } => {
                self.user_said_while_running(task.as_ref(), text, attachments)
            }
            Event::TurnStopped { reason } => self.stop_turn(&reason),
            Event::TaskKilled { task, reason } => self.kill_task(&task, &reason),
            Event::Cancelled { reason } => self.stop(Status::Kill, &reason),
            // A message in a message: no sender writes one.
            Event::ControlReceived { .. } => {}
        }
        self.run();
        self.handle_words();
        self.end_if_over();
        loop {
            if self.new_violation.is_some() {
                break;
            }
            self.host();
            self.handle_deliveries();
            self.end_if_over();
            // A relayed turn may be over already, and others wait for theirs.
            if !(self.has_turns_waiting() && matches!(self.phase, RoomPhase::Draining { .. })) {
                break;
            }
        }
        self.end_if_violated();
        self.finish_if_idle();
        self.end_pause();
        self.report_states();
        self.forget_links();
    }

    /// The next thing that the host must do, if any.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.next_effect()
    }

    /// The next thing that people may want to know, if any.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// How the run ended; none while it goes on.
    #[must_use]
    pub fn outcome(&self) -> Option<&Arc<Outcome>> {
        match &self.phase {
            RoomPhase::Finished { outcome } => Some(outcome),
            RoomPhase::Unopened | RoomPhase::Running { .. } | RoomPhase::Draining { .. } => None,
        }
    }

    /// Whether the control message took effect before; another delivery of it is not to be
    /// journalled.
    #[must_use]
    pub fn has_received(&self, id: &ControlId) -> bool {
        self.controls.contains(id)
    }

    /// What the event will do, asked before it is handled: what a control message carries, nothing
    /// where that message took effect before.
    #[must_use]
    pub fn effect_of<'e>(&self, event: &'e Event) -> Option<&'e Event> {
        match event {
            Event::ControlReceived { id, .. } if self.has_received(id) => None,
            event => Some(event.effective()),
        }
    }

    /// What the room runs with.
    #[must_use]
    pub fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    /// The room's id; empty before it is opened.
    #[must_use]
    pub fn id(&self) -> &RoomId {
        &self.opening.room
    }

    /// What randomness of the room's calls is derived from; none before it is opened.
    #[must_use]
    pub fn secret(&self) -> Option<&RoomSecret> {
        self.secret.as_ref()
    }

    /// The time of the newest event.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Used up so far, background tasks that have ended included.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Calls that wait for an answer, oldest first.
    pub fn calls_in_flight(&self) -> impl Iterator<Item = CallId> {
        self.calls.keys().copied()
    }

    /// Calls that the event that was taken last ended, in whatever way, in the order in which they
    /// ended.
    #[must_use]
    pub fn ended_calls(&self) -> &[CallId] {
        self.calls.ended()
    }

    /// The timer was set, and nobody dropped it.
    #[must_use]
    pub fn waits_for(&self, timer: TimerId) -> bool {
        self.timers.contains_key(&timer)
    }

    /// The call waits for an answer.
    #[must_use]
    pub fn is_in_flight(&self, call: CallId) -> bool {
        self.calls.contains_key(&call)
    }

    /// What the agent may see in this call of its `step` or `respond`; none when the call is not
    /// one, or is abandoned.
    #[must_use]
    pub fn agent_view(&self, call: CallId) -> Option<AgentView> {
        let (Purpose::Step { frame } | Purpose::Respond { frame } | Purpose::Consult { frame, .. }) =
            self.calls.get(&call)?
        else {
            return None;
        };
        let frame = self.frames.get(frame)?;
        Some(AgentView {
            task: frame.task.clone(),
            inputs: Arc::clone(&frame.inputs),
            pending: frame.pending.clone(),
            history: self.history(&frame.task),
            since: Arc::new(frame.past.clone()),
            intent: frame.intent.clone(),
            plan: Arc::clone(&frame.acting.plan),
            outputs: Arc::new(frame.acting.outputs.clone()),
            spent: self.spent,
            level: self.level_of(frame),
            last_error: frame.acting.last_error.clone(),
            tools: Arc::clone(self.toolbox(&frame.task).offered()),
            peers: Arc::clone(&frame.peers),
            remaining: self.remaining(frame),
            iteration: frame.iteration,
        })
    }

    /// A plugin has answered its call: keeps what it left in its scratch, and waits for nothing
    /// more of it.
    fn end_call(&mut self, call: CallId, ok: bool, report: &CallReport) {
        self.keep_scratch(call, ok, report);
        self.count_cpu(report.cpu_ticks);
        self.calls.remove(&call);
        self.forget_model_calls(call);
    }

    /// What was used up, and was not to be, ends the run once what it led to is dealt with.
    fn end_if_over(&mut self) {
        if let Some(budget) = self.over.take() {
            self.stop(budget.status(), budget.reason());
        } else if matches!(self.phase, RoomPhase::Running { .. }) {
            self.stop_if_spent();
        }
        if !self.out_of_budget.is_empty() {
            self.out_of_budget.retain(|call, _| self.calls.contains_key(call));
        }
    }

    fn remaining(&self, frame: &Frame) -> Remaining {
        let (limits, committed) = (&self.opening.limits, self.committed());
        let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        let of_run = left(limits.turns, committed.turns);
        let of_task = frame.turn_limit.map(|limit| u64::from(limit.saturating_sub(frame.steps)));
        let turns = [of_run, of_task].into_iter().flatten().min();
        Remaining {
            turns: turns.map(|turns| u32::try_from(turns).unwrap_or(u32::MAX)),
            tokens: left(limits.tokens, committed.tokens),
            cost_micro_usd: left(limits.cost_micro_usd, committed.cost_micro_usd),
            wall_ms: self.opening.deadline.map(|deadline| deadline.since(self.now)),
            model_calls: left(limits.model_calls, committed.model_calls),
            tool_calls: left(limits.tool_calls, committed.tool_calls),
        }
    }

    /// Delegations above a frame, in this room and the rooms above it.
    fn level_of(&self, frame: &Frame) -> u32 {
        let above = std::iter::successors(frame.caller, |caller| {
            self.frames.get(caller).and_then(|frame| frame.caller)
        });
        self.opening.depth.saturating_add(u32::try_from(above.count()).unwrap_or(u32::MAX))
    }

    fn next_call(&mut self, purpose: Purpose) -> CallId {
        let call = CallId(self.counters.call);
        self.counters.call += 1;
        // Who may have nothing to say, and is asked for nothing, says it when the answer comes.
        if !matches!(purpose, Purpose::User { .. } | Purpose::Respond { .. } | Purpose::Post { .. })
        {
            self.idle_steps = 0;
        }
        self.calls.insert(call, purpose);
        call
    }

    fn set_timer(&mut self, purpose: TimerPurpose, at: Millis) {
        let timer = TimerId(self.counters.timer);
        self.counters.timer += 1;
        self.timers.insert(timer, purpose);
        self.effects.push_back(Effect::SetTimer { timer, at });
    }

    fn timer_fired(&mut self, timer: TimerId) {
        if self.fired_too_early(timer) {
            return;
        }
        match self.timers.remove(&timer) {
            Some(TimerPurpose::Wall) if self.asks_for_more() => {
                self.ask_for_more(Short { budget: Budget::Wall, needed: 1, least: 1 })
            }
            Some(TimerPurpose::Wall) => {
                self.stop_work(termination::FrameEnd::out_of_time(self.opening.depth > 0))
            }
            Some(TimerPurpose::Approval { call }) => self.approval_expired(call),
            Some(TimerPurpose::Pending { call, after_ms }) => self.pending_expired(call, after_ms),
            Some(TimerPurpose::Poll { frame, command_id }) => self.poll_due(frame, command_id),
            Some(TimerPurpose::Gate { call }) => self.gate_overdue(call),
            Some(TimerPurpose::Delivery { strategy, .. }) => {
                self.wake(&strategy, crate::types::delivery::Wake::Timer)
            }
            None => {}
        }
    }

    fn task_of(&self, frame: FrameId) -> Option<(&Frame, &Arc<TaskSetup>)> {
        let frame = self.frames.get(&frame)?;
        Some((frame, self.setup.tasks.get(&frame.task)?))
    }

    fn used_by(&mut self, plugin: &PluginName) -> &mut Used {
        if !self.used.contains_key(plugin) {
            self.used.insert(plugin.clone(), Used::default());
        }
        self.used.get_mut(plugin).expect("it was put in above")
    }

    fn tell(&mut self, notice: Notice) {
        self.notices.push_back(notice);
    }
}

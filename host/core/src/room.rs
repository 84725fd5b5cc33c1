//! The room: a state machine without IO, and the unit of journalling. `handle` applies an event,
//! `poll_effect` returns the next effect, `agent_view` and `delivery_view` return what a plugin may
//! see. Nothing else changes a room, so a room is the fold of its events.
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

/// The phase of a room's life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum RoomPhase {
    /// Waits for `RoomOpened`.
    Unopened,
    /// The entry task is running.
    Running { root: FrameId },
    /// The entry task has ended; background work is still running.
    Draining { outcome: Arc<Outcome> },
    /// Nothing more will happen.
    Finished { outcome: Arc<Outcome> },
}

/// The purpose of a pending call, which routes its answer.
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
    /// A tool call that awaits an approver.
    Approval {
        frame: FrameId,
        slot: usize,
    },
    /// A tool call that awaits more budget. It has no answer of its own.
    HeldTool {
        frame: FrameId,
        slot: usize,
        asked: approvals::Consent,
    },
    /// A request for more budget.
    TopUp {
        top_up: Box<LimitIncrease>,
    },
    User {
        frame: FrameId,
    },
    /// A query to a plugin other than a step or a tool call.
    Consult {
        frame: FrameId,
        plugin: PluginName,
        about: QueryPurpose,
    },
    /// A gate's check of an item in transit.
    Gate {
        plugin: PluginName,
        /// The number of the item in transit.
        number: u64,
    },
    /// A query to an executor about a background command, outside a round of tool calls.
    Job {
        task: TaskName,
        plugin: PluginName,
        about: acting::JobCall,
    },
    Background {
        id: BackgroundId,
    },
    /// The post of a room message on a channel.
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

/// The subject of a query to a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum QueryPurpose {
    /// Memories for the recall action in this slot.
    Memories { slot: usize },
    /// The risk of the action or the call in this slot.
    Risk { slot: usize },
    /// A shorter history for the frame, before its next step.
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

/// The purpose of a timer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum TimerPurpose {
    /// The run's wall time is over.
    Wall,
    /// The time for an approval is over.
    Approval { call: CallId },
    /// A call has been pending for its maximum time.
    Pending { call: CallId, after_ms: u64 },
    /// The output of a background command is due to be polled.
    Poll { frame: FrameId, command_id: i64 },
    /// The time for a gate's answer is over.
    Gate { call: CallId },
    /// A strategy's own timer.
    Delivery { strategy: PluginName, at: Millis },
}

/// Counters that only grow. All ids of a room come from here, so a replay assigns the same ids.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Counters {
    call: u64,
    frame: u32,
    message: u64,
    timer: u64,
    background: u32,
}

/// A conversation and the work that runs in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Room {
    phase: RoomPhase,
    now: Millis,
    opened: Millis,
    setup: Arc<Setup>,
    opening: RunOpening,
    /// `None` before the room is opened.
    #[serde(
        with = "crate::types::room_secret::in_state",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    secret: Option<RoomSecret>,
    frames: BTreeMap<FrameId, Frame>,
    memories: Histories,
    /// The parent and child of each linked message.
    links: Links,
    /// The number of links at which the next cleanup is due.
    #[serde(default)]
    links_due: usize,
    calls: PendingCalls,
    model_calls: Vec<ModelCall>,
    /// Pending steps whose model did not answer.
    #[serde(default)]
    without_model: BTreeSet<CallId>,
    /// Pending steps whose model's last answer was filtered by its provider.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    filtered: BTreeSet<CallId>,
    /// Parts that histories lost while a call was pending.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    lost: Lost,
    /// Cache of system texts.
    #[serde(skip)]
    texts: Texts,
    background: BTreeMap<BackgroundId, BackgroundTask>,
    /// Results that await delivery, or the next turn of their agent.
    #[serde(default, skip_serializing_if = "Deliveries::is_new")]
    deliveries: Deliveries,
    /// Records of background tasks, ended ones included, and the earlier delegations.
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
    /// Amounts used up, background tasks included.
    spent: Spent,
    /// Amounts reserved for running background tasks and pending model calls.
    reserved: Spent,
    /// The open request for more budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    top_up: Option<CallId>,
    /// Model requests that await more budget.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held: Vec<HeldRequest>,
    /// The budget that kept a step from asking its model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    out_of_budget: BTreeMap<CallId, Budget>,
    /// Models whose unknown price was already reported.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unpriced: BTreeSet<ModelName>,
    /// The exhausted budget that ends the run; `None` between events.
    #[serde(skip)]
    over: Option<Budget>,
    /// The agent states as last reported.
    #[serde(default, skip_serializing_if = "AgentStates::is_empty")]
    agent_states: AgentStates,
    /// Consecutive steps without an answer from any responder. The limit on it ends loops that
    /// never leave the room.
    #[serde(default)]
    idle_steps: u32,
    /// Pauses, and user messages that are still unread.
    #[serde(default, skip_serializing_if = "Pausing::is_idle")]
    pausing: Pausing,
    /// Ids of control messages that took effect, so that none takes effect twice.
    #[serde(default, skip_serializing_if = "ReceivedControls::is_empty")]
    controls: ReceivedControls,
    /// The reason for the risk of the item under review; `None` between events.
    #[serde(skip)]
    risk_reason: Option<String>,
    /// The invariant violation that ended the room, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    violation: Option<InvariantViolation>,
    /// The violation found in the current event; `None` between events.
    #[serde(skip)]
    new_violation: Option<InvariantViolation>,
    /// Frames that are ready to run; empty between events.
    runnable: VecDeque<FrameId>,
    effects: VecDeque<Effect>,
    /// Notices for observers; not part of the folded state.
    #[serde(skip)]
    notices: VecDeque<Notice>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            phase: RoomPhase::Unopened,
            now: Millis::default(),
            opened: Millis::default(),
            // A placeholder until `RoomOpened` brings the setup.
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
    /// Returns a room that waits for `RoomOpened`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies an event. An event without a matching pending call (an abandoned call, a second
    /// opening) changes nothing.
    pub fn handle(&mut self, event: Event, now: Millis) {
        // The host's clock may go back; a room's time does not.
        self.now = self.now.max(now);
        self.calls.begin_event();
        // A pause is counted before anything reads deadlines.
        self.count_pause();
        let event = match event {
            Event::ControlReceived { id, message } => {
                // A message arrives again if the host stopped before it deleted the message's file.
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
            // A request to a finished room is answered with a refusal, so it precedes the check
            // below.
            Event::Requested { request, what } => self.requested(request, what),
            // Late answers to a finished room change nothing.
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
                // Reports on channels and speeches about results have the same answer event.
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
            // Control messages are not nested.
            Event::ControlReceived { .. } => {}
        }
        // Frames advance first, because budgets and deliveries depend on what they did.
        self.run();
        self.handle_words();
        self.end_if_over();
        loop {
            // Turns must not begin in a broken room.
            if self.new_violation.is_some() {
                break;
            }
            self.host();
            self.handle_deliveries();
            self.end_if_over();
            // A relayed turn may have ended in this pass, and queued turns can then begin.
            if !(self.has_turns_waiting() && matches!(self.phase, RoomPhase::Draining { .. })) {
                break;
            }
        }
        // A violation ends the room before it can finish as if nothing had happened.
        self.end_if_violated();
        self.finish_if_idle();
        self.end_pause();
        self.report_states();
        self.forget_links();
    }

    /// Returns the next effect for the host to perform, if any.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.next_effect()
    }

    /// Returns the next notice for observers, if any.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Returns the outcome of the run; `None` while it is still running.
    #[must_use]
    pub fn outcome(&self) -> Option<&Arc<Outcome>> {
        match &self.phase {
            RoomPhase::Finished { outcome } => Some(outcome),
            RoomPhase::Unopened | RoomPhase::Running { .. } | RoomPhase::Draining { .. } => None,
        }
    }

    /// Returns whether the control message already took effect. A duplicate delivery is not
    /// journalled.
    #[must_use]
    pub fn has_received(&self, id: &ControlId) -> bool {
        self.controls.contains(id)
    }

    /// Returns the event that will take effect, before it is handled. A control message yields its
    /// content; `None` if it already took effect.
    #[must_use]
    pub fn effect_of<'e>(&self, event: &'e Event) -> Option<&'e Event> {
        match event {
            Event::ControlReceived { id, .. } if self.has_received(id) => None,
            event => Some(event.effective()),
        }
    }

    /// Returns the setup of the room.
    #[must_use]
    pub fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    /// Returns the room's id; empty before it is opened.
    #[must_use]
    pub fn id(&self) -> &RoomId {
        &self.opening.room
    }

    /// Returns the secret from which the randomness of calls is derived; `None` before the room is
    /// opened.
    #[must_use]
    pub fn secret(&self) -> Option<&RoomSecret> {
        self.secret.as_ref()
    }

    /// Returns the time of the newest event.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Returns the amounts used so far, ended background tasks included.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Returns the calls that await an answer, oldest first.
    pub fn calls_in_flight(&self) -> impl Iterator<Item = CallId> {
        self.calls.keys().copied()
    }

    /// Returns the calls that the last event ended, in the order in which they ended.
    #[must_use]
    pub fn ended_calls(&self) -> &[CallId] {
        self.calls.ended()
    }

    /// Returns whether the timer is set and was not dropped.
    #[must_use]
    pub fn waits_for(&self, timer: TimerId) -> bool {
        self.timers.contains_key(&timer)
    }

    /// Returns whether the call awaits an answer.
    #[must_use]
    pub fn is_in_flight(&self, call: CallId) -> bool {
        self.calls.contains_key(&call)
    }

    /// Returns what the agent may see in its `step` or `respond` call. `None` if the call is not
    /// one, or was abandoned.
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

    /// Ends an answered call: keeps the plugin's scratch data and CPU time, and drops its model
    /// calls.
    fn end_call(&mut self, call: CallId, ok: bool, report: &CallReport) {
        self.keep_scratch(call, ok, report);
        self.count_cpu(report.cpu_ticks);
        self.calls.remove(&call);
        self.forget_model_calls(call);
    }

    /// Ends the run if a budget is exhausted, once the event has been dealt with.
    fn end_if_over(&mut self) {
        if let Some(budget) = self.over.take() {
            self.stop(budget.status(), budget.reason());
        } else if matches!(self.phase, RoomPhase::Running { .. }) {
            self.stop_if_spent();
        }
        // Steps that ended in another way leave their entries behind.
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

    /// Returns the number of delegations above a frame, in this room and its parents.
    fn level_of(&self, frame: &Frame) -> u32 {
        let above = std::iter::successors(frame.caller, |caller| {
            self.frames.get(caller).and_then(|frame| frame.caller)
        });
        self.opening.depth.saturating_add(u32::try_from(above.count()).unwrap_or(u32::MAX))
    }

    fn next_call(&mut self, purpose: Purpose) -> CallId {
        let call = CallId(self.counters.call);
        self.counters.call += 1;
        // Calls that may be answered with nothing count as progress only when their answer arrives.
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
        // The host's timers run on in a pause, which does not count.
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
        // Avoids a clone of the name in the common case.
        if !self.used.contains_key(plugin) {
            self.used.insert(plugin.clone(), Used::default());
        }
        self.used.get_mut(plugin).expect("it was put in above")
    }

    fn tell(&mut self, notice: Notice) {
        self.notices.push_back(notice);
    }
}

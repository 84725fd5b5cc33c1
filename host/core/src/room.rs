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
mod condensing;
mod confirming;
mod context_window;
mod controls;
mod conversation;
mod cut_results;
mod delegates;
mod delivery;
mod fallback;
#[cfg(test)]
mod fixture;
mod gates;
mod handoff;
mod histories;
mod host_tools;
mod invariants;
mod judging;
mod knowledge;
mod lifecycle;
mod limit_increase;
mod links;
mod messages;
mod models;
mod observing;
mod passages;
mod pausing;
mod planning;
mod prompt_agent;
mod prompts;
mod queries;
mod queue_limit;
mod replayed;
mod requests;
mod responders;
mod result_types;
mod resumed;
mod runs;
mod scratch;
mod side_effects;
mod state;
mod steps;
mod stuck_detection;
mod termination;
mod tools;
mod views;

use crate::room::conversation::broadcast::end_report;
use crate::room::models::caller_of;
use crate::room::side_effects::side_effect_ended;
use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::policy::budget::Budget;
use crate::protocol::effect::Effect;
use crate::protocol::event::Event;
use crate::protocol::notice::Notice;
use crate::setup::Setup;
use crate::types::fault::CallReport;
use crate::types::ids::{CallId, ControlId, Millis, RoomId, TimerId};
use crate::types::limits::RunLimits;
use crate::types::outcome::{Outcome, Status};
use crate::types::room_secret::RoomSecret;
use crate::types::tool::CallableTool;
use crate::types::usage::{Spent, UsedByPlugin};
use crate::types::view::{AgentView, ConversationView};

pub(crate) use confirming::askers;
pub use lifecycle::RoomStatus;
pub use models::MissingModel;
pub use state::invariant::{Invariant, InvariantViolation};
pub(crate) use state::replayed_turns::ReplayedTurn;
pub use state::stuck_watch::StuckKind;
pub(crate) use tools::{naming_task_list, wider_tools};

use agent_states::AgentStates;
use background::Background;
use budgets::{BudgetShortage, Budgets};
use controls::ReceivedControls;
use conversation::RoomChannels;
use delivery::Deliveries;
use gates::Gating;
use handoff::Handoffs;
use histories::Histories;
use models::ModelCalls;
use observing::Observing;
use pausing::Pausing;
use scratch::Scratch;
use state::calls::{Purpose, QueryPurpose, TimerPurpose};
use state::context::{RoomContext, RoomPhase};
use state::frame_state::FrameWait;
use state::frames::Frames;
use views::{
    BackgroundWork, Dialogue, GateChecks, PluginCalls, ResultDelivery, RunControl, StepLoop,
    ToolRounds,
};

/// A conversation and the work that runs in it: the parts that own its data, and the router that
/// joins them. A part's method has any other part that it reads or changes as an argument. A view
/// (`Dialogue`, `ToolRounds`, …) borrows the parts that its concern needs, so it can reach no other,
/// and calls point from the larger view to the smaller one. What no view fits exactly is a function
/// of its concern's file, with the parts as its first arguments.
///
/// A room has four kinds of methods, and its caller uses them in this order for each event:
///
/// 1. **Before the event**: [`has_received`](Self::has_received), [`effect_of`](Self::effect_of) and
///    [`is_in_flight`](Self::is_in_flight) say whether it will change anything. What changes nothing
///    is not journalled.
/// 2. **The event**: [`handle`](Self::handle), the only method that applies events; polling takes
///    from queues. The first event is `RoomOpened`. Nothing of the next step is performed before the
///    event is on disk.
/// 3. **What follows from it**: [`poll_effect`](Self::poll_effect) and
///    [`poll_notice`](Self::poll_notice), each until `None`; their order is the order of causes.
///    [`ended_calls`](Self::ended_calls) are those whose work the caller stops. An effect with a
///    call is answered by one event with that call, at any time and in any order. One with a timer
///    is answered by `TimerFired`, unless [`waits_for`](Self::waits_for) denies it by then.
/// 4. **Views for plugins**, while a call is in flight: [`agent_view`](Self::agent_view),
///    [`conversation_view`](Self::conversation_view), [`callable_tools`](Self::callable_tools),
///    [`delivery_view`](Self::delivery_view). They are what the plugin may see, as of now.
///
/// The other methods return state or free memory, and may be called at any time. After a restart
/// the same events make the same room; effects and notices of the past are polled again and
/// dropped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Room {
    cx: RoomContext,
    frames: Frames,
    histories: Histories,
    scratch: Scratch,
    models: ModelCalls,
    budgets: Budgets,
    channels: RoomChannels,
    gating: Gating,
    handoffs: Handoffs,
    /// Pauses, and user messages that are still unread.
    pausing: Pausing,
    /// The agent states as last reported.
    agent_states: AgentStates,
    background: Background,
    /// Results that await delivery, or the next turn of their agent.
    deliveries: Deliveries,
    /// Ids of control messages that took effect, so that none takes effect twice.
    controls: ReceivedControls,
    /// Events on their way to an observer, in the room of one.
    #[serde(default, skip_serializing_if = "Observing::is_unused")]
    observing: Observing,
}

impl Room {
    /// Returns a room that waits for `RoomOpened`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies an event, then brings the room to rest. An event without a matching pending call (an
    /// abandoned call, a second opening) changes nothing.
    pub fn handle(&mut self, event: Event, now: Millis) {
        // Who runs the room is no event of its task. Since it changes nothing, journals of before
        // fold as before, and `RULES` stays.
        if matches!(event, Event::Owned { .. }) {
            return;
        }
        // The host's clock may go back; a room's time does not.
        self.cx.now = self.cx.now.max(now);
        self.cx.calls.begin_event();
        self.cx.replayed.begin_event();
        // A pause is counted before anything reads deadlines.
        self.pausing.count_pause(&mut self.cx);
        let event = match event {
            Event::ControlReceived { id, by: _, message } => {
                // A message arrives again if the host stopped before it deleted the message's file.
                if !self.controls.insert(id) {
                    return;
                }
                *message
            }
            event => event,
        };
        if !self.cx.unproven.is_empty()
            && let Some((call, None)) = event.plugin_end()
            && let Some((plugin, _)) = caller_of(&self.frames, &self.cx, call)
        {
            self.cx.unproven.remove(&plugin);
        }
        self.apply(event);
        self.settle();
    }

    /// Leads an event to the part that it is for.
    fn apply(&mut self, event: Event) {
        match event {
            Event::RoomOpened { setup, opening, secret } => self.open(setup, opening, secret),
            Event::RunStarted { setup, opening } => self.start_run(setup, opening),
            Event::HistoryChanged { task, change } => {
                self.histories.change_history(&mut self.cx, &task, change)
            }
            // A request to a finished room is answered with a refusal, so it precedes the check
            // below.
            Event::Requested { request, what } => self.requested(request, what),
            // Late answers to a finished room change nothing.
            _ if matches!(self.cx.phase, RoomPhase::Unopened | RoomPhase::Finished { .. }) => {}
            Event::AgentStepped { call, answer, report } => {
                if let Some(Purpose::Step { frame }) = self.cx.calls.get(&call) {
                    let frame = *frame;
                    self.end_call(call, answer.is_ok(), &report);
                    self.step_loop().agent_stepped(frame, call, answer);
                }
            }
            Event::AgentResponded { call, answer, report } => {
                if let Some(Purpose::Respond { frame }) = self.cx.calls.get(&call) {
                    let frame = *frame;
                    self.end_call(call, answer.is_ok(), &report);
                    self.step_loop().agent_responded(frame, call, answer);
                }
            }
            Event::ToolAnswered { call, answer, report } => {
                self.tool_answered(call, answer, report)
            }
            Event::PluginQueried { call, answer, report } => self.consulted(call, answer, &report),
            Event::UserAnswered { call, text, attachments, .. } => {
                self.step_loop().user_answered(call, text, attachments)
            }
            Event::ModelAsked { call, ordinal, request } => {
                self.run_control().model_asked(call, ordinal, request)
            }
            Event::ModelAnswered { call, ordinal, answer, trouble, was_shown } => {
                self.run_control().model_answered(call, ordinal, answer, trouble, was_shown)
            }
            Event::ModelUnavailable { call, ordinal, reason } => {
                self.models.model_unavailable(&mut self.cx, (call, ordinal), reason)
            }
            Event::ToolsAsked { call, ordinal, calls } => self.tools_asked(call, ordinal, calls),
            Event::SideEffectAsked { call, ordinal, side_effect } => self
                .budgets
                .side_effect_asked(&mut self.cx, &self.frames, call, ordinal, side_effect),
            Event::SideEffectEnded { call, ordinal, answer } => {
                side_effect_ended(&self.frames, &mut self.cx, call, ordinal, answer)
            }
            Event::Refused { call, plugin, record } => {
                self.cx.notify(Notice::Denied { call: Some(call), plugin, record })
            }
            Event::Decided { call, approval, author, arguments_sha256 } => {
                self.decided(call, approval.by(author), arguments_sha256.as_deref())
            }
            Event::StrategyDecided { call, answer, report } => {
                self.strategy_decided(call, answer, &report)
            }
            Event::Sent { call, failure, unknown } => {
                // Reports on channels and messages about results have the same answer event.
                if !end_report(&mut self.cx, call, failure.as_deref()) {
                    self.result_delivery().spoken(call, failure, unknown);
                }
            }
            Event::BackgroundEnded { call, ended, spent, used } => {
                self.run_control().background_ended(call, ended, spent, &used)
            }
            Event::TimerFired { timer } => self.timer_fired(timer),
            Event::ReadsRecorded { .. } => {}
            Event::Resumed { down_ms, is_exact, setup } => self.resumed(down_ms, is_exact, setup),
            Event::PluginReplaced { plugin, sha256 } => {
                self.cx.unproven.insert(plugin.clone());
                self.cx.notify(Notice::PluginReplaced { plugin, sha256 })
            }
            Event::Paused { reason } => self.pausing.pause(&mut self.cx, &reason),
            Event::Unpaused => self.pausing.unpause(&mut self.cx),
            Event::UserMessageSent { task, text, attachments } => {
                self.user_said_while_running(task.as_ref(), text, attachments)
            }
            Event::TurnStopped { reason } => self.stop_turn(&reason),
            Event::TaskKilled { task, reason } => self.run_control().kill_task(&task, &reason),
            Event::Cancelled { reason } => self.run_control().stop(Status::Kill, &reason),
            // Neither is carried by a control message.
            Event::ControlReceived { .. } | Event::Owned { .. } => {}
        }
    }

    /// Brings the room to rest after an event. The order is part of the behaviour:
    ///
    /// 1. Frames advance, then unread words of the user are put to them: budgets and deliveries
    ///    depend on what they did.
    /// 2. An exhausted budget ends the run before a further turn or delivery begins.
    /// 3. Turns and deliveries alternate, until neither gives the other work.
    /// 4. A violation ends the room before it can finish as if nothing had happened.
    /// 5. Observers get the new events. Then the next waiting tool call starts, if the calls before it
    ///    have ended.
    /// 6. The run finishes if nothing is pending; only then is the pause of a finished run dropped.
    /// 7. States are reported once, as they are now; links that nothing uses go last, when no part
    ///    holds them any more.
    fn settle(&mut self) {
        self.step_loop().run();
        self.deliver_user_messages();
        self.run_control().end_if_over();
        // Turns must not begin in a broken room.
        while self.cx.new_violation.is_none() {
            self.begin_queued_turns();
            self.handle_deliveries();
            self.run_control().end_if_over();
            // A relayed turn may have ended in this pass, and queued turns can then begin.
            if !(self.channels.has_turns_waiting(&self.cx)
                && matches!(self.cx.phase, RoomPhase::Draining { .. }))
            {
                break;
            }
        }
        self.run_control().end_if_violated();
        self.settle_observing();
        self.start_waiting_calls();
        self.run_control().finish_if_idle();
        self.pausing.end_pause(&mut self.cx);
        self.report_states();
        self.dialogue().forget_links();
    }

    /// Returns the next effect for the host to perform, if any.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.pausing.next_effect(&mut self.cx)
    }

    /// Returns the next notice for observers, if any.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.cx.notices.pop_front()
    }

    /// Frees the space of effects and notices that were taken, for a room that waits.
    pub fn release_space(&mut self) {
        if self.cx.effects.is_empty() && self.cx.notices.is_empty() {
            self.cx.effects = VecDeque::new();
            self.cx.notices = VecDeque::new();
        }
    }

    /// The outcome of the run; `None` while it is still running.
    #[must_use]
    pub fn outcome(&self) -> Option<&Arc<Outcome>> {
        match &self.cx.phase {
            RoomPhase::Finished { outcome } => Some(outcome),
            RoomPhase::Unopened | RoomPhase::Running { .. } | RoomPhase::Draining { .. } => None,
        }
    }

    /// Whether the control message already took effect. A duplicate delivery is not journalled.
    #[must_use]
    pub fn has_received(&self, id: &ControlId) -> bool {
        self.controls.contains(id)
    }

    /// The event that will take effect, before it is handled. A control message yields its content;
    /// `None` if it already took effect.
    #[must_use]
    pub fn effect_of<'e>(&self, event: &'e Event) -> Option<&'e Event> {
        match event {
            Event::ControlReceived { id, .. } if self.has_received(id) => None,
            event => Some(event.effective()),
        }
    }

    /// The limits of the current run.
    #[must_use]
    pub fn limits(&self) -> &RunLimits {
        &self.cx.opening.limits
    }

    /// The setup with which the run began.
    #[must_use]
    pub fn begun_setup(&self) -> &Arc<Setup> {
        self.cx.initial_setup.as_ref().unwrap_or(&self.cx.setup)
    }

    /// The effective setup of the room.
    #[must_use]
    pub fn setup(&self) -> &Arc<Setup> {
        &self.cx.setup
    }

    /// The room's id; empty before it is opened.
    #[must_use]
    pub fn id(&self) -> &RoomId {
        &self.cx.opening.room
    }

    /// The secret from which the randomness of calls is derived; `None` before the room is opened.
    #[must_use]
    pub fn secret(&self) -> Option<&RoomSecret> {
        self.cx.secret.as_ref()
    }

    /// The time of the newest event.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.cx.now
    }

    /// The amounts used so far, ended background tasks included.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.budgets.spent
    }

    /// Returns what each plugin used of its grants in the current run.
    #[must_use]
    pub fn used(&self) -> &UsedByPlugin {
        &self.budgets.used
    }

    /// The calls that await an answer, oldest first.
    pub fn calls_in_flight(&self) -> impl Iterator<Item = CallId> {
        self.cx.calls.keys().copied()
    }

    /// The calls that the last event ended, in the order in which they ended.
    #[must_use]
    pub fn ended_calls(&self) -> &[CallId] {
        self.cx.calls.ended()
    }

    /// Whether the timer is set and was not dropped.
    #[must_use]
    pub fn waits_for(&self, timer: TimerId) -> bool {
        self.cx.timers.contains_key(&timer)
    }

    /// Whether the call awaits an answer.
    #[must_use]
    pub fn is_in_flight(&self, call: CallId) -> bool {
        self.cx.calls.contains_key(&call)
    }

    /// Returns what the agent may see in its `step` or `respond` call. `None` if the call is not
    /// one, or was abandoned.
    #[must_use]
    pub fn agent_view(&self, call: CallId) -> Option<AgentView> {
        let (Purpose::Step { frame }
        | Purpose::Respond { frame }
        | Purpose::QueryPlugin { frame, .. }) = self.cx.calls.get(&call)?
        else {
            return None;
        };
        let frame = self.frames.get(frame)?;
        Some(AgentView {
            task: frame.task.clone(),
            inputs: Arc::clone(&frame.inputs),
            pending: frame.to_answer().cloned(),
            history: self.histories.history(&frame.task),
            since: Arc::new(frame.past_actions.iter().cloned().collect()),
            latest_user_message: frame.turn().latest_user_message.clone(),
            plan: Arc::clone(&frame.acting.plan),
            outputs: Arc::new(frame.acting.outputs.clone()),
            spent: self.budgets.spent,
            level: self.frames.level_of(&self.cx, frame),
            last_error: frame.acting.last_error.clone(),
            tools: Arc::clone(self.histories.toolbox(&self.cx, &frame.task).offered()),
            peers: Arc::clone(&frame.peers),
            remaining: self.budgets.remaining(&self.cx, frame),
            iteration: frame.counters().iteration,
        })
    }

    /// The conversation around a tool call. `None` if the call is no tool's, or if the tool may not
    /// read it.
    #[must_use]
    pub fn conversation_view(&self, call: CallId) -> Option<ConversationView> {
        let Purpose::Tool { frame, plugin, .. } = self.cx.calls.get(&call)? else { return None };
        let grant = self.cx.setup.rights(plugin)?.may_read_history().ok()?;
        let frame = self.frames.get(frame)?;
        let FrameWait::Tools(round) = frame.wait()? else { return None };
        Some(ConversationView {
            calling: Arc::clone(&round.message),
            inputs: Arc::clone(&frame.inputs),
            history: self.histories.history(&frame.task),
            messages: grant.messages,
        })
    }

    /// The tools that a running tool may call: granted to its plugin, and carried out for the
    /// agent. `None` if the call is no tool's, or if its plugin may call none.
    #[must_use]
    pub fn callable_tools(&self, call: CallId) -> Option<Arc<Vec<CallableTool>>> {
        let Purpose::Tool { frame, plugin, .. } = self.cx.calls.get(&call)? else { return None };
        let rights = self.cx.setup.rights(plugin)?;
        rights.grants.tools.as_ref()?;
        let toolbox = self.histories.toolbox(&self.cx, &self.frames.get(frame)?.task);
        let callable = toolbox.iter().filter(|tool| tool.handled).filter_map(|tool| {
            let (of, spec) = self.cx.setup.tool(&tool.target.admitted_name()?)?;
            if of == plugin || rights.may_call(&format!("{of}.{}", spec.name)).is_err() {
                return None;
            }
            let output_schema = spec.output_schema.clone();
            Some(CallableTool { summary: tool.summary.clone(), output_schema })
        });
        Some(Arc::new(callable.collect()))
    }

    /// Ends an answered call: keeps the plugin's scratch data and CPU time, and drops its model
    /// calls.
    fn end_call(&mut self, call: CallId, ok: bool, report: &CallReport) {
        self.scratch.keep_scratch(&self.cx, &self.frames, call, ok, report);
        self.budgets.count_cpu(report.cpu_ticks);
        let ended = self.cx.calls.remove(&call);
        self.plugin_calls().forget_requests(call, ended.as_ref());
    }

    fn timer_fired(&mut self, timer: TimerId) {
        // The host's timers run on in a pause, which does not count.
        if self.pausing.fired_too_early(&mut self.cx, timer) {
            return;
        }
        match self.cx.timers.remove(&timer) {
            Some(TimerPurpose::Wall) if self.cx.asks_for_more() => {
                self.plugin_calls().ask_for_more(BudgetShortage::of_used_up(Budget::Wall))
            }
            Some(TimerPurpose::Wall) => {
                let end = state::closing::FrameEnd::out_of_time(self.cx.opening.depth > 0);
                self.run_control().stop_work(end);
            }
            Some(TimerPurpose::Approval { call }) => self.approval_expired(call),
            Some(TimerPurpose::Pending { call, after_ms }) => {
                self.tool_rounds().pending_expired(call, after_ms)
            }
            Some(TimerPurpose::Poll { frame, command_id }) => {
                self.tool_rounds().poll_due(frame, command_id)
            }
            Some(TimerPurpose::Gate { call }) => self.gate_overdue(call),
            Some(TimerPurpose::Observer { call }) => self.observer_overdue(call),
            Some(TimerPurpose::ObserverPause) => self.observing.ask_again(&mut self.cx),
            Some(TimerPurpose::Delivery { strategy, .. }) => {
                self.result_delivery().wake(&strategy, crate::types::delivery::Wake::Timer)
            }
            None => {}
        }
    }
}

impl RunControl<'_> {
    /// Ends the run if a budget is exhausted, once the event has been dealt with.
    fn end_if_over(&mut self) {
        if let Some(budget) = self.budgets.over.take() {
            self.stop_for_lack(BudgetShortage::of_used_up(budget));
        } else if matches!(self.cx.phase, RoomPhase::Running { .. }) {
            self.stop_if_spent();
        }
        // Steps that ended in another way leave their entries behind.
        if !self.budgets.out_of_budget.is_empty() {
            self.budgets.out_of_budget.retain(|call, _| self.cx.calls.contains_key(call));
        }
    }
}

//! Deliveries step by step: a strategy's decisions, their effects, the results that an agent reads,
//! and delivery exactly once. Contains the test room that the submodules use.

mod announcing;
mod deciding;
mod reporting;
mod telling;

use std::sync::Arc;

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, RunOpening};
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::setup::Setup;
use conclave_core::types::action::{Action, Reply as Said, Turn};
use conclave_core::types::channel::{Activity, Binding, ChannelKind};
use conclave_core::types::delegation::{Delegation, ResultForm};
use conclave_core::types::delivery::{
    self, BackgroundStatus, Decision, DeliveryRecord, DeliveryState, EndedTask, Wake,
};
use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::{BackgroundId, CallId, Millis, TaskName, TimerId};
use conclave_core::types::message::{Label, Role};
use conclave_core::types::request::{Refusal, RequestId, RequestReply, RoomRequest};
use conclave_core::types::usage::{Spent, UsedByPlugin};
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::checks::violations;
use crate::properties::Recorded;

/// A room whose agent `desk` may delegate to `slow`. The strategy `teller` delivers the results.
struct Desk {
    recorded: Recorded,
    at: Millis,
    /// Effects that were not handled yet.
    to_do: Vec<Effect>,
    requests: u64,
}

fn plan(desk: Value, slow: Value) -> Value {
    let mut slow = slow;
    if slow.get("delivery_strategy").is_none() {
        slow["delivery_strategy"] = json!("teller");
    }
    json!({
        "tasks": { "desk": desk, "slow": slow },
        "plugins": {
            "desk": { "grants": { "delegate": ["slow"], "at_once": 100_000, "total": 100_000, "model": ["default"] } },
            "teller": { "kinds": ["delivery-strategy"], "grants": { "channels": ["terminal", "phone"] } },
            "other": { "kinds": ["delivery-strategy"], "grants": { "channels": ["terminal"] } },
        },
        "limits": { "turns": 100_000 },
    })
}

/// Lets the desk's agent choose for itself how results are delivered.
fn may_choose(setup: &mut Setup) {
    let desk = Arc::make_mut(setup.plugins.get_mut("desk").expect("a plugin"));
    let grant = desk.grants.delegate.as_mut().expect("a grant");
    grant.delivery_strategies.push("other".into());
    grant.result_delivery.extend([ResultForm::AgentTurn, ResultForm::Text]);
}

fn interactive() -> Value {
    json!({ "interactive": true })
}

impl Desk {
    fn open(setup: Value) -> Self {
        Self::open_with(setup, |_| {}, |_| {})
    }

    fn open_with(
        setup: Value,
        change: impl FnOnce(&mut Setup),
        opened: impl FnOnce(&mut RunOpening),
    ) -> Self {
        let case: Case =
            serde_json::from_value(json!({ "name": "by hand", "setup": setup, "expect": {} }))
                .expect("a case");
        let (mut setup, mut opening) = (case.setup(), case.opening());
        Arc::make_mut(&mut setup.channels).insert("phone".into(), Binding::of(ChannelKind::Voice));
        change(&mut setup);
        opened(&mut opening);
        let mut desk =
            Self { recorded: Recorded::default(), at: START, to_do: Vec::new(), requests: 0 };
        desk.happened(Event::RoomOpened { setup: setup.into(), opening, secret: SECRET });
        desk
    }

    fn happened(&mut self, event: Event) {
        self.at = self.at.plus(1);
        self.recorded.handle(event, self.at);
        let effects = self.recorded.take_effects();
        for effect in effects {
            if let Effect::AbandonCall { call } = effect {
                self.to_do.retain(|effect| effect.starts() != Some(call));
            }
            self.to_do.push(effect);
        }
    }

    fn take<T>(&mut self, is_it: impl Fn(&Effect) -> Option<T>) -> Option<T> {
        let place = self.to_do.iter().position(|effect| is_it(effect).is_some())?;
        is_it(&self.to_do.remove(place))
    }

    fn all<T>(&mut self, is_it: impl Fn(&Effect) -> Option<T>) -> Vec<T> {
        std::iter::from_fn(|| self.take(&is_it)).collect()
    }

    fn step(&mut self, action: Action) {
        let call = self.begins();
        self.stepped(call, action);
    }

    /// Begins the agent's next step. If a user is asked before it, answers that the user is absent.
    fn begins(&mut self) -> CallId {
        loop {
            if let Some(call) = self.take(step) {
                return call;
            }
            let (call, _) = self.take(user).expect("an agent steps, or its user is asked");
            self.happened(Event::UserAnswered {
                call,
                text: None,
                attachments: Vec::new(),
                passed: false,
            });
        }
    }

    fn stepped(&mut self, call: CallId, action: Action) {
        let turn =
            Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
        self.happened(Event::AgentStepped {
            call,
            answer: Ok(turn),
            report: CallReport::default(),
        });
    }

    /// Makes the agent delegate `times` times, each in its own step.
    fn delegate(&mut self, times: usize) {
        for _ in 0..times {
            self.step(delegates());
        }
    }

    /// Ends the oldest background task that is still running.
    fn ends(&mut self, output: &str) -> BackgroundId {
        let (call, id) = self.take(background).expect("a background task");
        self.ended(call, BackgroundStatus::Completed, output);
        id
    }

    fn ended(&mut self, call: CallId, status: BackgroundStatus, text: &str) {
        let mut ended = EndedTask { status, ..EndedTask::interrupted(text.to_owned()) };
        if status == BackgroundStatus::Completed {
            (ended.output, ended.error) = (Some(text.to_owned()), None);
        }
        self.happened(Event::BackgroundEnded {
            call,
            ended,
            spent: Spent::default(),
            used: UsedByPlugin::new(),
        });
    }

    fn woken(&mut self) -> (CallId, Wake) {
        self.take(wakes).expect("a strategy is woken")
    }

    fn decides(&mut self, decisions: Vec<Decision>) -> Wake {
        let (call, wake) = self.woken();
        self.happened(Event::StrategyDecided {
            call,
            answer: Ok(decisions),
            report: CallReport::default(),
        });
        wake
    }

    fn spoken(&mut self, failure: Option<&str>) -> delivery::OutgoingMessage {
        let (call, outgoing) = self.take(speeches).expect("something is said");
        self.happened(Event::Sent { call, failure: failure.map(str::to_owned), unknown: false });
        outgoing
    }

    fn timer(&mut self) -> Millis {
        let (timer, at) = self.take(timers).expect("a timer");
        self.at = self.at.max(at);
        self.happened(Event::TimerFired { timer });
        at
    }

    fn asks(&mut self, what: RoomRequest) -> RequestId {
        let request = RequestId(self.requests);
        self.requests += 1;
        self.happened(Event::Requested { request, what });
        request
    }

    fn reply(&mut self, request: RequestId) -> Option<Result<RequestReply, Refusal>> {
        self.take(|effect| match effect {
            Effect::Reply { request: of, reply } if *of == request => Some(reply.clone()),
            _ => None,
        })
    }

    fn room(&self) -> &Room {
        &self.recorded.room
    }

    fn record(&self, id: &str) -> DeliveryRecord {
        self.room()
            .tasks()
            .find(|record| record.id.as_str() == id)
            .expect("it is recorded")
            .delivery
            .clone()
    }

    fn state(&self, id: &str) -> DeliveryState {
        self.record(id).state
    }

    fn count_notices(&self, is_it: impl Fn(&Notice) -> bool) -> usize {
        self.recorded.notices.iter().filter(|notice| is_it(notice)).count()
    }

    /// The reasons why results are undelivered, in order.
    fn undelivered_reasons(&self) -> Vec<String> {
        let reason = |notice: &Notice| match notice {
            Notice::NotDelivered { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        self.recorded.notices.iter().filter_map(reason).collect()
    }

    /// Returns the agent's history, and the entries that are new in the current step.
    fn history(&self) -> Vec<(Role, Vec<Label>, String)> {
        let history = self.room().history(&TaskName::from("desk"));
        history
            .iter()
            .map(|message| (message.sender, message.labels.clone(), message.text().to_owned()))
            .collect()
    }

    fn activity(&mut self, channel: &str, activity: Activity) {
        self.asks(RoomRequest::Activity { channel: channel.into(), activity });
    }

    fn is_sound(&self) {
        assert_eq!(violations(self.room(), &self.recorded.records), Vec::<String>::new());
        let mut replay = Room::new();
        for record in &self.recorded.records {
            replay.handle(record.event.clone(), record.at);
            while replay.poll_effect().is_some() {}
            while replay.poll_notice().is_some() {}
        }
        assert!(replay == *self.room(), "a room is the fold of its events");
    }
}

fn delegates() -> Action {
    Action::DelegateTask(Box::new(Delegation {
        worker: "slow".to_owned(),
        description: "dig".to_owned(),
        ..Delegation::default()
    }))
}

fn finish() -> Action {
    Action::Finish { outputs: json!("end") }
}

fn says(text: &str) -> Action {
    Action::Reply(Said { content: Some(text.to_owned()), ..Said::default() })
}

fn step(effect: &Effect) -> Option<CallId> {
    if let Effect::StepAgent { call, .. } = effect { Some(*call) } else { None }
}

fn background(effect: &Effect) -> Option<(CallId, BackgroundId)> {
    if let Effect::StartBackground { call, id, .. } = effect {
        Some((*call, id.clone()))
    } else {
        None
    }
}

fn wakes(effect: &Effect) -> Option<(CallId, Wake)> {
    if let Effect::WakeStrategy { call, wake, .. } = effect {
        Some((*call, wake.clone()))
    } else {
        None
    }
}

fn speeches(effect: &Effect) -> Option<(CallId, delivery::OutgoingMessage)> {
    if let Effect::Send { call, message: outgoing } = effect {
        Some((*call, (**outgoing).clone()))
    } else {
        None
    }
}

fn timers(effect: &Effect) -> Option<(TimerId, Millis)> {
    if let Effect::SetTimer { timer, at } = effect { Some((*timer, *at)) } else { None }
}

fn user(effect: &Effect) -> Option<(CallId, String)> {
    if let Effect::AskUser { call, prompt, .. } = effect {
        Some((*call, prompt.clone()))
    } else {
        None
    }
}

fn speak(tasks: &[&str]) -> Decision {
    Decision::Deliver {
        tasks: tasks.iter().map(|task| (*task).to_owned()).collect(),
        channel: None,
        prompt: None,
        interrupt: false,
    }
}

fn on(channel: &str, tasks: &[&str]) -> Decision {
    let tasks = tasks.iter().map(|task| (*task).to_owned()).collect();
    Decision::Deliver { tasks, channel: Some(channel.to_owned()), prompt: None, interrupt: true }
}

fn wait(channel: Option<&str>, timeout_ms: u64) -> Decision {
    Decision::Wait { channel: channel.map(str::to_owned), timeout_ms }
}

/// Returns a room that waits only for its background tasks.
fn draining(times: usize) -> Desk {
    // Each task reserves half of the remaining limit, so this room has no turn limit.
    let mut desk =
        Desk::open_with(plan(json!({}), json!({})), |_| {}, |opening| opening.limits.turns = None);
    desk.delegate(times);
    desk.step(finish());
    desk
}

/// Returns an interactive room with one running task, which waits for its user.
fn asking(slow: Value) -> Desk {
    let mut desk = Desk::open(plan(interactive(), slow));
    desk.delegate(1);
    desk.step(says("Anything else?"));
    desk
}

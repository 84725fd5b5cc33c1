//! A room of the core with one strategy, whose channels, tasks and clock are a script's. The room
//! decides what the host would: when the strategy is woken, what its decisions do, and when a
//! result is given up. Here are only the sides that answer it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use conclave_core::config::Config;
use conclave_core::config::assemble::assemble;
use conclave_core::journal::recovery::Start;
use conclave_core::permissions::grants::ChannelsGrant;
use conclave_core::permissions::manifest::{CONTRACT, FORMAT};
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, RunOpening};
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::setup::{PluginFacts, Setup};
use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::channel::{Activity, Binding};
use conclave_core::types::delegation::Delegation;
use conclave_core::types::delivery::{Decision, DeliveryState, EndedTask, OutgoingMessage, Wake};
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::{BackgroundId, CallId, ChannelId, Millis, PluginName, TimerId};
use conclave_core::types::limits::RunLimits;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::request::{RequestId, RoomRequest};
use conclave_core::types::room_secret::RoomSecret;
use conclave_core::types::usage::{Spent, UsedByPlugin};
use serde_json::json;

use crate::report::{AcceptedMessage, InboxEntry, Report};
use crate::script::{Script, ScriptChannel, ScriptEvent, end_of};

/// The clock time of the script's beginning. It is not 0, to expose a strategy that uses 0 for
/// "never".
pub(crate) const BEGINNING: Millis = Millis(1_760_000_000_000);
const STRATEGY: &str = "strategy";

/// A call of the strategy that the room waits for.
pub(crate) struct StrategyCall {
    pub(crate) call: CallId,
    pub(crate) wake: Wake,
    pub(crate) start: Start,
}

pub(crate) struct ScriptedRoom {
    room: Room,
    /// The task whose results the strategy delivers.
    worker: &'static str,
    /// Milliseconds after the beginning.
    pub(crate) now: u64,
    effects: VecDeque<(Effect, Option<Start>)>,
    timers: BTreeMap<TimerId, Millis>,
    channels: BTreeMap<ChannelId, ScriptedChannel>,
    /// The end of the task that is being started.
    ending: Option<(String, EndedTask)>,
    /// The script's names of the tasks.
    names: BTreeMap<BackgroundId, String>,
    /// The strategy's last decisions.
    decided: Vec<Decision>,
    /// The results of the last refused message.
    pub(crate) refused: Vec<String>,
    /// The number of results that have left the strategy.
    pub(crate) settled: usize,
    pub(crate) report: Report,
}

struct ScriptedChannel {
    binding: Binding,
    activity: Activity,
    says_ms: u64,
    refusals: u32,
    /// The time at which it is silent again.
    quiet_at: Option<u64>,
}

impl ScriptedRoom {
    pub(crate) fn open(script: &Script) -> Self {
        let channel = |channel: &ScriptChannel| {
            let opened = ScriptedChannel {
                binding: Binding::of(channel.kind),
                activity: Activity::Idle,
                says_ms: channel.says_ms,
                refusals: 0,
                quiet_at: None,
            };
            (ChannelId::from(channel.id.as_str()), opened)
        };
        let channels: BTreeMap<_, _> = script.channels.iter().map(channel).collect();
        let notify = script.notify.as_deref().unwrap_or("desk");
        let worker = if notify.eq_ignore_ascii_case("worker") { "other-worker" } else { "worker" };
        let setup = setup(notify, worker, &channels);
        let opening = RunOpening {
            room: "room".into(),
            entry: setup.entry.clone(),
            limits: RunLimits { turns: None, wall_ms: None, history: None, ..RunLimits::DEFAULT },
            ..RunOpening::default()
        };
        let mut room = Self {
            room: Room::new(),
            worker,
            now: 0,
            effects: VecDeque::new(),
            timers: BTreeMap::new(),
            channels,
            ending: None,
            names: BTreeMap::new(),
            decided: Vec::new(),
            refused: Vec::new(),
            settled: 0,
            report: Report::default(),
        };
        let secret = RoomSecret::WITHHELD;
        room.happened(Event::RoomOpened { setup: setup.into(), opening, secret });
        room
    }

    /// Whether the room is going to wake the strategy at some time, without any event.
    pub(crate) fn has_timer(&self) -> bool {
        self.timers.keys().any(|timer| self.room.waits_for(*timer))
    }

    /// The time of the next event that is not the script's.
    pub(crate) fn next_time(&self) -> Option<u64> {
        let waited = self.timers.iter().filter(|(timer, _)| self.room.waits_for(**timer));
        let timers = waited.map(|(_, at)| at.since(BEGINNING));
        let quiet = self.channels.values().filter_map(|channel| channel.quiet_at);
        timers.chain(quiet).min()
    }

    /// The results that wait for the strategy.
    pub(crate) fn pending(&self) -> Vec<String> {
        let is_pending =
            |state| matches!(state, DeliveryState::Waiting | DeliveryState::Delivering);
        let tasks = self.room.tasks().filter(|task| is_pending(task.delivery.state));
        tasks.map(|task| self.name(&task.id)).collect()
    }

    /// Whether a task of this name has ended.
    pub(crate) fn has_ended(&self, task: &str) -> bool {
        self.names.values().any(|name| name == task)
    }

    pub(crate) fn play_event(&mut self, what: &ScriptEvent) {
        match what {
            ScriptEvent::Ends { task, status, output, error } => {
                let ended = end_of(*status, output.as_ref(), error.as_ref());
                self.ending = Some((task.clone(), ended));
                let delegation = Delegation {
                    worker: self.worker.to_owned(),
                    description: "Find out.".to_owned(),
                    ..Delegation::default()
                };
                self.request(RoomRequest::Delegate { delegation: delegation.into(), by: None });
            }
            ScriptEvent::Activity { channel, activity } => {
                self.becomes(&channel.as_str().into(), *activity, None);
            }
            ScriptEvent::Refuses { channel, times } => {
                if let Some(open) = self.channels.get_mut(&ChannelId::from(channel.as_str())) {
                    open.refusals = *times;
                }
            }
            ScriptEvent::Mutes { channel, muted } => {
                let channel = ChannelId::from(channel.as_str());
                let Some(open) = self.channels.get_mut(&channel) else { return };
                open.binding.muted = *muted;
                let binding = Some(open.binding.clone());
                self.request(RoomRequest::Bind { channel, binding });
            }
            ScriptEvent::Leaves { channel } => {
                let channel = ChannelId::from(channel.as_str());
                self.channels.remove(&channel);
                self.request(RoomRequest::Bind { channel, binding: None });
            }
            // The host stops while the strategy decides.
            ScriptEvent::Crashes { .. } => {}
        }
    }

    /// Ends the output of the channels whose time is over.
    pub(crate) fn fall_silent(&mut self, until: u64) {
        let is_over = |channel: &ScriptedChannel| channel.quiet_at.is_some_and(|at| at <= until);
        let silent = self.channels.iter().filter(|(_, channel)| is_over(channel));
        for id in silent.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.becomes(&id, Activity::Idle, None);
        }
    }

    pub(crate) fn fire_timers(&mut self, until: u64) {
        let until = BEGINNING.plus(until);
        let over = self.timers.iter().filter(|(_, at)| **at <= until).map(|(timer, _)| *timer);
        for timer in over.collect::<Vec<_>>() {
            self.timers.remove(&timer);
            if self.room.waits_for(timer) {
                self.happened(Event::TimerFired { timer });
            }
        }
    }

    /// Stops the host, and resumes the room after this time. What was under way runs again.
    pub(crate) fn crash(&mut self, down_ms: u64) {
        self.now = self.now.saturating_add(down_ms);
        self.timers.values_mut().for_each(|at| *at = at.plus(down_ms));
        self.happened(Event::Resumed { down_ms, is_exact: true, setup: None });
        // The room has forgotten what its clients had reported, so they report it again.
        let busy = self.channels.iter().filter(|(_, channel)| channel.activity != Activity::Idle);
        let busy = busy.map(|(id, channel)| (id.clone(), channel.activity)).collect::<Vec<_>>();
        for (channel, activity) in busy {
            self.request(RoomRequest::Activity { channel, activity });
        }
    }

    /// Answers the effects of the room, until it waits for the strategy or for an event.
    pub(crate) fn poll_call(&mut self) -> Option<StrategyCall> {
        while let Some((effect, start)) = self.effects.pop_front() {
            match (effect, start) {
                (Effect::WakeStrategy { call, mut wake, .. }, Some(mut start)) => {
                    if let Wake::Ended { task } = &mut wake {
                        *task = self.name(task).into();
                    }
                    for result in start.delivery.iter_mut().flat_map(|it| &mut it.pending_results) {
                        let id = self.name(&result.id).into();
                        Arc::make_mut(result).id = id;
                    }
                    return Some(StrategyCall { call, wake, start });
                }
                (Effect::SetTimer { timer, at }, _) => drop(self.timers.insert(timer, at)),
                (Effect::Send { call, message }, _) => self.send(call, *message),
                (Effect::StartBackground { call, id, .. }, _) => self.end_task(call, id),
                (Effect::StepAgent { call, .. }, _) => self.speak(call),
                // The user does not answer, so the agent never reads the inbox.
                _ => {}
            }
        }
        None
    }

    /// Hands the strategy's answer to the room.
    pub(crate) fn answer(
        &mut self,
        call: CallId,
        answer: Result<&[Decision], &str>,
        scratch: Vec<u8>,
    ) {
        self.decided = answer.map(<[Decision]>::to_vec).unwrap_or_default();
        let mut answer =
            answer.map(<[Decision]>::to_vec).map_err(|text| Fault::new(FaultKind::Error, text));
        for decision in answer.iter_mut().flatten() {
            if let Decision::Deliver { tasks, .. } | Decision::MoveToInbox { tasks } = decision {
                *tasks = tasks.iter().map(|name| self.id(name)).collect();
            }
        }
        let report = CallReport { scratch: Some(scratch), ..CallReport::default() };
        self.happened(Event::StrategyDecided { call, answer, report });
    }

    fn happened(&mut self, event: Event) {
        self.room.handle(event, BEGINNING.plus(self.now));
        while let Some(effect) = self.room.poll_effect() {
            let start = Start::of(&effect, &self.room);
            self.effects.push_back((effect, start));
        }
        while let Some(notice) = self.room.poll_notice() {
            match notice {
                Notice::NotDelivered { id, reason, .. } | Notice::DeadLetter { id, reason, .. } => {
                    self.settled += 1;
                    let entry = InboxEntry { at: self.now, why: reason };
                    self.report.inbox.insert(self.name(&id), entry);
                }
                Notice::Delivered { .. } => self.settled += 1,
                _ => {}
            }
        }
    }

    fn request(&mut self, what: RoomRequest) {
        self.happened(Event::Requested { request: RequestId::NO_REPLY, what });
    }

    fn becomes(&mut self, channel: &ChannelId, activity: Activity, quiet_at: Option<u64>) {
        let Some(open) = self.channels.get_mut(channel) else { return };
        (open.activity, open.quiet_at) = (activity, quiet_at);
        self.request(RoomRequest::Activity { channel: channel.clone(), activity });
    }

    fn end_task(&mut self, call: CallId, id: BackgroundId) {
        let Some((name, ended)) = self.ending.take() else { return };
        self.names.insert(id, name);
        let (spent, used) = (Spent::default(), UsedByPlugin::new());
        self.happened(Event::BackgroundEnded { call, ended, spent, used });
    }

    /// The agent's only turn; then it waits for its user.
    fn speak(&mut self, call: CallId) {
        let reply = Reply { content: Some("Anything else?".to_owned()), ..Reply::default() };
        let turn = Turn {
            action: Action::Reply(reply),
            thought: String::new(),
            wait_for_response: false,
            extra: Vec::new(),
        };
        let report = CallReport::default();
        self.happened(Event::AgentStepped { call, answer: Ok(turn), report });
    }

    fn send(&mut self, call: CallId, message: OutgoingMessage) {
        let OutgoingMessage { channel, interrupt, tasks, .. } = message;
        let tasks: Vec<String> = tasks.iter().map(|id| self.name(id)).collect();
        let open = self.channels.get_mut(&channel);
        if let Some(open) = open.filter(|open| open.refusals > 0) {
            open.refusals -= 1;
            self.refused = tasks;
            let failure = Some("the channel refused it".to_owned());
            return self.happened(Event::Sent { call, failure, unknown: false });
        }
        self.begin_output(&channel, interrupt);
        let prompt = self.decided.iter().find_map(|decision| match decision {
            Decision::Deliver { tasks: of, prompt, .. }
                if tasks.iter().all(|id| of.contains(id)) =>
            {
                prompt.clone()
            }
            _ => None,
        });
        self.report.delivered.push(AcceptedMessage {
            at: self.now,
            tasks,
            channel: channel.as_str().to_owned(),
            prompt,
            interrupted: interrupt,
        });
        self.happened(Event::Sent { call, failure: None, unknown: false });
    }

    /// Makes a channel busy with a message, after those that it is still busy with.
    fn begin_output(&mut self, channel: &ChannelId, interrupt: bool) {
        let Some(open) = self.channels.get(channel) else { return };
        if open.says_ms == 0 || open.activity == Activity::UserSpeaking {
            return;
        }
        let busy_until = open.quiet_at.filter(|_| !interrupt).unwrap_or_default();
        let quiet_at = busy_until.max(self.now).saturating_add(open.says_ms);
        self.becomes(channel, Activity::Speaking, Some(quiet_at));
    }

    fn name(&self, id: &BackgroundId) -> String {
        self.names.get(id).cloned().unwrap_or_else(|| id.as_str().to_owned())
    }

    /// The room's id of a task. A name of the script is never taken for an id of the room.
    fn id(&self, name: &str) -> String {
        let found = self.names.iter().find(|(_, known)| *known == name);
        found.map_or_else(|| format!("no task {name}"), |(id, _)| id.as_str().to_owned())
    }
}

fn facts(kind: PluginKind, asks: serde_json::Value) -> PluginFacts {
    let manifest = json!({
        "format": FORMAT, "name": kind.as_str(), "version": "0.1.0", "contract": CONTRACT,
        "asks": asks,
    });
    // A digest, because a plugin without one is native.
    let facts = json!({
        "manifest": manifest, "kinds": [kind], "tools": [], "sha256": "0".repeat(64),
    });
    serde_json::from_value(facts).expect("these are the fields of a plugin's facts")
}

/// The setup of a room in which an agent waits for its user, and the strategy delivers the results
/// of a worker unchanged.
fn setup(notify: &str, worker: &str, channels: &BTreeMap<ChannelId, ScriptedChannel>) -> Setup {
    let config = format!(
        r#"entry = "{notify}"
        [tasks.{notify}]
        agent = "agent"
        interactive = true
        [tasks.{worker}]
        agent = "agent"
        delivery_strategy = "{STRATEGY}"
        result_delivery = "text"
        [plugins.agent]
        source = "./agent.wasm"
        [plugins.{STRATEGY}]
        source = "./strategy.wasm"
        "#
    );
    let plugins = [
        ("agent", facts(PluginKind::Agent, json!({}))),
        (
            STRATEGY,
            facts(
                PluginKind::DeliveryStrategy,
                json!({ "channels": { "why": "Speaks.", "optional": true } }),
            ),
        ),
    ];
    let plugins = plugins.map(|(name, facts)| (PluginName::from(name), facts)).into();
    let assembled =
        Config::parse("conclave.toml", "/", &config).and_then(|config| assemble(&config, &plugins));
    let mut setup = assembled.unwrap_or_else(|problems| panic!("{problems}")).setup;
    let bindings = channels.iter().map(|(id, channel)| (id.clone(), channel.binding.clone()));
    setup.channels = Arc::new(bindings.collect());
    if let Some(strategy) = setup.plugins.get_mut(STRATEGY) {
        let channels = channels.keys().cloned().collect();
        Arc::make_mut(strategy).grants.channels = Some(ChannelsGrant { channels, messages: None });
    }
    setup
}

//! The environment of a room: performs its effects from a script, one at a time, and records the
//! events.

use std::collections::{BTreeMap, VecDeque};

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, Principal, RULES, Record};
use conclave_core::room::Room;
use conclave_core::types::approval::ApprovalAuthor;
use conclave_core::types::delivery::EndedTask;
use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::{CallId, Millis, TimerId};
use conclave_core::types::usage::{Spent, UsedByPlugin};
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::plan::{Common, Completed, Consulted, Decided, Ended, Said, ToolSaid, relayed, request};
use crate::recorder::Recorder;

/// The number of events after which a case counts as endless.
const MAX_EVENTS: usize = 20_000;

/// The order in which effects are performed.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    First,
    Last,
    Shuffled(u64),
}

impl Order {
    pub(crate) fn parse(name: &Value) -> Self {
        match (name.as_str(), name.as_u64()) {
            (Some("first"), _) => Self::First,
            (Some("last"), _) => Self::Last,
            (_, Some(seed)) => Self::Shuffled(seed | 1),
            _ => panic!("{name} is no order"),
        }
    }

    fn pick(&mut self, length: usize) -> usize {
        match self {
            Self::First => 0,
            Self::Last => length - 1,
            Self::Shuffled(state) => {
                // xorshift: the same on every machine
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                usize::try_from(*state % length as u64).expect("smaller than a length")
            }
        }
    }
}

/// A plugin call without an answer yet.
struct Running {
    asks: VecDeque<Value>,
    ordinal: u32,
    /// `None` if it never answers.
    answer: Option<Event>,
    relay: bool,
}

pub(crate) struct World<'a> {
    case: &'a Case,
    order: Order,
    now: Millis,
    positions: BTreeMap<String, usize>,
    to_do: Vec<Effect>,
    running: BTreeMap<CallId, Running>,
    timers: Vec<(Millis, TimerId)>,
    pub(crate) room: Room,
    pub(crate) records: Vec<Record>,
    pub(crate) seen: Recorder,
    pub(crate) finishes: usize,
    pub(crate) started: Vec<CallId>,
}

impl<'a> World<'a> {
    pub(crate) fn new(case: &'a Case, order: Order) -> Self {
        Self {
            case,
            order,
            now: START,
            positions: BTreeMap::new(),
            to_do: Vec::new(),
            running: BTreeMap::new(),
            timers: Vec::new(),
            room: Room::new(),
            records: Vec::new(),
            seen: Recorder::default(),
            finishes: 0,
            started: Vec::new(),
        }
    }

    /// Runs the case until no work is left.
    pub(crate) fn run(&mut self) {
        self.happened(Event::RoomOpened {
            setup: self.case.setup().into(),
            opening: self.case.opening(),
            secret: SECRET,
        });
        let mut performed = 0;
        loop {
            if !self.to_do.is_empty() {
                let index = self.order.pick(self.to_do.len());
                let effect = self.to_do.remove(index);
                self.perform(effect);
                performed += 1;
                if self.case.cancel_after == Some(performed) {
                    self.happened(Event::Cancelled { reason: "enough".to_owned() });
                }
                if let Some((task, _)) =
                    self.case.kill_task_after.as_ref().filter(|(_, after)| *after == performed)
                {
                    self.happened(Event::TaskKilled {
                        task: task.as_str().into(),
                        reason: "enough of it".to_owned(),
                    });
                }
                if self.case.stop_turn_after == Some(performed) {
                    self.happened(Event::TurnStopped { reason: "wait".to_owned() });
                }
            } else if !self.fire_next_timer() {
                return;
            }
        }
    }

    pub(crate) fn hours(&self) -> u64 {
        self.now.since(START) / (60 * 60 * 1000)
    }

    /// Returns the room as JSON, for checks of its internal state.
    pub(crate) fn state(&self) -> Value {
        serde_json::to_value(&self.room).expect("a room is serialisable")
    }

    fn happened(&mut self, event: Event) {
        assert!(self.records.len() < MAX_EVENTS, "the case runs away");
        let seq = self.records.len() as u64;
        let record = Record {
            seq,
            at: self.now,
            principal: Principal("tester".into()),
            rules: RULES,
            epoch: 0,
            event: event.clone(),
        };
        self.records.push(record);
        self.room.handle(event, self.now);
        self.now = self.now.plus(1);
        self.seen.saw_calls(self.room.calls_in_flight().count());
        while let Some(notice) = self.room.poll_notice() {
            self.seen.saw_notice(&notice);
        }
        while let Some(effect) = self.room.poll_effect() {
            self.take(effect);
        }
    }

    fn take(&mut self, effect: Effect) {
        self.seen.saw_effect(&effect);
        self.started.extend(effect.starts());
        match effect {
            Effect::AbandonCall { call } => {
                self.to_do.retain(|effect| effect.starts() != Some(call));
                self.running.remove(&call);
                if self.room.is_in_flight(call) {
                    // A stopped background task must end its room.
                    let ended = EndedTask::interrupted("its parent stopped it".to_owned());
                    self.happened(Event::BackgroundEnded {
                        call,
                        ended,
                        spent: Spent::default(),
                        used: UsedByPlugin::new(),
                    });
                }
            }
            Effect::SetTimer { timer, at } => self.timers.push((at, timer)),
            Effect::Finish { .. } => self.finishes += 1,
            other => self.to_do.push(other),
        }
    }

    fn fire_next_timer(&mut self) -> bool {
        if self.room.outcome().is_some() {
            return false;
        }
        self.timers.sort_unstable();
        if self.timers.is_empty() {
            return false;
        }
        let (at, timer) = self.timers.remove(0);
        self.now = self.now.max(at);
        self.happened(Event::TimerFired { timer });
        true
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each effect")]
    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::StepAgent { call, task, .. } => {
                self.show(call);
                let entry = Said::read(&self.agents_entry(task.as_str()));
                let answer =
                    entry.content.answer().map(|turn| turn.expect("a step always returns a turn"));
                self.begin(call, entry.common, |report| Event::AgentStepped {
                    call,
                    answer,
                    report,
                });
            }
            Effect::AskResponder { call, task, .. } => {
                self.show(call);
                let entry = self.next(
                    &format!("responder {task}"),
                    self.case.scripts.responders.get(task.as_str()),
                );
                let entry = Said::read(&entry.unwrap_or_else(|| json!({ "nothing": true })));
                let answer = entry.content.answer();
                self.begin(call, entry.common, |report| Event::AgentResponded {
                    call,
                    answer,
                    report,
                });
            }
            Effect::CallTool { call, plugin, tool, .. } => {
                let name = format!("{plugin}.{tool}");
                let entry = self.next(&format!("tool {name}"), self.case.scripts.tools.get(&name));
                let entry = ToolSaid::read(&entry.unwrap_or_else(|| json!("ok")));
                let answer = entry.content.answer();
                self.begin(call, entry.common, |report| Event::ToolAnswered {
                    call,
                    answer,
                    report,
                });
            }
            Effect::QueryPlugin { call, plugin, .. } => {
                // A gate sees no task.
                if self.room.agent_view(call).is_some() {
                    self.show(call);
                }
                let entry = Consulted::read(
                    &self
                        .next(
                            &format!("consult {plugin}"),
                            self.case.scripts.advice.get(plugin.as_str()),
                        )
                        .unwrap_or_default(),
                );
                let answer = entry.content.answer();
                self.begin(call, entry.common, |report| Event::PluginQueried {
                    call,
                    answer,
                    report,
                });
            }
            Effect::AskUser { call, .. } => {
                let entry = self.next("user", Some(&self.case.scripts.user)).unwrap_or_default();
                if !is_held(&entry) {
                    self.happened(Event::UserAnswered {
                        call,
                        text: entry.as_str().map(str::to_owned),
                        attachments: Vec::new(),
                        passed: false,
                    });
                }
            }
            Effect::CallModel { call, ordinal, .. } => {
                let entry = Completed::read(
                    &self
                        .next("model", Some(&self.case.scripts.models))
                        .expect("the models' script is over"),
                );
                if !entry.common.hold {
                    self.happened(Event::ModelAnswered {
                        call,
                        ordinal,
                        answer: entry.content.answer(),
                        trouble: None,
                        was_shown: false,
                    });
                }
            }
            Effect::AskApproval { call, request } => {
                let entry = self
                    .next(&format!("approval {}", request.tool), Some(&self.case.scripts.approvals))
                    .unwrap_or_default();
                if !is_held(&entry) {
                    let approval = serde_json::from_value(entry).expect("an approval");
                    self.happened(Event::Decided {
                        call,
                        approval,
                        author: ApprovalAuthor::Program,
                        arguments_sha256: None,
                    });
                }
            }
            Effect::AskTopUp { call, .. } => {
                // An invalid amount is no answer: the same question stays open.
                while self.room.is_in_flight(call) {
                    let entry =
                        self.next("top-up", Some(&self.case.scripts.top_ups)).unwrap_or_default();
                    if is_held(&entry) {
                        break;
                    }
                    let approval = serde_json::from_value(entry).expect("an approval");
                    self.happened(Event::Decided {
                        call,
                        approval,
                        author: ApprovalAuthor::Program,
                        arguments_sha256: None,
                    });
                }
            }
            Effect::AllowSideEffect { .. } | Effect::ConfirmSideEffect { .. } => {}
            Effect::Reply { .. } | Effect::TellTask { .. } | Effect::DetachTask { .. } => {}
            // No tool of a test calls others.
            Effect::AnswerTools { .. } => {}
            Effect::AnswerModel { call, answer, .. } => {
                let running = self.running.get_mut(&call).filter(|running| running.relay);
                if let (Some(running), Ok(completion)) = (running, answer) {
                    let (turn, report) = (relayed(completion), CallReport::default());
                    running.answer = Some(match running.answer {
                        Some(Event::AgentResponded { .. }) => {
                            Event::AgentResponded { call, answer: Ok(Some(turn)), report }
                        }
                        _ => Event::AgentStepped { call, answer: Ok(turn), report },
                    });
                }
                self.go_on(call);
            }
            Effect::StartBackground { call, opening, .. } => {
                let task = opening.entry.as_str().to_owned();
                let entry = self
                    .next(&format!("background {task}"), self.case.scripts.background.get(&task));
                let entry = Ended::read(&entry.unwrap_or_else(|| json!("done")));
                let (ended, spent) = entry.content.answer();
                if !entry.common.hold {
                    self.happened(Event::BackgroundEnded {
                        call,
                        ended,
                        spent,
                        used: UsedByPlugin::new(),
                    });
                }
            }
            Effect::WakeStrategy { call, strategy, .. } => {
                let entry = self.next(
                    &format!("strategy {strategy}"),
                    self.case.scripts.strategies.get(strategy.as_str()),
                );
                let entry = Decided::read(&entry.unwrap_or_else(|| json!([])));
                let answer = entry.content.answer();
                self.begin(call, entry.common, |report| Event::StrategyDecided {
                    call,
                    answer,
                    report,
                });
            }
            Effect::Send { call, .. } => {
                let entry =
                    self.next("message", Some(&self.case.scripts.messages)).unwrap_or_default();
                if !is_held(&entry) {
                    self.happened(Event::Sent {
                        call,
                        failure: entry.as_str().map(str::to_owned),
                        unknown: false,
                    });
                }
            }
            Effect::SetTimer { .. } | Effect::AbandonCall { .. } | Effect::Finish { .. } => {
                panic!("taken before")
            }
        }
    }

    fn show(&mut self, call: CallId) {
        let view = self.room.agent_view(call).expect("a call under way has a view");
        let scratch = self.room.scratch(call);
        self.seen.saw_view(&view, &scratch);
    }

    fn next(&mut self, key: &str, script: Option<&Vec<Value>>) -> Option<Value> {
        let position = self.positions.entry(key.to_owned()).or_default();
        let entry = script?.get(*position)?.clone();
        *position += 1;
        Some(entry)
    }

    fn agents_entry(&mut self, task: &str) -> Value {
        let script = self.case.scripts.agents.get(task);
        let last =
            script.and_then(|script| script.last()).filter(|_| self.case.scripts.repeat).cloned();
        let entry = self.next(&format!("agent {task}"), script);
        entry.or(last).unwrap_or_else(|| panic!("the script of {task} is over"))
    }

    fn begin(&mut self, call: CallId, common: Common, answer: impl FnOnce(CallReport) -> Event) {
        let scratch = common.scratch.map(String::into_bytes);
        let report = CallReport { scratch, cpu_ticks: common.cpu_ticks, ..CallReport::default() };
        let answer = (!common.hold).then(|| answer(report));
        self.running.insert(
            call,
            Running { asks: common.ask.into(), ordinal: 0, answer, relay: common.relay },
        );
        self.go_on(call);
    }

    /// Lets the plugin behind a call make its next request, or answer.
    fn go_on(&mut self, call: CallId) {
        let Some(running) = self.running.get_mut(&call) else { return };
        if let Some(ask) = running.asks.pop_front() {
            let ordinal = running.ordinal;
            running.ordinal += 1;
            self.happened(Event::ModelAsked { call, ordinal, request: request(&ask) });
        } else if let Some(answer) = running.answer.take() {
            self.running.remove(&call);
            self.happened(answer);
        }
    }
}

fn is_held(entry: &Value) -> bool {
    entry.get("hold").is_some()
}

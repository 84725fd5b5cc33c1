//! A room and the rooms of its background tasks, driven together, with killed tasks, abandoned
//! requests and stopping hosts. In each case the run spends at most its limit, and has no
//! reservation left at its end.

use std::collections::BTreeMap;

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::types::action::{Action, Turn};
use conclave_core::types::completion::{Completion, ModelError, StopReason, TokenUsage};
use conclave_core::types::delegation::Delegation;
use conclave_core::types::delivery::EndedTask;
use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::{CallId, Millis, TaskName};
use conclave_core::types::usage::Spent;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::plan::request;

/// An effect that a room waits for.
enum Waits {
    Step(CallId),
    Model(CallId, u32, u64),
}

/// A room with its pending effects; a child also has its parent's call.
struct Member {
    room: Room,
    parent: Option<(usize, CallId)>,
    waits: Vec<Waits>,
    /// The number of requests that this room has made.
    requests: u32,
}

struct Family {
    members: Vec<Member>,
    children: BTreeMap<(usize, CallId), usize>,
    now: u64,
    /// The amount counted for lost attempts.
    lost_tokens: u64,
    /// The amount that answers used.
    answered: u64,
}

impl Family {
    fn new(tokens: u64) -> Self {
        let task = json!({ "agent": "desk" });
        let case = json!({
            "name": "families", "expect": {},
            "setup": {
                "tasks": { "desk": task, "slow": task }, "models": { "default": {} },
                "limits": { "tokens": tokens, "turns": 1_000 },
                "plugins": { "desk": { "grants": { "model": ["default"], "delegate": ["slow"], "at_once": 9, "total": 99 } } },
            },
        });
        let case: Case = serde_json::from_value(case).expect("a case of the right form");
        let root = Member { room: Room::new(), parent: None, waits: Vec::new(), requests: 0 };
        let mut family = Self {
            members: vec![root],
            children: BTreeMap::new(),
            now: START.0,
            lost_tokens: 0,
            answered: 0,
        };
        family.happened(
            0,
            Event::RoomOpened {
                setup: case.setup().into(),
                opening: case.opening(),
                secret: SECRET,
            },
        );
        family
    }

    fn happened(&mut self, index: usize, event: Event) {
        self.now += 1;
        let room = &mut self.members[index].room;
        room.handle(event, Millis(self.now));
        while let Some(notice) = room.poll_notice() {
            match notice {
                Notice::AttemptLost { input_tokens, .. } => self.lost_tokens += input_tokens,
                Notice::ModelAnswered { usage, .. } => {
                    self.answered += usage.input_tokens + usage.output_tokens
                }
                _ => {}
            }
        }
        let effects: Vec<Effect> = std::iter::from_fn(|| room.poll_effect()).collect();
        effects.into_iter().for_each(|effect| self.perform(index, effect));
    }

    fn perform(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::StepAgent { call, .. } => self.members[index].waits.push(Waits::Step(call)),
            Effect::CallModel { call, ordinal, prompt, .. } => {
                let most = prompt
                    .options
                    .iter()
                    .find(|(name, _)| name == "max-output-tokens")
                    .and_then(|(_, most)| most.as_u64());
                self.members[index].waits.push(Waits::Model(
                    call,
                    ordinal,
                    most.expect("a limit applies"),
                ));
            }
            Effect::StartBackground { call, opening, .. } => {
                let setup = self.members[index].room.setup().clone();
                let child = self.members.len();
                self.members.push(Member {
                    room: Room::new(),
                    parent: Some((index, call)),
                    waits: Vec::new(),
                    requests: 0,
                });
                self.children.insert((index, call), child);
                self.happened(
                    child,
                    Event::RoomOpened { setup, opening: *opening, secret: SECRET },
                );
            }
            Effect::AbandonCall { call } => {
                if let Some(child) = self
                    .children
                    .get(&(index, call))
                    .copied()
                    .filter(|child| self.members[*child].room.outcome().is_none())
                {
                    self.happened(
                        child,
                        Event::Cancelled { reason: "its parent stopped it".to_owned() },
                    );
                }
            }
            Effect::Finish { outcome } => {
                if let Some((parent, call)) = self.members[index].parent {
                    let (ended, used) = (EndedTask::from_outcome(&outcome), outcome.used.clone());
                    self.happened(
                        parent,
                        Event::BackgroundEnded { call, ended, spent: outcome.spent, used },
                    );
                }
            }
            _ => {}
        }
    }

    /// Handles an event in one of the running rooms.
    fn next(&mut self, kind: u8, number: u16) {
        let number = usize::from(number);
        let going: Vec<usize> = (0..self.members.len())
            .filter(|index| self.members[*index].room.outcome().is_none())
            .collect();
        let Some(index) = going.get(number % going.len().max(1)).copied() else { return };
        let waits = &mut self.members[index].waits;
        let at = (!waits.is_empty()).then(|| number / 7 % waits.len());
        match kind {
            0..=4 => {
                let step = waits.iter().rev().find_map(|waits| {
                    if let Waits::Step(call) = waits { Some(*call) } else { None }
                });
                let Some(call) = step else { return };
                self.members[index].requests += 1;
                let ordinal = self.members[index].requests;
                self.happened(
                    index,
                    Event::ModelAsked { call, ordinal, request: request(&Value::Null) },
                );
            }
            5..=8 => match at.map(|at| waits.swap_remove(at)) {
                Some(Waits::Model(call, ordinal, most)) => {
                    let answer = match kind {
                        5 => Err(ModelError::Other { message: "502".to_owned() }),
                        _ => Ok(completion(if kind == 6 {
                            most
                        } else {
                            number as u64 % (most + 1)
                        })),
                    };
                    self.happened(
                        index,
                        Event::ModelAnswered {
                            call,
                            ordinal,
                            answer,
                            trouble: None,
                            was_shown: false,
                        },
                    );
                }
                Some(Waits::Step(call)) => {
                    // A task is started, or the step posts a message; either way another step
                    // follows.
                    let turn = turn(if kind < 8 {
                        background()
                    } else {
                        Action::Think { thought: "hm".to_owned() }
                    });
                    self.happened(
                        index,
                        Event::AgentStepped {
                            call,
                            answer: Ok(turn),
                            report: CallReport::default(),
                        },
                    );
                }
                None => {}
            },
            9 => self.happened(
                0,
                Event::TaskKilled { task: TaskName::from("slow"), reason: "no".to_owned() },
            ),
            10 => self.happened(index, Event::Resumed { down_ms: 5, is_exact: false, setup: None }),
            _ => {}
        }
    }

    fn of(&self, index: usize, key: &str) -> Spent {
        let state =
            serde_json::to_value(&self.members[index].room).expect("a room is serialisable");
        serde_json::from_value(state["budgets"][key].clone()).expect("amounts")
    }
}

fn background() -> Action {
    let (agent, task) = ("slow".to_owned(), "x".to_owned());
    Action::DelegateTask(Box::new(Delegation {
        worker: agent,
        description: task,
        ..Delegation::default()
    }))
}

fn turn(action: Action) -> Turn {
    Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() }
}

fn completion(output: u64) -> Completion {
    let usage = TokenUsage {
        input_tokens: 1,
        cached_input_tokens: 0,
        output_tokens: output,
        cost_micro_usd: None,
    };
    let (id, model) = (String::new(), String::new());
    Completion {
        id,
        content: Some("x".to_owned()),
        reasoning: None,
        tool_calls: Vec::new(),
        stop: StopReason::End,
        usage,
        model,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_family_of_rooms_never_overspends_together(tokens in 400_u64..100_000, steps in vec((0_u8..12, any::<u16>()), 1..120)) {
        let mut family = Family::new(tokens);
        for (kind, number) in steps {
            family.next(kind, number);
            let spent = family.members[0].room.spent().tokens;
            let most = tokens + family.lost_tokens;
            prop_assert!(spent <= most, "{spent} of {tokens}, {} lost", family.lost_tokens);
        }
        // The independently counted traffic of its rooms is within the limit too.
        let own: u64 = family.answered + family.lost_tokens;
        let most = tokens + family.lost_tokens;
        prop_assert!(own <= most, "{own} of {tokens}, {} lost", family.lost_tokens);
        family.happened(0, Event::Cancelled { reason: "enough".to_owned() });
        for index in 0..family.members.len() {
            prop_assert!(family.members[index].room.outcome().is_some());
            prop_assert_eq!(family.of(index, "reserved"), Spent::default());
        }
    }
}

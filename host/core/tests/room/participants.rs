//! Who has a part in a call: a rule about any plugin that led to a call decides about it, whatever
//! the chain of nested calls, follow-up calls and delegations between them.

use std::collections::BTreeSet;

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, RunOpening};
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::approval::{ApprovalRequest, Participant};
use conclave_core::types::denial::Layer;
use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::CallId;
use conclave_core::types::message::ToolCall;
use conclave_core::types::tool::{NestedCall, ToolOutcome};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};

/// The tool at the end of each chain.
const GOAL: &str = "goal.a";
/// The tasks, the outermost first. Each delegates to the next, and its agent has its name.
const TASKS: [&str; 3] = ["desk", "worker", "deep"];

/// The calls of one task: tools whose answers lead to the next, then tools that call one another.
#[derive(Clone, Debug)]
struct Segment {
    follow_ups: usize,
    nested: usize,
}

/// A chain of plugins from the run's own agent to the goal.
#[derive(Clone, Debug)]
struct Chain(Vec<Segment>);

impl Chain {
    /// Returns the tool plugins of each segment. No plugin stands in a chain twice, because a
    /// plugin that waits cannot be called.
    fn tools(&self) -> Vec<Vec<String>> {
        let mut number = 0;
        let next = |count: usize, number: &mut usize| {
            let first = *number;
            *number += count;
            (first..*number).map(|number| format!("tool{number}")).collect::<Vec<_>>()
        };
        self.0.iter().map(|it| next(it.follow_ups + it.nested, &mut number)).collect()
    }

    /// Returns all plugins that lead to the goal, in order.
    fn plugins(&self) -> Vec<String> {
        let agents = TASKS.iter().map(|task| (*task).to_owned());
        agents.zip(self.tools()).flat_map(|(agent, tools)| [vec![agent], tools].concat()).collect()
    }

    fn setup(&self, rules: &Value) -> Value {
        let mut plugins = json!({ "goal": { "tools": ["a"] } });
        for (name, next) in TASKS.iter().zip(TASKS.iter().skip(1).map(Some).chain([None])) {
            let next: Vec<_> = next.into_iter().collect();
            plugins[*name] = json!({ "grants": { "tools": ["*"], "delegate": next } });
        }
        for tool in self.tools().concat() {
            plugins[tool] = json!({
                "tools": ["a"], "grants": { "tools": ["*"], "route": ["delegate_task"] },
            });
        }
        let task = json!({ "host_tools": ["delegate_task"] });
        let tasks = json!({ "desk": task, "worker": task, "deep": task });
        json!({ "tasks": tasks, "plugins": plugins, "policy": rules, "limits": { "depth": 5 } })
    }
}

/// What became of the call of the goal.
#[derive(Debug, Default)]
struct Seen {
    ran: bool,
    denied: bool,
    approval_request: Option<ApprovalRequest>,
    led_by: Vec<String>,
}

/// Plays a chain, room after room, until the goal was called.
struct Player {
    case: Case,
    room: Room,
    seen: Seen,
}

impl Player {
    fn new(setup: &Value) -> Self {
        let case: Case =
            serde_json::from_value(json!({ "name": "chain", "setup": setup, "expect": {} }))
                .expect("a case of the right form");
        let opening = case.opening();
        let mut player = Self { case, room: Room::new(), seen: Seen::default() };
        player.open(opening);
        player
    }

    fn open(&mut self, opening: RunOpening) {
        self.room = Room::new();
        let setup = self.case.setup().into();
        self.room.handle(Event::RoomOpened { setup, opening, secret: SECRET }, START);
    }

    fn handle(&mut self, event: Event) {
        self.room.handle(event, START);
    }

    fn effects(&mut self) -> Vec<Effect> {
        while let Some(notice) = self.room.poll_notice() {
            match notice {
                Notice::Denied { record, .. } if record.denial.target == GOAL => {
                    self.seen.denied |= record.layer == Layer::Policy;
                }
                Notice::ToolCalled { name, led_by, .. } if name == GOAL => {
                    self.seen.led_by = led_by.iter().map(ToString::to_string).collect();
                }
                _ => {}
            }
        }
        std::iter::from_fn(|| self.room.poll_effect()).collect()
    }

    /// Returns the call that the effects start, and notes what became of the goal.
    fn started(&mut self) -> Option<CallId> {
        let mut call = None;
        for effect in self.effects() {
            match effect {
                Effect::CallTool { call: started, plugin, .. } => {
                    self.seen.ran |= plugin.as_str() == "goal";
                    call = Some(started);
                }
                Effect::AskApproval { request, .. } => self.seen.approval_request = Some(request),
                Effect::StartBackground { opening, .. } => {
                    self.open(*opening);
                    return self.started();
                }
                Effect::StepAgent { call: step, .. } => call = call.or(Some(step)),
                _ => {}
            }
        }
        call
    }

    /// Has the agent make a call.
    fn agent_calls(&mut self, step: CallId, call: ToolCall) -> Option<CallId> {
        let reply = Reply { tool_calls: vec![call], ..Reply::default() };
        let turn = Turn {
            action: Action::Reply(reply),
            thought: String::new(),
            wait_for_response: false,
            extra: Vec::new(),
        };
        let report = CallReport::default();
        self.handle(Event::AgentStepped { call: step, answer: Ok(turn), report });
        self.started()
    }

    /// Has a tool's answer ask for a call.
    fn tool_answers(&mut self, call: CallId, next: ToolCall) -> Option<CallId> {
        let answer = Ok(ToolOutcome { follow_up_calls: vec![next], ..ToolOutcome::default() });
        self.handle(Event::ToolAnswered { call, answer, report: CallReport::default() });
        self.started()
    }

    /// Has a running tool make a call.
    fn tool_calls(&mut self, call: CallId, next: &ToolCall) -> Option<CallId> {
        let (name, arguments) = (next.name.clone(), next.arguments.clone());
        let calls = vec![NestedCall { name, arguments }];
        self.handle(Event::ToolsAsked { call, ordinal: 0, calls });
        self.started()
    }

    fn play(mut self, chain: &Chain) -> Seen {
        let tools = chain.tools();
        let mut call = self.started().expect("the agent begins");
        for (index, (segment, tools)) in chain.0.iter().zip(&tools).enumerate() {
            let end = match TASKS.get(index + 1).filter(|_| index + 1 < chain.0.len()) {
                Some(next) => delegates(next),
                None => ToolCall { id: "1".to_owned(), ..ToolCall::new(GOAL, json!({})) },
            };
            let all: Vec<ToolCall> = tools
                .iter()
                .map(|tool| ToolCall {
                    id: "1".to_owned(),
                    ..ToolCall::new(format!("{tool}.a"), json!({}))
                })
                .chain([end])
                .collect();
            for (nth, next) in all.iter().enumerate() {
                let started = if nth == 0 {
                    self.agent_calls(call, next.clone())
                } else if nth <= segment.follow_ups {
                    self.tool_answers(call, next.clone())
                } else {
                    self.tool_calls(call, next)
                };
                match started {
                    Some(started) => call = started,
                    None => return self.seen,
                }
            }
        }
        self.seen
    }
}

fn delegates(task: &str) -> ToolCall {
    let arguments = json!({ "agent": task, "task": "work", "context": {} });
    ToolCall { id: "1".to_owned(), ..ToolCall::new("delegate_task", arguments) }
}

/// Chains through one to three tasks. A nested call cannot steer its task, so a task that delegates
/// has none.
fn chains() -> impl Strategy<Value = Chain> {
    vec((0..3_usize, 0..4_usize), 1..=3).prop_map(|segments| {
        let last = segments.len() - 1;
        let segment = |(index, (follow_ups, nested)): (usize, (usize, usize))| Segment {
            follow_ups,
            nested: if index == last { nested } else { 0 },
        };
        Chain(segments.into_iter().enumerate().map(segment).collect())
    })
}

fn rules(member: &str, decide: &str) -> Value {
    json!([
        { "tool": GOAL, "caller": member, "decide": decide, "source": "c:1" },
        { "tool": "*", "decide": "allow", "source": "c:2" },
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..crate::properties::config() })]

    #[test]
    fn a_deny_for_any_plugin_that_led_to_a_call_denies_it(chain in chains(), which in any::<usize>()) {
        let plugins = chain.plugins();
        let member = &plugins[which % plugins.len()];
        let allowed = json!([{ "tool": "*", "decide": "allow", "source": "c:2" }]);
        let seen = Player::new(&chain.setup(&allowed)).play(&chain);
        prop_assert!(seen.ran && !seen.denied, "the chain reaches its end: {seen:?}");
        let last = chain.tools().pop().unwrap_or_default();
        prop_assert_eq!(seen.led_by, last);
        let seen = Player::new(&chain.setup(&rules(member, "deny"))).play(&chain);
        prop_assert!(seen.denied && !seen.ran, "{member}: {seen:?}");
        let seen = Player::new(&chain.setup(&rules("bystander", "deny"))).play(&chain);
        prop_assert!(seen.ran, "a rule about another plugin does not count: {seen:?}");
    }

    #[test]
    fn a_question_names_all_that_led_to_the_call_in_order(chain in chains(), which in any::<usize>()) {
        let plugins = chain.plugins();
        let member = &plugins[which % plugins.len()];
        let seen = Player::new(&chain.setup(&rules(member, "ask"))).play(&chain);
        let request = seen.approval_request.expect("it is asked about");
        let participants: Vec<&str> =
            request.participants().map(|it| it.plugin().as_str()).collect();
        prop_assert_eq!(participants, plugins.iter().map(String::as_str).collect::<Vec<_>>());
        let callers = request.participants().filter(|it| matches!(it, Participant::Caller(_)));
        prop_assert_eq!(callers.count(), chain.tools().pop().unwrap_or_default().len() + 1);
        let text = request.origin();
        let others: BTreeSet<&String> =
            plugins.iter().filter(|plugin| **plugin != request.caller.as_str()).collect();
        for plugin in others {
            prop_assert!(text.contains(plugin.as_str()), "{text:?} does not name {plugin}");
        }
    }
}

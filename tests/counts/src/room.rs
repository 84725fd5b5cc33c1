//! A room whose effects are answered at once, with the same answers in every process.

use std::sync::Arc;

use conclave_core::config::Config;
use conclave_core::config::assemble::assemble;
use conclave_core::permissions::manifest::{CONTRACT, CapabilityRequest, FORMAT, Manifest};
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, Principal, RULES, Record, RunOpening};
use conclave_core::room::Room;
use conclave_core::setup::{PluginFacts, Provenance, Setup};
use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::delegation::Delegation;
use conclave_core::types::delivery::{BackgroundStatus, Decision, EndedTask};
use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::{ChannelId, Millis, PluginName, RoomId};
use conclave_core::types::message::ToolCall;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::room_secret::RoomSecret;
use conclave_core::types::tool::{ToolOutcome, ToolSpec};
use conclave_core::types::usage::Spent;
use serde_json::json;

const CONFIG: &str = r#"
entry = "desk"
[plugins.caller]
source = "caller.wasm"
grants.tools = ["search.*"]
[plugins.talker]
source = "talker.wasm"
[plugins.boss]
source = "boss.wasm"
grants.delegate = ["desk"]
[plugins.search]
source = "search.wasm"
[plugins.courier]
source = "courier.wasm"
grants.channels = ["terminal"]
[tasks.desk]
agent = "caller"
delivery_strategy = "courier"
[tasks.talk]
agent = "talker"
turns = 100_000
loop_detection = { cycle_len = 0 }
on_no_tool_call = { nudge = "go on" }
[tasks.boss]
agent = "boss"
[limits.run]
turns = 1_000_000
task_turns = 1_000_000
history = "1 GiB"
"#;

/// A room and the records that led to it.
pub(crate) struct DrivenRoom {
    pub(crate) room: Room,
    pub(crate) records: Vec<Record>,
    calls: u64,
    /// The step at which the last run stopped.
    next: Option<Effect>,
}

impl DrivenRoom {
    /// Opens a room whose entry is `entry`.
    pub(crate) fn open(setup: &Arc<Setup>, entry: &str) -> Self {
        let opening = RunOpening {
            room: RoomId::from("counted"),
            entry: entry.into(),
            content: Some("When was Skerryvore lit, and who built the tower?".to_owned()),
            inputs: json!({}),
            limits: setup.limits.clone(),
            channel: ChannelId::from("terminal"),
            ..RunOpening::default()
        };
        let secret = RoomSecret::new([7; RoomSecret::LENGTH]);
        let mut driven = Self { room: Room::new(), records: Vec::new(), calls: 0, next: None };
        driven.handle(Event::RoomOpened { setup: Arc::clone(setup), opening, secret });
        driven
    }

    fn handle(&mut self, event: Event) {
        let seq = self.records.len() as u64;
        let at = Millis(1_000 + seq);
        self.room.handle(event.clone(), at);
        let principal = Principal("operator".into());
        self.records.push(Record { seq, at, principal, rules: RULES, epoch: 0, event });
    }

    /// Answers effects until the run ends or `steps` more steps were answered.
    pub(crate) fn run(&mut self, steps: usize) {
        let mut left = steps;
        while self.room.outcome().is_none() {
            while self.room.poll_notice().is_some() {}
            let Some(effect) = self.next.take().or_else(|| self.room.poll_effect()) else {
                panic!("the room waits for something that nobody answers");
            };
            if let Effect::StepAgent { call, .. } = &effect {
                if left == 0 {
                    self.next = Some(effect);
                    return;
                }
                left -= 1;
                // The host makes the view for every step.
                std::hint::black_box(self.room.agent_view(*call));
            }
            if let Some(event) = self.answer(effect) {
                self.handle(event);
            }
        }
    }

    fn answer(&mut self, effect: Effect) -> Option<Event> {
        let report = CallReport::default();
        Some(match effect {
            Effect::StepAgent { call, agent, .. } => {
                self.calls += 1;
                let action = action(agent.as_str(), self.calls);
                let turn = Turn {
                    action,
                    thought: String::new(),
                    wait_for_response: false,
                    extra: Vec::new(),
                };
                Event::AgentStepped { call, answer: Ok(turn), report }
            }
            Effect::CallTool { call, .. } => {
                let content = Some("It was lit in 1844; Alan Stevenson built it.".to_owned());
                let outcome = ToolOutcome { content, ..ToolOutcome::default() };
                Event::ToolAnswered { call, answer: Ok(outcome), report }
            }
            Effect::StartBackground { call, id, opening } => {
                let ended = EndedTask {
                    id,
                    worker: opening.entry.clone(),
                    description: "look it up".to_owned(),
                    status: BackgroundStatus::Completed,
                    output: Some("It was lit in 1844.".to_owned()),
                    error: None,
                    cause: None,
                    duration_ms: 5,
                    metadata: json!({}),
                    attempts: 0,
                };
                Event::BackgroundEnded { call, ended, spent: Spent::default(), used: [].into() }
            }
            Effect::WakeStrategy { call, .. } => {
                let tasks = vec!["task-1".to_owned()];
                let speak =
                    Decision::Deliver { tasks, channel: None, prompt: None, interrupt: false };
                Event::StrategyDecided { call, answer: Ok(vec![speak]), report }
            }
            Effect::Send { call, .. } => Event::Sent { call, failure: None, unknown: false },
            _ => return None,
        })
    }
}

/// Returns the action of an agent in its `call`th step of the room.
fn action(agent: &str, call: u64) -> Action {
    let finish = || Action::Finish { outputs: json!({ "content": "1844" }) };
    match (agent, call) {
        ("caller", 1) => Action::Reply(Reply {
            tool_calls: vec![ToolCall {
                id: "1".to_owned(),
                name: "search.find".to_owned(),
                arguments: Arc::new(
                    json!({ "query": "Skerryvore", "pad": "0123456789abcdef".repeat(64) }),
                ),
                untrusted: false,
                led_by: Vec::new(),
            }],
            ..Reply::default()
        }),
        ("boss", 1) => Action::DelegateTask(Box::new(Delegation {
            worker: "desk".to_owned(),
            description: "look it up".to_owned(),
            context: json!({}),
            ..Delegation::default()
        })),
        ("talker", _) => Action::Reply(Reply {
            content: Some(format!("Let me think about it once more, for the {call}th time.")),
            ..Reply::default()
        }),
        _ => finish(),
    }
}

/// Returns the setup of most scenarios.
pub(crate) fn setup() -> Arc<Setup> {
    setup_of(CONFIG)
}

/// Returns the setup with so many rules, of which the last one covers `/notes`.
pub(crate) fn with_rules(rules: usize) -> Arc<Setup> {
    let mut text = CONFIG.to_owned();
    for number in 1..rules {
        text += &format!(
            "[[policy]]\ntool = \"search.find\"\narguments = {{ path = \"/folder{number}/*\" }}\n\
             decide = \"deny\"\n"
        );
    }
    text += "[[policy]]\ntool = \"search.*\"\ndecide = \"allow\"\n";
    setup_of(&text)
}

fn setup_of(text: &str) -> Arc<Setup> {
    let config =
        Config::parse("counts.toml", "", text).unwrap_or_else(|problems| panic!("{problems}"));
    let plugins = [
        ("caller", PluginKind::Agent, &["tools"][..]),
        ("talker", PluginKind::Agent, &[]),
        ("boss", PluginKind::Agent, &["delegate"]),
        ("search", PluginKind::Tools, &[]),
        ("courier", PluginKind::DeliveryStrategy, &["channels"]),
    ];
    let facts = plugins.map(|(name, kind, asks)| (PluginName::from(name), facts(name, kind, asks)));
    let assembly = assemble(&config, &facts.into()).unwrap_or_else(|problems| panic!("{problems}"));
    Arc::new(assembly.setup)
}

fn facts(name: &str, kind: PluginKind, asks: &[&str]) -> PluginFacts {
    let asks = asks.iter().map(|name| ((*name).to_owned(), CapabilityRequest::default()));
    let tool = || ToolSpec {
        name: "find".to_owned(),
        description: "Finds passages.".to_owned(),
        input_schema: json!({ "type": "object", "properties": { "query": { "type": "string" } } }),
        ..ToolSpec::default()
    };
    PluginFacts {
        manifest: Manifest {
            format: FORMAT,
            name: name.into(),
            version: "0.1.0".into(),
            contract: CONTRACT.into(),
            asks: asks.collect(),
            ..Manifest::default()
        },
        kinds: [kind].into(),
        tools: if name == "search" { vec![tool()] } else { Vec::new() },
        sha256: "00".repeat(32),
        mcp: false,
        server: String::new(),
        confinement: None,
        provenance: Provenance::default(),
    }
}

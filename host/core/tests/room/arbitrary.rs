//! Arbitrary setups, events and answers, generated from a row of numbers. Shrinking the row shrinks
//! the generated values.

use std::sync::Arc;

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, HistoryChange, RoleCall};
use conclave_core::setup::GatePoint;
use conclave_core::setup::plugin_query::{
    Condensation, EntrySpan, GateInput, GateVerdict, Masked, ObserverReply, PluginQuery,
    PluginReply, Ruling, TaskResult, Verdict,
};
use conclave_core::types::action::{Action, PlanState, Reply, Turn};
use conclave_core::types::approval::{Approval, ApprovalAuthor};
use conclave_core::types::channel::{Activity, Binding, ChannelAccess, ChannelKind, Visibility};
use conclave_core::types::completion::{
    Completion, ModelError, ModelRequest, PromptPart, StopReason, TokenUsage, ToolChoice,
    ToolFormat,
};
use conclave_core::types::delegation::{Delegation, ResultForm};
use conclave_core::types::delivery::{BackgroundStatus, Decision, EndedTask};
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::{BackgroundId, CallId, ChannelId, TaskName, TimerId};
use conclave_core::types::message::{Blob, Message, Role, ToolCall};
use conclave_core::types::outcome::EndCause;
use conclave_core::types::request::{Announcement, Inbound, RequestId, RoomRequest};
use conclave_core::types::risk::Risk;
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};
use conclave_core::types::tool::{NestedCall, ToolError, ToolOutcome};
use conclave_core::types::usage::{Spent, UsedByPlugin};
use serde_json::{Value, json};

use crate::case::{Case, SECRET};

/// A row of numbers, read in order. Followed by endless zeros.
pub(crate) struct Choices<'a> {
    rest: std::slice::Iter<'a, u16>,
    /// Whether tools call other tools, and runs are stopped.
    is_nesting: bool,
}

impl<'a> Choices<'a> {
    pub(crate) fn new(row: &'a [u16]) -> Self {
        Self { rest: row.iter(), is_nesting: false }
    }

    /// Returns choices for rooms whose tools call other tools.
    pub(crate) fn nesting(row: &'a [u16]) -> Self {
        Self { is_nesting: true, ..Self::new(row) }
    }

    pub(crate) fn are_over(&self) -> bool {
        self.rest.len() == 0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::from(self.rest.next().copied().unwrap_or_default()) % limit
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    fn one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.below(of.len())]
    }

    fn amount(&mut self) -> u64 {
        [0, 1, 7, 50, u64::MAX, u64::MAX - 1][self.below(6)]
    }
}

const TEXTS: [&str; 22] = [
    "",
    " ",
    "hello",
    "DO-NOT-KNOW",
    "q",
    "DONE",
    "quit",
    "__PASS__",
    "a pearl",
    "x",
    "bye",
    "\u{0}🦀\n",
    "__PASS__:help",
    "__SEND__:mute look",
    "TO[help]: you",
    "|@|desk again",
    "{\"request\": \"box.a\"}",
    "{\"request\": \"rewind\", \"n\": 1, \"content\": \"anew\"}",
    "{\"request\": \"recipient_message\", \"intended_recipient\": \"\", \"content\": \"whom?\"}",
    "{\"request\": \"no.such\"} and {\"request\": \"box.b\"}",
    "<tool><request>box.b</request></tool>",
    "SYSTEM {\"recipient\": \"help\"}",
];
const NAMES: [&str; 10] =
    ["", "user", "LLM", "agent", "desk", "HELP", "mute", "slow", "nobody", "loop"];
/// The tools that agents and tools of a nesting room call.
const NESTED: [&str; 7] =
    ["box.a", "box.b", "safe.open", "shell.run", "shell.kill", "done", "no.such"];
const TOOLS: [&str; 18] = [
    "box.a",
    "box.b",
    "safe.open",
    "done",
    "delegate_task",
    "pass",
    "agent_send",
    "no.such",
    "",
    "done_pass",
    "forward",
    "send",
    "result",
    "final_result",
    "recipient_message",
    "add_recipient",
    "rewind",
    "agent_done",
];
const TASKS: [&str; 6] = ["help", "slow", "desk", "mute", "ghost", ""];

/// Returns a case whose setup uses most features. The choices select the options of its tasks.
pub(crate) fn case(choices: &mut Choices<'_>) -> Case {
    serde_json::from_value(case_json(choices)).expect("a case of the right form")
}

/// Returns a case in which plugins stand at every door: judges and simulated users in the tasks,
/// gates between them and before people.
pub(crate) fn guarded_case(choices: &mut Choices<'_>) -> Case {
    let mut plan = case_json(choices);
    let setup = &mut plan["setup"];
    let kinds = setup["plugins"]["judge"]["kinds"].as_array_mut().expect("it has kinds");
    kinds.extend([json!("judge"), json!("simulated-user")]);
    for task in setup["tasks"].as_object_mut().expect("a case has tasks").values_mut() {
        if choices.flag() {
            task["judge"] = json!("judge");
        }
        if choices.flag() {
            task["simulated_user"] = json!("judge");
            task["default_human_response"] = Value::Null;
        }
    }
    let gates = setup["gates"].as_array_mut().expect("a case has gates");
    for on in ["subtask", "outbound"] {
        if choices.below(3) != 0 {
            gates.push(json!({ "on": on, "plugin": "judge", "deadline_ms": 5 }));
        }
    }
    serde_json::from_value(plan).expect("a case of the right form")
}

/// Returns a case whose plugins call one another's tools, some after an approval and some outside of
/// a sandbox.
pub(crate) fn nesting_case(choices: &mut Choices<'_>) -> Case {
    let asks = if choices.flag() { json!(["tools", "scratch"]) } else { json!(["tools"]) };
    let task = |choices: &mut Choices<'_>| {
        json!({
            "agent": "desk", "allow_multiple_tools": true, "confirm": confirm(choices),
            "host_tools": ["done"], "not_handled": if choices.below(4) == 3 { json!(["box.b"]) } else { json!([]) },
        })
    };
    let mut case = json!({
        "name": "nesting",
        "setup": {
            "tasks": { "desk": task(choices) },
            "policy": [{ "tool": "box.b", "decide": "ask" }, { "tool": "shell.kill", "decide": "deny" }],
            "plugins": {
                "desk": { "grants": { "tools": ["*"], "route": ["done"] } },
                "box": { "tools": ["a", "b"], "sandboxed": choices.flag(), "asks": asks, "grants": { "tools": ["safe.*", "shell.*"] } },
                "safe": { "tools": ["open"], "sandboxed": true, "grants": { "tools": ["box.*", "shell.run"] } },
                "shell": { "tools": ["run", "kill", "poll"], "sandboxed": choices.flag(), "grants": { "tools": ["box.*", "safe.*"] } },
                "judge": { "kinds": ["security-analyzer", "gate"] },
            },
            "limits": {
                "turns": 1 + choices.below(6),
                "tool_calls": if choices.below(4) == 3 { json!(choices.below(9)) } else { Value::Null },
                "ask": choices.flag(),
            },
        },
        "expect": {},
    });
    let mut gates = Vec::new();
    for on in ["tool-call", "tool-result"] {
        if choices.flag() {
            let tools = choices.one(&["*", "box.*", "safe.open"]);
            gates.push(json!({ "on": on, "plugin": "judge", "deadline_ms": 5, "tools": [tools] }));
        }
    }
    case["setup"]["gates"] = json!(gates);
    serde_json::from_value(case).expect("a case of the right form")
}

/// Returns a change of a call or a result that fits it, or does not.
fn tool_change(choices: &mut Choices<'_>, input: &GateInput) -> String {
    let mut text: Value = serde_json::from_str(&input.text).expect("a gate reads JSON");
    match choices.below(4) {
        0 => return "{".to_owned(),
        1 => text = json!({ "unknown": 1 }),
        _ if input.point == GatePoint::ToolCall => text["changed"] = json!(true),
        _ if text.get("error").is_some() => text["error"] = json!("…"),
        _ => text["content"] = json!("…"),
    }
    text.to_string()
}

#[expect(clippy::too_many_lines, reason = "one field for each option")]
pub(crate) fn case_json(choices: &mut Choices<'_>) -> Value {
    let mut task = |subtasks: Value, agent: &str| {
        let no_tool =
            [json!("nothing"), json!("done"), json!("user"), json!({ "nudge": "a tool, please" })];
        let no_tool = &no_tool[choices.below(4)];
        let mut plan = json!({
            "agent": agent,
            "subtasks": subtasks,
            "interactive": choices.below(4) == 1,
            "turns": if choices.below(3) == 1 { json!(choices.below(5)) } else { Value::Null },
            "max_stalled_steps": choices.below(4),
            "done_if_response": if choices.below(4) == 1 { json!([choices.one(&["llm", "agent", "user"])]) } else { json!([]) },
            "done_if_no_response": if choices.below(4) == 1 { json!([choices.one(&["llm", "agent", "user"])]) } else { json!([]) },
            "no_tool": no_tool,
            "agent_responder": choices.one(&["host", "host-then-component", "component"]),
            "allow_null_result": choices.below(4) == 1,
            "delivery_strategy": if choices.flag() { json!("teller") } else { Value::Null },
            "text_rules": if choices.flag() {
                json!({ "signals": true, "recipients": choices.flag(), "prefix": choices.one(&["", "|@|"]), "calls": choices.flag(), "system_word": true })
            } else {
                json!({})
            },
            "tool_format": choices.one(&["native", "json", "xml", "off"]),
            "force_tool": if choices.below(4) == 3 { json!("box.a") } else { Value::Null },
            "overflow": choices.one(&["truncate", "drop-turns"]),
            "bytes_per_token": choices.below(3),
            "done_if_tool": choices.below(8) == 7,
            "done_sequences": if choices.below(6) == 5 { json!([choices.one(&["L, L", "T, A", "C[pearl]", "T[box.a], A", "U, N"])]) } else { json!([]) },
            "loop_detection": { "cycle_len": choices.below(4), "wait": 1 + choices.below(3) },
            "responders": if choices.below(6) == 5 {
                json!(["agent", "user"])
            } else {
                json!(["llm", "agent", "user"])
            },
            "only_user_quits_root": choices.below(3) != 2,
            "default_human_response": if choices.below(6) == 5 { json!(choices.one(&TEXTS)) } else { Value::Null },
            "user_message": if choices.below(6) == 5 { json!("begin") } else { Value::Null },
            "restart": choices.flag(),
            "restart_as_subtask": choices.flag(),
            "erase_substeps": choices.below(4) == 3,
            "allow_multiple_tools": choices.below(4) != 3,
            "respond_tools_only": choices.below(6) == 5,
            "allow_subtask_multi_tools": choices.below(4) != 3,
            "as_langroid": choices.flag(),
            "host_tools": if choices.flag() { json!(["recipient_message", "rewind", "add_recipient", "done", "handoff_conversation"]) } else { json!([]) },
            "not_handled": if choices.below(4) == 3 { json!(["box.b"]) } else { json!([]) },
            "confirm": confirm(choices),
            "stuck_detection": {
                "on": choices.flag(), "repeats": choices.below(4), "errors": choices.below(5), "alternations": choices.below(5), "messages": choices.below(3),
                "recovery": choices.one(&["stop", "ask", "restart"]),
            },
            "condense": if choices.below(3) == 2 { json!({ "plugin": "judge", "over": choices.below(5) }) } else { Value::Null },
        });
        plan["action_plugins"] = if choices.flag() { json!(["shell", "box"]) } else { json!([]) };
        plan["action_timeout_ms"] =
            if choices.below(4) == 3 { json!(choices.below(3)) } else { Value::Null };
        plan["memory"] = if choices.below(4) == 3 { json!("judge") } else { Value::Null };
        let knowledge = json!([{ "file": "a.md", "triggers": ["a", "one", "hello", "pearl", "begin"], "text": "`" }]);
        plan["knowledge"] = if choices.below(3) == 2 { knowledge } else { json!([]) };
        plan
    };
    let tasks = json!({
        "desk": task(json!(["help", "mute"]), "desk"),
        "help": task(json!(["mute", "ghost"]), "help"),
        "mute": task(json!([]), "help"),
        "slow": task(json!(["desk"]), "desk"),
        // Assembly refuses cycles, but the room must handle them without a failure.
        "loop": task(json!(["loop", "desk"]), "help"),
    });
    let all = json!({
        "tools": ["box.*", "shell.*"], "tool_calls": 20, "route": ["help", "done", "mute", "delegate_task"], "delegate": ["help", "slow", "desk", "ghost", "loop"],
        "at_once": 3, "total": 9, "model": ["default", "ghost"], "model_calls": 15, "channels": ["terminal"], "messages": 7,
    });
    json!({
        "name": "arbitrary",
        "input": if choices.below(4) == 1 { Value::Null } else { json!(choices.one(&TEXTS)) },
        "opening": { "deadline": if choices.flag() { json!(500) } else { Value::Null }, "depth": choices.below(5) },
        "setup": {
            "entry": choices.one(&["desk", "loop", "help"]),
            "tasks": tasks,
            "gates": [
                { "on": "inbound", "plugin": "judge", "deadline_ms": 5 }, { "on": "delegate", "plugin": "judge", "deadline_ms": 7 },
                { "on": "deliver", "plugin": "judge", "deadline_ms": 1 }, { "on": "delegate", "plugin": "judge", "deadline_ms": 2 },
            ],
            "plugins": {
                "desk": { "kinds": ["agent", "responder"], "grants": all },
                "help": { "grants": if choices.flag() { all.clone() } else { json!({}) } },
                "box": { "tools": ["a", "b"], "grants": if choices.flag() { all.clone() } else { json!({}) } },
                "safe": { "tools": ["open"] },
                "shell": { "tools": ["run", "kill", "poll", "read", "dance"] },
                "judge": { "kinds": ["security-analyzer", "condenser", "memory", "gate"], "grants": if choices.flag() { all.clone() } else { json!({}) } },
                "teller": { "kinds": ["delivery-strategy"], "grants": if choices.flag() { all.clone() } else { json!({}) } },
            },
            "models": { "default": {
                "input_price": 3_000_000, "output_price": u64::MAX,
                // Enough for some histories, too small for any prompt, or no limit.
                "context": ([json!(400), json!(600), json!(7), Value::Null])[choices.below(4)],
                "max_output": if choices.flag() { json!(60) } else { Value::Null },
            } },
            "limits": {
                "turns": choices.below(40),
                "tokens": if choices.flag() { json!(choices.amount()) } else { Value::Null },
                "cost": if choices.flag() { json!(choices.amount()) } else { Value::Null },
                "model_calls": if choices.below(4) == 3 { json!(choices.amount()) } else { Value::Null },
                "tool_calls": if choices.below(4) == 3 { json!(choices.amount()) } else { Value::Null },
                "cpu": if choices.below(4) == 3 { json!(choices.amount()) } else { Value::Null },
                "tasks": if choices.below(4) == 3 { json!(choices.amount()) } else { Value::Null },
                "tasks_at_once": if choices.below(4) == 3 { json!(choices.below(4)) } else { Value::Null },
                "ask": choices.flag(),
            },
        },
        "expect": {},
    })
}

fn confirm(choices: &mut Choices<'_>) -> Value {
    let analyzer = if choices.flag() { json!("judge") } else { Value::Null };
    let risky = json!({ "risky": { "threshold": choices.one(&["low", "medium", "high"]), "unknown": choices.flag() } });
    let policy = [json!("never"), json!("always"), risky][choices.below(3)].clone();
    json!({ "policy": policy, "analyzer": analyzer })
}

/// Returns a control event for a run in progress.
pub(crate) fn steers(choices: &mut Choices<'_>) -> Event {
    if choices.is_nesting && choices.below(4) == 3 {
        let reason = "enough".to_owned();
        return match choices.flag() {
            true => Event::TurnStopped { reason },
            false => Event::Cancelled { reason },
        };
    }
    match choices.below(5) {
        4 => requested(choices),
        0 => Event::Paused { reason: "wait".to_owned() },
        1 => Event::Unpaused,
        _ => {
            let task = choices.flag().then(|| TaskName::from(choices.one(&TASKS)));
            Event::UserMessageSent {
                task,
                text: choices.one(&TEXTS).to_owned(),
                attachments: Vec::new(),
            }
        }
    }
}

/// Returns a request from outside the room.
fn requested(choices: &mut Choices<'_>) -> Event {
    const CHANNELS: [&str; 5] = ["terminal", "pager", "phone", "", "a,b"];
    let channel = ChannelId::from(choices.one(&CHANNELS));
    let access = [
        ChannelAccess::ReadWrite,
        ChannelAccess::ReadOnly,
        ChannelAccess::WriteOnly,
        ChannelAccess::None,
    ];
    let task = || BackgroundId::from("task-1");
    let what = match choices.below(12) {
        0..=4 => RoomRequest::Inbound {
            inbound: Inbound {
                key: choices.flag().then(|| choices.one(&TEXTS).to_owned()),
                chain_depth: choices.below(7) as u32,
                to: (choices.below(3) == 2).then(|| TaskName::from(choices.one(&TASKS))),
                ..Inbound::new(channel, choices.one(&TEXTS))
            },
        },
        5 => {
            let activity =
                [Activity::Idle, Activity::Speaking, Activity::UserSpeaking, Activity::Generating]
                    [choices.below(4)];
            RoomRequest::Activity { channel, activity }
        }
        6 | 7 => {
            let kind = [
                ChannelKind::Text,
                ChannelKind::Web,
                ChannelKind::Voice,
                ChannelKind::Agent,
                ChannelKind::Other,
            ][choices.below(5)];
            let binding = Binding {
                access: access[choices.below(4)],
                visibility: Visibility::parse(choices.one(&[
                    "all",
                    "none",
                    "people",
                    "agents",
                    "pager, desk",
                ])),
                muted: choices.below(3) == 2,
                rate: choices.flag().then(|| choices.below(3) as u32),
                ..Binding::of(kind)
            };
            RoomRequest::Bind { channel, binding: (choices.below(4) != 3).then_some(binding) }
        }
        8 => RoomRequest::CancelTask { task: task(), reason: "no".to_owned() },
        9 => RoomRequest::TellTask { task: task(), text: choices.one(&TEXTS).to_owned() },
        10 => RoomRequest::Deliver {
            announcement: Announcement {
                content: choices.one(&TEXTS).to_owned(),
                key: (channel.as_str() != "pager").then(|| "again".to_owned()),
                channel: choices.flag().then_some(channel),
                addressed_to: choices.flag().then(|| TaskName::from(choices.one(&TASKS))),
                ..Announcement::default()
            },
        },
        _ if choices.below(4) == 3 => RoomRequest::Close { reason: "good night".to_owned() },
        _ => {
            let delegation = Delegation {
                worker: choices.one(&TASKS).to_owned(),
                description: choices.one(&TEXTS).to_owned(),
                ..Delegation::default()
            };
            RoomRequest::Delegate {
                delegation: Box::new(delegation),
                by: choices.flag().then(|| TaskName::from(choices.one(&TASKS))),
            }
        }
    };
    Event::Requested { request: RequestId(choices.below(3) as u64), what }
}

/// Returns any event, with small call ids so that some of them exist.
pub(crate) fn event(choices: &mut Choices<'_>, case: &Case) -> Event {
    let call = CallId(if choices.below(20) == 19 { u64::MAX } else { choices.below(12) as u64 });
    match choices.below(18) {
        17 => requested(choices),
        15 => {
            let setup = choices.flag().then(|| case.setup().into());
            let mut opening = case.opening();
            opening.content = text(choices);
            opening.tools = calls(choices);
            opening.recipient = choices.flag().then(|| choices.one(&NAMES).to_owned());
            opening.role_call = (choices.below(3) == 2).then(|| RoleCall {
                role: [Role::Agent, Role::Llm, Role::User, Role::System][choices.below(4)],
                sender: [Role::Llm, Role::User][choices.below(2)],
                untrusted: choices.flag(),
                from_agent: choices.flag(),
                times: choices.below(4) as u32,
            });
            Event::RunStarted { setup, opening }
        }
        16 => {
            let change = match choices.below(3) {
                0 => HistoryChange::Clear { start: choices.below(5) },
                1 => HistoryChange::Prune { start: choices.below(5) },
                _ => HistoryChange::Import {
                    messages: vec![
                        Message::new(7, Role::User, "old"),
                        Message::new(7, Role::Llm, "old"),
                    ],
                },
            };
            Event::HistoryChanged { task: TaskName::from(choices.one(&TASKS)), change }
        }
        0 => Event::RoomOpened {
            setup: case.setup().into(),
            opening: case.opening(),
            secret: SECRET,
        },
        1..=3 => Event::AgentStepped { call, answer: stepped(choices), report: report(choices) },
        4 => Event::AgentResponded {
            call,
            answer: stepped(choices).map(|turn| choices.flag().then_some(turn)),
            report: report(choices),
        },
        5 | 6 => {
            Event::ToolAnswered { call, answer: tool_answer(choices), report: report(choices) }
        }
        7 => Event::StrategyDecided { call, answer: decided(choices), report: report(choices) },
        8 => Event::UserAnswered {
            call,
            text: text(choices),
            attachments: Vec::new(),
            passed: false,
        },
        9 => model_asked(choices, call),
        10 => Event::ModelAnswered {
            call,
            ordinal: choices.below(3) as u32,
            answer: completed(choices),
            trouble: None,
            was_shown: false,
        },
        11 => Event::Sent { call, failure: text(choices), unknown: false },
        12 => background_ended(choices, call),
        13 => Event::Decided {
            call,
            approval: approval(choices),
            author: ApprovalAuthor::Program,
            arguments_sha256: None,
        },
        _ if choices.below(8) == 7 => {
            Event::TaskKilled { task: TaskName::from(choices.one(&TASKS)), reason: "no".to_owned() }
        }
        _ if choices.below(8) == 7 => Event::TurnStopped { reason: "wait".to_owned() },
        _ if choices.below(4) == 3 => steers(choices),
        _ if choices.below(8) == 7 => Event::Cancelled { reason: "enough".to_owned() },
        _ => Event::TimerFired { timer: TimerId(choices.below(4) as u64) },
    }
}

/// Returns answers to an effect, or no answer if the effect needs none. Sometimes a plugin asks a
/// model before it answers.
#[expect(clippy::too_many_lines, reason = "one arm for each effect")]
pub(crate) fn answers(choices: &mut Choices<'_>, effect: &Effect) -> Vec<Event> {
    let asks = |choices: &mut Choices<'_>, call: CallId, answer: Event| match choices.below(4) {
        0 => vec![answer],
        3 => {
            let side_effect = SideEffect::DeleteKey { key: "k".to_owned() };
            vec![Event::SideEffectAsked { call, ordinal: 0, side_effect }, answer]
        }
        1 => vec![model_asked(choices, call), answer],
        // The plugin is gone before its model has answered.
        _ => vec![
            model_asked(choices, call),
            answer,
            Event::ModelAnswered {
                call,
                ordinal: 0,
                answer: completed(choices),
                trouble: None,
                was_shown: false,
            },
        ],
    };
    match effect {
        Effect::StepAgent { call, .. } if choices.is_nesting && choices.below(4) != 0 => {
            vec![calling(choices, *call)]
        }
        Effect::StepAgent { call, .. } => {
            let answer = Event::AgentStepped {
                call: *call,
                answer: stepped(choices),
                report: report(choices),
            };
            asks(choices, *call, answer)
        }
        Effect::AskResponder { call, .. } => {
            let answer = stepped(choices).map(|turn| choices.flag().then_some(turn));
            vec![Event::AgentResponded { call: *call, answer, report: report(choices) }]
        }
        Effect::CallTool { call, .. } if choices.is_nesting => continued(choices, *call, 0),
        Effect::AnswerTools { call, ordinal, .. } if choices.is_nesting => {
            continued(choices, *call, ordinal + 1)
        }
        Effect::CallTool { call, .. } => {
            let answer = Event::ToolAnswered {
                call: *call,
                answer: tool_answer(choices),
                report: report(choices),
            };
            asks(choices, *call, answer)
        }
        Effect::QueryPlugin { call, question, .. } => {
            let answer = Event::PluginQueried {
                call: *call,
                answer: advice(choices, question),
                report: report(choices),
            };
            asks(choices, *call, answer)
        }
        Effect::AskUser { call, .. } => {
            vec![Event::UserAnswered {
                call: *call,
                text: text(choices),
                attachments: Vec::new(),
                passed: false,
            }]
        }
        Effect::AskApproval { call, .. } => {
            vec![Event::Decided {
                call: *call,
                approval: approval(choices),
                author: ApprovalAuthor::Program,
                arguments_sha256: None,
            }]
        }
        // An invalid amount is no answer: the user must be asked again.
        Effect::AskTopUp { call, .. } => {
            let refused = Approval::Refused { reason: "no".to_owned() };
            [approval(choices), refused]
                .map(|approval| Event::Decided {
                    call: *call,
                    approval,
                    author: ApprovalAuthor::Program,
                    arguments_sha256: None,
                })
                .into()
        }
        Effect::CallModel { call, ordinal, .. } => {
            vec![Event::ModelAnswered {
                call: *call,
                ordinal: *ordinal,
                answer: completed(choices),
                trouble: None,
                was_shown: false,
            }]
        }
        Effect::StartBackground { call, .. } => vec![background_ended(choices, *call)],
        Effect::WakeStrategy { call, .. } => {
            vec![Event::StrategyDecided {
                call: *call,
                answer: decided(choices),
                report: report(choices),
            }]
        }
        Effect::Send { call, .. } => {
            vec![Event::Sent { call: *call, failure: text(choices), unknown: false }]
        }
        Effect::SetTimer { timer, .. } => vec![Event::TimerFired { timer: *timer }],
        Effect::AllowSideEffect { call, ordinal, leave: Ok(()) } => {
            vec![Event::SideEffectEnded {
                call: *call,
                ordinal: *ordinal,
                answer: SideEffectAnswer::Done { length: 1 },
            }]
        }
        Effect::AllowSideEffect { .. } | Effect::ConfirmSideEffect { .. } => Vec::new(),
        Effect::Reply { .. } | Effect::TellTask { .. } | Effect::DetachTask { .. } => Vec::new(),
        Effect::AnswerModel { .. }
        | Effect::AnswerTools { .. }
        | Effect::AbandonCall { .. }
        | Effect::Finish { .. } => Vec::new(),
    }
}

/// Returns the step of an agent that calls tools.
fn calling(choices: &mut Choices<'_>, call: CallId) -> Event {
    let names: Vec<&str> = (0..=choices.below(3)).map(|_| choices.one(&NESTED)).collect();
    let tool_calls = names.into_iter().map(|name| ToolCall::new(name, json!({}))).collect();
    let action = Action::Reply(Reply { tool_calls, ..Reply::default() });
    let turn = Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
    Event::AgentStepped { call, answer: Ok(turn), report: report(choices) }
}

/// Returns what a tool does next, after `ordinal` requests of nested calls: it answers, requests
/// more of them, or ends before their answers.
pub(crate) fn continued(choices: &mut Choices<'_>, call: CallId, ordinal: u32) -> Vec<Event> {
    let answer =
        Event::ToolAnswered { call, answer: tool_answer(choices), report: report(choices) };
    if ordinal > 3 || choices.are_over() {
        return vec![answer];
    }
    // Its arguments tell each nested call from all others.
    let nested = |(offset, name): (usize, &str)| NestedCall {
        name: name.to_owned(),
        arguments: Arc::new(json!({ "nested": format!("{call}-{ordinal}-{offset}") })),
    };
    let count = [0, 1, 1, 2, 3, 4, 66][choices.below(7)];
    let names: Vec<&str> = (0..count).map(|_| choices.one(&NESTED)).collect();
    let calls = names.into_iter().enumerate().map(nested).collect();
    let event = Event::ToolsAsked { call, ordinal, calls };
    match choices.below(8) {
        0..=2 => vec![answer],
        3 => vec![event, answer],
        _ => vec![event],
    }
}

/// Returns a plugin's reply to a query, sometimes of the wrong kind.
fn advice(choices: &mut Choices<'_>, question: &PluginQuery) -> Result<PluginReply, Fault> {
    let memories = || PluginReply::Memories { memories: vec!["a".to_owned()] };
    let which = choices.below(6);
    Ok(match question {
        _ if which == 0 => return Err(fault()),
        _ if which == 1 => memories(),
        PluginQuery::Memories { .. } => memories(),
        PluginQuery::Risk { .. } => {
            let risk = [Risk::Low, Risk::Medium, Risk::High][choices.below(3)];
            PluginReply::Risk { verdict: Verdict { risk, reason: String::new() } }
        }
        PluginQuery::Gate { input } if input.point.is_of_tools() => {
            let verdict = match choices.below(4) {
                0 => GateVerdict::Block { reason: "no".to_owned() },
                1 => GateVerdict::Modify { text: tool_change(choices, input) },
                _ => GateVerdict::Allow,
            };
            PluginReply::Gate { verdict }
        }
        PluginQuery::Gate { .. } => {
            let text = || TEXTS[which % TEXTS.len()].to_owned();
            let verdict = match choices.below(4) {
                0 => GateVerdict::Block { reason: text() },
                1 => GateVerdict::Modify { text: text() },
                _ => GateVerdict::Allow,
            };
            PluginReply::Gate { verdict }
        }
        PluginQuery::Rule { .. } => {
            let mut decision = || [None, Some(true), Some(false)][choices.below(3)];
            let (valid, is_done) = (decision(), decision());
            PluginReply::Rule { ruling: Ruling { valid, is_done, feedback: None } }
        }
        PluginQuery::Conclude { .. } => {
            let (text, value) = (choices.one(&TEXTS).to_owned(), choices.flag());
            let result = TaskResult { text, value: value.then(|| json!({ "a": 1 })) };
            PluginReply::Conclude { result: choices.flag().then_some(result) }
        }
        PluginQuery::AnswerAsUser { .. } => PluginReply::AnswerAsUser { text: text(choices) },
        PluginQuery::Observe { .. } => {
            let reply = match choices.below(3) {
                0 => ObserverReply::Taken,
                1 => ObserverReply::Unavailable { retry_after_ms: choices.flag().then_some(10) },
                _ => ObserverReply::Denied,
            };
            PluginReply::Observe { reply }
        }
        // A room asks neither: the driver does.
        PluginQuery::Deliver { .. } | PluginQuery::Receive { .. } => memories(),
        PluginQuery::Condense { .. } => {
            let (start, end) = (choices.below(6) as u64, choices.below(8) as u64);
            let mask = vec![Masked { index: choices.below(9) as u64, text: "…".to_owned() }];
            let condensation = Condensation {
                forget: vec![EntrySpan { start, end }],
                mask,
                summary: text(choices),
            };
            PluginReply::Condense { condensation: choices.flag().then_some(condensation) }
        }
    })
}

fn text(choices: &mut Choices<'_>) -> Option<String> {
    choices.flag().then(|| choices.one(&TEXTS).to_owned())
}

fn report(choices: &mut Choices<'_>) -> CallReport {
    let cpu_ticks = if choices.below(4) == 3 { choices.amount() } else { 0 };
    CallReport {
        scratch: (choices.below(4) == 1).then(|| vec![1, 2, 3]),
        cpu_ticks,
        ..CallReport::default()
    }
}

fn fault() -> Fault {
    Fault::new(FaultKind::Panic, "panicked")
}

fn value(choices: &mut Choices<'_>) -> Value {
    let values = [
        json!(null),
        json!("text"),
        json!({ "content": [1, 2.5], "task": "t" }),
        json!([]),
        json!(1.1e-7),
    ];
    values[choices.below(values.len())].clone()
}

fn calls(choices: &mut Choices<'_>) -> Vec<ToolCall> {
    let call = |choices: &mut Choices<'_>| ToolCall {
        id: choices.one(&["", "same", "c1-0"]).to_owned(),
        name: choices.one(&TOOLS).to_owned(),
        arguments: Arc::new(match choices.below(4) {
            0 => json!({ "agent": choices.one(&TASKS), "task": choices.one(&TEXTS) }),
            1 => {
                json!({ "to": choices.one(&TASKS), "content": choices.one(&TEXTS), "tools": [{ "name": choices.one(&TOOLS) }] })
            }
            2 => {
                json!({ "intended_recipient": choices.one(&NAMES), "content": choices.one(&TEXTS), "n": choices.below(4), "agent": "llm" })
            }
            _ => value(choices),
        }),
        untrusted: choices.below(4) == 3,
        led_by: Vec::new(),
    };
    let count = [0, 0, 1, 1, 2, 3, 150][choices.below(7)];
    (0..count).map(|_| call(choices)).collect()
}

fn stepped(choices: &mut Choices<'_>) -> Result<Turn, Fault> {
    if choices.below(10) == 9 {
        return Err(fault());
    }
    let action = match choices.below(14) {
        0 => Action::Null,
        1 => Action::Finish { outputs: value(choices) },
        2 => Action::Reject { outputs: value(choices) },
        3 => Action::Delegate { agent: choices.one(&TASKS).to_owned(), inputs: value(choices) },
        4 | 5 => Action::DelegateTask(Box::new(Delegation {
            worker: choices.one(&TASKS).to_owned(),
            description: choices.one(&TEXTS).to_owned(),
            context: value(choices),
            wait: choices.flag(),
            result_delivery: Some(ResultForm::AgentTurn),
            ..Delegation::default()
        })),
        6 => Action::Think { thought: choices.one(&TEXTS).to_owned() },
        7 => Action::Talk { content: choices.one(&TEXTS).to_owned() },
        8 => Action::ModifyTask { task_id: "0".to_owned(), state: PlanState::Open },
        9 => acted(choices),
        _ => Action::Reply(Reply {
            completion: None,
            content: text(choices),
            tool_calls: calls(choices),
            recipient: choices.flag().then(|| choices.one(&NAMES).to_owned()),
            attachments: if choices.below(8) == 1 {
                vec![Blob {
                    sha256: "00".to_owned(),
                    media_type: "text/plain".to_owned(),
                    length: u64::MAX,
                    name: None,
                }]
            } else {
                Vec::new()
            },
        }),
    };
    Ok(Turn {
        action,
        thought: String::new(),
        wait_for_response: choices.below(8) == 7,
        extra: vec![("later".to_owned(), value(choices))],
    })
}

/// Returns an action, with or without an executor for it.
fn acted(choices: &mut Choices<'_>) -> Action {
    let command_id = choices.below(4) as i64;
    let path = "a".to_owned();
    match choices.below(10) {
        0 | 1 => Action::Run { command: "srv".to_owned(), background: true },
        2 => Action::Run { command: "ls".to_owned(), background: false },
        3 => Action::Kill { command_id },
        4 => Action::Read { path, start: 0, end: -1 },
        5 => Action::Recall { query: "pearls".to_owned() },
        7 | 8 => {
            let delegates: Vec<Value> = (0..1 + choices.below(4))
                .map(|_| json!({ "agent": choices.one(&TASKS), "inputs": { "task": "x" } }))
                .collect();
            Action::Custom {
                name: "delegate_all".to_owned(),
                arguments: json!({ "delegates": delegates }),
            }
        }
        6 => Action::Custom {
            name: "kill".to_owned(),
            arguments: json!({ "command_id": command_id }),
        },
        _ => Action::Custom {
            name: choices
                .one(&[
                    "dance",
                    "edit",
                    "call_tool_mcp",
                    "delegate_all",
                    "condensation_request",
                    "run",
                    "",
                ])
                .to_owned(),
            arguments: value(choices),
        },
    }
}

/// An extra field of an executor's answer: a background command, an end, an observation, or
/// an invalid value.
fn extra_field(choices: &mut Choices<'_>) -> Value {
    let background = json!({ "command_id": choices.below(4), "poll_ms": choices.amount() });
    let observation = json!({ "observation": choices.one(&["run", "read", "error", "delegate", "dance"]), "content": choices.one(&TEXTS), "extras": {} });
    match choices.below(8) {
        0..=2 => json!({ "background": background }),
        3 => json!({ "exit_code": choices.below(3) }),
        4 => json!({ "observation": observation, "background": background }),
        5 => observation,
        6 => json!({ "background": value(choices), "exit_code": "x", "observation": 3 }),
        _ => value(choices),
    }
}

fn tool_answer(choices: &mut Choices<'_>) -> Result<ToolOutcome, ToolError> {
    match choices.below(8) {
        4 | 5 => Ok(ToolOutcome {
            content: text(choices),
            value: Some(extra_field(choices)).filter(|value| !value.is_null()),
            ..ToolOutcome::default()
        }),
        0 => Err(ToolError::Fault { fault: fault() }),
        1 => Err(ToolError::Unavailable { retry_after_ms: None }),
        2 | 3 => Ok(ToolOutcome {
            content: text(choices),
            follow_up_calls: calls(choices),
            ..ToolOutcome::default()
        }),
        _ => Ok(ToolOutcome { content: text(choices), ..ToolOutcome::default() }),
    }
}

fn decided(choices: &mut Choices<'_>) -> Result<Vec<Decision>, Fault> {
    let decision = |choices: &mut Choices<'_>| {
        let tasks = vec![
            choices.one(&["task-1", "task-2", "task-3", "task-9", ""]).to_owned(),
            "task-1".to_owned(),
        ];
        match choices.below(6) {
            0 => Decision::GiveUp { reason: "bored".to_owned() },
            1 => Decision::MoveToInbox { tasks },
            2 | 3 => {
                let timeout_ms = choices.amount();
                Decision::Wait {
                    channel: timeout_ms.is_multiple_of(2).then(|| "terminal".to_owned()),
                    timeout_ms,
                }
            }
            _ => {
                let channel = choices
                    .flag()
                    .then(|| choices.one(&["terminal", "pager", "nowhere"]).to_owned());
                Decision::Deliver {
                    tasks,
                    channel,
                    prompt: text(choices),
                    interrupt: choices.flag(),
                }
            }
        }
    };
    if choices.below(8) == 7 {
        Err(fault())
    } else {
        Ok((0..choices.below(4)).map(|_| decision(choices)).collect())
    }
}

fn background_ended(choices: &mut Choices<'_>, call: CallId) -> Event {
    let ended = EndedTask {
        id: BackgroundId::from("task-2"),
        worker: TaskName::from("desk"),
        description: String::new(),
        status: if choices.flag() {
            BackgroundStatus::Completed
        } else {
            BackgroundStatus::Interrupted
        },
        output: text(choices),
        error: text(choices),
        cause: [
            None,
            Some(EndCause::WallTime),
            Some(EndCause::NoStructuredResult { attempts: u64::MAX }),
        ][choices.below(3)],
        duration_ms: u64::MAX,
        attempts: 0,
        metadata: Value::Null,
    };
    let spent = Spent {
        turns: choices.amount(),
        tokens: choices.amount(),
        cost_micro_usd: choices.amount(),
        model_calls: choices.amount(),
        cpu_ms: choices.amount(),
        ..Spent::default()
    };
    Event::BackgroundEnded { call, ended, spent, used: UsedByPlugin::new() }
}

fn model_asked(choices: &mut Choices<'_>, call: CallId) -> Event {
    let parts = [
        PromptPart::System,
        PromptPart::History { start: choices.amount(), end: choices.amount() },
    ];
    let request = ModelRequest {
        model: choices.flag().then(|| choices.one(&["default", "ghost", "other"]).to_owned()),
        prompt: parts.into_iter().take(choices.below(3)).collect(),
        tools: (choices.below(4) == 3).then(|| vec![choices.one(&TOOLS).to_owned()]),
        tool_format: [
            None,
            Some(ToolFormat::Json),
            Some(ToolFormat::Xml),
            Some(ToolFormat::Native),
        ][choices.below(4)],
        tool_choice: ToolChoice::Auto,
        output_schema: choices.flag().then(|| json!({ "type": "array" })),
        stream: false,
        options: if choices.flag() {
            vec![("max-tokens".to_owned(), json!(choices.amount()))]
        } else {
            Vec::new()
        },
    };
    Event::ModelAsked { call, ordinal: choices.below(2) as u32, request }
}

fn completed(choices: &mut Choices<'_>) -> Result<Completion, ModelError> {
    if choices.below(4) == 3 {
        return Err(ModelError::Unavailable { retry_after_ms: None });
    }
    let (input_tokens, output_tokens) = (choices.amount(), choices.amount());
    let cost_micro_usd = choices.flag().then(|| choices.amount());
    let usage = TokenUsage { input_tokens, cached_input_tokens: 0, output_tokens, cost_micro_usd };
    Ok(Completion {
        id: String::new(),
        content: text(choices),
        reasoning: None,
        tool_calls: Vec::new(),
        stop: [StopReason::End, StopReason::ContentFilter, StopReason::Length][choices.below(3)],
        usage,
        model: String::new(),
    })
}

fn approval(choices: &mut Choices<'_>) -> Approval {
    match choices.below(3) {
        0 => Approval::Refused { reason: "no".to_owned() },
        1 => Approval::Edited { arguments: json!({ "edited": choices.amount() }) },
        _ => Approval::Approved,
    }
}

//! The visible behavior of a room, collected while a case runs, as the JSON that the expectations
//! are compared with.

use std::collections::BTreeMap;

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::action::{Observation, PastAction};
use conclave_core::types::completion::PromptPiece;
use conclave_core::types::message::{Message, Role};
use conclave_core::types::view::AgentView;
use serde_json::{Value, json};

const KINDS: [&str; 15] = [
    "step-agent",
    "ask-responder",
    "call-tool",
    "query-plugin",
    "ask-approval",
    "ask-top-up",
    "ask-user",
    "call-model",
    "answer-model",
    "start-background",
    "wake-strategy",
    "send",
    "set-timer",
    "abandon-call",
    "finish",
];

#[derive(Default)]
pub(crate) struct Recorder {
    /// `[task, by, content, recipient]`; the user and sub-tasks by their names.
    posted: Vec<Value>,
    /// `[tool, content, is_error, call_id]`, in the order in which the agent reads them.
    results: Vec<Value>,
    /// `[capability, target, layer, suggestion, plugin]`
    denied: Vec<Value>,
    /// `[id, text, channel]`
    delivered: Vec<Value>,
    /// `[id, reason]`
    undelivered: Vec<Value>,
    /// `[task, status]`
    ended: Vec<Value>,
    stalled: u64,
    skipped: Vec<Value>,
    /// `[task, by, responder, reason]`, each responder that a step passed over before its answer.
    passed_over: Vec<Value>,
    /// `[plugin, message]`
    faults: Vec<Value>,
    effects: BTreeMap<&'static str, u64>,
    in_flight: usize,
    /// The answers to model calls of plugins.
    answers: Vec<Value>,
    /// The views of each step and response, by task.
    views: BTreeMap<String, Vec<Value>>,
    /// The openings of child rooms.
    openings: Vec<Value>,
    /// The requests to approvers: `[tool, arguments, rule]`.
    approvals: Vec<Value>,
    /// The limit increase requests, in the form of an approval: `[key, arguments, sentence]`.
    top_ups: Vec<Value>,
    /// Models that were reported as having no known price.
    unpriced: Vec<Value>,
    /// The prompts to the user.
    user_prompts: Vec<Value>,
    wakes: Vec<Value>,
    /// The prompts to models.
    pub(crate) prompts: Vec<Value>,
    /// The calls that each answer of a model brought its plugin: `[name, arguments, id]`.
    found_calls: Vec<Value>,
    /// `[task, cut, dropped]`
    cut: Vec<Value>,
    /// The reports to the operator about failed model calls.
    troubles: Vec<Value>,
    /// `[task, state, reason]`, each change of an agent's state.
    states: Vec<Value>,
    /// Plans after each change, as `[task, lines]`; a line is `id state goal`.
    plans: Vec<Value>,
    /// `[task, reason, recovery]`
    stuck: Vec<Value>,
    /// The queries to plugins other than steps and calls: `[plugin, query]`.
    questions: Vec<Value>,
    /// The risk of each request as reported to approvers, with the reason.
    risks: Vec<Value>,
    /// `[task, forgotten, masked, summarised]`
    condensed: Vec<Value>,
    /// `[task, file, trigger]`
    knowledge: Vec<Value>,
    /// `[task, responder, valid, done]`, what a judge decided otherwise than the host.
    overruled: Vec<Value>,
    /// Tasks whose result a judge replaced.
    replaced: Vec<Value>,
    /// `[task, question]`, each question without a user to answer it.
    unanswered: Vec<Value>,
    /// `[point, reason]`, each text that a gate blocked.
    blocked: Vec<Value>,
}

impl Recorder {
    pub(crate) fn saw_calls(&mut self, in_flight: usize) {
        self.in_flight = self.in_flight.max(in_flight);
    }

    pub(crate) fn saw_notice(&mut self, notice: &Notice) {
        match notice {
            Notice::MessagePosted { task, message, .. } => {
                self.posted.push(json!([task, by(message), message.content, message.recipient]));
                let results = message.tool_results.iter().map(|result| {
                    json!([result.name, result.content, result.is_error, result.call_id])
                });
                self.results.extend(results);
            }
            Notice::Denied { plugin, record, .. } => {
                self.denied.push(json!([
                    record.denial.capability,
                    record.denial.target,
                    record.layer,
                    record.suggestion,
                    plugin
                ]));
            }
            Notice::Delivered { id, text, channel, .. } => {
                self.delivered.push(json!([id, text, channel]))
            }
            Notice::NotDelivered { id, reason, .. } => self.undelivered.push(json!([id, reason])),
            Notice::TaskEnded { task, status, .. } => self.ended.push(json!([task, status])),
            Notice::HistoryCut { task, cut, dropped } => self.cut.push(json!([task, cut, dropped])),
            Notice::ModelAnswered { trouble: Some(trouble), .. } => {
                self.troubles.push(json!(trouble.text))
            }
            Notice::HistoryCondensed { task, forgotten, masked, summarised } => {
                self.condensed.push(json!([task, forgotten, masked, summarised]));
            }
            Notice::AnswerOverruled { task, responder, ruling, .. } => {
                self.overruled.push(json!([task, responder, ruling.valid, ruling.is_done]));
            }
            Notice::QuestionUnanswered { task, question } => {
                self.unanswered.push(json!([task, question]));
            }
            Notice::ResultReplaced { task, .. } => self.replaced.push(json!(task)),
            Notice::GateBlocked { point, reason, .. } => self.blocked.push(json!([point, reason])),
            Notice::KnowledgeAdded { task, file, trigger } => {
                self.knowledge.push(json!([task, file, trigger]))
            }
            Notice::AgentStateChanged { task, state, reason } => {
                self.states.push(json!([task, state, reason]))
            }
            Notice::PlanChanged { task, plan } => self.plans.push(json!([task, lines(plan)])),
            Notice::AgentStuck { task, reason, recovery } => {
                self.stuck.push(json!([task, reason, recovery]))
            }
            Notice::StepStalled { task, skipped, .. } => {
                self.stalled += 1;
                let of_task = skipped.iter().map(|one| json!([task, one.responder, one.reason]));
                self.skipped.extend(of_task);
            }
            Notice::StepEnded { task, by, skipped, .. } => {
                let of_step =
                    skipped.iter().map(|one| json!([task, by, one.responder, one.reason]));
                self.passed_over.extend(of_step);
            }
            Notice::PriceUnknown { model, limit } => self.unpriced.push(json!([model, limit])),
            Notice::PluginFaulted { plugin, fault, .. } => {
                self.faults.push(json!([plugin, fault.message]))
            }
            _ => {}
        }
    }

    pub(crate) fn saw_effect(&mut self, effect: &Effect) {
        let kind = kind(effect);
        *self.effects.entry(kind).or_default() += 1;
        match effect {
            Effect::StartBackground { opening, .. } => self.openings.push(json!(opening)),
            Effect::AskApproval { request, .. } => {
                self.approvals.push(json!([request.tool, request.arguments, request.source]));
                self.risks.push(json!([request.risk, request.risk_reason]));
            }
            Effect::QueryPlugin { plugin, question, .. } => {
                self.questions.push(json!([plugin, question]))
            }
            Effect::AskTopUp { top_up, .. } => {
                let approval = top_up.as_approval();
                self.top_ups.push(json!([approval.tool, approval.arguments, approval.source]));
            }
            Effect::AskUser { task, prompt, .. } => self.user_prompts.push(json!([task, prompt])),
            Effect::WakeStrategy { wake, .. } => self.wakes.push(json!(wake)),
            Effect::CallModel { model, prompt, .. } => self.prompts.push(json!({
                "model": model,
                "pieces": prompt.pieces.len(),
                "last": prompt.last_text(),
                "tools": prompt.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>(),
                "system": prompt.pieces.iter().find_map(|piece| match piece {
                    PromptPiece::System { text } => Some(text.to_string()),
                    _ => None,
                }),
                "history": prompt.pieces.iter().flat_map(texts).collect::<Vec<_>>(),
                "format": prompt.tool_format,
                "choice": prompt.tool_choice,
                "schema": prompt.output_schema,
                "options": prompt.options,
            })),
            Effect::AnswerModel { answer, .. } => {
                self.answers.push(match answer {
                    Ok(completion) => json!(completion.content),
                    Err(error) => json!(error),
                });
                let calls = answer.iter().flat_map(|completion| &completion.tool_calls);
                self.found_calls
                    .push(calls.map(|call| json!([call.name, call.arguments, call.id])).collect());
            }
            _ => {}
        }
    }

    pub(crate) fn saw_view(&mut self, view: &AgentView, scratch: &[u8]) {
        let seen = json!({
            "iteration": view.iteration,
            "pending": view.pending.as_ref().map(|message| message.text().to_owned()),
            "plan": lines(&view.plan.to_json()),
            "outputs": view.outputs,
            "last_error": view.last_error,
            "level": view.level,
            "labels": view.pending.as_ref().map(|message| message.labels.clone()),
            "history": view.history.iter().map(|message| message.text().to_owned()).collect::<Vec<_>>(),
            "since": view.since.iter().map(past_json).collect::<Vec<_>>(),
            "intent": view.latest_user_message.as_ref().map(|message| message.text().to_owned()),
            "inputs": view.inputs,
            "tools": view.tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>(),
            "peers": view.peers.iter().map(|peer| peer.name.clone()).collect::<Vec<_>>(),
            "turns": view.remaining.turns,
            "tokens": view.remaining.tokens,
            "wall": view.remaining.wall_ms,
            "scratch": String::from_utf8_lossy(scratch),
        });
        self.views.entry(view.task.to_string()).or_default().push(seen);
    }

    pub(crate) fn report(&self, outcome: &Value, state: &Value, hours: u64) -> Value {
        let effects: BTreeMap<&str, u64> = KINDS
            .iter()
            .map(|kind| (*kind, self.effects.get(kind).copied().unwrap_or_default()))
            .collect();
        json!({
            "outcome": outcome,
            "posted": self.posted,
            "results": self.results,
            "denied": self.denied,
            "delivered": self.delivered,
            "undelivered": self.undelivered,
            "ended": self.ended,
            "stalled": self.stalled,
            "skipped": self.skipped,
            "passed_over": self.passed_over,
            "faults": self.faults,
            "effects": effects,
            "in_flight": self.in_flight,
            "answers": self.answers,
            "views": self.views,
            "openings": self.openings,
            "approvals": self.approvals,
            "top_ups": self.top_ups,
            "unpriced": self.unpriced,
            "asked": self.user_prompts,
            "wakes": self.wakes,
            "prompts": self.prompts,
            "found": self.found_calls,
            "cut": self.cut,
            "troubles": self.troubles,
            "states": self.states,
            "plans": self.plans,
            "stuck": self.stuck,
            "questions": self.questions,
            "risks": self.risks,
            "condensed": self.condensed,
            "knowledge": self.knowledge,
            "overruled": self.overruled,
            "replaced": self.replaced,
            "blocked": self.blocked,
            "unanswered": self.unanswered,
            "state": state,
            // The time for which the room was open.
            "hours": hours,
        })
    }
}

fn texts(piece: &PromptPiece) -> Vec<String> {
    let PromptPiece::History { messages, start, end } = piece else { return Vec::new() };
    let results = |message: &Message| {
        message.tool_results.iter().map(|result| result.content.clone()).collect::<Vec<_>>()
    };
    let texts = |message: &Message| {
        if message.tool_results.is_empty() {
            vec![message.text().to_owned()]
        } else {
            results(message)
        }
    };
    (*start..*end)
        .filter_map(|place| messages.get(place))
        .flat_map(|message| texts(message))
        .collect()
}

fn lines(plan: &Value) -> Vec<String> {
    let tasks = plan["subtasks"].as_array().into_iter().flatten();
    let line = |task: &Value| {
        let field = |name: &str| task[name].as_str().unwrap_or_default().to_owned();
        [field("id"), field("state"), field("goal")].join(" ")
    };
    tasks.flat_map(|task| [line(task)].into_iter().chain(lines(task))).collect()
}

fn by(message: &Message) -> String {
    if message.sender == Role::User {
        message.sender_name.clone()
    } else {
        message.sender.to_string()
    }
}

fn past_json(past_action: &PastAction) -> Value {
    let observation = past_action.observation.as_ref().map(|observation| match observation {
        Observation::Null => "null".to_owned(),
        Observation::Tool(result) => format!("tool {}: {}", result.name, result.content),
        Observation::Delegated { agent, outputs } => format!("delegated {agent}: {outputs}"),
        Observation::Success { content } => format!("success: {content}"),
        Observation::Error { content } => format!("error: {content}"),
        other => serde_json::to_string(other).expect("it is JSON"),
    });
    json!([
        past_action.action.as_ref().map(conclave_core::types::action::Action::name),
        observation
    ])
}

fn kind(effect: &Effect) -> &'static str {
    let value = serde_json::to_value(effect).expect("an effect is serialisable");
    let name = value.get("effect").and_then(Value::as_str).expect("an effect has a tag");
    KINDS
        .into_iter()
        .find(|kind| *kind == name)
        .unwrap_or_else(|| panic!("no such kind of effect: {name}"))
}

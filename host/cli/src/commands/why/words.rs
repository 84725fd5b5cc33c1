//! Descriptions of records and notices, and the caller behind a call.

use std::collections::HashMap;
use std::fmt;

use conclave_core::inspect::audit::{AuditKind, plugin_decision};
use conclave_core::inspect::explain::AccessQuestion;
use conclave_core::journal::record::ReplayedRecord;
use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::approval::{Approval, ApprovalRequest, led_by};
use conclave_core::types::capability::Capability;
use conclave_core::types::denial::{Denial, DenialRecord};
use conclave_core::types::ids::{CallId, PluginName, TaskName};
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};

use crate::ui::show::refusal;

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) plugin: PluginName,
    /// The task that the plugin worked for; `None` if it is not known.
    pub(super) task: Option<TaskName>,
    /// The tool that ran; `None` for an agent.
    pub(super) tool: Option<String>,
}

impl fmt::Display for Asker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "asked by {}", self.plugin)?;
        if let Some(tool) = &self.tool {
            write!(out, " in its tool {tool}")?;
        }
        match &self.task {
            Some(task) => write!(out, ", for the task {task}"),
            None => Ok(()),
        }
    }
}

/// The calls of a journal, indexed by the notices of their start.
#[derive(Default)]
pub(super) struct CallIndex {
    askers: HashMap<CallId, Asker>,
    /// The latest approval request about each call.
    requests: Asked,
}

impl CallIndex {
    pub(super) fn of(retold: &[ReplayedRecord]) -> Self {
        let (mut calls, mut requests) = (HashMap::new(), Asked::new());
        for notice in retold.iter().flat_map(|told| &told.notices) {
            match notice {
                Notice::StepStarted { call, task, agent } => {
                    calls.insert(
                        *call,
                        Asker { plugin: agent.clone(), task: Some(task.clone()), tool: None },
                    );
                }
                Notice::ToolCalled { call, task, name, .. } => {
                    let plugin = PluginName::from(name.split('.').next().unwrap_or(name));
                    calls.insert(
                        *call,
                        Asker { plugin, task: Some(task.clone()), tool: Some(name.clone()) },
                    );
                }
                Notice::ApprovalAsked { call, request } => {
                    drop(requests.insert(*call, request.clone()))
                }
                _ => {}
            }
        }
        Self { askers: calls, requests }
    }

    /// The approval request about a call.
    pub(super) fn request(&self, call: CallId) -> Option<&ApprovalRequest> {
        self.requests.get(&call)
    }

    /// The caller of this call, or else of the event during which it was refused.
    pub(super) fn asker(&self, call: Option<CallId>, plugin: &PluginName, event: &Event) -> Asker {
        let known = call.or_else(|| call_of(event)).and_then(|call| self.askers.get(&call));
        let mut asker =
            known.cloned().unwrap_or(Asker { plugin: plugin.clone(), task: None, tool: None });
        if asker.plugin != *plugin {
            // The room refused a plugin other than the one behind the event.
            asker = Asker { plugin: plugin.clone(), tool: None, task: asker.task };
        }
        asker
    }
}

fn call_of(event: &Event) -> Option<CallId> {
    match event {
        Event::AgentStepped { call, .. }
        | Event::AgentResponded { call, .. }
        | Event::ToolAnswered { call, .. }
        | Event::StrategyDecided { call, .. }
        | Event::ModelAsked { call, .. }
        | Event::ToolsAsked { call, .. }
        | Event::SideEffectAsked { call, .. }
        | Event::Refused { call, .. } => Some(*call),
        _ => None,
    }
}

/// The description of a record: its refusal, or else its question, or else its event.
pub(super) fn head(told: &ReplayedRecord, calls: &CallIndex) -> String {
    let refused = denials(told).map(|(plugin, record)| {
        let Denial { capability, target, .. } = &record.denial;
        let target = if target.is_empty() { String::new() } else { format!(" {target}") };
        format!("{plugin} was refused {capability}{target}")
    });
    let refused: Vec<String> = refused.collect();
    match refused.split_first() {
        None => told.notices.iter().find_map(asks).unwrap_or_else(|| {
            let event = &told.record.event;
            let asker = call_of(event).and_then(|call| calls.askers.get(&call));
            asker.and_then(|asker| of_call(event, asker)).unwrap_or_else(|| of_event(event))
        }),
        Some((first, [])) => first.clone(),
        Some((first, more)) => format!("{first}, and {} more", more.len()),
    }
}

/// The question of a notice to a person.
fn asks(notice: &Notice) -> Option<String> {
    match notice {
        Notice::ApprovalAsked { request, .. } => {
            Some(format!("{} asks for approval of {}", request.caller, request.tool))
        }
        Notice::TopUpAsked { top_up, .. } => {
            Some(format!("the run asks for more of {}", top_up.budget.key()))
        }
        _ => None,
    }
}

/// The description of an event that ends a known call.
fn of_call(event: &Event, asker: &Asker) -> Option<String> {
    match (event, &asker.tool) {
        (Event::AgentStepped { .. }, _) => Some(format!("a step of {} ended", asker.plugin)),
        (Event::AgentResponded { .. }, _) => Some(format!("{} answered", asker.plugin)),
        (Event::ToolAnswered { .. }, Some(tool)) => Some(format!("{tool} answered")),
        _ => None,
    }
}

/// The consequences of a record, a line for each notice. Refusals are left out, since they are
/// explained below it.
pub(super) fn lines(told: &ReplayedRecord) -> Vec<String> {
    told.notices
        .iter()
        .filter(|notice| !repeats_denial(told, notice))
        .filter_map(of_notice)
        .collect()
}

/// Whether the notice is the answer of a call whose denial is a notice of its own.
fn repeats_denial(told: &ReplayedRecord, notice: &Notice) -> bool {
    let Notice::ToolAnswered { content, .. } = notice else { return false };
    denials(told).any(|(_, record)| record.denial.to_text() == *content)
}

/// Whether the notice is the answer of a call whose refusal the list has already.
pub(super) fn repeats_refusal(told: &ReplayedRecord, notice: &Notice) -> bool {
    let is_refusal = |other: &Notice| {
        matches!(
            other,
            Notice::ApprovalGiven {
                approval: Approval::Refused { .. } | Approval::Invalid { .. },
                ..
            }
        )
    };
    let is_answer = matches!(notice, Notice::ToolAnswered { .. });
    repeats_denial(told, notice) || (is_answer && told.notices.iter().any(is_refusal))
}

fn denials(told: &ReplayedRecord) -> impl Iterator<Item = (&PluginName, &DenialRecord)> {
    told.notices.iter().filter_map(|notice| match notice {
        Notice::Denied { plugin, record, .. } => Some((plugin, record)),
        _ => None,
    })
}

/// The description of an event.
pub(super) fn of_event(event: &Event) -> String {
    match event.effective() {
        Event::RoomOpened { opening, .. } => format!(
            "the room was opened for the task {}; it holds every grant of the run",
            opening.entry
        ),
        Event::RunStarted { opening, .. } => {
            format!("another run began, with the task {}", opening.entry)
        }
        Event::HistoryChanged { task, .. } => format!("the history of {task} was changed"),
        Event::AgentStepped { call, .. } => format!("an agent's step ended ({call})"),
        Event::AgentResponded { call, .. } => format!("an agent answered ({call})"),
        Event::ToolAnswered { call, .. } => format!("a tool answered ({call})"),
        Event::StrategyDecided { call, .. } => format!("a delivery strategy decided ({call})"),
        Event::UserAnswered { call, .. } => format!("the user answered ({call})"),
        Event::ModelAsked { call, .. } => format!("a plugin asked a model ({call})"),
        Event::ToolsAsked { call, calls, .. } => {
            let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
            format!("a tool asked to call {} ({call})", names.join(", "))
        }
        Event::ModelAnswered { call, .. } => format!("a model answered ({call})"),
        Event::SideEffectAsked { call, side_effect, .. } => {
            format!("a plugin was about to {} {} ({call})", verb(side_effect), side_effect.target())
        }
        Event::SideEffectEnded { call, .. } => format!("a side effect ended ({call})"),
        Event::Refused { call, plugin, .. } => {
            format!("an import refused something to {plugin} ({call})")
        }
        other => {
            let kind = serde_json::to_value(other)
                .ok()
                .and_then(|value| Some(value.get("event")?.as_str()?.replace('-', " ")));
            kind.unwrap_or_else(|| "something happened".to_owned())
        }
    }
}

fn verb(side_effect: &SideEffect) -> &'static str {
    match side_effect {
        SideEffect::Fetch { .. } => "send a request to",
        SideEffect::WriteFile { .. } => "write",
        SideEffect::RemoveFile { .. } => "remove",
        SideEffect::SetKey { .. } => "set the key",
        SideEffect::DeleteKey { .. } => "delete the key",
        SideEffect::RunProgram { .. } => "run",
    }
}

/// The access question that a side effect answers.
pub(super) fn question(plugin: &PluginName, side_effect: &SideEffect) -> AccessQuestion {
    let (method, headers) = match side_effect {
        SideEffect::Fetch { method, headers, .. } => {
            (method.clone(), headers.iter().map(|(name, _)| name.clone()).collect())
        }
        _ => ("GET".to_owned(), Vec::new()),
    };
    let writes = side_effect.capability() == Capability::Files;
    AccessQuestion {
        writes,
        method,
        headers,
        ..AccessQuestion::new(plugin.as_str(), side_effect.capability()).of(side_effect.target())
    }
}

/// The line of a notice, if it adds something to the layers.
fn of_notice(notice: &Notice) -> Option<String> {
    Some(match notice {
        Notice::ToolCalled { task, caller, name, arguments, led_by: by, .. } => {
            let by = led_by(", requested by", by);
            format!("{caller} called {name} {arguments} for the task {task}{by}")
        }
        Notice::ToolAnswered { call, name, is_error, content, .. } => {
            let verb = match (is_error, call) {
                (false, _) => "answered",
                (true, Some(_)) => "failed",
                (true, None) => "was refused",
            };
            format!("{name} {verb}: {content}")
        }
        Notice::ApprovalAsked { request, .. } => {
            format!(
                "you were asked about {} {} by {}{}: {}",
                request.tool,
                request.arguments,
                request.caller,
                request.origin(),
                request.source
            )
        }
        Notice::ApprovalGiven { approval, author, .. } => {
            format!("the answer of {author}: {}", approved(approval))
        }
        Notice::TopUpAsked { top_up, .. } => {
            format!("you were asked for more: {}", top_up.sentence())
        }
        Notice::ToppedUp { budget, more: Some(more), .. } => {
            format!("the answer: {} more for {}", budget.show(*more), budget.key())
        }
        Notice::ToppedUp { reason, .. } => {
            format!("the answer: no more: {}", reason.as_deref().unwrap_or_default())
        }
        Notice::SideEffectEnded {
            plugin,
            answer: SideEffectAnswer::Failed { message, .. },
            ..
        } => format!("{plugin} failed: {message}"),
        Notice::SideEffectStarted { side_effect, .. } => {
            format!("to {} {}", verb(side_effect), side_effect.target())
        }
        Notice::PluginFaulted { plugin, fault, .. } => {
            format!("{plugin} was stopped: {}", fault.message)
        }
        Notice::TaskEnded { task, status, reason } => {
            format!("the task {task} ended: {} {reason}", status.as_str())
        }
        Notice::ModelCalled { plugin, model, .. } => format!("{plugin} asked the model {model}"),
        notice => {
            let (kind, plugin, decision) = plugin_decision(notice)?;
            format!("{plugin}: {}, {decision}", kind.as_str())
        }
    })
}

fn approved(approval: &Approval) -> String {
    match approval {
        Approval::Approved => "yes".to_owned(),
        Approval::Edited { arguments } => format!("yes, with {arguments}"),
        Approval::Refused { reason } => refusal(reason),
        Approval::Invalid { message } => format!("no: {message}"),
    }
}

/// The latest approval request about each call; the answer does not repeat it.
pub(super) type Asked = HashMap<CallId, ApprovalRequest>;

/// The sign and subject of a notice in the list of a run. `conclave audit` calls approvals, limits
/// and the decisions of gates and judges by the same words.
pub(super) fn in_list(notice: &Notice, asked: &Asked) -> Option<(&'static str, String)> {
    Some(match notice {
        Notice::Denied { plugin, record, .. } => (
            "DENIED",
            format!(
                "{plugin}  {}: {} ({})",
                record.denial.capability,
                record.denial.target,
                record.layer.as_str()
            ),
        ),
        Notice::ApprovalAsked { request, .. } => (
            AuditKind::ApprovalRequested.as_str(),
            format!("{}  {} {}", request.caller, request.tool, request.arguments),
        ),
        Notice::ApprovalGiven { call, approval, author } => {
            let about = asked
                .get(call)
                .map_or(String::new(), |request| format!("{}  {}: ", request.caller, request.tool));
            let kind = if matches!(approval, Approval::Approved | Approval::Edited { .. }) {
                AuditKind::Approved
            } else {
                AuditKind::ApprovalRefused
            };
            (kind.as_str(), format!("{about}{} ({author})", approved(approval)))
        }
        Notice::TopUpAsked { top_up, .. } => {
            (AuditKind::LimitRequested.as_str(), top_up.sentence())
        }
        Notice::ToppedUp { budget, more: Some(more), .. } => (
            AuditKind::LimitRaised.as_str(),
            format!("{} more for {}", budget.show(*more), budget.key()),
        ),
        Notice::ToppedUp { budget, reason, .. } => (
            AuditKind::LimitRefused.as_str(),
            format!("more for {}: {}", budget.key(), reason.as_deref().unwrap_or_default()),
        ),
        Notice::SideEffectEnded {
            plugin,
            answer: SideEffectAnswer::Failed { message, .. },
            ..
        } => ("failed", format!("{plugin}  {message}")),
        Notice::ToolAnswered { call: None, is_error: true, task, name, content, .. } => {
            ("refused", format!("{task}  {name}: {content}"))
        }
        notice => {
            let (kind, plugin, decision) = plugin_decision(notice)?;
            (kind.as_str(), format!("{plugin}  {decision}"))
        }
    })
}

//! Descriptions of records and notices, and the caller behind a call.

use std::collections::HashMap;
use std::fmt;

use conclave_core::inspect::audit::{AuditKind, audited};
use conclave_core::inspect::explain::AccessQuestion;
use conclave_core::inspect::telling::tell;
use conclave_core::journal::record::ReplayedRecord;
use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::approval::{Approval, ApprovalRequest};
use conclave_core::types::capability::Capability;
use conclave_core::types::ids::{CallId, PluginName, TaskName};
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};

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
    requests: ApprovalRequests,
}

impl CallIndex {
    pub(super) fn of(records: &[ReplayedRecord]) -> Self {
        let (mut calls, mut requests) = (HashMap::new(), ApprovalRequests::new());
        for notice in records.iter().flat_map(|record| &record.notices) {
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
pub(super) fn head(record: &ReplayedRecord, calls: &CallIndex) -> String {
    let is_denial = |notice: &&Notice| matches!(notice, Notice::Denied { .. });
    let is_question = |notice: &&Notice| {
        matches!(notice, Notice::ApprovalAsked { .. } | Notice::TopUpAsked { .. })
    };
    let mut refusals =
        record.notices.iter().filter(is_denial).map(|denial| tell(denial).headline());
    match (refusals.next(), refusals.count()) {
        (Some(first), 0) => first,
        (Some(first), more) => format!("{first}, and {more} more"),
        (None, _) => match record.notices.iter().find(is_question) {
            Some(question) => tell(question).headline(),
            None => {
                let event = &record.record.event;
                let asker = call_of(event).and_then(|call| calls.askers.get(&call));
                asker.and_then(|asker| of_call(event, asker)).unwrap_or_else(|| of_event(event))
            }
        },
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
pub(super) fn lines(record: &ReplayedRecord) -> Vec<String> {
    let notices = record.notices.iter().filter(|notice| !repeats_denial(record, notice));
    notices.filter_map(of_notice).collect()
}

/// Whether the notice is the answer of a call whose denial is a notice of its own.
fn repeats_denial(record: &ReplayedRecord, notice: &Notice) -> bool {
    let Notice::ToolAnswered { content, .. } = notice else { return false };
    record.notices.iter().any(|other| {
        matches!(other, Notice::Denied { record, .. } if record.denial.to_text() == *content)
    })
}

/// Whether the notice is the answer of a call whose refusal the list has already.
pub(super) fn repeats_refusal(record: &ReplayedRecord, notice: &Notice) -> bool {
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
    repeats_denial(record, notice) || (is_answer && record.notices.iter().any(is_refusal))
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
        Event::SideEffectAsked { call, .. } => format!("a side effect began ({call})"),
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
    let adds = match notice {
        Notice::ToolCalled { .. }
        | Notice::ToolAnswered { .. }
        | Notice::ApprovalAsked { .. }
        | Notice::ApprovalGiven { .. }
        | Notice::TopUpAsked { .. }
        | Notice::ToppedUp { .. }
        | Notice::SideEffectStarted { .. }
        | Notice::PluginFaulted { .. }
        | Notice::TaskEnded { .. }
        | Notice::ModelCalled { .. }
        | Notice::GateBlocked { .. }
        | Notice::GateModified { .. }
        | Notice::AnswerOverruled { .. }
        | Notice::ResultReplaced { .. } => true,
        Notice::SideEffectEnded { answer, .. } => matches!(answer, SideEffectAnswer::Failed { .. }),
        _ => false,
    };
    adds.then(|| tell(notice).sentence())
}

/// The latest approval request about each call; the answer does not repeat it.
pub(super) type ApprovalRequests = HashMap<CallId, ApprovalRequest>;

/// The sign and the description of a notice in the list of a run: those of `conclave audit`, and
/// calls that failed or were refused.
pub(super) fn in_list(
    notice: &Notice,
    requests: &ApprovalRequests,
) -> Option<(&'static str, String)> {
    match notice {
        Notice::SideEffectEnded { answer: SideEffectAnswer::Failed { .. }, .. } => {
            return Some(("failed", tell(notice).sentence()));
        }
        Notice::ToolAnswered { call: None, is_error: true, task, .. } => {
            return Some(("refused", format!("{task}  {}", tell(notice).sentence())));
        }
        _ => {}
    }
    let request = match notice {
        Notice::ApprovalGiven { call, .. } => requests.get(call),
        _ => None,
    };
    let audited = audited(notice, request).filter(|audited| is_listed(audited.kind))?;
    let sign = if audited.kind == AuditKind::Denied { "DENIED" } else { audited.kind.as_str() };
    let plugin = audited.plugin.map(|plugin| format!("{plugin}  ")).unwrap_or_default();
    Some((sign, format!("{plugin}{}", audited.message)))
}

/// Whether the list has entries of this kind: refusals, approvals, limits, and the decisions of
/// gates and judges.
fn is_listed(kind: AuditKind) -> bool {
    matches!(
        kind,
        AuditKind::Denied
            | AuditKind::ApprovalRequested
            | AuditKind::Approved
            | AuditKind::ApprovalRefused
            | AuditKind::LimitRequested
            | AuditKind::LimitRaised
            | AuditKind::LimitRefused
            | AuditKind::GateBlocked
            | AuditKind::GateModified
            | AuditKind::AnswerOverruled
            | AuditKind::ResultReplaced
    )
}

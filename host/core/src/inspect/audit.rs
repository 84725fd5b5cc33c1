//! The audit of a run: grants, refusals, approvals, decisions of gates and judges, side effects, and
//! interrupted, stopped or replaced work. Derived from the records by the same fold as every view; the store protects the
//! records themselves. Targets are a plugin's text and are not sanitised.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::inspect::permission_summary::{data_can_leave, rights_table};
use crate::journal::record::ReplayedRecord;
use crate::overlay::apply::{ChangeDecision, ChangeDecisionKind};
use crate::policy::budget::Budget;
use crate::protocol::event::Event;
use crate::protocol::notice::Notice;
use crate::setup::Setup;
use crate::types::approval::{Approval, ApprovalRequest, led_by};
use crate::types::fault::{Fault, FaultKind};
use crate::types::ids::{CallId, Millis, PluginName};
use crate::types::side_effect::{FailureCause, SideEffectAnswer};
use crate::types::tool::ToolError;

/// An entry of an audit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The sequence number of the record that caused it; `None` for a decision about changes, which
    /// is kept beside the journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    pub at: Millis,
    /// The person or service on whose behalf the room ran.
    pub principal: String,
    pub kind: AuditKind,
    /// The plugin concerned; `None` for the whole run.
    pub plugin: Option<PluginName>,
    /// A description for the operator.
    pub message: String,
}

/// The kind of an audit entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditKind {
    /// The permissions of a plugin from this record on.
    Granted,
    /// The trusted keys that signed a plugin's component, as it was loaded.
    Signed,
    /// A layer denied a plugin an access.
    Denied,
    ApprovalRequested,
    Approved,
    ApprovalRefused,
    /// A gate blocked a text, or failed and therefore blocked it.
    GateBlocked,
    GateModified,
    /// A judge overruled the host's rules for an answer.
    AnswerOverruled,
    /// A judge replaced the result of a task.
    ResultReplaced,
    /// A request, a file, a key.
    SideEffect,
    /// An operator's message to a task.
    Message,
    /// A plugin broke a limit or a contract.
    Faulted,
    /// A call was interrupted, and its progress is unknown.
    Interrupted,
    Resumed,
    Stopped,
    /// A component was rebuilt.
    Replaced,
    /// The run asked for a higher limit.
    LimitRequested,
    LimitRaised,
    LimitRefused,
    /// A limit had no effect, because a price is unknown.
    LimitIgnored,
    /// Changes of an overlay were written to their folder.
    ChangesApplied,
    /// Changes of an overlay were removed.
    ChangesDropped,
}

impl AuditKind {
    /// Every kind, in the order of lists.
    pub const ALL: [Self; 23] = [
        Self::Granted,
        Self::Signed,
        Self::Denied,
        Self::ApprovalRequested,
        Self::Approved,
        Self::ApprovalRefused,
        Self::GateBlocked,
        Self::GateModified,
        Self::AnswerOverruled,
        Self::ResultReplaced,
        Self::SideEffect,
        Self::Message,
        Self::Faulted,
        Self::Interrupted,
        Self::Resumed,
        Self::Stopped,
        Self::Replaced,
        Self::LimitRequested,
        Self::LimitRaised,
        Self::LimitRefused,
        Self::LimitIgnored,
        Self::ChangesApplied,
        Self::ChangesDropped,
    ];

    /// The word in JSON and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Signed => "signed",
            Self::Denied => "denied",
            Self::ApprovalRequested => "approval-requested",
            Self::Approved => "approved",
            Self::ApprovalRefused => "approval-refused",
            Self::GateBlocked => "gate-blocked",
            Self::GateModified => "gate-modified",
            Self::AnswerOverruled => "answer-overruled",
            Self::ResultReplaced => "result-replaced",
            Self::SideEffect => "side-effect",
            Self::Message => "message",
            Self::Faulted => "faulted",
            Self::Interrupted => "interrupted",
            Self::Resumed => "resumed",
            Self::Stopped => "stopped",
            Self::Replaced => "replaced",
            Self::LimitRequested => "limit-requested",
            Self::LimitRaised => "limit-raised",
            Self::LimitRefused => "limit-refused",
            Self::LimitIgnored => "limit-ignored",
            Self::ChangesApplied => "changes-applied",
            Self::ChangesDropped => "changes-dropped",
        }
    }

    /// The kind for this word; `None` if there is no such kind.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The entries of one room, in order.
#[must_use]
pub fn entries(retold: &[ReplayedRecord]) -> Vec<AuditEntry> {
    let mut found = AuditFindings::default();
    for told in retold {
        found.event(told);
        for notice in &told.notices {
            found.notice(told, notice);
        }
    }
    found.entries
}

/// The entry of a decision about changes of an overlay.
#[must_use]
pub fn decision_entry(decision: &ChangeDecision) -> AuditEntry {
    let kind = match decision.kind {
        ChangeDecisionKind::Applied => AuditKind::ChangesApplied,
        ChangeDecisionKind::Dropped => AuditKind::ChangesDropped,
    };
    let (at, principal) = (decision.at, decision.principal.clone());
    let message = format!("{}: {}", decision.folder, decision.files.join(", "));
    AuditEntry { seq: None, at, principal, kind, plugin: None, message }
}

#[derive(Default)]
struct AuditFindings {
    entries: Vec<AuditEntry>,
    /// Whether the room is a child room, whose setup is that of its root.
    is_child: bool,
    /// The approval request of each call.
    asked: BTreeMap<CallId, ApprovalRequest>,
    /// The plugin of the tool that runs in each call.
    at_work: BTreeMap<CallId, (PluginName, Vec<PluginName>)>,
}

impl AuditFindings {
    fn push(
        &mut self,
        of: &ReplayedRecord,
        kind: AuditKind,
        plugin: Option<&PluginName>,
        what: String,
    ) {
        let record = &of.record;
        let principal = record.principal.0.to_string();
        self.entries.push(AuditEntry {
            seq: Some(record.seq),
            at: record.at,
            principal,
            kind,
            plugin: plugin.cloned(),
            message: what,
        });
    }

    fn event(&mut self, of: &ReplayedRecord) {
        if !of.has_effect {
            return;
        }
        match of.record.event.effective() {
            Event::RoomOpened { setup, .. } => self.allowed(of, setup),
            Event::RunStarted { setup: Some(setup), .. } => self.allowed(of, setup),
            Event::Resumed { down_ms, is_exact, .. } => {
                let bound = if *is_exact { "" } else { "at most " };
                let what = format!("resumed after {bound}{down_ms} ms without a host");
                self.push(of, AuditKind::Resumed, None, what);
                if let Some(setup) = of.setup.as_ref().filter(|_| !self.is_child) {
                    self.granted(of, setup);
                }
            }
            Event::TurnStopped { reason } => {
                self.push(of, AuditKind::Stopped, None, format!("the turn was stopped: {reason}"))
            }
            Event::TaskKilled { task, reason } => self.push(
                of,
                AuditKind::Stopped,
                None,
                format!("the task {task} was stopped: {reason}"),
            ),
            Event::Cancelled { reason } => {
                self.push(of, AuditKind::Stopped, None, format!("the run was stopped: {reason}"))
            }
            Event::PluginReplaced { plugin, sha256 } => {
                self.push(
                    of,
                    AuditKind::Replaced,
                    Some(plugin),
                    format!("calls now go to the component {sha256}"),
                );
            }
            Event::Paused { reason } => {
                self.push(of, AuditKind::Stopped, None, format!("the run was paused: {reason}"))
            }
            Event::Unpaused => {
                self.push(of, AuditKind::Resumed, None, "the paused run was resumed".to_owned())
            }
            Event::ToolAnswered { call, answer: Err(ToolError::Fault { fault }), .. } => {
                self.fault(of, *call, fault)
            }
            _ => {}
        }
    }

    /// Appends the permissions of every plugin. Does nothing for a child room, whose setup is that
    /// of its root.
    fn allowed(&mut self, of: &ReplayedRecord, setup: &Setup) {
        if let Event::RoomOpened { opening, .. } = &of.record.event {
            self.is_child = opening.depth > 0;
        }
        if !self.is_child {
            self.granted(of, setup);
        }
    }

    /// Appends the effective permissions of every plugin.
    fn granted(&mut self, of: &ReplayedRecord, setup: &Setup) {
        self.push(
            of,
            AuditKind::Granted,
            None,
            format!("data can leave to: {}", data_can_leave(setup)),
        );
        for row in rights_table(setup, &BTreeMap::new()) {
            let may = if row.may.is_empty() {
                "nothing but compute".to_owned()
            } else {
                row.may.join(", ")
            };
            self.push(of, AuditKind::Granted, Some(&row.plugin), format!("may {may}"));
        }
        for (name, plugin) in &setup.plugins {
            let signed_by = &plugin.facts.provenance.signed_by;
            if !signed_by.is_empty() {
                let names: Vec<&str> = signed_by.iter().map(String::as_str).collect();
                let message =
                    format!("component {} is signed by {}", plugin.facts.sha256, names.join(", "));
                self.push(of, AuditKind::Signed, Some(name), message);
            }
        }
    }

    fn fault(&mut self, of: &ReplayedRecord, call: CallId, fault: &Fault) {
        let Some((plugin, _)) = self.at_work.remove(&call) else { return };
        self.fault_of(of, &plugin, fault);
    }

    fn fault_of(&mut self, of: &ReplayedRecord, plugin: &PluginName, fault: &Fault) {
        let kind = if fault.kind == FaultKind::Interrupted {
            AuditKind::Interrupted
        } else {
            AuditKind::Faulted
        };
        self.push(of, kind, Some(plugin), format!("{}: {}", fault.kind.as_str(), fault.message));
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each notice")]
    fn notice(&mut self, of: &ReplayedRecord, notice: &Notice) {
        match notice {
            // Steps, strategies and queries. Faults of tools are in the tools' answers.
            Notice::PluginFaulted { plugin, fault, .. } => self.fault_of(of, plugin, fault),
            Notice::UserMessageRead { task, message } => {
                self.push(
                    of,
                    AuditKind::Message,
                    None,
                    format!(
                        "a message was sent to {task}: {}",
                        crate::inspect::timeline::short(message.text())
                    ),
                );
            }
            Notice::ToolCalled { call, name, led_by, .. } => {
                let plugin = name.split_once('.').map_or(name.as_str(), |(plugin, _)| plugin);
                self.at_work.insert(*call, (PluginName::from(plugin), led_by.clone()));
            }
            Notice::Denied { plugin, record, .. } => {
                let what = format!(
                    "{}: {} ({}: {})",
                    record.denial.capability,
                    record.denial.target,
                    record.layer.as_str(),
                    record.reason
                );
                self.push(of, AuditKind::Denied, Some(plugin), what);
            }
            Notice::ApprovalAsked { call, request } => {
                let by = request.origin();
                let risk = match (request.risk, &request.risk_reason) {
                    (Some(risk), Some(reason)) => format!(
                        "; {} risk: {}",
                        risk.as_str(),
                        crate::inspect::timeline::short(reason)
                    ),
                    (Some(risk), None) => format!("; {} risk", risk.as_str()),
                    (None, _) => String::new(),
                };
                let what = format!(
                    "{} {}{by} ({}{risk})",
                    request.tool, request.arguments, request.source
                );
                self.push(of, AuditKind::ApprovalRequested, Some(&request.caller), what);
                self.asked.insert(*call, request.clone());
            }
            Notice::ApprovalGiven { call, approval, author } => {
                let asked = self.asked.remove(call);
                let tool =
                    asked.as_ref().map(|request| format!("{}: ", request.tool)).unwrap_or_default();
                let kind = match approval {
                    Approval::Approved | Approval::Edited { .. } => AuditKind::Approved,
                    Approval::Refused { .. } | Approval::Invalid { .. } => {
                        AuditKind::ApprovalRefused
                    }
                };
                self.push(
                    of,
                    kind,
                    asked.as_ref().map(|request| &request.caller),
                    format!("{tool}{} ({author})", decided(approval)),
                );
            }
            Notice::TopUpAsked { top_up, .. } => {
                let what = match &top_up.problem {
                    Some(problem) => {
                        format!("asked again, because the answer was no amount: {problem}")
                    }
                    None => format!("a higher limit was requested: {}", top_up.sentence()),
                };
                self.push(of, AuditKind::LimitRequested, None, what);
            }
            Notice::ToppedUp { budget, more, reason, author, .. } => {
                let what = match more {
                    Some(more) => format!("{} was raised by {more} ({author})", budget.key()),
                    None => {
                        format!(
                            "{} was not raised: {}",
                            budget.key(),
                            reason.as_deref().unwrap_or("no reason was given")
                        ) + &format!(" ({author})")
                    }
                };
                let kind =
                    if more.is_some() { AuditKind::LimitRaised } else { AuditKind::LimitRefused };
                self.push(of, kind, None, what);
            }
            Notice::AttemptLost { model, reason: Some(reason), .. } => {
                let what = format!("the run was left without an answer of {model}: {reason}");
                self.push(of, AuditKind::Interrupted, None, what);
            }
            Notice::AttemptLost { model, input_tokens, cost_micro_usd, .. } => {
                let (tokens, cost) =
                    (Budget::Tokens.show(*input_tokens), Budget::Cost.show(*cost_micro_usd));
                let what = format!(
                    "a request to the model {model} got no answer; {tokens} and {cost} are counted for it"
                );
                self.push(of, AuditKind::Interrupted, None, what);
            }
            Notice::PriceUnknown { model, limit } => {
                let what =
                    format!("{limit} did not limit the model {model}: its price is not known");
                self.push(of, AuditKind::LimitIgnored, None, what);
            }
            Notice::SideEffectStarted { call, plugin, side_effect, overlay, .. } => {
                let (verb, _) = crate::inspect::timeline::verb_of(side_effect, *overlay);
                let by = self.at_work.get(call).map(|(_, by)| by.as_slice()).unwrap_or_default();
                let by = led_by(", requested by", by);
                let what = format!("{verb} {}{by}", side_effect.target());
                self.push(of, AuditKind::SideEffect, Some(plugin), what);
            }
            Notice::SideEffectEnded {
                plugin,
                answer: SideEffectAnswer::Failed { cause: FailureCause::Interrupted, message },
                ..
            } => {
                self.push(of, AuditKind::Interrupted, Some(plugin), message.clone());
            }
            other => {
                if let Some((kind, plugin, what)) = plugin_decision(other) {
                    self.push(of, kind, Some(plugin), what);
                }
            }
        }
    }
}

/// The decision of a gate or judge in this notice, with its plugin and a description.
#[must_use]
pub fn plugin_decision(notice: &Notice) -> Option<(AuditKind, &PluginName, String)> {
    Some(match notice {
        Notice::GateBlocked { point, plugin, reason } => {
            (AuditKind::GateBlocked, plugin, format!("{}: {reason}", point.as_str()))
        }
        Notice::GateModified { point, plugin } => {
            (AuditKind::GateModified, plugin, format!("{}: the text was changed", point.as_str()))
        }
        Notice::AnswerOverruled { task, plugin, responder, ruling } => {
            let what = format!("an answer of {responder} in {task}: {}", ruling.to_text());
            (AuditKind::AnswerOverruled, plugin, what)
        }
        Notice::ResultReplaced { task, plugin } => {
            let what = format!("the result of {task} was replaced");
            (AuditKind::ResultReplaced, plugin, what)
        }
        _ => return None,
    })
}

fn decided(approval: &Approval) -> String {
    match approval {
        Approval::Approved => "approved".to_owned(),
        Approval::Edited { arguments } => format!("approved with {arguments}"),
        Approval::Refused { reason } => format!("refused: {reason}"),
        Approval::Invalid { message } => {
            format!("refused, because its arguments are not valid: {message}")
        }
    }
}

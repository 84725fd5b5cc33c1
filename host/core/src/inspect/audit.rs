//! The audit of a run: grants, refusals, approvals, decisions of gates and judges, side effects, and
//! interrupted, stopped or replaced work. Derived from the records by the same fold as every view;
//! the store protects the records themselves. Targets are a plugin's text and are not sanitised.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::inspect::permission_summary::{data_can_leave, rights_table};
use crate::inspect::telling::{Subject, tell};
use crate::inspect::timeline::short;
use crate::journal::record::ReplayedRecord;
use crate::overlay::apply::{ChangeDecision, ChangeDecisionKind};
use crate::protocol::event::Event;
use crate::protocol::notice::Notice;
use crate::setup::Setup;
use crate::types::approval::{Approval, ApprovalRequest, led_by};
use crate::types::fault::{Fault, FaultKind};
use crate::types::ids::{CallId, Millis, PluginName, Principal};
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
    /// The person at a server who caused it; `None` if nobody did, or the operator of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
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
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The entries of one room, in order.
#[must_use]
pub fn entries(retold: &[ReplayedRecord]) -> Vec<AuditEntry> {
    let mut findings = AuditFindings::default();
    for record in retold {
        findings.event(record);
        for notice in &record.notices {
            findings.notice(record, notice);
        }
    }
    findings.entries
}

/// The entry of a decision about changes of an overlay.
#[must_use]
pub fn decision_entry(decision: &ChangeDecision) -> AuditEntry {
    let kind = match decision.kind {
        ChangeDecisionKind::Applied => AuditKind::ChangesApplied,
        ChangeDecisionKind::Dropped => AuditKind::ChangesDropped,
    };
    let (at, principal) = (decision.at, decision.principal.clone());
    let end = if decision.is_begin { " (interrupted: some of them may not be)" } else { "" };
    let message = format!("{}: {}{end}", decision.folder, decision.files.join(", "));
    AuditEntry { seq: None, at, principal, by: None, kind, plugin: None, message }
}

#[derive(Default)]
struct AuditFindings {
    entries: Vec<AuditEntry>,
    /// Whether the room is a child room, whose setup is that of its root.
    is_child: bool,
    /// The approval request of each call.
    requests: BTreeMap<CallId, ApprovalRequest>,
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
        let by = record.event.sender().cloned();
        self.entries.push(AuditEntry {
            seq: Some(record.seq),
            at: record.at,
            principal,
            by,
            kind,
            plugin: plugin.cloned(),
            message: what,
        });
    }

    fn event(&mut self, of: &ReplayedRecord) {
        if !of.has_effect {
            return;
        }
        // A decision has its author among the facts of its notice.
        let by = of.record.event.sender().map(|Principal(name)| format!(", by {name}"));
        let by = by.unwrap_or_default();
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
            Event::Owned { host, epoch } => {
                let what = format!("host {host} took the room over (epoch {epoch})");
                self.push(of, AuditKind::Resumed, None, what)
            }
            Event::TurnStopped { reason } => self.push(
                of,
                AuditKind::Stopped,
                None,
                format!("the turn was stopped: {reason}{by}"),
            ),
            Event::TaskKilled { task, reason } => self.push(
                of,
                AuditKind::Stopped,
                None,
                format!("the task {task} was stopped: {reason}{by}"),
            ),
            Event::Cancelled { reason } => self.push(
                of,
                AuditKind::Stopped,
                None,
                format!("the run was stopped: {reason}{by}"),
            ),
            Event::PluginReplaced { plugin, sha256 } => {
                self.push(
                    of,
                    AuditKind::Replaced,
                    Some(plugin),
                    format!("calls now go to the component {sha256}"),
                );
            }
            Event::Paused { reason } => {
                self.push(of, AuditKind::Stopped, None, format!("the run was paused: {reason}{by}"))
            }
            Event::Unpaused => {
                self.push(of, AuditKind::Resumed, None, format!("the paused run was resumed{by}"))
            }
            // What an agent reads of them is an entry of its own, which does not name the sender.
            Event::UserMessageSent { .. } if !by.is_empty() => {
                self.push(of, AuditKind::Message, None, format!("a message was sent{by}"))
            }
            Event::UserAnswered { .. } if !by.is_empty() => {
                self.push(of, AuditKind::Message, None, format!("a question was answered{by}"))
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

    /// Appends the fault of a tool. Nothing notifies of it but the tool's answer.
    fn fault(&mut self, of: &ReplayedRecord, call: CallId, fault: &Fault) {
        let Some((plugin, _)) = self.at_work.remove(&call) else { return };
        let message = format!("failed: {}: {}", fault.kind.as_str(), fault.message);
        self.push(of, fault_kind(fault), Some(&plugin), message);
    }

    fn notice(&mut self, of: &ReplayedRecord, notice: &Notice) {
        match notice {
            Notice::ToolCalled { call, name, led_by, .. } => {
                let plugin = name.split_once('.').map_or(name.as_str(), |(plugin, _)| plugin);
                self.at_work.insert(*call, (PluginName::from(plugin), led_by.clone()));
            }
            Notice::ApprovalAsked { call, request } => {
                self.requests.insert(*call, request.clone());
            }
            _ => {}
        }
        let request = match notice {
            Notice::ApprovalGiven { call, .. } => self.requests.remove(call),
            _ => None,
        };
        let Some(decision) = audited(notice, request.as_ref()) else { return };
        let by = match notice {
            Notice::SideEffectStarted { call, .. } => self.at_work.get(call),
            _ => None,
        };
        let by = by.map(|(_, by)| led_by(", requested by", by)).unwrap_or_default();
        let message = format!("{}{by}", decision.message);
        self.push(of, decision.kind, decision.plugin, message);
    }
}

/// What a notice adds to an audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedNotice<'a> {
    pub kind: AuditKind,
    /// The plugin concerned; `None` for the whole run.
    pub plugin: Option<&'a PluginName>,
    /// A description for the operator, without the plugin.
    pub message: String,
}

/// What the notice adds to an audit; `None` if nothing. `request` is the approval request that it
/// answers.
#[must_use]
pub fn audited<'a>(
    notice: &'a Notice,
    request: Option<&'a ApprovalRequest>,
) -> Option<AuditedNotice<'a>> {
    let kind = audit_kind(notice)?;
    let telling = tell(notice);
    let plugin = match telling.subject {
        Subject::Plugin(plugin) => Some(plugin),
        _ => request.map(|request| &request.caller),
    };
    let message = match (telling.subject, request) {
        (Subject::Task(_), _) => short(&telling.sentence()),
        (_, Some(request)) => format!("{}: {}", request.tool, telling.statement()),
        _ => telling.statement(),
    };
    Some(AuditedNotice { kind, plugin, message })
}

/// The kind of a notice in an audit; `None` for one that it leaves out. Faults of tools are in the
/// tools' answers.
fn audit_kind(notice: &Notice) -> Option<AuditKind> {
    Some(match notice {
        Notice::PluginFaulted { fault, .. } => fault_kind(fault),
        Notice::UserMessageRead { .. } => AuditKind::Message,
        Notice::Denied { .. } => AuditKind::Denied,
        Notice::ApprovalAsked { .. } => AuditKind::ApprovalRequested,
        Notice::ApprovalGiven { approval, .. } => match approval {
            Approval::Approved | Approval::Edited { .. } => AuditKind::Approved,
            Approval::Refused { .. } | Approval::Invalid { .. } => AuditKind::ApprovalRefused,
        },
        Notice::TopUpAsked { .. } => AuditKind::LimitRequested,
        Notice::ToppedUp { more: Some(_), .. } => AuditKind::LimitRaised,
        Notice::ToppedUp { more: None, .. } => AuditKind::LimitRefused,
        Notice::AttemptLost { .. } => AuditKind::Interrupted,
        Notice::PriceUnknown { .. } => AuditKind::LimitIgnored,
        Notice::SideEffectStarted { .. } => AuditKind::SideEffect,
        Notice::SideEffectEnded {
            answer: SideEffectAnswer::Failed { cause: FailureCause::Interrupted, .. },
            ..
        } => AuditKind::Interrupted,
        Notice::GateBlocked { .. } => AuditKind::GateBlocked,
        Notice::GateModified { .. } => AuditKind::GateModified,
        Notice::AnswerOverruled { .. } => AuditKind::AnswerOverruled,
        Notice::ResultReplaced { .. } => AuditKind::ResultReplaced,
        _ => return None,
    })
}

fn fault_kind(fault: &Fault) -> AuditKind {
    match fault.kind {
        FaultKind::Interrupted => AuditKind::Interrupted,
        _ => AuditKind::Faulted,
    }
}

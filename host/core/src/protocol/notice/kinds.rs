//! Notices as events for observers: their kinds as words, for filters, and the task that each is
//! about.

use serde_json::Value;

use super::Notice;
use crate::types::ids::{Millis, RoomId, TaskName};
use crate::types::observed::{ObservedEvent, ObservedPosition};

impl Notice {
    /// The notice as an event for observers.
    #[must_use]
    pub fn observed(
        &self,
        room: RoomId,
        position: ObservedPosition,
        time: Millis,
    ) -> ObservedEvent {
        ObservedEvent {
            room,
            position,
            time,
            kind: self.kind().to_owned(),
            task: self.task().cloned(),
            // A notice has only text keys, so this cannot fail.
            details: serde_json::to_value(self).unwrap_or(Value::Null),
        }
    }

    /// The kind of the notice, as its JSON has it under `notice`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TaskStarted { .. } => "task-started",
            Self::InvariantViolated { .. } => "invariant-violated",
            Self::MessagePosted { .. } => "message-posted",
            Self::StepEnded { .. } => "step-ended",
            Self::StepStalled { .. } => "step-stalled",
            Self::QuestionUnanswered { .. } => "question-unanswered",
            Self::ToolCalled { .. } => "tool-called",
            Self::ToolAnswered { .. } => "tool-answered",
            Self::PluginFaulted { .. } => "plugin-faulted",
            Self::Denied { .. } => "denied",
            Self::SideEffectStarted { .. } => "side-effect-started",
            Self::SideEffectEnded { .. } => "side-effect-ended",
            Self::ApprovalAsked { .. } => "approval-asked",
            Self::ApprovalGiven { .. } => "approval-given",
            Self::DecisionRejected { .. } => "decision-rejected",
            Self::TopUpAsked { .. } => "top-up-asked",
            Self::ToppedUp { .. } => "topped-up",
            Self::PriceUnknown { .. } => "price-unknown",
            Self::AttemptLost { .. } => "attempt-lost",
            Self::StepStarted { .. } => "step-started",
            Self::ModelCalled { .. } => "model-called",
            Self::ModelAnswered { .. } => "model-answered",
            Self::HistoryCut { .. } => "history-cut",
            Self::Resumed { .. } => "resumed",
            Self::PluginReplaced { .. } => "plugin-replaced",
            Self::TurnStopped { .. } => "turn-stopped",
            Self::PlanChanged { .. } => "plan-changed",
            Self::AgentStateChanged { .. } => "agent-state-changed",
            Self::AgentStuck { .. } => "agent-stuck",
            Self::RunPaused { .. } => "run-paused",
            Self::RunUnpaused => "run-unpaused",
            Self::UserMessageRead { .. } => "user-message-read",
            Self::UserMessageDropped { .. } => "user-message-dropped",
            Self::HistoryCondensed { .. } => "history-condensed",
            Self::KnowledgeAdded { .. } => "knowledge-added",
            Self::GateBlocked { .. } => "gate-blocked",
            Self::GateModified { .. } => "gate-modified",
            Self::AnswerOverruled { .. } => "answer-overruled",
            Self::ResultReplaced { .. } => "result-replaced",
            Self::HandedOff { .. } => "handed-off",
            Self::HandoffRejected { .. } => "handoff-rejected",
            Self::Inbound { .. } => "inbound",
            Self::InboundRefused { .. } => "inbound-refused",
            Self::ChannelRefused { .. } => "channel-refused",
            Self::ChannelBound { .. } => "channel-bound",
            Self::ChannelUnbound { .. } => "channel-unbound",
            Self::RoomClosed { .. } => "room-closed",
            Self::BackgroundStarted { .. } => "background-started",
            Self::BackgroundEnded { .. } => "background-ended",
            Self::Delivered { .. } => "delivered",
            Self::NotDelivered { .. } => "not-delivered",
            Self::DeadLetter { .. } => "dead-letter",
            Self::ResultsRelayed { .. } => "results-relayed",
            Self::ResultsRead { .. } => "results-read",
            Self::TaskEnded { .. } => "task-ended",
            Self::ResultReady { .. } => "result-ready",
            Self::ObserverRetried { .. } => "observer-retried",
            Self::ObserverStopped { .. } => "observer-stopped",
        }
    }

    /// The task that the notice is about; `None` if it is about no particular task.
    #[must_use]
    pub fn task(&self) -> Option<&TaskName> {
        match self {
            Self::TaskStarted { task, .. }
            | Self::MessagePosted { task, .. }
            | Self::StepEnded { task, .. }
            | Self::StepStalled { task, .. }
            | Self::QuestionUnanswered { task, .. }
            | Self::ToolCalled { task, .. }
            | Self::ToolAnswered { task, .. }
            | Self::StepStarted { task, .. }
            | Self::HistoryCut { task, .. }
            | Self::TurnStopped { task, .. }
            | Self::PlanChanged { task, .. }
            | Self::AgentStateChanged { task, .. }
            | Self::AgentStuck { task, .. }
            | Self::UserMessageRead { task, .. }
            | Self::UserMessageDropped { task, .. }
            | Self::HistoryCondensed { task, .. }
            | Self::KnowledgeAdded { task, .. }
            | Self::AnswerOverruled { task, .. }
            | Self::ResultReplaced { task, .. }
            | Self::BackgroundStarted { task, .. }
            | Self::ResultsRelayed { task, .. }
            | Self::ResultsRead { task, .. }
            | Self::TaskEnded { task, .. } => Some(task),
            Self::Delivered { worker, .. }
            | Self::NotDelivered { worker, .. }
            | Self::DeadLetter { worker, .. } => Some(worker),
            Self::HandedOff { from, .. } | Self::HandoffRejected { from, .. } => Some(from),
            Self::ModelCalled { task, .. } => task.as_ref(),
            Self::BackgroundEnded { ended } => Some(&ended.worker),
            Self::InvariantViolated { .. }
            | Self::PluginFaulted { .. }
            | Self::Denied { .. }
            | Self::SideEffectStarted { .. }
            | Self::SideEffectEnded { .. }
            | Self::ApprovalAsked { .. }
            | Self::ApprovalGiven { .. }
            | Self::DecisionRejected { .. }
            | Self::TopUpAsked { .. }
            | Self::ToppedUp { .. }
            | Self::PriceUnknown { .. }
            | Self::AttemptLost { .. }
            | Self::ModelAnswered { .. }
            | Self::Resumed { .. }
            | Self::PluginReplaced { .. }
            | Self::RunPaused { .. }
            | Self::RunUnpaused
            | Self::GateBlocked { .. }
            | Self::GateModified { .. }
            | Self::Inbound { .. }
            | Self::InboundRefused { .. }
            | Self::ChannelRefused { .. }
            | Self::ChannelBound { .. }
            | Self::ChannelUnbound { .. }
            | Self::RoomClosed { .. }
            | Self::ResultReady { .. }
            | Self::ObserverRetried { .. }
            | Self::ObserverStopped { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ids::PluginName;
    use crate::types::observed::EVENT_KINDS;

    #[test]
    fn a_kind_is_the_word_of_the_json() {
        let (task, agent) = (TaskName::from("desk"), PluginName::from("clerk"));
        for notice in [
            Notice::TaskStarted { task: task.clone(), agent: agent.clone(), caller: None },
            Notice::RunUnpaused,
            Notice::ToppedUp {
                call: crate::types::ids::CallId(1),
                budget: crate::policy::budget::Budget::Wall,
                more: None,
                reason: None,
                author: crate::types::approval::ApprovalAuthor::Nobody,
            },
        ] {
            let json = serde_json::to_value(&notice).unwrap();
            assert_eq!(json["notice"], notice.kind());
            assert!(EVENT_KINDS.contains(&notice.kind()));
        }
        let stopped =
            Notice::ObserverStopped { observer: agent, attempts: 5, reason: String::new() };
        assert!(!EVENT_KINDS.contains(&stopped.kind()));
    }
}

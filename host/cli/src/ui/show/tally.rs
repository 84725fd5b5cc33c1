//! The usage and the incidents of a run so far, for its summary and its exit code. This module
//! prints nothing.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use conclave_core::inspect::timeline::SandboxUsage;
use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::approval::Approval;
use conclave_core::types::completion::ModelDiagnosticKind;
use conclave_core::types::ids::{BackgroundId, RoomId, TaskName};
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};

/// Counts, background tasks included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sandboxes: u64,
    /// Tool calls that an approver allowed.
    pub(crate) approvals: u64,
    /// Calls that were answered with a refusal, except those that a denial explains.
    pub(crate) refusals: u64,
    pub(crate) denials: u64,
    pub(crate) faults: u64,
    pub(crate) tokens: u64,
    /// Those of `tokens` that are estimated, for requests without an answer.
    pub(crate) estimated: u64,
    pub(crate) cost_micro_usd: u64,
    /// Models' answers and lost requests without a known price.
    pub(crate) unpriced: u64,
}

impl Counts {
    /// The difference to `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            sandboxes: self.sandboxes.saturating_sub(earlier.sandboxes),
            approvals: self.approvals.saturating_sub(earlier.approvals),
            refusals: self.refusals.saturating_sub(earlier.refusals),
            denials: self.denials.saturating_sub(earlier.denials),
            faults: self.faults.saturating_sub(earlier.faults),
            tokens: self.tokens.saturating_sub(earlier.tokens),
            estimated: self.estimated.saturating_sub(earlier.estimated),
            cost_micro_usd: self.cost_micro_usd.saturating_sub(earlier.cost_micro_usd),
            unpriced: self.unpriced.saturating_sub(earlier.unpriced),
        }
    }

    /// The cost in micro-US-dollars. `None` if it is not known, or if no model was called.
    pub(crate) fn cost(self) -> Option<u64> {
        (self.unpriced == 0 && self.tokens > 0).then_some(self.cost_micro_usd)
    }
}

/// Counts the notices of a run.
#[derive(Debug, Default)]
pub(crate) struct RunTally(Mutex<TallyState>);

#[derive(Debug, Default)]
struct TallyState {
    counts: Counts,
    trouble: Option<ModelDiagnosticKind>,
    /// The text of that diagnostic, or of any other reason why the model did not answer.
    why: Option<String>,
    /// The latest question without a user to answer it, and the task that asked.
    unanswered: Option<(TaskName, String)>,
    /// The text of the latest denial. The room repeats it as the refused call's answer.
    denial: Option<String>,
    /// The texts about background results that reached a channel, in order.
    delivered: Vec<String>,
    /// The unread results.
    unread: BTreeSet<(RoomId, BackgroundId)>,
}

impl RunTally {
    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).counts
    }

    /// The diagnostic of the latest model call, or `None` if the model answered.
    pub(crate) fn trouble(&self) -> Option<ModelDiagnosticKind> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).trouble
    }

    /// The reason why the latest model call got no answer, or `None` if it got one.
    pub(crate) fn why_no_answer(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).why.clone()
    }
}

impl RunTally {
    /// The latest question without a user to answer it, and the task that asked.
    pub(crate) fn unanswered(&self) -> Option<(TaskName, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).unanswered.clone()
    }
}

impl RunTally {
    /// The texts about background results that reached a channel, in order.
    pub(crate) fn delivered(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).delivered.clone()
    }

    /// The number of background results that neither a person nor an agent has read.
    pub(crate) fn unread(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).unread.len()
    }
}

impl TallyState {
    fn told_of_result(&mut self, room: &RoomId, notice: &Notice) {
        match notice {
            Notice::Delivered { id, text, .. } => {
                self.unread.remove(&(room.clone(), id.clone()));
                // One message may be about several results.
                if self.delivered.last() != Some(text) {
                    self.delivered.push(text.clone());
                }
            }
            Notice::NotDelivered { id, .. } | Notice::DeadLetter { id, .. } => {
                self.unread.insert((room.clone(), id.clone()));
            }
            Notice::ResultsRead { ids, .. } | Notice::ResultsRelayed { ids, .. } => {
                for id in ids {
                    self.unread.remove(&(room.clone(), id.clone()));
                }
            }
            _ => {}
        }
    }

    fn take_notice(&mut self, notice: &Notice) {
        let counts = &mut self.counts;
        match notice {
            Notice::ModelAnswered { usage, error, trouble, .. } => {
                counts.tokens = counts
                    .tokens
                    .saturating_add(usage.input_tokens)
                    .saturating_add(usage.output_tokens);
                counts.cost_micro_usd =
                    counts.cost_micro_usd.saturating_add(usage.cost_micro_usd.unwrap_or_default());
                counts.unpriced += u64::from(error.is_none() && usage.cost_micro_usd.is_none());
                self.trouble = trouble.as_ref().map(|trouble| trouble.kind);
                self.why =
                    trouble.as_ref().map(|trouble| &trouble.text).or(error.as_ref()).cloned();
            }
            // A stopped turn may be its last request, which its provider may charge for.
            Notice::AttemptLost { input_tokens, cost_micro_usd, .. } => {
                counts.tokens = counts.tokens.saturating_add(*input_tokens);
                counts.estimated = counts.estimated.saturating_add(*input_tokens);
                counts.cost_micro_usd = counts.cost_micro_usd.saturating_add(*cost_micro_usd);
                counts.unpriced += u64::from(*input_tokens > 0 && *cost_micro_usd == 0);
            }
            Notice::ToolAnswered { fault: Some(_), .. } | Notice::PluginFaulted { .. } => {
                counts.faults += 1
            }
            Notice::QuestionUnanswered { task, question } => {
                self.unanswered = Some((task.clone(), question.clone()))
            }
            Notice::Denied { record, .. } => {
                counts.denials += 1;
                self.denial = Some(record.denial.to_text());
            }
            Notice::ToolAnswered { call: None, is_error: true, content, .. } => {
                let is_denial = self.denial.take().is_some_and(|denial| denial == *content);
                counts.refusals += u64::from(!is_denial);
            }
            Notice::ApprovalGiven {
                approval: Approval::Approved | Approval::Edited { .. },
                ..
            } => counts.approvals += 1,
            _ => {}
        }
    }
}

impl Subscriber for RunTally {
    fn shows_text(&self) -> bool {
        false
    }

    fn on(&self, happening: &Published) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &happening.what {
            RunEvent::Notice { notice } => {
                state.take_notice(notice);
                state.told_of_result(&happening.room, notice);
            }
            RunEvent::Recorded { record } => {
                state.counts.sandboxes += u64::from(is_sandbox(&record.event))
            }
            _ => {}
        }
    }
}

/// Whether the event ends a call in a sandbox of its own, by the same rule as `conclave show`.
fn is_sandbox(event: &Event) -> bool {
    match event {
        Event::AgentStepped { report, .. }
        | Event::AgentResponded { report, .. }
        | Event::ToolAnswered { report, .. }
        | Event::StrategyDecided { report, .. }
        | Event::PluginQueried { report, .. } => {
            SandboxUsage::of(report).is_some_and(|used| used.is_sandboxed())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::ids::{CallId, ModelName};

    use super::*;

    #[test]
    fn a_request_that_a_stop_cut_off_counts() {
        let mut state = TallyState::default();
        let attempt_lost = |input_tokens, cost_micro_usd| Notice::AttemptLost {
            call: CallId(1),
            ordinal: 0,
            model: ModelName::from("small"),
            input_tokens,
            cost_micro_usd,
            reason: None,
        };
        state.take_notice(&attempt_lost(319, 40));
        assert_eq!((state.counts.tokens, state.counts.cost()), (319, Some(40)));
        state.take_notice(&attempt_lost(1, 0));
        assert_eq!((state.counts.tokens, state.counts.cost()), (320, None));
        assert_eq!(state.counts.estimated, 320);
    }
}

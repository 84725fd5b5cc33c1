//! What a run used up and met so far, for the lines that sum it up and for the exit code. It prints
//! nothing.

use std::sync::{Mutex, PoisonError};

use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::approval::Approval;
use conclave_core::types::completion::ModelDiagnosticKind;
use conclave_core::types::ids::TaskName;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};

/// Amounts, background tasks included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sandboxes: u64,
    /// Tool calls that somebody who was asked let through, and those that were refused.
    pub(crate) approvals: u64,
    pub(crate) refusals: u64,
    pub(crate) denials: u64,
    pub(crate) faults: u64,
    pub(crate) tokens: u64,
    pub(crate) cost_micro_usd: u64,
    /// Answers of models whose price is not known.
    pub(crate) unpriced: u64,
}

impl Counts {
    /// What came since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            sandboxes: self.sandboxes.saturating_sub(earlier.sandboxes),
            approvals: self.approvals.saturating_sub(earlier.approvals),
            refusals: self.refusals.saturating_sub(earlier.refusals),
            denials: self.denials.saturating_sub(earlier.denials),
            faults: self.faults.saturating_sub(earlier.faults),
            tokens: self.tokens.saturating_sub(earlier.tokens),
            cost_micro_usd: self.cost_micro_usd.saturating_sub(earlier.cost_micro_usd),
            unpriced: self.unpriced.saturating_sub(earlier.unpriced),
        }
    }

    /// In micro-US-dollars; none where it is not known, or nothing was asked.
    pub(crate) fn cost(self) -> Option<u64> {
        (self.unpriced == 0 && self.tokens > 0).then_some(self.cost_micro_usd)
    }
}

/// Counts.
#[derive(Debug, Default)]
pub(crate) struct RunTally(Mutex<TallyState>);

#[derive(Debug, Default)]
struct TallyState {
    counts: Counts,
    trouble: Option<ModelDiagnosticKind>,
    /// It, or whatever kept the model from answering, in words.
    why: Option<String>,
    /// The newest question that found no user, and the task that asked it.
    unanswered: Option<(TaskName, String)>,
}

impl RunTally {
    /// What was counted so far.
    pub(crate) fn counts(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).counts
    }

    /// The trouble with the model that was asked last; none when it answered.
    pub(crate) fn trouble(&self) -> Option<ModelDiagnosticKind> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).trouble
    }

    /// Why the model that was asked last did not answer; none when it did.
    pub(crate) fn why_no_answer(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).why.clone()
    }
}

impl RunTally {
    /// Returns the newest question that found no user, and the task that asked it.
    pub(crate) fn unanswered(&self) -> Option<(TaskName, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).unanswered.clone()
    }
}

impl TallyState {
    fn told(&mut self, notice: &Notice) {
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
            Notice::ToolAnswered { fault: Some(_), .. } | Notice::PluginFaulted { .. } => {
                counts.faults += 1
            }
            Notice::QuestionUnanswered { task, question } => {
                self.unanswered = Some((task.clone(), question.clone()))
            }
            Notice::Denied { .. } => counts.denials += 1,
            Notice::ApprovalGiven {
                approval: Approval::Approved | Approval::Edited { .. },
                ..
            } => counts.approvals += 1,
            Notice::ApprovalGiven { .. } => counts.refusals += 1,
            _ => {}
        }
    }
}

impl Subscriber for RunTally {
    fn on(&self, happening: &Published) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &happening.what {
            RunEvent::Told { told } => state.told(told),
            RunEvent::Recorded { record } => {
                state.counts.sandboxes += u64::from(is_sandbox(&record.event))
            }
            _ => {}
        }
    }
}

/// The event is the end of a call in a sandbox of its own.
fn is_sandbox(event: &Event) -> bool {
    matches!(
        event,
        Event::AgentStepped { .. }
            | Event::AgentResponded { .. }
            | Event::ToolAnswered { .. }
            | Event::StrategyDecided { .. }
    )
}

//! The detector of the SDK: the same over typed events, with a nudge before errors are too many (O-098…O-107).

use crate::control::fingerprint::Fingerprint;

pub use super::alike::LoopKind;

/// As many of the newest events are looked at (O-104).
pub const WINDOW: usize = 20;

/// When it is too much; `errors` is where the agent is nudged, and one more is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    pub action_observation: usize,
    pub action_error: usize,
    pub monologue: usize,
    pub alternating_pattern: usize,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { action_observation: 4, action_error: 3, monologue: 3, alternating_pattern: 6 }
    }
}

/// An event of the log, as far as the detector looks at it. Fingerprints are without ids; an action's is with its thought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    UserMessage,
    AgentMessage,
    /// From the environment: a nudge.
    OtherMessage,
    Action(Fingerprint),
    Observation(Fingerprint),
    AgentError(Fingerprint),
    /// The user or a hook would not have it.
    Rejection(Fingerprint),
    CondensationSummary,
    Other,
}

impl Seen {
    fn is_result(self) -> bool {
        matches!(self, Self::Observation(_) | Self::AgentError(_) | Self::Rejection(_))
    }
}

/// The detector of one conversation; it remembers only for which error it has nudged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detector {
    thresholds: Thresholds,
    nudged_at: Option<usize>,
}

impl Detector {
    #[must_use]
    pub fn new(thresholds: Thresholds) -> Self {
        Self { thresholds, nudged_at: None }
    }

    /// How a log is stuck at its end; none: it is not.
    #[must_use]
    pub fn find(&self, log: &[Seen]) -> Option<LoopKind> {
        let limits = self.thresholds;
        let recent = recent(log);
        if recent.len() < limits.action_observation.min(limits.action_error).min(limits.monologue) {
            return None;
        }
        let (actions, results) = newest(recent, limits.action_observation);
        let is_full = actions.len() == limits.action_observation && results.len() == limits.action_observation;
        let is_same = |seen: &[Seen]| seen.iter().all(|one| Some(one) == seen.first());
        if is_full && is_same(&actions) && is_same(&results) {
            Some(LoopKind::ActionObservation)
        } else if streak(recent, limits.action_error + 1) > limits.action_error {
            Some(LoopKind::ActionError)
        } else if is_monologue(recent, limits.monologue) {
            Some(LoopKind::Monologue)
        } else if takes_turns(recent, limits.alternating_pattern) {
            Some(LoopKind::Pattern)
        } else {
            None
        }
    }

    /// How often the agent's last action failed, once for each streak, when it is time to tell it so (O-107).
    pub fn nudge(&mut self, log: &[Seen]) -> Option<usize> {
        let threshold = self.thresholds.action_error;
        let is_time = streak(recent(log), threshold + 1) == threshold;
        let at = log.iter().rposition(|seen| seen.is_result()).filter(|_| is_time)?;
        if self.nudged_at == Some(at) {
            return None;
        }
        self.nudged_at = Some(at);
        Some(threshold)
    }
}

/// What the nudge says.
#[must_use]
pub fn nudge_text(tool: &str, times: usize, error: &str) -> String {
    format!(
        "The call of `{tool}` has failed {times} times in a row with the same arguments: {error}. It will fail again; correct the arguments \
         or try something else."
    )
}

/// What an answer without a call and without text is told.
pub const CORRECTIVE_NUDGE: &str = "The last answer held neither a tool call nor a text. Call a tool, or say that the task is done.";

/// The window, after the user's last message in it.
fn recent(log: &[Seen]) -> &[Seen] {
    let window = log.get(log.len().saturating_sub(WINDOW)..).unwrap_or_default();
    let start = window.iter().rposition(|seen| *seen == Seen::UserMessage).map_or(0, |user| user + 1);
    window.get(start..).unwrap_or_default()
}

/// The newest first, wherever they stand.
fn newest(recent: &[Seen], count: usize) -> (Vec<Seen>, Vec<Seen>) {
    let actions = recent.iter().rev().filter(|seen| matches!(seen, Seen::Action(_))).take(count).copied().collect();
    (actions, recent.iter().rev().filter(|seen| seen.is_result()).take(count).copied().collect())
}

/// The same action, each time with an error of whatever text.
fn streak(recent: &[Seen], at_most: usize) -> usize {
    let (actions, results) = newest(recent, at_most);
    let is_one = |(action, result): &(&Seen, &Seen)| Some(*action) == actions.first() && matches!(result, Seen::AgentError(_));
    actions.iter().zip(&results).take_while(is_one).count()
}

/// Texts are not compared (C-222); what is no message ends it.
fn is_monologue(recent: &[Seen], threshold: usize) -> bool {
    let said = recent.iter().rev().take_while(|seen| matches!(seen, Seen::AgentMessage | Seen::OtherMessage | Seen::CondensationSummary));
    said.filter(|seen| **seen == Seen::AgentMessage).count() >= threshold
}

fn takes_turns(recent: &[Seen], threshold: usize) -> bool {
    let alternates = |seen: &[Seen]| seen.len() == threshold && seen.iter().zip(seen.iter().skip(2)).all(|(one, other)| one == other);
    let actions = newest(recent, threshold).0;
    // A rejection is no part of a pattern.
    let results: Vec<Seen> =
        recent.iter().rev().filter(|seen| matches!(seen, Seen::Observation(_) | Seen::AgentError(_))).take(threshold).copied().collect();
    recent.len() >= threshold && alternates(&actions) && alternates(&results)
}

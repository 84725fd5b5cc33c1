//! The stuck detector. It takes in each act of an agent once, counts streaks, and reports one that
//! is too long. Thoughts are not part of an act, so different thoughts about the same act make no
//! difference (C-325).

use std::borrow::Cow;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::types::fingerprint::Fingerprint;
use crate::types::stuck_rules::StuckRules;

/// Consecutive condensations that mean a stuck agent: its history does not become smaller (O-102).
pub(in crate::room) const CONDENSATIONS: u32 = 10;

/// Messages whose numbers are retained, even if the operator allows longer loops.
pub(in crate::room) const MAX_KEPT: usize = 256;

/// The kind of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::room) enum DoingKind {
    /// An action with its answer.
    Act,
    /// A message of the agent.
    Message,
    /// A message of the user, which resets all counts.
    User,
    /// A condensation of the history.
    Condensation,
}

/// One act, as [`ActWatch::saw`] takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::room) struct Act {
    /// Fingerprint of the action without its thought and ids, or of a message's text.
    pub what: Fingerprint,
    /// Fingerprint of the answer, without ids.
    pub result: Fingerprint,
    pub is_error: bool,
    pub kind: DoingKind,
}

impl Act {
    /// Returns an action with its answer.
    #[must_use]
    pub(in crate::room) fn action(what: Fingerprint, result: Fingerprint, is_error: bool) -> Self {
        Self { what, result, is_error, kind: DoingKind::Act }
    }

    /// Returns a message of the agent.
    #[must_use]
    pub(in crate::room) fn message(what: Fingerprint) -> Self {
        Self { what, ..Self::user() }.of_kind(DoingKind::Message)
    }

    /// Returns a message of the user.
    #[must_use]
    pub(in crate::room) fn user() -> Self {
        Self { what: [0; 2], result: [0; 2], is_error: false, kind: DoingKind::User }
    }

    /// Returns a condensation of the history.
    #[must_use]
    pub(in crate::room) fn condensation() -> Self {
        Self::user().of_kind(DoingKind::Condensation)
    }

    fn of_kind(self, kind: DoingKind) -> Self {
        Self { kind, ..self }
    }

    fn is_same_as(&self, other: &Self) -> bool {
        (self.what, self.result) == (other.what, other.result)
    }
}

/// The way in which an agent is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StuckKind {
    /// The same action gave the same result.
    SameResult,
    /// The same action failed.
    SameError,
    /// Two actions alternated.
    Alternating,
    /// The same message was repeated.
    SameMessage,
    /// Only condensations, without any other act.
    OnlyCondensing,
    /// Tasks handed the conversation on in a circle, and did nothing else.
    HandingOn,
}

impl StuckKind {
    /// A description for people and for the agent: `the same action failed 4 times in a row`.
    #[must_use]
    pub fn describe(self, repeats: u32) -> String {
        match self {
            Self::SameResult => {
                format!("the same action gave the same result {repeats} times in a row")
            }
            Self::SameError => format!("the same action failed {repeats} times in a row"),
            Self::Alternating => {
                format!("the same two actions took turns {repeats} times with the same results")
            }
            Self::SameMessage => {
                format!("the same message was sent {repeats} times with nothing between")
            }
            Self::HandingOn => {
                format!(
                    "the conversation was handed on {repeats} times in a circle, without a word \
                     of the user"
                )
            }
            Self::OnlyCondensing => {
                format!("the history was condensed {repeats} times with nothing between")
            }
        }
    }
}

/// The verdict on one act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub(in crate::room) enum StuckVerdict {
    Fine,
    /// The agent should read `text`, once for each streak (O-107).
    Nudge {
        repeats: u32,
        text: String,
    },
    /// The loop is the last `repeats` acts of its kind.
    Stuck {
        kind: StuckKind,
        repeats: u32,
    },
}

/// The detector of one agent. It holds the last two actions and the length of each streak, so a
/// step costs the same at any length of history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::room) struct ActWatch {
    /// The last action and the one before it.
    last: Option<Act>,
    before: Option<Act>,
    /// Consecutive actions equal to the last one, with the same result.
    same: u32,
    /// Consecutive failures of the last action.
    failed: u32,
    /// Consecutive actions that each equal the one two before, but not the one directly before.
    alternating: u32,
    message: Option<Fingerprint>,
    messages: u32,
    condensations: u32,
}

impl ActWatch {
    /// Counts one act. Messages do not end a streak of actions; actions end a streak of messages.
    pub(in crate::room) fn record(&mut self, doing: &Act, rules: &StuckRules) -> StuckVerdict {
        // Condensations count only without other acts between them.
        if doing.kind != DoingKind::Condensation {
            self.condensations = 0;
        }
        let found = match doing.kind {
            DoingKind::User => {
                *self = Self::default();
                None
            }
            DoingKind::Act => {
                self.record_action(*doing);
                self.circling(rules)
            }
            DoingKind::Message => {
                let is_same = self.message == Some(doing.what);
                self.messages = if is_same { self.messages.saturating_add(1) } else { 1 };
                self.message = Some(doing.what);
                reached(self.messages, rules.messages)
                    .then_some((StuckKind::SameMessage, self.messages))
            }
            DoingKind::Condensation => {
                self.condensations = self.condensations.saturating_add(1);
                reached(self.condensations, CONDENSATIONS)
                    .then_some((StuckKind::OnlyCondensing, self.condensations))
            }
        };
        match found {
            _ if !rules.on => StuckVerdict::Fine,
            Some((kind, repeats)) => StuckVerdict::Stuck { kind, repeats },
            None if doing.kind == DoingKind::Act && self.is_to_be_nudged(rules) => {
                StuckVerdict::Nudge { repeats: self.failed, text: nudge(self.failed) }
            }
            None => StuckVerdict::Fine,
        }
    }

    /// Takes in that the agent waits, which is no act but stands between its messages.
    pub(in crate::room) fn record_wait(&mut self) {
        (self.message, self.messages) = (None, 0);
    }

    fn record_action(&mut self, doing: Act) {
        (self.message, self.messages) = (None, 0);
        let is_same = self.last.is_some_and(|last| last.is_same_as(&doing));
        let is_same_action = self.last.is_some_and(|last| last.what == doing.what);
        self.same = if is_same { self.same.saturating_add(1) } else { 1 };
        self.failed = match (doing.is_error, is_same_action) {
            (false, _) => 0,
            (true, true) => self.failed.saturating_add(1),
            (true, false) => 1,
        };
        // An alternation needs two different actions before it can grow.
        self.alternating = if is_same || self.last.is_none() {
            1
        } else if self.before.is_some_and(|before| before.is_same_as(&doing))
            && self.alternating >= 2
        {
            self.alternating.saturating_add(1)
        } else {
            2
        };
        self.before = self.last.replace(doing);
    }

    fn circling(&self, rules: &StuckRules) -> Option<(StuckKind, u32)> {
        if reached(self.failed, rules.errors) {
            Some((StuckKind::SameError, self.failed))
        } else if reached(self.same, rules.repeats) {
            Some((StuckKind::SameResult, self.same))
        } else if reached(self.alternating, rules.alternations) {
            Some((StuckKind::Alternating, self.alternating))
        } else {
            None
        }
    }

    /// Whether the next failure would mean a stuck agent. The first error never counts as a loop.
    fn is_to_be_nudged(&self, rules: &StuckRules) -> bool {
        self.failed >= 2 && self.failed.checked_add(1) == Some(rules.errors)
    }
}

fn reached(count: u32, threshold: u32) -> bool {
    threshold > 0 && count >= threshold
}

fn nudge(times: u32) -> String {
    format!(
        "The same action with the same arguments has failed {times} times in a row. Doing it again will not help: read the error, then change \
         the arguments or take another way."
    )
}

/// The watched acts and messages of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::room) struct StuckWatch {
    pub watch: ActWatch,
    /// Numbers of the agent's newest answered acts, oldest first.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub acts: VecDeque<u64>,
    /// Numbers of its newest answered messages and thoughts, oldest first.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub words: VecDeque<u64>,
    /// True if the user was asked and has said nothing since.
    #[serde(rename = "asked", skip_serializing_if = "std::ops::Not::not")]
    pub user_was_asked: bool,
    /// True if the agent was restarted once (O-108).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restarted: bool,
}

impl StuckWatch {
    /// Whether there is nothing to serialize.
    pub(in crate::room) fn is_new(&self) -> bool {
        *self == Self::default()
    }

    pub(in crate::room) fn saw(&mut self, seen: &WatchedAct, rules: &StuckRules) -> StuckVerdict {
        if seen.doing.kind == DoingKind::User {
            // The one restart of an activation stays used up.
            *self = Self { restarted: self.restarted, ..Self::default() };
            return StuckVerdict::Fine;
        }
        let longest = [rules.repeats, rules.errors, rules.alternations, rules.messages]
            .into_iter()
            .max()
            .unwrap_or_default();
        let longest = usize::try_from(longest).unwrap_or(MAX_KEPT).min(MAX_KEPT);
        let numbers =
            if seen.doing.kind == DoingKind::Act { &mut self.acts } else { &mut self.words };
        numbers.push_back(seen.seq);
        while numbers.len() > longest {
            numbers.pop_front();
        }
        self.watch.record(&seen.doing, rules)
    }

    /// The number of the agent's message that began a loop.
    pub(in crate::room) fn began(&self, kind: StuckKind, repeats: u32) -> Option<u64> {
        let numbers = if kind == StuckKind::SameMessage { &self.words } else { &self.acts };
        let repeats = usize::try_from(repeats).unwrap_or(usize::MAX);
        numbers.get(numbers.len().saturating_sub(repeats)).copied()
    }
}

/// One act of the agent.
pub(in crate::room) struct WatchedAct {
    pub doing: Act,
    /// Number of the agent's message.
    pub seq: u64,
    /// Description for people: an action, tools, or a message.
    pub what: Cow<'static, str>,
}

//! The host's own detector: it sees each thing that an agent does once, keeps counts of what runs
//! on, and says when it is too much. What an agent thinks is no part of what it does, so that other
//! thoughts about the same deed make no difference (C-325).

use serde::{Deserialize, Serialize};

use crate::types::fingerprint::Fingerprint;
use crate::types::stuck_rules::StuckRules;

/// As many times condensed with nothing between and it is stuck: its history does not become
/// smaller (O-102).
pub const CONDENSATIONS: u32 = 10;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoingKind {
    /// An action that something answered.
    Act,
    /// Something that the agent said.
    Message,
    /// The user said something: whatever was, it begins anew.
    User,
    /// The history was condensed.
    Condensation,
}

/// One thing that was done, as [`Watch::saw`] takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doing {
    /// Of the action without its thought and without ids; of a message's text.
    pub what: Fingerprint,
    /// Of what answered it, without ids.
    pub result: Fingerprint,
    pub is_error: bool,
    pub kind: DoingKind,
}

impl Doing {
    /// An action with its answer.
    #[must_use]
    pub fn act(what: Fingerprint, result: Fingerprint, is_error: bool) -> Self {
        Self { what, result, is_error, kind: DoingKind::Act }
    }

    /// Something that the agent said.
    #[must_use]
    pub fn message(what: Fingerprint) -> Self {
        Self { what, ..Self::user() }.of_kind(DoingKind::Message)
    }

    /// The user said something.
    #[must_use]
    pub fn user() -> Self {
        Self { what: [0; 2], result: [0; 2], is_error: false, kind: DoingKind::User }
    }

    /// The history was condensed.
    #[must_use]
    pub fn condensation() -> Self {
        Self::user().of_kind(DoingKind::Condensation)
    }

    fn of_kind(self, kind: DoingKind) -> Self {
        Self { kind, ..self }
    }

    fn is_same_as(&self, other: &Self) -> bool {
        (self.what, self.result) == (other.what, other.result)
    }
}

/// How an agent is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StuckKind {
    /// The same action gave the same result.
    SameResult,
    /// The same action failed.
    SameError,
    /// Two actions took turns.
    Alternating,
    /// The same was said.
    SameMessage,
    /// Nothing was done but to condense.
    OnlyCondensing,
}

impl StuckKind {
    /// What happened, for people and for the agent: `the same action failed 4 times in a row`.
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
            Self::OnlyCondensing => {
                format!("the history was condensed {repeats} times with nothing between")
            }
        }
    }
}

/// What the watch says of one thing that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum StuckVerdict {
    Fine,
    /// The agent should be told `text`, once for each streak (O-107).
    Nudge {
        repeats: u32,
        text: String,
    },
    /// The loop is the last `repeats` things of its kind.
    Stuck {
        kind: StuckKind,
        repeats: u32,
    },
}

/// Watches one agent. It holds what the last two actions were and how long each streak is, however
/// long the history: a step costs the same after ten and after ten thousand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActWatch {
    /// The last action and the one before it.
    last: Option<Doing>,
    before: Option<Doing>,
    /// Actions that are the same as the last one, with its result.
    same: u32,
    /// Actions that are the same as the last one, and failed.
    failed: u32,
    /// Actions each of which is the same as the one before the one before it, and not as the one
    /// before it.
    alternating: u32,
    message: Option<Fingerprint>,
    messages: u32,
    condensations: u32,
}

impl ActWatch {
    /// Takes in one thing that was done. Messages do not end a streak of actions; actions end one
    /// of messages.
    pub fn saw(&mut self, doing: &Doing, rules: &StuckRules) -> StuckVerdict {
        if doing.kind != DoingKind::Condensation {
            self.condensations = 0;
        }
        let found = match doing.kind {
            DoingKind::User => {
                *self = Self::default();
                None
            }
            DoingKind::Act => {
                self.saw_act(*doing);
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

    fn saw_act(&mut self, doing: Doing) {
        (self.message, self.messages) = (None, 0);
        let is_same = self.last.is_some_and(|last| last.is_same_as(&doing));
        let is_same_action = self.last.is_some_and(|last| last.what == doing.what);
        self.same = if is_same { self.same.saturating_add(1) } else { 1 };
        self.failed = match (doing.is_error, is_same_action) {
            (false, _) => 0,
            (true, true) => self.failed.saturating_add(1),
            (true, false) => 1,
        };
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

    /// One before it is too much; never at the first error, which is nobody's circle.
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

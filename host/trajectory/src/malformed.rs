//! Why an event was refused, in words for a model.

use std::fmt;

/// The rule that an event broke, by the names of the wire protocol's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MalformedKind {
    /// An action of an unknown kind, or with a missing, unknown or ill-typed argument (O-006).
    MalformedAction,
    /// An observation of a kind that this reader does not know.
    UnknownObservation,
    /// An observation with a missing, unknown or ill-typed extra.
    BadObservationArgs,
    /// A value of the right type that is invalid: neither action nor observation, a bad source, or
    /// a contradiction.
    ValueError,
}

impl MalformedKind {
    /// The kind as text: `malformed-action`, `unknown-observation`, `bad-observation-args` or
    /// `value-error`.
    pub const fn name(self) -> &'static str {
        match self {
            MalformedKind::MalformedAction => "malformed-action",
            MalformedKind::UnknownObservation => "unknown-observation",
            MalformedKind::BadObservationArgs => "bad-observation-args",
            MalformedKind::ValueError => "value-error",
        }
    }
}

/// An event that could not be read: the broken rule, and a sentence with the problem and the
/// remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The broken rule.
    pub kind: MalformedKind,
    /// The problem, and what is known or required instead; written for a model.
    pub text: String,
}

impl Malformed {
    pub(crate) fn new(kind: MalformedKind, text: impl Into<String>) -> Malformed {
        Malformed { kind, text: text.into() }
    }

    pub(crate) fn value(text: impl Into<String>) -> Malformed {
        Malformed::new(MalformedKind::ValueError, text)
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.text)
    }
}

impl std::error::Error for Malformed {}

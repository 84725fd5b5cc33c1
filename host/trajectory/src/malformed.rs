//! Why an event was refused, in words a model can act on.

use std::fmt;

/// Which rule an event broke; the names are those of the wire protocol's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MalformedKind {
    /// An action of unknown kind, or with a missing, unknown or ill-typed argument (O-006).
    MalformedAction,
    /// An observation whose kind this reader does not know.
    UnknownObservation,
    /// An observation with a missing, unknown or ill-typed extra.
    BadObservationArgs,
    /// A value that has the right type and still cannot be: neither action nor observation, a bad
    /// source, a contradiction.
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

/// An event that could not be read: which rule it broke, and a sentence that says what, where, and
/// what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Which rule was broken.
    pub kind: MalformedKind,
    /// What is wrong and what is known or required instead; meant to be shown to a model.
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

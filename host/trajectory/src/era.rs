//! The two wire forms of this crate, with their fields and kinds.

/// A wire form of actions and observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Era {
    /// July 2024: background commands, `kill`, the plan's `add_task` and `modify_task`.
    V2024,
    /// November 2025: security risk, confirmation, condensation, MCP; without the kinds and
    /// arguments above (O-039).
    V2025,
}

impl Era {
    /// The name for files and messages: `2024-07` or `2025-11`.
    pub const fn name(self) -> &'static str {
        match self {
            Era::V2024 => "2024-07",
            Era::V2025 => "2025-11",
        }
    }

    /// Parses a name: `2024-07`, `2024`, `2025-11`, `2025`.
    pub fn parse(name: &str) -> Option<Era> {
        match name {
            "2024-07" | "2024" => Some(Era::V2024),
            "2025-11" | "2025" => Some(Era::V2025),
            _ => None,
        }
    }
}

/// The presence of a field in one era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Absent,
    Optional,
    Required,
}

/// The eras that have a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Eras {
    pub(crate) old: bool,
    pub(crate) new: bool,
}

/// A kind of both eras.
pub(crate) const BOTH: Eras = Eras { old: true, new: true };
/// A kind of 2024-07 only.
pub(crate) const OLD: Eras = Eras { old: true, new: false };
/// A kind of 2025-11 only.
pub(crate) const NEW: Eras = Eras { old: false, new: true };
/// A kind of neither era: our own.
pub(crate) const OURS: Eras = Eras { old: false, new: false };

impl Eras {
    /// Whether this form has the kind; `None` is the union, which has all.
    pub(crate) fn has(self, form: Option<Era>) -> bool {
        match form {
            None => true,
            Some(Era::V2024) => self.old,
            Some(Era::V2025) => self.new,
        }
    }
}

/// A field of a kind: its name on the wire, and its presence in each era.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSpec {
    pub(crate) name: &'static str,
    pub(crate) old: Presence,
    pub(crate) new: Presence,
}

impl FieldSpec {
    /// The presence of the field in a form, given the eras of its kind.
    ///
    /// In the union a field is only required if every era with the kind requires it.
    pub(crate) fn presence(&self, kind: Eras, form: Option<Era>) -> Presence {
        let form = match form {
            Some(_) if !kind.has(form) => None,
            form => form,
        };
        match form {
            Some(Era::V2024) => self.old,
            Some(Era::V2025) => self.new,
            None => {
                let required = match (kind.old, kind.new) {
                    (true, true) => {
                        self.old == Presence::Required && self.new == Presence::Required
                    }
                    (true, false) => self.old == Presence::Required,
                    _ => self.new == Presence::Required,
                };
                if required { Presence::Required } else { Presence::Optional }
            }
        }
    }
}

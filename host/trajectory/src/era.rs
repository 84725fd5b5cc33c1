//! The two wire forms this library speaks, and which fields and kinds belong to which.

/// A wire form of actions and observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Era {
    /// July 2024: background commands, `kill`, the plan's `add_task` and `modify_task`.
    V2024,
    /// November 2025: security risk, confirmation, condensation, MCP; the kinds and arguments above
    /// are gone (O-039).
    V2025,
}

impl Era {
    /// The name used in files and messages: `2024-07` or `2025-11`.
    pub const fn name(self) -> &'static str {
        match self {
            Era::V2024 => "2024-07",
            Era::V2025 => "2025-11",
        }
    }

    /// Reads a name: `2024-07`, `2024`, `2025-11`, `2025`.
    pub fn parse(name: &str) -> Option<Era> {
        match name {
            "2024-07" | "2024" => Some(Era::V2024),
            "2025-11" | "2025" => Some(Era::V2025),
            _ => None,
        }
    }
}

/// How a field stands in one era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Absent,
    Optional,
    Required,
}

/// In which eras a kind could be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Eras {
    pub(crate) old: bool,
    pub(crate) new: bool,
}

/// Both eras know the kind.
pub(crate) const BOTH: Eras = Eras { old: true, new: true };
/// Only 2024-07 knows the kind.
pub(crate) const OLD: Eras = Eras { old: true, new: false };
/// Only 2025-11 knows the kind.
pub(crate) const NEW: Eras = Eras { old: false, new: true };
/// Neither knows the kind: it is our own.
pub(crate) const OURS: Eras = Eras { old: false, new: false };

impl Eras {
    /// Whether a reader of this form knows the kind; no era means the union, which knows all.
    pub(crate) fn has(self, form: Option<Era>) -> bool {
        match form {
            None => true,
            Some(Era::V2024) => self.old,
            Some(Era::V2025) => self.new,
        }
    }
}

/// One field of a kind: its name on the wire and how it stands in each era.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSpec {
    pub(crate) name: &'static str,
    pub(crate) old: Presence,
    pub(crate) new: Presence,
}

impl FieldSpec {
    /// How the field stands for a reader or writer of this form, given where its kind exists.
    ///
    /// In the union a field is required only when every era that has the kind requires it.
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

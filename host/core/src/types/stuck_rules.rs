//! The rules of stuck detection, and the recovery of a stuck agent (O-098…O-108).

use serde::{Deserialize, Serialize};

/// The recovery of a stuck agent (O-108).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// The task ends.
    Stop,
    /// The user is asked if one is present; else the task ends.
    #[default]
    Ask,
    /// The history is cut to the beginning of the loop, once; the next time, the task ends.
    Restart,
}

/// The thresholds of stuck detection. A 0 disables its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StuckRules {
    pub on: bool,
    /// The number of equal actions with equal results (O-098).
    pub repeats: u32,
    /// The number of equal actions with errors; the agent is nudged one before (O-099).
    pub errors: u32,
    /// The number of alternations between two actions (O-100).
    pub alternations: u32,
    /// The number of equal messages in a row (O-101).
    pub messages: u32,
    pub recovery: Recovery,
}

impl StuckRules {
    /// The rules of a task that sets none.
    pub const DEFAULT: Self = Self {
        on: true,
        repeats: 4,
        errors: 4,
        alternations: 6,
        messages: 3,
        recovery: Recovery::Ask,
    };
}

impl Default for StuckRules {
    fn default() -> Self {
        Self::DEFAULT
    }
}

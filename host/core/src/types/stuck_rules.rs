//! When an agent counts as stuck, and what happens then (O-098…O-108).

use serde::{Deserialize, Serialize};

/// What is done with an agent that is stuck (O-108).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// The task ends.
    Stop,
    /// The user is asked where there is one; else the task ends.
    #[default]
    Ask,
    /// Its history is cut to where the loop began, once; then it ends.
    Restart,
}

/// When an agent is stuck. A number of 0 switches its rule off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StuckRules {
    pub on: bool,
    /// The same action with the same result (O-098).
    pub repeats: u32,
    /// The same action with errors; the agent is nudged one before (O-099).
    pub errors: u32,
    /// Two that alternate (O-100).
    pub alternations: u32,
    /// The same message with nothing between (O-101).
    pub messages: u32,
    pub recovery: Recovery,
}

impl Default for StuckRules {
    fn default() -> Self {
        Self {
            on: true,
            repeats: 4,
            errors: 4,
            alternations: 6,
            messages: 3,
            recovery: Recovery::default(),
        }
    }
}

//! Options of a task that layers below the setup use.

use serde::{Deserialize, Serialize};

/// The treatment of a history that exceeds its model's context (L-180).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// Older messages are cut, with a mark.
    #[default]
    Truncate,
    /// Whole turns are dropped, oldest first.
    DropTurns,
}

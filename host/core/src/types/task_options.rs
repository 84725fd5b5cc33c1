//! Options of a task that parts below the setup act on.

use serde::{Deserialize, Serialize};

/// What happens when a history does not fit into its model (L-180).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// Older messages are cut, with a mark.
    #[default]
    Truncate,
    /// Whole turns are left out, oldest first.
    DropTurns,
}

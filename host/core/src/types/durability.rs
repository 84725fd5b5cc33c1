//! The durability of journal records.

use serde::{Deserialize, Serialize};

/// The moment at which the records of a run survive a power failure. A killed program loses no
/// acknowledged record; with `exit` it can lose those of the last few milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Each event is synced before its consequences.
    Sync,
    /// Events of the same few milliseconds are synced together, before any consequence leaves the
    /// host.
    #[default]
    Group,
    /// Records are synced when the run ends; consequences do not wait for them.
    Exit,
}

impl Durability {
    /// The durability for this word; `None` if there is none.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Sync, Self::Group, Self::Exit]
            .into_iter()
            .find(|durability| durability.as_str() == word)
    }

    /// The word in configs and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Group => "group",
            Self::Exit => "exit",
        }
    }
}

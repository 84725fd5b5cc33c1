//! How soon a journal's records are safe from a power cut.

use serde::{Deserialize, Serialize};

/// When what a run's journal was handed is safe from a machine that loses its power. A program that
/// is killed loses nothing that was acknowledged; with `exit` it can lose what it was handed in the
/// last few milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Each event before anything comes of it.
    Sync,
    /// With other events of the same few milliseconds; before anything that came of it leaves the
    /// host.
    #[default]
    Group,
    /// When the run ends; what came of an event does not wait for its record.
    Exit,
}

impl Durability {
    /// The other way round; none when it is none of the words.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Sync, Self::Group, Self::Exit]
            .into_iter()
            .find(|durability| durability.as_str() == word)
    }

    /// As the config and the command line write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Group => "group",
            Self::Exit => "exit",
        }
    }
}

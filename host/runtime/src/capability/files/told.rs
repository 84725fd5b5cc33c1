//! What there is to tell of something that could not be read or changed, as it is kept for a call that is run again.

use conclave_core::grant::DenialRecord;
use serde::{Deserialize, Serialize};

use crate::capability::folder::Trouble;

/// Why a plugin got nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Told {
    NotFound,
    NotAFile,
    NotADirectory,
    Quota(u64),
    Denied(Box<DenialRecord>),
    Other(String),
}

impl Told {
    /// For a call that ends: it reads no more.
    pub(crate) fn lost() -> Self {
        Self::Other("the call ends".to_owned())
    }

    /// A trouble that is no refusal. `read` is the call's allowance.
    pub(crate) fn plain(trouble: &Trouble, read: u64) -> Self {
        match trouble {
            Trouble::NotFound => Self::NotFound,
            Trouble::NotAFile => Self::NotAFile,
            Trouble::NotADirectory => Self::NotADirectory,
            Trouble::TooMany => Self::Quota(read),
            Trouble::Quota(limit) => Self::Quota(*limit),
            other => Self::Other(other.to_string()),
        }
    }

    /// The same from the words that the journal has of a change.
    pub(crate) fn of_words(words: &str, read: u64) -> Self {
        let plain = [Trouble::NotFound, Trouble::NotAFile, Trouble::NotADirectory, Trouble::TooMany];
        let quota = words.strip_prefix(Trouble::Quota(0).to_string().trim_end_matches('0')).and_then(|limit| limit.parse().ok());
        match (plain.iter().find(|trouble| trouble.to_string() == words), quota) {
            (Some(trouble), _) => Self::plain(trouble, read),
            (None, Some(limit)) => Self::Quota(limit),
            (None, None) => Self::Other(words.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_journal_mean_what_the_plugin_was_told() {
        let other = || Trouble::Other(std::io::ErrorKind::StorageFull.into());
        for trouble in [Trouble::NotFound, Trouble::NotAFile, Trouble::NotADirectory, Trouble::TooMany, Trouble::Quota(4_200), other()] {
            assert_eq!(Told::of_words(&trouble.to_string(), 7), Told::plain(&trouble, 7));
        }
    }
}

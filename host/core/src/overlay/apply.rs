//! The decision for each change of an overlay that a person applies to its folder: by the digests
//! of the file when the run changed it, of the file now, and of the change.

use serde::{Deserialize, Serialize};

use crate::overlay::changes::ChangedFile;
use crate::types::ids::Millis;
use crate::types::side_effect::Digest;

/// The entry of the folder at the path of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseEntry {
    Absent,
    File(Digest),
    /// A directory, a link, a device, or a path through one; with the reason in words.
    Other(String),
}

/// What to do with a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyStep {
    /// Write the overlay's content.
    Write,
    /// Remove the file.
    Remove,
    /// Nothing: the folder is as the change wants it. An interrupted application had got this far.
    Done,
    /// Refuse: the folder has changed since, for this reason.
    Conflict(String),
}

/// A person's decision about changes of an overlay. It is durable before it takes effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeDecision {
    pub at: Millis,
    pub principal: String,
    pub kind: ChangeDecisionKind,
    /// The path of the folder as the operator wrote it.
    pub folder: String,
    /// The changed files that it is about, by their paths relative to the folder.
    pub files: Vec<String>,
}

/// What a person decides about changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeDecisionKind {
    /// The changes are written to the folder.
    Applied,
    /// The changes are removed.
    Dropped,
}

impl ChangeDecisionKind {
    /// Returns the word in JSON and in texts.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Dropped => "dropped",
        }
    }
}

/// Returns what to do with a change. `content` is the digest of the overlay's file.
#[must_use]
pub fn apply_step(change: &ChangedFile, content: Option<&Digest>, now: &BaseEntry) -> ApplyStep {
    let now = match now {
        BaseEntry::Other(reason) => return ApplyStep::Conflict(reason.clone()),
        BaseEntry::Absent => None,
        BaseEntry::File(digest) => Some(digest),
    };
    if now == content {
        return ApplyStep::Done;
    }
    if now != change.base() {
        let what = match (change.base(), now) {
            (None, Some(_)) => "the folder has such a file now",
            (Some(_), None) => "the file was removed from the folder",
            _ => "the file in the folder has changed",
        };
        return ApplyStep::Conflict(format!("{what} since the run changed it"));
    }
    if content.is_some() { ApplyStep::Write } else { ApplyStep::Remove }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> Digest {
        Digest { sha256: text.to_owned(), length: 1 }
    }

    /// Returns the step for a file that was `base`, is `now`, and is `content` in the overlay.
    fn step(base: &str, content: &str, now: &str) -> ApplyStep {
        let file = |text: &str| (!text.is_empty()).then(|| digest(text));
        let change = match (file(base), file(content)) {
            (Some(base), None) => ChangedFile::Removed { base },
            (base, _) => ChangedFile::Written { base },
        };
        let now = file(now).map_or(BaseEntry::Absent, BaseEntry::File);
        apply_step(&change, file(content).as_ref(), &now)
    }

    #[test]
    fn a_change_is_applied_to_the_file_that_it_was_made_to() {
        assert_eq!(step("old", "new", "old"), ApplyStep::Write);
        assert_eq!(step("", "new", ""), ApplyStep::Write);
        assert_eq!(step("old", "", "old"), ApplyStep::Remove);
    }

    #[test]
    fn a_change_that_is_there_already_is_done() {
        assert_eq!(step("old", "new", "new"), ApplyStep::Done);
        assert_eq!(step("", "new", "new"), ApplyStep::Done);
        assert_eq!(step("old", "", ""), ApplyStep::Done);
        assert_eq!(step("old", "old", "old"), ApplyStep::Done);
    }

    #[test]
    fn a_file_that_changed_meanwhile_is_a_conflict() {
        for (base, content, now) in [
            ("old", "new", "other"),
            ("old", "new", ""),
            ("", "new", "other"),
            ("old", "", "other"),
        ] {
            let step = step(base, content, now);
            assert!(matches!(step, ApplyStep::Conflict(_)), "{base} {content} {now}: {step:?}");
        }
        let link = BaseEntry::Other("it is a link".to_owned());
        let change = ChangedFile::Written { base: None };
        assert!(matches!(
            apply_step(&change, Some(&digest("new")), &link),
            ApplyStep::Conflict(reason) if reason == "it is a link"
        ));
    }
}

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

/// The content of a change in its overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeContent {
    /// None: the run removed the file.
    Removed,
    File(Digest),
    /// The run wrote the file, and its content is missing from the store, as after the loss of a
    /// file on the disk.
    Lost,
}

impl ChangeContent {
    /// The digest of a content that is there.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        if let Self::File(digest) = self { Some(digest) } else { None }
    }
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

/// A person's decision about changes of an overlay. It is durable before it takes effect, as a begin,
/// and again once it has taken effect. So a command that is killed between the two is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeDecision {
    pub at: Millis,
    pub principal: String,
    pub kind: ChangeDecisionKind,
    /// The path of the folder as the operator wrote it.
    pub folder: String,
    /// The changed files that it is about, by their paths relative to the folder.
    pub files: Vec<String>,
    /// Whether this is the begin: some of the changes may not be applied or dropped yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_begin: bool,
}

impl ChangeDecision {
    fn ends(&self, begin: &Self) -> bool {
        !self.is_begin && (self.kind, &self.folder) == (begin.kind, &begin.folder)
    }
}

/// Returns the decisions whose begin is recorded and not their end, oldest first.
#[must_use]
pub fn interrupted(decisions: &[ChangeDecision]) -> Vec<&ChangeDecision> {
    let mut open: Vec<&ChangeDecision> = Vec::new();
    for decision in decisions {
        match open.iter().position(|begin| decision.ends(begin)) {
            Some(begin) => drop(open.remove(begin)),
            None if decision.is_begin => open.push(decision),
            None => {}
        }
    }
    open
}

/// Returns the decisions as a person wants to read them: each once, as a begin only if it was
/// interrupted and some of the run's changes are still pending. Those of all its folders count: a
/// decision that was interrupted after its last file stays a begin as long as another folder has some.
#[must_use]
pub fn summarized(
    decisions: Vec<ChangeDecision>,
    has_pending: impl FnOnce() -> bool,
) -> Vec<ChangeDecision> {
    let interrupted: Vec<ChangeDecision> = interrupted(&decisions).into_iter().cloned().collect();
    let is_begin = !interrupted.is_empty() && has_pending();
    let mut summary = Vec::new();
    for mut decision in decisions {
        if decision.is_begin {
            if !interrupted.contains(&decision) {
                continue;
            }
            decision.is_begin = is_begin;
        }
        // A begin that was interrupted before its first file has an end without files.
        if !decision.files.is_empty() {
            summary.push(decision);
        }
    }
    summary
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
    /// The word in JSON and in texts.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Dropped => "dropped",
        }
    }
}

/// The step that applies a change to the folder as it is `now`.
#[must_use]
pub fn apply_step(change: &ChangedFile, content: &ChangeContent, now: &BaseEntry) -> ApplyStep {
    let content = match content {
        ChangeContent::Lost => {
            let reason = "its content is missing from the store, so it can only be dropped";
            return ApplyStep::Conflict(reason.to_owned());
        }
        ChangeContent::Removed => None,
        ChangeContent::File(digest) => Some(digest),
    };
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
    if change.changed_since_read() {
        let what = "the file in the folder changed after the run had read it";
        return ApplyStep::Conflict(format!("{what}, before the run changed it"));
    }
    if content.is_some() { ApplyStep::Write } else { ApplyStep::Remove }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> Digest {
        Digest { sha256: text.to_owned(), length: 1 }
    }

    /// The change of a file that was `base`, and its content in the overlay.
    fn changed(
        base: &str,
        content: &str,
        changed_since_read: bool,
    ) -> (ChangedFile, ChangeContent) {
        let file = |text: &str| (!text.is_empty()).then(|| digest(text));
        let content = file(content).map_or(ChangeContent::Removed, ChangeContent::File);
        let change = match (file(base), &content) {
            (Some(base), ChangeContent::Removed) => {
                ChangedFile::Removed { base, changed_since_read }
            }
            (base, _) => ChangedFile::Written { base, changed_since_read },
        };
        (change, content)
    }

    fn entry(now: &str) -> BaseEntry {
        if now.is_empty() { BaseEntry::Absent } else { BaseEntry::File(digest(now)) }
    }

    /// The step for a file that was `base`, is `now`, and is `content` in the overlay.
    fn step(base: &str, content: &str, now: &str) -> ApplyStep {
        let (change, content) = changed(base, content, false);
        apply_step(&change, &content, &entry(now))
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
        let (change, content) = changed("", "new", false);
        assert!(matches!(
            apply_step(&change, &content, &link),
            ApplyStep::Conflict(reason) if reason == "it is a link"
        ));
    }

    #[test]
    fn a_change_to_another_file_than_the_run_read_is_a_conflict_unless_it_is_there() {
        for (base, content) in [("theirs", "ours"), ("theirs", ""), ("", "ours")] {
            let (change, content) = changed(base, content, true);
            let step = apply_step(&change, &content, &entry(base));
            assert!(matches!(step, ApplyStep::Conflict(_)), "{base}: {step:?}");
        }
        let (change, content) = changed("theirs", "ours", true);
        assert_eq!(apply_step(&change, &content, &entry("ours")), ApplyStep::Done);
    }

    #[test]
    fn a_change_without_its_content_is_never_applied() {
        let (change, _) = changed("old", "new", false);
        for now in ["old", "new", ""] {
            let step = apply_step(&change, &ChangeContent::Lost, &entry(now));
            assert!(matches!(step, ApplyStep::Conflict(_)), "{now}: {step:?}");
        }
    }
}

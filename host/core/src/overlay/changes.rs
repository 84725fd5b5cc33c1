//! The changes of a run to a folder that was granted as an overlay: the lines of their log, and the
//! fold of these lines. The fold decides for each path whether the overlay or the folder answers.
//! It knows no contents.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::types::side_effect::Digest;

/// A line of the log of an overlay. Paths are relative to the folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum ChangeRecord {
    /// The overlay holds the file. Written once, at the first write of a file.
    Written {
        path: String,
        /// The file of the folder at that time; `None` if there was none.
        base: Option<Digest>,
        /// Whether that file was no longer the one that the run had read first. The run's file then
        /// lacks what another process wrote in between.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        changed_since_read: bool,
    },
    /// The file of the folder is removed.
    Removed {
        path: String,
        /// The file of the folder when it was first changed or removed.
        base: Digest,
        /// As in `Written`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        changed_since_read: bool,
    },
    /// The file is the folder's own again, or absent if the folder has none.
    Reverted { path: String },
}

/// A changed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedFile {
    /// The overlay holds the file. The fields are those of [`ChangeRecord::Written`].
    Written { base: Option<Digest>, changed_since_read: bool },
    /// The file of the folder is removed.
    Removed { base: Digest, changed_since_read: bool },
}

impl ChangedFile {
    /// The file of the folder that the change was made to.
    #[must_use]
    pub fn base(&self) -> Option<&Digest> {
        match self {
            Self::Written { base, .. } => base.as_ref(),
            Self::Removed { base, .. } => Some(base),
        }
    }

    /// The record of the change.
    #[must_use]
    pub fn record(&self, path: &str) -> ChangeRecord {
        let path = path.to_owned();
        match self.clone() {
            Self::Written { base, changed_since_read } => {
                ChangeRecord::Written { path, base, changed_since_read }
            }
            Self::Removed { base, changed_since_read } => {
                ChangeRecord::Removed { path, base, changed_since_read }
            }
        }
    }

    /// Whether another process changed the file between the run's first read and its change.
    #[must_use]
    pub fn changed_since_read(&self) -> bool {
        let (Self::Written { changed_since_read, .. } | Self::Removed { changed_since_read, .. }) =
            self;
        *changed_since_read
    }
}

/// The layer that answers for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// A file of the overlay.
    Upper,
    /// A directory that exists because the overlay has files in it. The folder may have it too.
    UpperDirectory,
    /// Nothing: the file was removed, or it lies below one that was.
    Removed,
    /// A part of the path is a file of the overlay, so nothing lies below it.
    BelowFile,
    /// The folder itself.
    Base,
}

/// The changes of an overlay, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(BTreeMap<String, ChangedFile>);

impl Changes {
    /// Returns the changes of a log. A line that is no record is reported by its number from 1.
    ///
    /// # Errors
    /// The number of the first malformed line.
    pub fn read<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Self, usize> {
        let mut changes = Self::default();
        for (number, line) in lines.into_iter().enumerate() {
            changes.take(serde_json::from_str(line).map_err(|_| number + 1)?);
        }
        Ok(changes)
    }

    /// Adds a record.
    pub fn take(&mut self, record: ChangeRecord) {
        match record {
            ChangeRecord::Written { path, base, changed_since_read } => {
                self.0.insert(path, ChangedFile::Written { base, changed_since_read });
            }
            ChangeRecord::Removed { path, base, changed_since_read } => {
                self.0.insert(path, ChangedFile::Removed { base, changed_since_read });
            }
            ChangeRecord::Reverted { path } => {
                self.0.remove(&path);
            }
        }
    }

    /// Keeps only the changes that `is_whole` accepts.
    pub fn retain(&mut self, is_whole: impl Fn(&str, &ChangedFile) -> bool) {
        self.0.retain(|path, change| is_whole(path, change));
    }

    /// The shortest log with these changes.
    #[must_use]
    pub fn records(&self) -> Vec<ChangeRecord> {
        self.0.iter().map(|(path, change)| change.record(path)).collect()
    }

    /// The change of a file.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&ChangedFile> {
        self.0.get(path)
    }

    /// The changed files in the order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ChangedFile)> {
        self.0.iter().map(|(path, change)| (path.as_str(), change))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of changed files, removed ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The layer that answers for a path; the folder itself is the empty path.
    #[must_use]
    pub fn layer(&self, path: &str) -> Layer {
        if self.has_written_below(path) {
            return Layer::UpperDirectory;
        }
        match self.0.get(path) {
            Some(ChangedFile::Written { .. }) => return Layer::Upper,
            Some(ChangedFile::Removed { .. }) => return Layer::Removed,
            None => {}
        }
        for (end, _) in path.match_indices('/').rev() {
            match self.0.get(&path[..end]) {
                Some(ChangedFile::Written { .. }) => return Layer::BelowFile,
                // A removed file hides whatever the folder has in its place later.
                Some(ChangedFile::Removed { .. }) => return Layer::Removed,
                None => {}
            }
        }
        Layer::Base
    }

    /// Whether the folder's own entries at and below a directory are hidden, because the overlay
    /// removed a file at its path or above.
    #[must_use]
    pub fn hides_base(&self, path: &str) -> bool {
        let parents = path.match_indices('/').map(|(end, _)| &path[..end]);
        parents.chain([path]).any(|part| self.0.contains_key(part))
    }

    /// The names in a directory that the overlay adds or replaces.
    #[must_use]
    pub fn names_in(&self, directory: &str) -> BTreeSet<&str> {
        let skip = if directory.is_empty() { 0 } else { directory.len() + 1 };
        let written = self.below(directory).filter(|(_, change)| is_written(change));
        written.filter_map(|(path, _)| path[skip..].split('/').next()).collect()
    }

    fn has_written_below(&self, directory: &str) -> bool {
        self.below(directory).any(|(_, change)| is_written(change))
    }

    fn below(&self, directory: &str) -> impl Iterator<Item = (&String, &ChangedFile)> {
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let from = self.0.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded));
        from.take_while(move |(path, _)| path.starts_with(&prefix))
    }
}

fn is_written(change: &ChangedFile) -> bool {
    matches!(change, ChangedFile::Written { .. })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(text: &str) -> Digest {
        Digest { sha256: text.to_owned(), length: text.len() as u64 }
    }

    fn written(path: &str, base: Option<&str>) -> ChangeRecord {
        let (path, base) = (path.to_owned(), base.map(digest));
        ChangeRecord::Written { path, base, changed_since_read: false }
    }

    fn removed(path: &str) -> ChangeRecord {
        let (path, base) = (path.to_owned(), digest("old"));
        ChangeRecord::Removed { path, base, changed_since_read: true }
    }

    fn changes(records: impl IntoIterator<Item = ChangeRecord>) -> Changes {
        let mut changes = Changes::default();
        records.into_iter().for_each(|record| changes.take(record));
        changes
    }

    #[test]
    fn a_changed_file_is_the_overlays_and_every_other_is_the_folders() {
        let changes = changes([written("a", Some("x")), removed("b"), written("d/e/f", None)]);
        assert_eq!(changes.layer("a"), Layer::Upper);
        assert_eq!(changes.layer("a/x"), Layer::BelowFile);
        assert_eq!(changes.layer("b"), Layer::Removed);
        assert_eq!(changes.layer("b/x/y"), Layer::Removed);
        assert_eq!(changes.layer("d"), Layer::UpperDirectory);
        assert_eq!(changes.layer("d/e"), Layer::UpperDirectory);
        assert_eq!(changes.layer(""), Layer::UpperDirectory);
        for path in ["c", "d/g", "d/e/g", "ab", "a.txt", "d/e/f.txt"] {
            assert_eq!(changes.layer(path), Layer::Base, "{path}");
        }
    }

    #[test]
    fn a_removed_file_stays_removed_if_a_directory_takes_its_place() {
        let changes = changes([removed("a"), written("a/b", None)]);
        assert_eq!(changes.layer("a"), Layer::UpperDirectory);
        assert_eq!(changes.layer("a/c"), Layer::Removed);
        assert!(changes.hides_base("a") && changes.hides_base("a/c") && !changes.hides_base("b"));
        assert_eq!(changes.names_in("a"), ["b"].into());
        assert_eq!(changes.names_in(""), ["a"].into());
    }

    #[test]
    fn a_reverted_file_leaves_no_change() {
        let reverted = ChangeRecord::Reverted { path: "a".to_owned() };
        let changes = changes([written("a", None), reverted]);
        assert!(changes.is_empty());
        assert_eq!(changes.layer("a"), Layer::Base);
    }

    #[test]
    fn a_log_that_was_changed_by_hand_is_refused_at_its_line() {
        let good = serde_json::to_string(&written("a", None)).unwrap();
        assert_eq!(good, r#"{"change":"written","path":"a","base":null}"#);
        assert_eq!(Changes::read([good.as_str(), "{}"]), Err(2));
        assert_eq!(Changes::read([good.as_str()]).unwrap().len(), 1);
    }

    proptest! {
        /// The shortest log means the same as the one that it replaces.
        #[test]
        fn a_compacted_log_has_the_same_changes(
            log in prop::collection::vec((0_u8..3, "[ab](/[ab]){0,2}"), 0..40)
        ) {
            let record = |(kind, path): (u8, String)| match kind {
                0 => written(&path, None),
                1 => removed(&path),
                _ => ChangeRecord::Reverted { path },
            };
            let before = changes(log.into_iter().map(record));
            let lines: Vec<String> =
                before.records().iter().map(|record| serde_json::to_string(record).unwrap()).collect();
            prop_assert_eq!(Changes::read(lines.iter().map(String::as_str)).unwrap(), before);
        }
    }
}

//! The tree of events in an SDK conversation, which lets a user go back and take another branch
//! (O-120).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The parent of an event that is a root, although other events precede it.
pub const ROOT: &str = "__root__";

/// Why the tree of a log is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// The id is already in the tree.
    DuplicateId(String),
    /// No event has this id, so it cannot be a parent.
    UnknownParent(String),
    /// No event has this id.
    UnknownId(String),
    /// The parents of this event form a cycle.
    Cycle(String),
}

impl TreeError {
    /// The error as a word: `duplicate-id`, `unknown-parent`, `unknown-id` or `cycle`.
    pub const fn name(&self) -> &'static str {
        match self {
            TreeError::DuplicateId(_) => "duplicate-id",
            TreeError::UnknownParent(_) => "unknown-parent",
            TreeError::UnknownId(_) => "unknown-id",
            TreeError::Cycle(_) => "cycle",
        }
    }
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeError::DuplicateId(id) => {
                write!(f, "duplicate-id: another event of the log has the id `{id}` already")
            }
            TreeError::UnknownParent(id) => {
                write!(f, "unknown-parent: its parent `{id}` does not come before it in the log")
            }
            TreeError::UnknownId(id) => write!(f, "unknown-id: no event `{id}` is in the log"),
            TreeError::Cycle(id) => {
                write!(f, "cycle: the parents of event `{id}` lead back to it; the log is damaged")
            }
        }
    }
}

impl std::error::Error for TreeError {}

/// The events of a log with their parents, built by [`tree_of`](crate::tree_of).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTree {
    entries: Vec<(String, Option<String>)>,
    positions: BTreeMap<String, usize>,
}

impl EventTree {
    /// Appends an event of the log. Without a parent its parent is the previous event; with
    /// [`ROOT`] it has none.
    pub(crate) fn append(&mut self, id: &str, parent: Option<&str>) -> Result<(), TreeError> {
        if self.positions.contains_key(id) {
            return Err(TreeError::DuplicateId(id.to_owned()));
        }
        if let Some(parent) = parent.filter(|parent| *parent != ROOT)
            && !self.positions.contains_key(parent)
        {
            return Err(TreeError::UnknownParent(parent.to_owned()));
        }
        self.insert(id, parent);
        Ok(())
    }

    /// Inserts an event without checking its parent, for logs of other programs. Of two equal ids
    /// the first one stays.
    pub(crate) fn insert(&mut self, id: &str, parent: Option<&str>) {
        let place = self.entries.len();
        self.entries.push((id.to_owned(), parent.map(str::to_owned)));
        self.positions.entry(id.to_owned()).or_insert(place);
    }

    /// Returns the positions of the events from the root to this one; empty for `None`, the root
    /// itself.
    ///
    /// # Errors
    /// `UnknownId` if the event or one of its parents is not in the log, `Cycle` if its parents
    /// form a cycle.
    pub fn path_to_root(&self, leaf: Option<&str>) -> Result<Vec<usize>, TreeError> {
        let mut path = Vec::new();
        let mut seen = BTreeSet::new();
        let mut next = leaf;
        while let Some(id) = next {
            if !seen.insert(id) {
                return Err(TreeError::Cycle(id.to_owned()));
            }
            let place =
                *self.positions.get(id).ok_or_else(|| TreeError::UnknownId(id.to_owned()))?;
            path.push(place);
            next = self.parent_at(place);
        }
        path.reverse();
        Ok(path)
    }

    /// The effective parent: the stated one, `None` for a root, or the previous event in logs
    /// without a tree.
    fn parent_at(&self, place: usize) -> Option<&str> {
        match self.entries[place].1.as_deref() {
            Some(ROOT) => None,
            Some(parent) => Some(parent),
            None => place.checked_sub(1).map(|before| self.entries[before].0.as_str()),
        }
    }
}

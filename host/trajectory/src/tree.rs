//! The tree that the events of an SDK conversation form, so that one can go back and take another
//! branch (O-120).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The parent that says "none": the event is a root although others come before it.
pub const ROOT: &str = "__root__";

/// What is wrong with the tree of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// An event with this id is there already.
    DuplicateId(String),
    /// No event has this id, so nothing can hang on it.
    UnknownParent(String),
    /// No event has this id.
    UnknownId(String),
    /// Following parents from here comes back here.
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

/// The events of a log, each with its parent. Made by [`tree_of`](crate::tree_of).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTree {
    entries: Vec<(String, Option<String>)>,
    places: BTreeMap<String, usize>,
}

impl EventTree {
    /// Appends an event as the log states it: without a parent it hangs on the one before it, with
    /// [`ROOT`] on none.
    pub(crate) fn append(&mut self, id: &str, parent: Option<&str>) -> Result<(), TreeError> {
        if self.places.contains_key(id) {
            return Err(TreeError::DuplicateId(id.to_owned()));
        }
        if let Some(parent) = parent.filter(|parent| *parent != ROOT)
            && !self.places.contains_key(parent)
        {
            return Err(TreeError::UnknownParent(parent.to_owned()));
        }
        self.insert(id, parent);
        Ok(())
    }

    /// Takes an event without looking whether its parent is there, for logs written by others; the
    /// first of two equal ids stays.
    pub(crate) fn insert(&mut self, id: &str, parent: Option<&str>) {
        let place = self.entries.len();
        self.entries.push((id.to_owned(), parent.map(str::to_owned)));
        self.places.entry(id.to_owned()).or_insert(place);
    }

    /// Returns the places of the events from the root to this one; nothing for `None`, the root
    /// itself.
    ///
    /// # Errors
    /// `UnknownId` when the event or one of its parents is not in the log, `Cycle` when its parents
    /// lead back to it.
    pub fn path_to_root(&self, leaf: Option<&str>) -> Result<Vec<usize>, TreeError> {
        let mut path = Vec::new();
        let mut seen = BTreeSet::new();
        let mut next = leaf;
        while let Some(id) = next {
            if !seen.insert(id) {
                return Err(TreeError::Cycle(id.to_owned()));
            }
            let place = *self.places.get(id).ok_or_else(|| TreeError::UnknownId(id.to_owned()))?;
            path.push(place);
            next = self.parent_at(place);
        }
        path.reverse();
        Ok(path)
    }

    /// The parent that counts: the stated one, none for a root, and the one before for logs older
    /// than the tree.
    fn parent_at(&self, place: usize) -> Option<&str> {
        match self.entries[place].1.as_deref() {
            Some(ROOT) => None,
            Some(parent) => Some(parent),
            None => place.checked_sub(1).map(|before| self.entries[before].0.as_str()),
        }
    }
}

//! The tree that the events of an SDK conversation form, so that one can go back and take another branch (O-120).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The parent that says "none": the event is a root although others come before it.
pub const ROOT: &str = "__root__";

/// Why an event tree refused.
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
    /// This id is the name of the root and no event may have it.
    ReservedId(String),
}

impl TreeError {
    /// The error as a word: `duplicate-id`, `unknown-parent`, `unknown-id`, `cycle` or `reserved-id`.
    pub const fn name(&self) -> &'static str {
        match self {
            TreeError::DuplicateId(_) => "duplicate-id",
            TreeError::UnknownParent(_) => "unknown-parent",
            TreeError::UnknownId(_) => "unknown-id",
            TreeError::Cycle(_) => "cycle",
            TreeError::ReservedId(_) => "reserved-id",
        }
    }
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeError::DuplicateId(id) => write!(f, "duplicate-id: an event `{id}` is in the log already; give the new one its own id"),
            TreeError::UnknownParent(id) => write!(f, "unknown-parent: no event `{id}` is in the log; append the parent first"),
            TreeError::UnknownId(id) => write!(f, "unknown-id: no event `{id}` is in the log"),
            TreeError::Cycle(id) => write!(f, "cycle: the parents of event `{id}` lead back to it; the log is damaged"),
            TreeError::ReservedId(id) => write!(f, "reserved-id: `{id}` names the root and no event may have it"),
        }
    }
}

impl std::error::Error for TreeError {}

/// The ids of a log, each with its parent, and the event that the next one hangs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTree {
    entries: Vec<(String, Option<String>)>,
    places: BTreeMap<String, usize>,
    head: Option<String>,
}

impl EventTree {
    /// How many events there are, on all branches.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The event that the next one hangs on; none before the first, or after going back to the root.
    pub fn head(&self) -> Option<&str> {
        self.head.as_deref()
    }

    /// All ids with their stated parents, in log order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.entries.iter().map(|(id, parent)| (id.as_str(), parent.as_deref()))
    }

    /// Appends an event as the log states it: without parent it hangs on the one before it, with [`ROOT`] on none; it becomes the head.
    pub fn append(&mut self, id: &str, parent: Option<&str>) -> Result<(), TreeError> {
        if id == ROOT {
            return Err(TreeError::ReservedId(id.to_owned()));
        }
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

    /// Appends a new event to the head and says which parent to write with it.
    pub fn append_to_head(&mut self, id: &str) -> Result<String, TreeError> {
        let parent = self.head.clone().unwrap_or_else(|| ROOT.to_owned());
        self.append(id, Some(&parent))?;
        Ok(parent)
    }

    /// Takes an event without looking whether its parent is there, for logs written by others; the first of two equal ids stays.
    pub fn insert(&mut self, id: &str, parent: Option<&str>) {
        let place = self.entries.len();
        self.entries.push((id.to_owned(), parent.map(str::to_owned)));
        self.places.entry(id.to_owned()).or_insert(place);
        self.head = Some(id.to_owned());
    }

    /// The ids from the root to this event; nothing for none.
    pub fn path_to_root(&self, leaf: Option<&str>) -> Result<Vec<&str>, TreeError> {
        let mut path = Vec::new();
        let mut seen = BTreeSet::new();
        let mut next = leaf;
        while let Some(id) = next {
            if !seen.insert(id) {
                return Err(TreeError::Cycle(id.to_owned()));
            }
            let place = *self.places.get(id).ok_or_else(|| TreeError::UnknownId(id.to_owned()))?;
            path.push(self.entries[place].0.as_str());
            next = self.parent_at(place);
        }
        path.reverse();
        Ok(path)
    }

    /// The ids from the root to the head.
    pub fn active_branch(&self) -> Result<Vec<&str>, TreeError> {
        self.path_to_root(self.head())
    }

    /// Makes that event the head, or none, so that the next one starts a branch there.
    pub fn navigate_to(&mut self, id: Option<&str>) -> Result<(), TreeError> {
        if let Some(id) = id.filter(|id| !self.places.contains_key(*id)) {
            return Err(TreeError::UnknownId(id.to_owned()));
        }
        self.head = id.map(str::to_owned);
        Ok(())
    }

    /// A tree of its own with only the branch that leads to that event, which is its head.
    pub fn fork(&self, from: Option<&str>) -> Result<EventTree, TreeError> {
        let mut forked = EventTree::default();
        let mut parent = ROOT.to_owned();
        for id in self.path_to_root(from)? {
            forked.append(id, Some(&parent))?;
            parent = id.to_owned();
        }
        Ok(forked)
    }

    /// The parent that counts: the stated one, none for a root, and the one before for logs older than the tree.
    fn parent_at(&self, place: usize) -> Option<&str> {
        match self.entries[place].1.as_deref() {
            Some(ROOT) => None,
            Some(parent) => Some(parent),
            None => place.checked_sub(1).map(|before| self.entries[before].0.as_str()),
        }
    }
}

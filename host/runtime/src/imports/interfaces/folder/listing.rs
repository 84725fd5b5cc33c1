//! Listing a directory: its names are read once, kept in order, and handed out page by page, each
//! looked at when it is handed out. So a directory of any size costs one look at each entry, as
//! long as its names fit in what is kept; else one for each part that does.

use std::collections::BTreeSet;

use cap_std::fs::Dir;

use super::{FolderEntry, FolderFailure, GrantedFolder, entry};
use crate::imports::interfaces::path::UNFINISHED;

/// Bytes of names that one listing keeps: 100 000 of the greatest length, far more of the usual
/// one.
const KEPT: usize = 32 << 20;
/// What a name that is kept takes besides its text.
const NAME: usize = 64;

/// A directory that is being listed: the names that come next.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    names: BTreeSet<String>,
    /// The last name that was handed out, or that the listing began after.
    last: Option<String>,
    /// Names after these were left out, because they are too many to be kept.
    is_cut: bool,
    bytes: usize,
}

/// What comes next in a directory.
#[derive(Debug)]
pub(crate) struct Page {
    /// Empty only at the end.
    pub(crate) entries: Vec<FolderEntry>,
    /// Entries that were looked at for it, those that were looked at before not again.
    pub(crate) seen: u64,
    /// What is left, to go on from; none at the end.
    pub(crate) rest: Option<Listing>,
}

impl Listing {
    /// It can go on after this name: everything from there on is still to come.
    pub(crate) fn leads_on(&self, after: &str) -> bool {
        self.last.as_deref().is_some_and(|last| after >= last)
    }

    /// About what it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads the names after `after`; gives how many entries there are.
    fn read(
        dir: &Dir,
        after: Option<&str>,
        most: u64,
        kept: usize,
    ) -> Result<(Self, u64), FolderFailure> {
        let mut listing = Self { last: after.map(str::to_owned), ..Self::default() };
        let mut seen = 0;
        for item in dir.entries()? {
            seen += 1;
            if seen > most {
                return Err(FolderFailure::TooMany);
            }
            // A name that is no text cannot be told to a plugin.
            let Ok(name) = item?.file_name().into_string() else { continue };
            if !name.starts_with(UNFINISHED) && after.is_none_or(|after| name.as_str() > after) {
                listing.keep(name, kept);
            }
        }
        Ok((listing, seen))
    }

    fn keep(&mut self, name: String, kept: usize) {
        // What was left out once is beyond all that is kept.
        if self.is_cut && self.names.last().is_some_and(|last| name > *last) {
            return;
        }
        self.bytes += name.len() + NAME;
        self.names.insert(name);
        while self.bytes > kept && self.names.len() > 1 {
            self.is_cut = true;
            self.bytes -= self.names.pop_last().map_or(0, |name| name.len() + NAME);
        }
    }

    fn next(&mut self) -> Option<String> {
        let name = self.names.pop_first()?;
        self.bytes -= name.len() + NAME;
        self.last = Some(name.clone());
        Some(name)
    }
}

impl GrantedFolder {
    /// The next entries of a directory, `count` at most, in byte order of their names: those after
    /// `after`, from where `listing` stopped when it leads there. Looks at `most` entries at most.
    pub(crate) fn page(
        &self,
        rest: &str,
        listing: Option<Listing>,
        after: Option<&str>,
        count: usize,
        most: u64,
    ) -> Result<Page, FolderFailure> {
        self.page_of(rest, listing, after, (count, most, KEPT))
    }

    pub(super) fn page_of(
        &self,
        rest: &str,
        listing: Option<Listing>,
        after: Option<&str>,
        (count, most, kept): (usize, u64, usize),
    ) -> Result<Page, FolderFailure> {
        let dir = match rest {
            "" => self.dir.try_clone()?,
            rest if !self.dir.metadata(rest)?.is_dir() => return Err(FolderFailure::NotADirectory),
            rest => self.dir.open_dir(rest)?,
        };
        let listing = listing.filter(|listing| after.is_some_and(|after| listing.leads_on(after)));
        let (mut listing, mut seen) = match listing {
            Some(listing) => (listing, 0),
            None => Listing::read(&dir, after, most, kept)?,
        };
        let mut entries = Vec::new();
        while entries.len() < count {
            match listing.next() {
                Some(name) if after.is_none_or(|after| name.as_str() > after) => {
                    entries.extend(entry(&dir, &name))
                }
                Some(_) => {}
                None if listing.is_cut && entries.is_empty() => {
                    let last = listing.last.take();
                    let (more, again) =
                        Listing::read(&dir, last.as_deref(), most.saturating_sub(seen), kept)?;
                    (listing, seen) = (more, seen + again);
                }
                None => break,
            }
        }
        // Kept past its last entry: the guest learns of the end by an empty page, for which nothing
        // is read again.
        let rest = (!entries.is_empty()).then_some(listing);
        Ok(Page { entries, seen, rest })
    }
}

//! Directory listings in pages. The names are read once and kept in order; each entry is inspected
//! when its page is returned. A directory thus costs one inspection per entry, as long as its names
//! fit in memory; otherwise it is read once for each part that fits.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;

use cap_std::fs::Dir;

use super::{FolderEntry, FolderFailure, GrantedFolder, entry};
use conclave_core::permissions::paths::UNFINISHED;

/// Maximum bytes of names that one listing keeps, enough for 100 000 names of the maximum length.
pub(super) const KEPT: usize = 32 << 20;
/// Overhead of a kept name, in bytes.
const NAME: usize = 64;

/// A listing in progress: the names that come next.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    names: BTreeSet<String>,
    /// The last returned name, or the name that the listing started after.
    last: Option<String>,
    /// Whether later names were dropped, because they exceed the limit.
    is_cut: bool,
    bytes: usize,
}

/// A page of a directory.
#[derive(Debug)]
pub(crate) struct Page {
    /// Empty only at the end.
    pub(crate) entries: Vec<FolderEntry>,
    /// Number of entries that were read for this page.
    pub(crate) seen: u64,
    /// The rest of the listing; `None` at the end.
    pub(crate) rest: Option<Listing>,
}

impl Listing {
    /// Whether the listing can continue after this name.
    pub(crate) fn leads_on(&self, after: &str) -> bool {
        self.last.as_deref().is_some_and(|last| after >= last)
    }

    /// The approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads the names after `after`; also returns the number of entries.
    fn read(
        directory: &impl NamedEntries,
        after: Option<&str>,
        most: u64,
        capacity: usize,
    ) -> Result<(Self, u64), FolderFailure> {
        let mut listing = Self { last: after.map(str::to_owned), ..Self::default() };
        let mut seen = 0;
        for name in directory.names()? {
            seen += 1;
            if seen > most {
                return Err(FolderFailure::TooMany);
            }
            // Paths of plugins are UTF-8, so other names cannot be returned.
            let Ok(name) = name?.into_string() else { continue };
            if !name.starts_with(UNFINISHED) && after.is_none_or(|after| name.as_str() > after) {
                listing.keep(name, capacity);
            }
        }
        Ok((listing, seen))
    }

    fn keep(&mut self, name: String, capacity: usize) {
        // Names were dropped from the end, so a later one must be dropped too.
        if self.is_cut && self.names.last().is_some_and(|last| name > *last) {
            return;
        }
        self.bytes += name.len() + NAME;
        self.names.insert(name);
        while self.bytes > capacity && self.names.len() > 1 {
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

/// A page of a directory, in byte order of the names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRequest<'a> {
    /// The directory below the granted folder; empty for the folder itself.
    pub(crate) directory: &'a str,
    /// The name behind which the page begins; `None` for the first page.
    pub(crate) after: Option<&'a str>,
    /// The maximum number of entries.
    pub(crate) count: usize,
    /// The maximum number of entries that are read.
    pub(crate) most: u64,
}

impl GrantedFolder {
    /// Returns a page of a directory. Continues `listing` if it fits.
    pub(crate) fn page(
        &self,
        request: PageRequest<'_>,
        listing: Option<Listing>,
    ) -> Result<Page, FolderFailure> {
        self.page_of(request, listing, KEPT)
    }

    pub(super) fn page_of(
        &self,
        request: PageRequest<'_>,
        listing: Option<Listing>,
        capacity: usize,
    ) -> Result<Page, FolderFailure> {
        page(&self.directory(request.directory)?, request, listing, capacity)
    }

    /// Opens a directory for listing.
    pub(super) fn directory(&self, rest: &str) -> Result<Dir, FolderFailure> {
        Ok(match rest {
            "" => self.dir.try_clone()?,
            rest if !self.dir.metadata(rest)?.is_dir() => return Err(FolderFailure::NotADirectory),
            rest => self.dir.open_dir(rest)?,
        })
    }
}

/// A directory whose names are read at once, and whose entries are inspected later.
pub(super) trait NamedEntries {
    /// Returns the names in any order; a name may come twice.
    fn names(&self) -> Result<impl Iterator<Item = io::Result<OsString>>, FolderFailure>;
    /// The entry of a name; `None` if it is not to be listed.
    fn entry(&self, name: &str) -> Option<FolderEntry>;
}

impl NamedEntries for Dir {
    fn names(&self) -> Result<impl Iterator<Item = io::Result<OsString>>, FolderFailure> {
        Ok(self.entries()?.map(|item| item.map(|item| item.file_name())))
    }

    fn entry(&self, name: &str) -> Option<FolderEntry> {
        entry(self, name)
    }
}

/// A page of an open directory. `capacity` limits the bytes of names that are kept for the next
/// one.
pub(super) fn page(
    directory: &impl NamedEntries,
    PageRequest { after, count, most, .. }: PageRequest<'_>,
    listing: Option<Listing>,
    capacity: usize,
) -> Result<Page, FolderFailure> {
    let listing = listing.filter(|listing| after.is_some_and(|after| listing.leads_on(after)));
    let (mut listing, mut seen) = match listing {
        Some(listing) => (listing, 0),
        None => Listing::read(directory, after, most, capacity)?,
    };
    let mut entries = Vec::new();
    while entries.len() < count {
        match listing.next() {
            Some(name) if after.is_none_or(|after| name.as_str() > after) => {
                entries.extend(directory.entry(&name))
            }
            Some(_) => {}
            None if listing.is_cut && entries.is_empty() => {
                let last = listing.last.take();
                let (more, seen_more) =
                    Listing::read(directory, last.as_deref(), most.saturating_sub(seen), capacity)?;
                (listing, seen) = (more, seen + seen_more);
            }
            None => break,
        }
    }
    // Kept beyond the last entry: the guest finds the end by an empty page, which must not read
    // the directory again.
    let rest = (!entries.is_empty()).then_some(listing);
    Ok(Page { entries, seen, rest })
}

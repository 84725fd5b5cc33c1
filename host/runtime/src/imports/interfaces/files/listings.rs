//! Directories that a call is in the middle of listing. What is kept of them is bounded: past the
//! bound the one that was not used for longest is forgotten, and is read and paid for anew when the
//! guest goes on with it.

use super::GrantedPath;
use crate::imports::interfaces::folder::Listing;

/// Listings that one call has under way: one for each directory on the way down.
const LISTINGS: usize = 32;
/// Bytes of all of them.
const BYTES: usize = 64 << 20;

/// How far the listing of a directory is.
#[derive(Debug)]
pub(super) enum ListingStage {
    /// The names that come next.
    Read(Listing),
    /// What an attempt before this one has listed and paid for. The directory is read again to go
    /// on, and paid for only where it has more entries now.
    Before(PaidListing),
}

/// A listing of an attempt before this one, as its answers tell of it.
#[derive(Debug)]
pub(super) struct PaidListing {
    /// The last name that was handed out.
    last: String,
    /// Entries that were paid for.
    pub(super) seen: u64,
}

impl PaidListing {
    pub(super) fn leads_on(&self, after: Option<&str>) -> bool {
        after.is_some_and(|after| after >= self.last.as_str())
    }
}

impl ListingStage {
    fn bytes(&self) -> usize {
        match self {
            Self::Read(listing) => listing.bytes(),
            Self::Before(_) => 0,
        }
    }
}

/// The listings of a call, the one that was used last at the end.
#[derive(Debug, Default)]
pub(crate) struct Listings(Vec<(GrantedPath, ListingStage)>);

impl Listings {
    /// The listing of a directory that was begun, if there is one; it is taken away.
    pub(super) fn take(&mut self, place: &GrantedPath) -> Option<ListingStage> {
        let index = self.0.iter().position(|(other, _)| other == place)?;
        Some(self.0.remove(index).1)
    }

    pub(super) fn keep(&mut self, place: GrantedPath, listing: Listing) {
        self.add(place, ListingStage::Read(listing));
    }

    /// Takes note of a page that an attempt before this one was given after `after`: its last name,
    /// none where it was empty or an error, and the entries that were paid for it.
    pub(super) fn recall(
        &mut self,
        place: GrantedPath,
        after: Option<&str>,
        last: Option<String>,
        seen: u64,
    ) {
        let before = match self.take(&place) {
            Some(ListingStage::Before(paid)) if paid.leads_on(after) => paid.seen,
            _ => 0,
        };
        if let Some(last) = last {
            self.add(
                place,
                ListingStage::Before(PaidListing { last, seen: before.saturating_add(seen) }),
            );
        }
    }

    fn add(&mut self, place: GrantedPath, begun: ListingStage) {
        self.0.push((place, begun));
        let bytes = |listings: &[(GrantedPath, ListingStage)]| {
            listings.iter().map(|(_, begun)| begun.bytes()).sum::<usize>()
        };
        while self.0.len() > LISTINGS || (self.0.len() > 1 && bytes(&self.0) > BYTES) {
            self.0.remove(0);
        }
    }
}

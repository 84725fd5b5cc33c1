//! Directory listings in progress of one call. Their memory is bounded: above the limit the least
//! recently used one is dropped. It is read and charged again if the guest continues it.

use super::GrantedPath;
use crate::imports::folder::Listing;

/// Maximum listings in progress, one for each directory on the way down.
const LISTINGS: usize = 32;
/// Maximum bytes of all listings.
const BYTES: usize = 64 << 20;

/// The progress of a listing.
#[derive(Debug)]
pub(super) enum ListingStage {
    /// The remaining names.
    Read(Listing),
    /// A listing that an earlier attempt read and paid for. Continuing it reads the directory
    /// again, and only charges additional entries.
    Before(PaidListing),
}

/// A listing of an earlier attempt, reconstructed from its recorded pages.
#[derive(Debug)]
pub(super) struct PaidListing {
    /// The last returned name.
    last: String,
    /// Number of entries that were charged.
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

/// The listings of a call, the most recently used last.
#[derive(Debug, Default)]
pub(super) struct Listings(Vec<(GrantedPath, ListingStage)>);

impl Listings {
    /// Removes and returns the listing of a directory.
    pub(super) fn take(&mut self, place: &GrantedPath) -> Option<ListingStage> {
        let index = self.0.iter().position(|(other, _)| other == place)?;
        Some(self.0.remove(index).1)
    }

    pub(super) fn keep(&mut self, place: GrantedPath, listing: Listing) {
        self.add(place, ListingStage::Read(listing));
    }

    /// Records a replayed page that was requested after `after`: its last name, and the number of
    /// entries charged for it. `last` is `None` for an empty page or an error.
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

    fn add(&mut self, place: GrantedPath, stage: ListingStage) {
        self.0.push((place, stage));
        let bytes = |listings: &[(GrantedPath, ListingStage)]| {
            listings.iter().map(|(_, stage)| stage.bytes()).sum::<usize>()
        };
        while self.0.len() > LISTINGS || (self.0.len() > 1 && bytes(&self.0) > BYTES) {
            self.0.remove(0);
        }
    }
}

//! Directories that a call is in the middle of listing. What is kept of them is bounded: past the bound the one that was not used for
//! longest is forgotten, and is read and paid for anew when the guest goes on with it.

use super::Place;
use crate::capability::folder::Listing;

/// Listings that one call has under way: one for each directory on the way down.
const LISTINGS: usize = 32;
/// Bytes of all of them.
const BYTES: usize = 64 << 20;

/// The listings of a call, the one that was used last at the end.
#[derive(Debug, Default)]
pub(crate) struct Listings(Vec<(Place, Listing)>);

impl Listings {
    /// The listing of a directory that was begun, if there is one; it is taken away.
    pub(super) fn take(&mut self, place: &Place) -> Option<Listing> {
        let index = self.0.iter().position(|(other, _)| other == place)?;
        Some(self.0.remove(index).1)
    }

    pub(super) fn keep(&mut self, place: Place, listing: Listing) {
        self.0.push((place, listing));
        let bytes = |listings: &[(Place, Listing)]| listings.iter().map(|(_, listing)| listing.bytes()).sum::<usize>();
        while self.0.len() > LISTINGS || (self.0.len() > 1 && bytes(&self.0) > BYTES) {
            self.0.remove(0);
        }
    }
}

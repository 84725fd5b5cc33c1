//! The changes of a run in overlays. They are in the folder of its store, so a run in a database
//! has none.

use conclave_core::types::ids::RoomId;
use conclave_runtime::overlay::{self, ChangeDecision, OverlayError};
use conclave_runtime::store::StoreAddress;

/// The number of files that a run changed, for a person to apply or drop.
pub(crate) fn pending_changes(store: &StoreAddress, run: &RoomId) -> usize {
    store.folder().map_or(0, |folder| overlay::pending_changes(folder, run))
}

/// The number of those that cannot be applied as they are.
pub(crate) fn blocked_changes(store: &StoreAddress, run: &RoomId) -> usize {
    store.folder().map_or(0, |folder| overlay::blocked_changes(folder, run))
}

/// What persons decided about a run's changes, oldest first.
///
/// # Errors
/// If the decisions cannot be read.
pub(crate) fn change_decisions(
    store: &StoreAddress,
    run: &RoomId,
) -> Result<Vec<ChangeDecision>, OverlayError> {
    store.folder().map_or_else(|| Ok(Vec::new()), |folder| overlay::change_decisions(folder, run))
}

//! The sources of the SDK, from the build of this program.

mod table {
    include!(concat!(env!("OUT_DIR"), "/sdk.rs"));
}

/// The versions of all packages that this program was built with. Cargo drops those that a plugin
/// does not need.
pub(super) const LOCK: &str = table::LOCK;

/// Returns the path and the text of each file, from the root of the SDK's workspace.
pub(super) fn files() -> impl Iterator<Item = (&'static str, &'static str)> {
    table::FILES.iter().copied()
}

//! The launcher of a host that is built without `exec`, or not on Linux: it refuses every program.

use std::ffi::OsString;

use super::{LaunchFailure, ProgramLauncher, ProgramOutput, ProgramSpec, WatchedLimits};

/// Refuses, because this host is built without `exec`.
#[must_use]
pub fn run_confined(_: impl IntoIterator<Item = OsString>) -> u8 {
    2
}

/// Refuses, because this host is built without `exec`.
#[must_use]
pub fn run_supervised(_: impl IntoIterator<Item = OsString>) -> u8 {
    2
}

#[expect(clippy::unused_async, reason = "the same signature on every system")]
pub(super) async fn run(
    _: ProgramLauncher,
    _: ProgramSpec,
    _: Vec<u8>,
    _: WatchedLimits,
) -> Result<ProgramOutput, LaunchFailure> {
    let reason = "this host can confine programs on Linux only, with its feature `exec`";
    Err(LaunchFailure::Unconfined(reason.to_owned()))
}

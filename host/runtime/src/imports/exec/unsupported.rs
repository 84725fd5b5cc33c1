//! The launcher of a host that is built without `exec`, or not on Linux: it refuses every program.

use std::ffi::OsString;

use super::{
    LaunchFailure, OnListener, ProgramLauncher, ProgramOutput, ProgramSpec, ServerPipes,
    WatchedLimits,
};

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
    Err(unconfined())
}

fn unconfined() -> LaunchFailure {
    let reason = "this host can confine programs on Linux only, with its feature `exec`";
    LaunchFailure::Unconfined(reason.to_owned())
}

/// A confined server. There is none.
#[derive(Debug)]
pub enum ServerProcess {}

impl ServerProcess {
    /// Returns nothing, because there is no server.
    #[must_use]
    pub fn ended(&self) -> Option<Result<String, LaunchFailure>> {
        match *self {}
    }
}

pub(super) fn start_server(
    _: &ProgramLauncher,
    _: ProgramSpec,
    _: Option<OnListener>,
) -> Result<(ServerProcess, ServerPipes), LaunchFailure> {
    Err(unconfined())
}

/// Does nothing, because there are no servers.
pub fn stop_servers() {}

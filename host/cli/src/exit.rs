//! Exit codes. Part of the program's interface: documented in `conclave help exit-codes` and in docs/cli.md, never renumbered.

use conclave_core::outcome::Status;

/// It went well.
pub(crate) const OK: u8 = 0;
/// The task ended without what was asked for: stalled, rejected, or an internal failure.
pub(crate) const FAILED: u8 = 1;
/// The command line or the config is wrong.
pub(crate) const USAGE: u8 = 2;
/// A plugin could not be loaded, or an agent failed again and again.
pub(crate) const PLUGIN: u8 = 5;
/// A hard limit of the run ended it: turns, tokens, cost.
pub(crate) const BUDGET: u8 = 7;
/// The run took longer than `limits.run.wall`.
pub(crate) const TIMEOUT: u8 = 124;
/// Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// The table for `--help` and the docs.
pub(crate) const TABLE: &str = "\
Exit codes:
    0  it went well
    1  the task ended without an answer (stalled, rejected), or an internal failure
    2  the command line or the config is wrong
    5  a plugin could not be loaded, or an agent failed again and again
    7  a hard limit of the run ended it (turns, tokens, cost)
  124  the run took longer than limits.run.wall
  130  Ctrl-C";

/// The code for the end of a run.
pub(crate) fn of(status: Status) -> u8 {
    match status {
        status if status.is_success() => OK,
        status if status.is_budget() => BUDGET,
        Status::Timeout => TIMEOUT,
        Status::Error => PLUGIN,
        Status::Kill => INTERRUPTED,
        _ => FAILED,
    }
}

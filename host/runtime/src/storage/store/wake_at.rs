//! When workers take a run of a shared store: the column `wake_at` of its root room.

use conclave_core::types::ids::Millis;

/// When workers take a run that no host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeAt {
    /// At once.
    Now,
    /// From this time on, by the clock of the database.
    Time(Millis),
    /// Once a message for it arrives.
    Message,
    /// Once a message lifts its pause. Others wait with it.
    PauseLifted,
}

impl WakeAt {
    /// The value of the column. Those of runs that wait for a message lie behind all times.
    pub(super) fn column(self) -> i64 {
        match self {
            Self::Now => 0,
            Self::Time(at) => at.0.cast_signed().clamp(0, i64::MAX - 2),
            Self::PauseLifted => i64::MAX - 1,
            Self::Message => i64::MAX,
        }
    }
}

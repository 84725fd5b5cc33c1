//! Snapshots: a room after one of its records, as bytes. A journal keeps the newest beside its
//! records, so that a resumption folds only the records behind it. The records are the truth: a
//! snapshot that cannot be used is ignored.

use serde::{Deserialize, Serialize};

use crate::journal::recovery::Unfinished;
use crate::protocol::event::{Event, Record};
use crate::types::json_depth::{JSON_DEPTH_MAX, JsonError, from_json_within, is_deeper_than};

/// The number of records after which another snapshot is due.
pub const SNAPSHOT_EVERY: u64 = 1_000;

/// The format that this host writes and reads. It is raised when a field of a room, or of its work
/// in flight, changes its meaning. Other fields are detected without it.
pub const SNAPSHOT_FORMAT: u32 = 4;

/// The limit of nesting. A value of a record is a few levels deeper in the room.
const DEPTH_MAX: usize = JSON_DEPTH_MAX + 32;

/// The reason why a snapshot cannot be written or used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("it is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("its format is {format}; this host knows {SNAPSHOT_FORMAT}")]
    OtherFormat { format: u32 },
    #[error("it is not a room: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The room that was read has other fields than the one that was written.
    #[error("it was written by a host whose rooms have other fields")]
    OtherFields,
}

impl From<JsonError> for SnapshotError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::TooDeep => Self::TooDeep,
            JsonError::Malformed(error) => Self::Malformed(error),
        }
    }
}

/// A snapshot as JSON.
#[derive(Serialize, Deserialize)]
struct Snapshot<T> {
    format: u32,
    state: T,
}

impl Unfinished {
    /// Returns the room as the text of a snapshot. It holds the room's secret, so it is for
    /// journals only.
    ///
    /// # Errors
    /// `TooDeep` if [`from_snapshot`](Self::from_snapshot) could not read it again.
    pub fn to_snapshot(&self) -> Result<String, SnapshotError> {
        let text = serde_json::to_string(&Snapshot { format: SNAPSHOT_FORMAT, state: self })?;
        if is_deeper_than(&text, DEPTH_MAX) { Err(SnapshotError::TooDeep) } else { Ok(text) }
    }

    /// Whether this is the state that these records lead to; they begin with the room's first. A
    /// kept snapshot that differs was changed.
    ///
    /// # Errors
    /// As [`to_snapshot`](Self::to_snapshot).
    pub fn is_fold_of(
        &self,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<bool, SnapshotError> {
        // Reads of calls in flight are not in every snapshot.
        let plain = |state: &Self| {
            let in_flight = state.in_flight.clone().without_reads();
            Self::of(&state.room, &in_flight, state.history, state.next).to_snapshot()
        };
        Ok(plain(self)? == plain(&Self::fold(records))?)
    }

    /// Whether the room has the setups of its records: that with which its run began, and the
    /// effective one. `records` are those that carry a setup, in order, up to the snapshot.
    #[must_use]
    pub fn has_setups_of<'a>(&self, records: impl IntoIterator<Item = &'a Record>) -> bool {
        let (mut initial, mut effective) = (None, None);
        for record in records {
            effective = record.event.setup().or(effective);
            if !matches!(record.event, Event::Resumed { .. }) {
                initial = effective;
            }
        }
        initial == Some(self.room.begun_setup()) && effective == Some(self.room.setup())
    }

    /// Returns the room of a snapshot.
    ///
    /// # Errors
    /// `TooDeep`, `OtherFormat`, `Malformed`; `OtherFields` if the room would not be written as it
    /// was read. Its state would then miss what a host of another version had put there.
    pub fn from_snapshot(text: &str) -> Result<Self, SnapshotError> {
        // Read first, because the state of another format may not parse.
        let Snapshot { format, .. } =
            from_json_within::<Snapshot<serde::de::IgnoredAny>>(text, DEPTH_MAX)?;
        if format != SNAPSHOT_FORMAT {
            return Err(SnapshotError::OtherFormat { format });
        }
        let Snapshot { state, .. } = from_json_within::<Snapshot<Self>>(text, DEPTH_MAX)?;
        if state.to_snapshot()? == text { Ok(state) } else { Err(SnapshotError::OtherFields) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_of_another_host_is_refused_and_says_why() {
        let written = Unfinished::default().to_snapshot().expect("it is written");
        assert!(Unfinished::from_snapshot(&written).is_ok());
        let refused = |text: &str| Unfinished::from_snapshot(text).map(drop).expect_err("refused");
        let other = written.replacen("\"format\":4", "\"format\":1", 1);
        assert!(matches!(refused(&other), SnapshotError::OtherFormat { format: 1 }));
        // Another format may have any state.
        let other = "{\"format\":7,\"state\":[1]}";
        assert!(matches!(refused(other), SnapshotError::OtherFormat { format: 7 }));
        for text in ["", "{}", &written[..written.len() - 1], "{\"format\":4,\"state\":{}}"] {
            assert!(matches!(refused(text), SnapshotError::Malformed(_)), "{text}");
        }
        // A field that this host does not know, and one that it would add.
        let more = written.replacen("\"next\":0", "\"next\":0,\"mood\":3", 1);
        assert!(matches!(refused(&more), SnapshotError::OtherFields));
        let less = written.replacen("\"idle_steps\":0,", "", 1);
        assert_ne!(less, written);
        assert!(matches!(refused(&less), SnapshotError::OtherFields));
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(matches!(refused(&deep), SnapshotError::TooDeep));
    }
}

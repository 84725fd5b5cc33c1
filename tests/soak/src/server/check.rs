//! Compares what readers received with the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;

use conclave_runtime::ids::RoomId;
use conclave_runtime::store::{RunPosition, StoreAddress, StoreReader};
use serde_json::Value;

/// An event as a reader received it.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) id: String,
    /// The digest of its data.
    pub(super) digest: u64,
    pub(super) arrived_us: u64,
}

/// A record of the journal as an event.
#[derive(Clone, Debug)]
pub(super) struct Journalled {
    pub(super) id: String,
    pub(super) digest: u64,
    pub(super) at_ms: u64,
    /// The record and its room.
    pub(super) value: Value,
}

pub(super) fn digest(data: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    hasher.finish()
}

/// Reads the records of a run, as its readers should have received them.
pub(super) fn journalled(store: PathBuf, run: &str) -> Result<Vec<Journalled>, String> {
    let reader = StoreReader::open(StoreAddress::from(store)).map_err(|error| error.to_string())?;
    let records = reader.run_records(&RoomId::from(run.to_owned()), None, u64::MAX);
    let records = records.map_err(|error| error.to_string())?.into_iter();
    let event = |record: conclave_runtime::store::RunRecord| {
        let at_ms = record.record.at.0;
        let public = Arc::new(record.record).without_secret();
        let mut value = serde_json::to_value(&*public).map_err(|error| error.to_string())?;
        value["room"] = record.room.as_str().into();
        let id = record.position.to_string();
        Ok(Journalled { id, digest: digest(&value.to_string()), at_ms, value })
    };
    records.map(event).collect()
}

/// What is wrong with the events of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    pub(super) missing: usize,
    pub(super) doubled: usize,
    pub(super) disordered: usize,
    /// Events that are no records.
    pub(super) foreign: usize,
    /// Records with another content.
    pub(super) altered: usize,
}

/// Compares the events of a reader with the journal.
pub(super) fn differences(journal: &[Journalled], received: &[Received]) -> Differences {
    let known: BTreeMap<&str, u64> =
        journal.iter().map(|record| (record.id.as_str(), record.digest)).collect();
    let mut found = Differences::default();
    let mut seen = BTreeSet::new();
    let mut before: Option<RunPosition> = None;
    for event in received {
        match known.get(event.id.as_str()) {
            None => found.foreign += 1,
            Some(digest) if *digest != event.digest => found.altered += 1,
            Some(_) => {}
        }
        if !seen.insert(event.id.as_str()) {
            found.doubled += 1;
            continue;
        }
        let position = event.id.parse().ok();
        found.disordered += usize::from(position <= before);
        before = position.max(before);
    }
    found.missing = known.keys().filter(|id| !seen.contains(*id)).count();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> Journalled {
        let id = format!("0.{number}");
        Journalled { digest: digest(&id), id, at_ms: 0, value: Value::Null }
    }

    fn event(number: u64) -> Received {
        let id = format!("0.{number}");
        Received { digest: digest(&id), id, arrived_us: 0 }
    }

    #[test]
    fn each_kind_of_difference_is_found() {
        let journal: Vec<_> = [1, 2, 9, 10].map(record).into();
        let compared = |events: &[Received]| differences(&journal, events);
        let none = Differences::default();
        assert_eq!(compared(&[1, 2, 9, 10].map(event)), none);
        assert_eq!(compared(&[1, 2, 10].map(event)), Differences { missing: 1, ..none });
        assert_eq!(compared(&[1, 2, 2, 9, 10].map(event)), Differences { doubled: 1, ..none });
        assert_eq!(compared(&[1, 9, 2, 10].map(event)), Differences { disordered: 1, ..none });
        assert_eq!(compared(&[1, 2, 3, 9, 10].map(event)), Differences { foreign: 1, ..none });
        let other = Received { digest: 0, ..event(9) };
        let altered = [event(1), event(2), other, event(10)];
        assert_eq!(compared(&altered), Differences { altered: 1, ..none });
    }
}

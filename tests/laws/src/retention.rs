//! Laws of retention, and of the lists that say what it may remove.

use conclave_core::journal::pending_work::WaitKey;
use conclave_runtime::ids::{CallId, RoomId};
use conclave_runtime::outcome::Status;
use conclave_runtime::store::{Durability, Retention, RunFilter, RunOrigin, RunState};

use crate::rooms::{OpenRoom, problems, records};
use crate::{
    LawResult, TestedHost, TestedStore, ensure_equal, open, open_as_many, reader_of, store_of,
};

const ALL: Retention =
    Retention { before: None, runs: Some(0), config: None, most: None, dry: false };

fn end(host: &dyn TestedHost, run: &str) -> LawResult<OpenRoom> {
    let mut room = OpenRoom::with_records(host, run, 2)?;
    room.append_end()?;
    Ok(room)
}

/// Ended runs are removed with their child rooms and attachments, and counted. Open ones stay, and
/// the chain stays whole.
pub fn what_has_ended_is_removed_and_what_is_open_stays(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    let stored = store_of(&*host)?;
    for run in ["a", "b"] {
        let root = end(&*host, run)?;
        drop((end(&*host, &format!("{run}/1"))?, root));
    }
    let open_room = OpenRoom::with_records(&*host, "c", 3)?;
    drop(OpenRoom::with_records(&*host, "d", 1)?);
    let dry = stored.collect(&Retention { dry: true, ..ALL })?;
    let collected = stored.collect(&ALL)?;
    for collected in [dry, collected] {
        ensure_equal("the runs", &collected.runs, &["a", "b"].map(RoomId::from).to_vec())?;
        ensure_equal("the number of their records", &collected.records, &12)?;
    }
    ensure_equal("the records of a", &records(&*host, "a/1")?, &Vec::new())?;
    ensure_equal("the records of c", &records(&*host, "c")?, &open_room.records)?;
    let runs = reader_of(&*host)?.runs(&RunFilter::default())?.len();
    ensure_equal("the number of runs", &runs, &2)?;
    ensure_equal("the problems", &problems(&*host)?, &Vec::new())
}

/// A run that has ended and that another host still has open is not removed: its user may go on.
pub fn a_run_that_another_host_has_open_stays(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, 2)?;
    let mut session = end(&*hosts[0], "a")?;
    drop(end(&*hosts[0], "b")?);
    // Another append of the host, because a release has no answer.
    session.append(1)?;
    let collected = store_of(&*hosts[1])?.collect(&ALL)?;
    ensure_equal("the removed runs", &collected.runs, &vec![RoomId::from("b")])?;
    session.append(1)?;
    ensure_equal("the records", &records(&*hosts[1], "a")?, &session.records)
}

/// Each list shows a run as its records and its host left it, to every host.
pub fn runs_are_listed_in_the_state_of_their_records(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    let reader = reader_of(&*host)?;
    drop(end(&*host, "a")?);
    // Of no pool, so that no worker goes on with it.
    let journals = store_of(&*host)?.journals(Durability::Group, RunOrigin::default());
    let mut released = OpenRoom::new_in(&*journals, "b")?;
    released.append(2)?;
    drop(released);
    let mut open_room = OpenRoom::with_records(&*host, "c", 2)?;
    open_room.append_wait("user", None)?;
    let child = OpenRoom::with_records(&*host, "c/1", 1)?;
    let runs = reader.runs(&RunFilter::default())?;
    let mut states: Vec<_> =
        runs.iter().map(|run| (run.run.as_str(), run.state, run.rooms, run.records)).collect();
    states.sort_by_key(|(run, ..)| *run);
    let expected = vec![
        ("a", RunState::Ended(Status::Done), 1, 3),
        ("b", RunState::Interrupted, 1, 2),
        ("c", RunState::Running, 2, 4),
    ];
    ensure_equal("the runs", &states, &expected)?;
    let rooms = reader.rooms(&RoomId::from("c"))?;
    let rooms: Vec<_> = rooms.iter().map(|row| row.room.as_str()).collect();
    ensure_equal("the rooms", &rooms, &vec!["c", "c/1"])?;
    let waits = reader.waits(None)?;
    let waits: Vec<_> =
        waits.iter().map(|row| (row.room.as_str(), row.wait.key, row.wait.kind.as_str())).collect();
    let key = WaitKey::Call(CallId(2));
    ensure_equal("the pending work", &waits, &vec![("c", key, "user")])?;
    drop(child);
    Ok(())
}

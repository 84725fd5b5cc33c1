//! Laws of ownership: a run belongs to one host, and a host that lost it writes nothing more to it.

use std::sync::{Barrier, Mutex, PoisonError};

use conclave_core::journal::ownership::one_history;
use conclave_runtime::event::{Event, Record};
use conclave_runtime::ids::{Millis, RoomId};
use conclave_runtime::journal::AppendFailure;
use conclave_runtime::store::StoreOptions;

use crate::rooms::{OpenRoom, records};
use crate::{
    LawFailure, LawResult, TestedHost, TestedStore, ensure, ensure_equal, open, open_as_many, wait,
};

/// The number of attempts to take a run whose host has no lease. It renews its lease meanwhile.
const ATTEMPTS: usize = 20;

/// Takes a run from another host, whose lease ends, as a new host.
pub(crate) fn take_over(
    store: &dyn TestedStore,
    run: &str,
) -> LawResult<(Box<dyn TestedHost>, OpenRoom)> {
    let mut attempts = 0;
    loop {
        store.end_leases();
        // Its lease begins after the end of the others.
        let host = open(store)?;
        attempts += 1;
        match OpenRoom::reopen(&*host, run) {
            Err(_) if attempts < ATTEMPTS => {}
            taken => return Ok((host, taken?)),
        }
    }
}

/// Returns an error unless this append is answered by `Fenced`.
fn ensure_fenced(room: &mut OpenRoom) -> LawResult {
    let batch = room.next_records(1);
    let answer = room.try_append(batch, &[], None).map_err(|failure| failure.answer);
    let name = &room.room;
    ensure_equal(&format!("the answer to {name}"), &answer, &Err(AppendFailure::Fenced))
}

/// A host that lost a run is fenced in its root room and in its child rooms, and leaves no trace
/// there, even while the new host has written nothing.
pub fn a_host_that_lost_a_run_appends_to_none_of_its_rooms(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, 1)?;
    let mut root = OpenRoom::with_records(&*hosts[0], "a", 2)?;
    let mut child = OpenRoom::with_records(&*hosts[0], "a/1", 2)?;
    let (host, mut taken) = take_over(store, "a")?;
    ensure_fenced(&mut root)?;
    ensure_fenced(&mut child)?;
    ensure_equal("the root room", &records(&*host, "a")?, &taken.records)?;
    ensure_equal("the child room", &records(&*host, "a/1")?, &child.records)?;
    taken.append(2)?;
    let mut taken_child = OpenRoom::reopen(&*host, "a/1")?;
    taken_child.append(1)?;
    ensure_equal("the root room", &records(&*host, "a")?, &taken.records)?;
    ensure_equal("the child room", &records(&*host, "a/1")?, &taken_child.records)
}

/// A host that lost a run opens no child room of it.
pub fn a_host_that_lost_a_run_opens_no_child_room(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, 1)?;
    let root = OpenRoom::with_records(&*hosts[0], "a", 2)?;
    let (host, taken) = take_over(store, "a")?;
    let mut child = OpenRoom::new(&*hosts[0], "a/1")?;
    ensure_fenced(&mut child)?;
    ensure_equal("the child room", &records(&*host, "a/1")?, &Vec::new())?;
    let taken_child = OpenRoom::with_records(&*host, "a/1", 1)?;
    ensure_equal("the new child", &records(&*host, "a/1")?, &taken_child.records)?;
    drop((root, taken));
    Ok(())
}

/// Each take-over gives the run the next epoch. Its first record is `owned`, and all that follow
/// have its epoch.
pub fn a_take_over_is_the_first_record_of_the_next_epoch(store: &dyn TestedStore) -> LawResult {
    let mut hosts = open_as_many(store, 1)?;
    let mut owner = OpenRoom::with_records(&*hosts[0], "a", 2)?;
    for _ in 0..3 {
        let (host, mut taken) = take_over(store, "a")?;
        let now = taken.journal.epoch();
        ensure_equal("the epoch", &now, &(owner.journal.epoch() + 1))?;
        let (before, new) = taken.records.split_at(owner.records.len().min(taken.records.len()));
        ensure_equal("the records before it", before, &owner.records[..])?;
        let is_owned = |record: &Record| {
            record.epoch == now
                && matches!(record.event, Event::Owned { epoch, .. } if epoch == now)
        };
        ensure(new.len() == 1 && is_owned(&new[0]), || format!("{new:?} is not one `owned`"))?;
        taken.append(1)?;
        ensure_equal("the records", &records(&*host, "a")?, &taken.records)?;
        owner = taken;
        hosts.push(host);
    }
    Ok(())
}

/// The run of a host with a lease is refused to others, with its name. Its host goes on.
pub fn the_run_of_a_live_host_is_busy(store: &dyn TestedStore) -> LawResult {
    let second = open_as_many(store, 1)?;
    let options = StoreOptions { host: "machine-7".to_owned(), ..StoreOptions::default() };
    let first = store.open(&options)?;
    let mut room = OpenRoom::with_records(&*first, "a", 2)?;
    let failure = match wait(second[0].journals().reopen(&RoomId::from("a"), Millis(1_000)))? {
        Err(failure) => failure.to_string(),
        Ok(_) => return Err(LawFailure::Broken("the run of another host was taken".to_owned())),
    };
    ensure(failure.contains("machine-7"), || format!("the host is not named: {failure}"))?;
    room.append(1)?;
    ensure_equal("the records", &records(&*second[0], "a")?, &room.records)
}

/// A run whose host has released it or closed the store is free at once.
pub fn a_released_run_is_free_at_once(store: &dyn TestedStore) -> LawResult {
    let mut hosts = open_as_many(store, 3)?;
    drop(OpenRoom::with_records(&*hosts[0], "a", 2)?);
    // Another append of the host, because a release has no answer.
    drop(OpenRoom::with_records(&*hosts[0], "b", 1)?);
    OpenRoom::reopen(&*hosts[1], "a")?.append(1)?;
    let room = OpenRoom::with_records(&*hosts[0], "c", 1)?;
    // The journal holds the store open.
    drop((room, hosts.remove(0)));
    OpenRoom::reopen(&*hosts[1], "c")?.append(1)
}

/// Of hosts that take a free run at once, one has it.
pub fn of_hosts_that_take_a_run_at_once_one_has_it(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, 4)?;
    for round in 0..10 {
        let run = format!("r{round}");
        drop(OpenRoom::with_records(&*hosts[0], &run, 1)?);
        OpenRoom::with_records(&*hosts[0], &format!("other{round}"), 1)?;
        let (barrier, taken) = (Barrier::new(hosts.len()), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for host in &hosts {
                scope.spawn(|| {
                    barrier.wait();
                    if let Ok(room) = OpenRoom::reopen(&**host, &run) {
                        taken.lock().unwrap_or_else(PoisonError::into_inner).push(room);
                    }
                });
            }
        });
        let mut taken = taken.into_inner().unwrap_or_else(PoisonError::into_inner);
        ensure_equal("the number of hosts that have the run", &taken.len(), &1)?;
        taken[0].append(1)?;
    }
    Ok(())
}

/// A record of an older epoch behind `owned` is refused, or void for every reader.
pub fn a_late_record_of_an_older_epoch_has_no_effect(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, 1)?;
    let first = OpenRoom::with_records(&*hosts[0], "a", 2)?;
    let (host, mut taken) = take_over(store, "a")?;
    taken.append(1)?;
    let mut late = taken.next_records(1);
    late[0].epoch = first.journal.epoch();
    let is_refused = taken.try_append(late.clone(), &[], None).is_err();
    let read: Vec<Record> = one_history(records(&*host, "a")?).collect();
    let has_effect = read.contains(&late[0]);
    ensure(!has_effect, || format!("it has an effect, and was refused: {is_refused}"))
}

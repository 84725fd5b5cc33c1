//! Laws of appending: order, completeness, durability.

use conclave_runtime::event::Event;

use crate::rooms::{OpenRoom, records};
use crate::{LawResult, TestedStore, ensure, ensure_equal, open, open_as_many};

/// Records are read in the order in which they were appended, and each in its own room.
pub fn records_are_read_in_the_order_of_their_append(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    let mut rooms = [OpenRoom::new(&*host, "a")?, OpenRoom::new(&*host, "b")?];
    for count in [1, 3, 1, 2] {
        rooms.iter_mut().try_for_each(|room| room.append(count))?;
    }
    for room in &rooms {
        let read = records(&*host, room.room.as_str())?;
        ensure_equal("the records", &read, &room.records)?;
    }
    ensure_equal("the records of a room that is not there", &records(&*host, "c")?, &Vec::new())
}

/// A batch that does not begin with the next record, or has a gap, is refused, and none of its
/// records is stored.
pub fn a_batch_with_a_gap_is_refused_and_stores_nothing(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    for (name, first, second) in
        [("late", 1, 1), ("early", -1, -1), ("gap", 0, 1), ("twice", 0, -1)]
    {
        let mut room = OpenRoom::with_records(&*host, name, 2)?;
        let mut batch = room.next_records(2);
        for (record, by) in batch.iter_mut().zip([first, second]) {
            record.seq = record.seq.saturating_add_signed(by);
        }
        let before = room.records.clone();
        let refused = room.try_append(batch, &[], None).is_err();
        ensure(refused, || format!("the batch with {name} records was not refused"))?;
        let read = records(&*host, name)?;
        ensure_equal("the records after the refusal", &read, &before)?;
    }
    Ok(())
}

/// An acknowledged record is read after a crash of its host. The records behind it, which were not
/// acknowledged, are there in order or not at all.
pub fn what_is_acknowledged_is_read_after_a_crash(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    let mut rooms = [OpenRoom::new(&*host, "a")?, OpenRoom::new(&*host, "b")?];
    for _ in 0..10 {
        rooms.iter_mut().try_for_each(|room| room.append(2))?;
    }
    let batch = rooms[1].next_records(2);
    drop(rooms[1].send(&batch, &[], None)?);
    // The last before the crash, so that no other append stores it.
    rooms[0].append(2)?;
    store.crash(host);
    let host = open(store)?;
    for room in rooms {
        let read = records(&*host, room.room.as_str())?;
        let count = room.records.len();
        let is_whole = read.len() == count || read.len() == count + 2;
        ensure(is_whole, || format!("{count} records were acknowledged, {} read", read.len()))?;
        ensure_equal("the acknowledged records", &read[..count], &room.records[..])?;
        // The room is the crashed host's, so it is not released.
        std::mem::forget(room);
    }
    Ok(())
}

/// A room that exists is not opened as a new one.
pub fn a_room_is_opened_once(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    let room = OpenRoom::with_records(&*host, "a", 2)?;
    let opens = |when: &str| {
        let is_opened = OpenRoom::new(&*host, "a").is_ok();
        ensure(!is_opened, || format!("the room was opened as a new one while it {when}"))
    };
    opens("is in progress")?;
    let before = room.records.clone();
    drop(room);
    opens("is released")?;
    ensure_equal("the records", &records(&*host, "a")?, &before)
}

/// Of two hosts that open a room of the same name at once, one has it.
pub fn a_new_room_belongs_to_one_of_two_hosts(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, 2)?;
    let mut acknowledged = Vec::new();
    let mut rooms = Vec::new();
    for host in &hosts {
        rooms.push(OpenRoom::new(&**host, "a")?);
    }
    for (index, room) in rooms.iter_mut().enumerate() {
        let mut batch = room.next_records(1);
        if let Event::RoomOpened { opening, .. } = &mut batch[0].event {
            opening.content = Some(format!("I am {index}"));
        }
        if room.try_append(batch.clone(), &[], None).is_ok() {
            acknowledged.push(batch);
        }
    }
    ensure_equal("the number of hosts that have the room", &acknowledged.len(), &1)?;
    ensure_equal("the records", &records(&*hosts[0], "a")?, &acknowledged[0])
}

//! Laws of the audit chain: one line for each record of all rooms, in which every change is found.

use crate::rooms::{OpenRoom, problems};
use crate::{LawResult, TestedStore, change, ensure, ensure_equal, open, open_as_many, reader_of};

/// The records that several hosts append at once are one chain without gaps.
pub fn the_records_of_all_hosts_are_one_chain(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, 3)?;
    let results: LawResult = std::thread::scope(|scope| {
        let append = |(number, host)| {
            let host: &dyn crate::TestedHost = host;
            scope.spawn(move || -> LawResult {
                for run in 0..4 {
                    let mut room = OpenRoom::new(host, &format!("r{number}-{run}"))?;
                    (0..5).try_for_each(|_| room.append(1))?;
                }
                Ok(())
            })
        };
        let hosts = hosts.iter().map(|host| &**host).enumerate();
        let threads: Vec<_> = hosts.map(append).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    });
    results?;
    let reader = reader_of(&*hosts[0])?;
    let audit = reader.audit(1, 1_000)?;
    let numbers: Vec<u64> = audit.iter().map(|line| line.number).collect();
    ensure_equal("the numbers of the lines", &numbers, &(1..=60).collect())?;
    ensure_equal("the problems of the chain", &problems(&*hosts[0])?, &Vec::new())
}

/// A line or record that was changed, moved or removed by hand is found.
pub fn a_change_by_hand_is_found(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    reader_of(&*host)?;
    for room in ["a", "b"] {
        OpenRoom::with_records(&*host, room, 3)?;
    }
    drop(host);
    let problems = || problems(&*open(store)?);
    let before = problems()?;
    let swap = |table: &str| {
        ["0 WHERE number = 2", "2 WHERE number = 3", "3 WHERE number = 0"]
            .map(|rest| format!("UPDATE {table} SET number = {rest}"))
            .join("; ")
    };
    let (events, audit) = (swap("events"), swap("audit"));
    // Each with the statement that undoes it.
    for (statement, undo) in [
        (
            "UPDATE events SET principal = 'eve' WHERE number = 2",
            "UPDATE events SET principal = 'ada' WHERE number = 2",
        ),
        (
            "UPDATE events SET at = at + 1 WHERE number = 2",
            "UPDATE events SET at = at - 1 WHERE number = 2",
        ),
        (
            "UPDATE events SET body = replace(body, 'yes', 'no!') WHERE number = 2",
            "UPDATE events SET body = replace(body, 'no!', 'yes') WHERE number = 2",
        ),
        (
            "UPDATE audit SET at = at + 1 WHERE number = 2",
            "UPDATE audit SET at = at - 1 WHERE number = 2",
        ),
        (
            "UPDATE audit SET room = 'b' WHERE number = 2",
            "UPDATE audit SET room = 'a' WHERE number = 2",
        ),
        (&events, &events),
        (&audit, &audit),
        (
            "UPDATE events SET seq = 9 WHERE number = 6",
            "UPDATE events SET seq = 2 WHERE number = 6",
        ),
    ] {
        change(store, statement)?;
        let found = problems();
        let is_found = found.is_err() || found.is_ok_and(|found| found != before);
        ensure(is_found, || format!("not found: {statement}"))?;
        change(store, undo)?;
        ensure_equal(&format!("the problems after {undo}"), &problems()?, &before)?;
    }
    for statement in ["DELETE FROM events WHERE number = 3", "DELETE FROM audit WHERE number = 3"] {
        let before = problems()?;
        change(store, statement)?;
        ensure(problems()? != before, || format!("not found: {statement}"))?;
    }
    Ok(())
}

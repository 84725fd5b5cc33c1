//! Laws of the audit chains: one line for each record of all rooms, in which every change is found.

use crate::rooms::{OpenRoom, problems};
use crate::{
    LawResult, TestedHost, TestedStore, change, ensure, ensure_equal, open, open_as_many, reader_of,
};

/// Hosts that append at once do so to a chain each, without gaps, and each chain verifies.
pub fn each_host_appends_to_a_chain_of_its_own(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, 3)?;
    append_at_once(&hosts)?;
    let reader = reader_of(&*hosts[0])?;
    for chain in 1..=3 {
        let lines = reader.audit(chain, 1, 1_000)?;
        let numbers: Vec<u64> = lines.iter().map(|line| line.number).collect();
        ensure_equal("the numbers of the lines", &numbers, &(1..=20).collect())?;
        let host = |room: &str| room.chars().nth(1);
        let first = host(lines[0].room.as_str());
        let is_of_one = lines.iter().all(|line| host(line.room.as_str()) == first);
        ensure(is_of_one, || format!("several hosts wrote to chain {chain}"))?;
    }
    let checked = reader.verify(&[])?;
    ensure_equal("the number of heads", &checked.heads.len(), &3)?;
    let heads: Vec<&str> = checked.heads.iter().map(String::as_str).collect();
    ensure_equal("the problems", &reader.verify(&heads)?.problems, &checked.problems)?;
    ensure_equal("the problems of the chains", &problems(&*hosts[0])?, &Vec::new())
}

/// A host goes on with the chain of one that has ended, so that there are not more chains than hosts
/// that wrote at once.
pub fn a_chain_of_an_ended_host_is_gone_on_with(store: &dyn TestedStore) -> LawResult {
    for run in ["a", "b"] {
        let host = open(store)?;
        reader_of(&*host)?;
        OpenRoom::with_records(&*host, run, 2)?;
    }
    let host = open(store)?;
    let lines = reader_of(&*host)?.audit(1, 1, 1_000)?;
    let rooms: Vec<&str> = lines.iter().map(|line| line.room.as_str()).collect();
    ensure_equal("the rooms of the lines", &rooms, &vec!["a", "a", "b", "b"])?;
    ensure_equal("the problems of the chain", &problems(&*host)?, &Vec::new())
}

/// A line that was dropped from one of several chains or changed, and a chain that was dropped as a
/// whole, are found.
pub fn a_change_of_one_of_several_chains_is_found(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, 3)?;
    append_at_once(&hosts)?;
    let problems = || problems(&*hosts[0]);
    ensure_equal("the problems before", &problems()?, &Vec::new())?;
    // Each with the statement that undoes it.
    for (statement, undo) in [
        (
            "UPDATE audit SET at = at + 1 WHERE chain = 2 AND number = 3",
            "UPDATE audit SET at = at - 1 WHERE chain = 2 AND number = 3",
        ),
        (
            "UPDATE events SET principal = 'eve' WHERE chain = 2 AND number = 3",
            "UPDATE events SET principal = 'ada' WHERE chain = 2 AND number = 3",
        ),
        (
            "UPDATE audit SET chain = 4 WHERE chain = 3",
            "UPDATE audit SET chain = 3 WHERE chain = 4",
        ),
        (
            "UPDATE chains SET number = number + 1 WHERE chain = 2",
            "UPDATE chains SET number = number - 1 WHERE chain = 2",
        ),
    ] {
        change(store, statement)?;
        ensure(!problems()?.is_empty(), || format!("not found: {statement}"))?;
        change(store, undo)?;
        ensure_equal(&format!("the problems after {undo}"), &problems()?, &Vec::new())?;
    }
    for statement in [
        "DELETE FROM audit WHERE chain = 2 AND number = 3",
        // The newest line, with its record.
        "DELETE FROM audit WHERE chain = 3 AND number = 20; DELETE FROM events WHERE chain = 3 AND number = 20",
        "DELETE FROM audit WHERE chain = 2; DELETE FROM chains WHERE chain = 2",
    ] {
        let before = problems()?;
        change(store, statement)?;
        ensure(problems()? != before, || format!("not found: {statement}"))?;
    }
    Ok(())
}

/// Appends 20 records to rooms of each host, whose names begin with its number.
fn append_at_once(hosts: &[Box<dyn TestedHost>]) -> LawResult {
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, host) in hosts.iter().enumerate() {
            threads.push(scope.spawn(move || -> LawResult {
                for run in 0..4 {
                    let mut room = OpenRoom::new(&**host, &format!("r{number}-{run}"))?;
                    (0..5).try_for_each(|_| room.append(1))?;
                }
                Ok(())
            }));
        }
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })
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

//! Checks of what the file holds beside its records: the rows of rooms and of their pending work,
//! and the tables themselves. None of it is in the audit chain, so it is compared with what follows
//! from the records and from this host's own tables.

use std::collections::{BTreeMap, BTreeSet};

use conclave_core::inspect::room_row::RoomRowFold;
use conclave_core::journal::pending_work::WaitKey;
use conclave_core::types::usage::Spent;

use super::checks::ProblemList;
use crate::storage::store::sql::{Sql, SqlResult};
use crate::storage::store::{read, schema};

/// The columns of a room that follow from its records.
struct RoomColumns {
    status: Option<String>,
    reason: Option<String>,
    spent: String,
    totals: [i64; 3],
}

/// Reports rows that are not what the records lead to. Rooms whose records this host cannot fold are
/// left out: damaged records are reported by the checks of the chain.
pub(super) fn rows(tables: &dyn Sql, problems: &mut ProblemList) -> SqlResult<()> {
    let all = "SELECT room, status, reason, spent, turns, tokens, cost_micro_usd FROM rooms ORDER BY room";
    tables.each(all, &[], |row| {
        let room: String = row.get(0)?;
        let columns = RoomColumns {
            status: row.get(1)?,
            reason: row.get(2)?,
            spent: row.get(3)?,
            totals: [row.get(4)?, row.get(5)?, row.get(6)?],
        };
        let Ok(fold) = read::fold::<RoomRowFold>(tables, &room) else { return Ok(()) };
        if let Some(what) = columns.difference(&fold) {
            problems.add(|| {
                format!("the {what} of room {room} in the list is not what its records lead to")
            });
        }
        waits(tables, &room, &fold, problems)
    })
}

impl RoomColumns {
    /// The name of the first column that differs.
    fn difference(&self, fold: &RoomRowFold) -> Option<&'static str> {
        let (outcome, spent) = (fold.outcome(), fold.spent());
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let totals = [number(spent.turns), number(spent.tokens), number(spent.cost_micro_usd)];
        if self.status.as_deref() != outcome.map(|outcome| outcome.status.as_str()) {
            Some("state")
        } else if self.reason.as_deref() != outcome.map(|outcome| outcome.reason.as_str()) {
            Some("reason")
        } else if serde_json::from_str::<Spent>(&self.spent).ok() != Some(spent)
            || self.totals != totals
        {
            Some("usage")
        } else {
            None
        }
    }
}

/// Compares the pending work of a room. Timers are left out: a room drops them without a record.
fn waits(
    tables: &dyn Sql,
    room: &str,
    fold: &RoomRowFold,
    problems: &mut ProblemList,
) -> SqlResult<()> {
    let waits = "SELECT key, kind, target FROM waits WHERE room = ?1";
    let rows =
        tables.rows(waits, &[room.into()], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
    let rows: BTreeMap<String, (String, String)> = rows.into_iter().collect();
    let expected = fold.waits().iter().filter(|(key, _)| !matches!(key, WaitKey::Timer(_)));
    let expected: BTreeMap<String, (String, String)> = expected
        .map(|(key, work)| {
            let key = serde_json::to_string(key).unwrap_or_default();
            (key, (work.kind.clone(), work.target.clone()))
        })
        .collect();
    let keys: BTreeSet<&String> = rows.keys().chain(expected.keys()).collect();
    for key in keys.into_iter().filter(|key| rows.get(*key) != expected.get(*key)) {
        let (listed, follows) = (rows.get(key), expected.get(key));
        let word = |work: Option<&(String, String)>| match work {
            Some((kind, target)) => format!("{kind} {target}"),
            None => "nothing".to_owned(),
        };
        problems.add(|| {
            let (listed, follows) = (word(listed), word(follows));
            format!(
                "room {room} is listed as waiting for {listed} ({key}), and by its records it waits for {follows}"
            )
        });
    }
    Ok(())
}

/// Reports tables, indexes, triggers and views that are not those of this host's format.
pub(super) fn tables(tables: &dyn Sql, problems: &mut ProblemList) -> SqlResult<()> {
    let (found, expected) = (schema::objects(tables)?, schema::own_objects()?);
    let names: BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    for name in names.into_iter().filter(|name| found.get(*name) != expected.get(*name)) {
        problems.add(|| match (found.contains_key(name), expected.contains_key(name)) {
            (true, false) => format!("the file has a {name}, which no host of Conclave made"),
            (false, _) => format!("the file has no {name}"),
            (true, true) => format!("the {name} of the file is not the one of its format"),
        });
    }
    Ok(())
}

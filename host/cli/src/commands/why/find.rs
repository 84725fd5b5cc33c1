//! Resolves an address to a journal: the store or folder, the run and the room.

use std::path::{Path, PathBuf};

use conclave_core::journal::record::{ReplayedRecord, retold};
use conclave_core::protocol::event::{Event, Record};
use conclave_core::types::ids::RoomId;
use conclave_runtime::store::{RunFilter, RunRow, StoreAddress};

use super::folder::JournalFolder;
use crate::program::error::CliError;
use crate::state::stored_run::{self, ambiguous, nothing_stored};
use crate::state::stores::{OpenStores, read};
use crate::ui::show::show_path;

/// An address such as `3f2a91c0/1:17`: a run or its first digits, a child room, a record.
/// `3f2a91c0.4:17` is in the fourth call of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) run: String,
    /// The call of a client, as it follows the run's name: `.4`. Empty for a run.
    pub(super) call: String,
    /// The names of child rooms, as they follow the run's: `/1`. Empty for its first room.
    pub(super) child: String,
    pub(super) seq: Option<u64>,
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Self, CliError> {
        let wrong = || {
            CliError::usage(format!("{text:?} is not the address of an event"))
                .hint("write RUN:RECORD, such as 3f2a91c0:17, or RUN alone")
        };
        let (room, seq) = match text.rsplit_once(':') {
            Some((room, seq)) => (room, Some(seq.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let end = room.find('/').unwrap_or(room.len());
        let (call, child) = room.split_at(end);
        let (run, call) = call.split_at(call.find('.').unwrap_or(call.len()));
        let is_call = |call: &str| {
            call.strip_prefix('.')
                .is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        // The name becomes part of a file's name.
        if run.is_empty()
            || !run.chars().all(is_name)
            || !child.chars().all(|c| is_name(c) || c == '/')
            || !(call.is_empty() || is_call(call))
        {
            return Err(wrong());
        }
        Ok(Self { run: run.to_owned(), call: call.to_owned(), child: child.to_owned(), seq })
    }
}

/// A stored run.
pub(super) struct ExplainedRun {
    place: RunPlace,
    /// The run's name, with `.4` if one call of a client is meant. Empty for all calls, and for a
    /// run.
    run: String,
    call: String,
    /// The config that the run was started with; `None` if it is not known, as of an export.
    pub(super) config: Option<PathBuf>,
}

enum RunPlace {
    /// Files of JSON lines.
    Folder(JournalFolder),
    /// Runs of a store; several if they are the calls of one client.
    Store(Vec<RunRow>),
}

/// A room's journal, with the notices of each record.
pub(super) struct RoomJournal {
    pub(super) id: RoomId,
    pub(super) retold: Vec<ReplayedRecord>,
}

/// Returns the run of the address, or the newest one without an address.
pub(super) fn run(
    args: RunPlaces<'_>,
    address: Option<&Address>,
) -> Result<ExplainedRun, CliError> {
    if let Some(folder) = args.journal {
        return in_folder(&JournalFolder(folder.to_owned()), address);
    }
    let stores = OpenStores::of(args.store)?;
    let rows = stores.runs(&RunFilter::default())?;
    let name = match address {
        Some(address) => one(rows.iter().map(|row| serving_of(&row.run)), &address.run)?,
        None => rows.first().map(|row| serving_of(&row.run).to_owned()),
    };
    let Some(run) = name else {
        return Err(address.map_or_else(nothing_stored, |address| stores.unknown(&address.run)));
    };
    let call = address.map(|address| address.call.clone()).unwrap_or_default();
    let is_meant = |row: &RunRow| {
        serving_of(&row.run) == run
            && (call.is_empty() || row.run.as_str() == format!("{run}{call}"))
    };
    let mut rows: Vec<RunRow> = rows.into_iter().filter(is_meant).collect();
    if rows.is_empty() {
        return Err(stores.unknown(&format!("{run}{call}")));
    }
    // The calls of a client, in order.
    rows.sort_by_key(|row| {
        row.run.as_str().split_once('.').and_then(|(_, call)| call.parse::<u64>().ok())
    });
    let config = rows.iter().find_map(|row| row.config.clone());
    Ok(ExplainedRun { place: RunPlace::Store(rows), run, call, config })
}

/// The places in which the command line says to look for runs.
#[derive(Clone, Copy)]
pub(super) struct RunPlaces<'a> {
    pub(super) journal: Option<&'a Path>,
    pub(super) store: Option<&'a StoreAddress>,
}

fn in_folder(folder: &JournalFolder, address: Option<&Address>) -> Result<ExplainedRun, CliError> {
    let all = folder.runs();
    let none = |why: &str| {
        CliError::usage(format!("{why} in {}", show_path(&folder.0)))
            .hint("leave out --journal to read the runs of the state folder")
    };
    let run = match address {
        Some(address) => one(all.iter().map(String::as_str), &address.run)?
            .ok_or_else(|| none(&format!("no journal of the run {}", address.run)))?,
        None => all.into_iter().next().ok_or_else(|| none("no journal"))?,
    };
    let call = address.map(|address| address.call.clone()).unwrap_or_default();
    Ok(ExplainedRun { place: RunPlace::Folder(folder.clone()), run, call, config: None })
}

/// Returns the name with this prefix, or `None` if there is none.
fn one<'a>(names: impl Iterator<Item = &'a str>, begin: &str) -> Result<Option<String>, CliError> {
    let mut found: Vec<&str> = names.filter(|name| name.starts_with(begin)).collect();
    found.sort_unstable();
    found.dedup();
    // A whole name means its run, even if longer names begin with it.
    if found.len() < 2 || found.contains(&begin) {
        return Ok(found
            .first()
            .map(|_| if found.contains(&begin) { begin } else { found[0] }.to_owned()));
    }
    Err(ambiguous(begin, &found))
}

/// `3f2a91c0` for its call `3f2a91c0.4`, and any other run unchanged.
fn serving_of(run: &RoomId) -> &str {
    run.as_str().split('.').next().unwrap_or(run.as_str())
}

/// Returns the journal of one room of a run.
pub(super) fn room(run: &ExplainedRun, child: &str) -> Result<RoomJournal, CliError> {
    let name = format!("{}{}{child}", run.run, run.call);
    match &run.place {
        RunPlace::Folder(folder) => folder.room(&name).and_then(|records| journal(records, &name)),
        RunPlace::Store(rows) => {
            let row = rows
                .iter()
                .find(|row| name == row.run.as_str() || name.starts_with(&format!("{}/", row.run)));
            let row = row.ok_or_else(|| {
                CliError::usage(format!("{name} is not a call of {}; write {}.1", run.run, run.run))
            })?;
            journal(read(&row.store)?.records(&RoomId::from(name.as_str()))?, &name)
        }
    }
}

/// Returns the journals of all rooms of a run, its first one first.
pub(super) fn rooms(run: &ExplainedRun) -> Result<Vec<RoomJournal>, CliError> {
    match &run.place {
        RunPlace::Folder(folder) => folder.rooms(&format!("{}{}", run.run, run.call)),
        RunPlace::Store(rows) => {
            let mut journals = Vec::new();
            for row in rows {
                for stored in stored_run::journals(&read(&row.store)?, &row.run)? {
                    let (room, records) = stored?;
                    journals.push(journal(records, room.as_str())?);
                }
            }
            Ok(journals)
        }
    }
}

pub(super) fn journal(records: Vec<Record>, name: &str) -> Result<RoomJournal, CliError> {
    let id = records.iter().find_map(|record| match &record.event {
        Event::RoomOpened { opening, .. } => Some(opening.room.clone()),
        _ => None,
    });
    let id = id.ok_or_else(|| CliError::usage(format!("the room {name} has no journal")))?;
    Ok(RoomJournal { id, retold: retold(records) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_run_a_room_and_a_record() {
        let parts =
            |text| Address::parse(text).map(|address| (address.run, address.child, address.seq));
        assert_eq!(parts("3f2a:17").unwrap(), ("3f2a".into(), String::new(), Some(17)));
        assert_eq!(parts("3f2a/1/2:0").unwrap(), ("3f2a".into(), "/1/2".into(), Some(0)));
        assert_eq!(parts("3f2a").unwrap(), ("3f2a".into(), String::new(), None));
        let of_call = Address::parse("3f2a.12/1:4").unwrap();
        assert_eq!(
            (of_call.run.as_str(), of_call.call.as_str(), of_call.child.as_str()),
            ("3f2a", ".12", "/1")
        );
        for wrong in [
            "3f2a.:1",
            "3f2a.x:1",
            "3f2a.1.2:1",
            "3f2a/../1:1",
            ".1:1",
            "",
            ":3",
            "3f2a:",
            "3f2a:x",
            "../x:1",
            "a/..:1",
            "/1:2",
            "a b:1",
        ] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
    }
}

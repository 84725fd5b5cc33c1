//! From an address to a journal: which folder, which run, which room.

use std::fs;
use std::path::{Path, PathBuf};

use conclave_core::ids::RoomId;
use conclave_core::journal::{Retold, from_lines, retold};

use crate::error::CliError;
use crate::journals::{CONFIG_ENDING, ENDING, runs};
use crate::state_folder::journals_folder;

/// Runs that are named where several are meant.
const SHOWN: usize = 5;

/// `3f2a91c0/1:17`: a run or its first digits, a child room, a record. `3f2a91c0.4:17` is of the fourth call of a client that was served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) run: String,
    /// The call of a client that was served, as it follows the run's name: `.4`; empty for a run.
    pub(super) call: String,
    /// The names of child rooms, as they follow the run's: `/1`; empty for its first room.
    pub(super) child: String,
    pub(super) seq: Option<u64>,
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Self, CliError> {
        let wrong =
            || CliError::usage(format!("{text:?} is no event's address")).hint("write RUN:RECORD, such as 3f2a91c0:17, or RUN alone");
        let (room, seq) = match text.rsplit_once(':') {
            Some((room, seq)) => (room, Some(seq.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let end = room.find('/').unwrap_or(room.len());
        let (call, child) = room.split_at(end);
        let (run, call) = call.split_at(call.find('.').unwrap_or(call.len()));
        let is_call = |call: &str| call.strip_prefix('.').is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()));
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        // It becomes part of a file's name.
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

/// A run whose journals are kept.
#[derive(Clone, Debug)]
pub(super) struct KeptRun {
    folder: PathBuf,
    run: String,
    /// The one call that is meant, `.4`; empty where all are, and of a run.
    call: String,
    /// The config that it was started with.
    pub(super) config: Option<PathBuf>,
}

/// A room's journal with what people were told.
pub(super) struct Journal {
    pub(super) id: RoomId,
    pub(super) retold: Vec<Retold>,
}

/// The run that is meant; the newest when none is named.
pub(super) fn run(given: Option<&Path>, address: Option<&Address>) -> Result<KeptRun, CliError> {
    let folder = given.map(Path::to_owned).or_else(journals_folder);
    let folder = folder.ok_or_else(|| CliError::usage("nobody knows where journals are kept").hint("set HOME or CONCLAVE_STATE"))?;
    let none = |why: &str| {
        CliError::usage(format!("{why} in {}", folder.display()))
            .hint("`conclave run` and `conclave chat` keep journals; of a run with --journal FOLDER name the folder with --journal too")
    };
    let all = runs(&folder).unwrap_or_default();
    let Some(address) = address else {
        let (run, _) = all.into_iter().next().ok_or_else(|| none("there is no journal"))?;
        return Ok(kept(folder, run, ""));
    };
    let found: Vec<String> = match all.iter().find(|(run, _)| *run == address.run) {
        Some((run, _)) => vec![run.clone()],
        None => all.into_iter().map(|(run, _)| run).filter(|run| run.starts_with(&address.run)).collect(),
    };
    match found.as_slice() {
        [] => Err(none(&format!("there is no journal of the run {}", address.run))),
        [run] => Ok(kept(folder.clone(), run.clone(), &address.call)),
        several => {
            let shown: Vec<&str> = several.iter().take(SHOWN).map(String::as_str).collect();
            Err(CliError::usage(format!("{} runs begin with {}: {}", several.len(), address.run, shown.join(", ")))
                .hint("write more of it"))
        }
    }
}

fn kept(folder: PathBuf, run: String, call: &str) -> KeptRun {
    let config = fs::read_to_string(folder.join(format!("{run}.{CONFIG_ENDING}"))).ok().map(PathBuf::from);
    KeptRun { folder, run, call: call.to_owned(), config }
}

/// The journal of one room of a run.
pub(super) fn room(run: &KeptRun, child: &str) -> Result<Journal, CliError> {
    read(&run.folder.join(format!("{}{}{}.{ENDING}", run.run, run.call, child.replace('/', "-"))))
}

/// The journals of all rooms of a run, its first one first.
pub(super) fn rooms(run: &KeptRun) -> Result<Vec<Journal>, CliError> {
    let mut files: Vec<PathBuf> = fs::read_dir(&run.folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .map_err(|error| CliError::usage(format!("{} could not be read: {error}", run.folder.display())))?;
    let name = format!("{}{}", run.run, run.call);
    let is_meant = |stem: &str| stem.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']));
    files.retain(|file| file.extension().is_some_and(|ending| ending == ENDING) && is_meant(&stem(file)));
    // The calls of a client in their order; `3f2a.jsonl` is behind `3f2a-1.jsonl` by its letters.
    files.sort_by_cached_key(|file| {
        let stem = stem(file);
        let call = stem.split('-').next().and_then(|first| first.split_once('.')).and_then(|(_, call)| call.parse::<u64>().ok());
        (call, stem.matches('-').count(), stem)
    });
    files.iter().map(|file| read(file)).collect()
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(file: &Path) -> Result<Journal, CliError> {
    let unread = |why: String| CliError::usage(format!("{} could not be read: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| unread(error.to_string()))?;
    let records = from_lines(&text).map_err(|error| unread(error.to_string()))?;
    let id = records.iter().find_map(|record| match &record.event {
        conclave_core::event::Event::RoomOpened { opening, .. } => Some(opening.room.clone()),
        _ => None,
    });
    let id = id.ok_or_else(|| unread("it does not begin as a journal does".to_owned()))?;
    Ok(Journal { id, retold: retold(records) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_run_a_room_and_a_record() {
        let parts = |text| Address::parse(text).map(|address| (address.run, address.child, address.seq));
        assert_eq!(parts("3f2a:17").unwrap(), ("3f2a".into(), String::new(), Some(17)));
        assert_eq!(parts("3f2a/1/2:0").unwrap(), ("3f2a".into(), "/1/2".into(), Some(0)));
        assert_eq!(parts("3f2a").unwrap(), ("3f2a".into(), String::new(), None));
        let of_call = Address::parse("3f2a.12/1:4").unwrap();
        assert_eq!((of_call.run.as_str(), of_call.call.as_str(), of_call.child.as_str()), ("3f2a", ".12", "/1"));
        for wrong in
            ["3f2a.:1", "3f2a.x:1", "3f2a.1.2:1", "3f2a/../1:1", ".1:1", "", ":3", "3f2a:", "3f2a:x", "../x:1", "a/..:1", "/1:2", "a b:1"]
        {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
    }
}

//! The export of `--journal`: files of JSON lines in one folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

use conclave_core::journal::record::from_lines;
use conclave_core::protocol::event::Record;

use super::find::{RoomJournal, journal};
use crate::program::error::CliError;
use crate::ui::show::unread;

/// The extension of a journal's file.
const ENDING: &str = "jsonl";

/// The folder.
#[derive(Clone, Debug)]
pub(super) struct JournalFolder(pub(super) PathBuf);

impl JournalFolder {
    /// The runs, newest first, with each client session once. A run is as old as the file of its
    /// first room, and a session as its newest call.
    pub(super) fn runs(&self) -> Vec<String> {
        let mut found: BTreeMap<String, SystemTime> = BTreeMap::new();
        for file in self.files().unwrap_or_default() {
            let Some(call) = file_call(&file).filter(|call| stem(&file) == *call) else { continue };
            let changed = fs::metadata(&file)
                .and_then(|data| data.modified())
                .unwrap_or(SystemTime::UNIX_EPOCH);
            let run = call.split('.').next().unwrap_or(&call).to_owned();
            let newest = found.entry(run).or_insert(changed);
            *newest = changed.max(*newest);
        }
        let mut runs: Vec<(String, SystemTime)> = found.into_iter().collect();
        runs.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        runs.into_iter().map(|(run, _)| run).collect()
    }

    /// Returns the records of one room.
    pub(super) fn room(&self, name: &str) -> Result<Vec<Record>, CliError> {
        read(&self.0.join(format!("{}.{ENDING}", name.replace('/', "-"))))
    }

    /// Returns the journals of all rooms whose names have this prefix, the first room first.
    pub(super) fn rooms(&self, name: &str) -> Result<Vec<RoomJournal>, CliError> {
        let mut files = self.files().map_err(|error| unread(&self.0, error))?;
        let is_meant = |stem: &str| {
            stem.strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
        };
        files.retain(|file| is_meant(&stem(file)));
        // The calls of a client in their order: alphabetically, `3f2a.jsonl` comes after
        // `3f2a-1.jsonl`.
        files.sort_by_cached_key(|file| {
            let stem = stem(file);
            let call = stem
                .split('-')
                .next()
                .and_then(|first| first.split_once('.'))
                .and_then(|(_, call)| call.parse::<u64>().ok());
            (call, stem.matches('-').count(), stem)
        });
        files.iter().map(|file| journal(read(file)?, &file.display().to_string())).collect()
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let is_journal = |path: &PathBuf| path.extension().is_some_and(|ending| ending == ENDING);
        Ok(fs::read_dir(&self.0)?.flatten().map(|entry| entry.path()).filter(is_journal).collect())
    }
}

/// The run of a file, with the call if it is a client's: the file's name up to the first child
/// room. A run of a batch is called `RUN-batch-3`.
fn file_call(file: &Path) -> Option<String> {
    let stem = file.file_stem()?.to_str()?;
    let first = |name: &str| name.split('-').next().unwrap_or(name).to_owned();
    Some(match stem.split_once("-batch-") {
        Some((batch, rest)) => format!("{batch}-batch-{}", first(rest)),
        None => first(stem),
    })
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(file: &Path) -> Result<Vec<Record>, CliError> {
    let unread = |why: String| unread(file, why);
    let text = fs::read_to_string(file).map_err(|error| unread(error.to_string()))?;
    from_lines(&text).map_err(|error| unread(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_nested_too_deep_is_an_error_that_names_it() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("a.jsonl");
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let line = format!(
            "{{\"seq\":0,\"at\":1,\"principal\":\"x\",\"rules\":0,\"event\":\"cancelled\",\"reason\":{deep}}}\n"
        );
        fs::write(&file, line).unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains("record 0 ") && error.contains("record_too_deep"), "{error}");
    }

    #[test]
    fn a_folder_lists_each_run_and_client_once_newest_first() {
        let temp = tempfile::tempdir().unwrap();
        for (name, age) in [
            ("aa", 3),
            ("aa-1", 3),
            ("bb.1", 9),
            ("bb.2", 1),
            ("cc-batch-0", 2),
            ("cc-batch-0-1", 2),
        ] {
            let path = temp.path().join(format!("{name}.jsonl"));
            fs::write(&path, "").unwrap();
            let at = SystemTime::now() - std::time::Duration::from_secs(60 * age);
            fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
        }
        fs::write(temp.path().join("notes.txt"), "").unwrap();
        assert_eq!(JournalFolder(temp.path().to_owned()).runs(), ["bb", "cc-batch-0", "aa"]);
    }
}

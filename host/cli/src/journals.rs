//! Which journals a run keeps: in the folder of the command line, else in the user's state folder, where the newest runs stay. The runtime
//! writes them; `conclave why` reads them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fs, io};

use conclave_core::ids::RoomId;
use conclave_runtime::journal::{Journals, JsonLines, NoJournals};

use crate::show::{ODD, paint};
use crate::state_folder::{journals_folder, make_private};

/// Runs whose journals stay in the state folder.
const RUNS: usize = 200;
/// The ending of a journal's file.
pub(crate) const ENDING: &str = "jsonl";
/// The ending of the file beside a run's journal that names its config.
pub(crate) const CONFIG_ENDING: &str = "config";

/// Where the journals of a run are kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    folder: Option<PathBuf>,
}

impl Kept {
    /// In `given`; else in the state folder, unless `off`. What cannot be kept there is told on stderr and is no reason not to run.
    pub(crate) fn open(given: Option<&Path>, off: bool, room: &RoomId, config: &Path) -> Self {
        if let Some(folder) = given {
            return Self { folder: Some(folder.to_owned()) };
        }
        let Some(folder) = journals_folder().filter(|_| !off) else { return Self { folder: None } };
        match prepare(&folder, room, config) {
            Ok(()) => Self { folder: Some(folder) },
            Err(error) => {
                let what = format!("no journal is kept, so `conclave why` will know nothing of this run: {}: {error}", folder.display());
                let _ = writeln!(anstream::stderr(), "{} {what}", paint(ODD, "warning:"));
                Self { folder: None }
            }
        }
    }

    /// For the run's options.
    pub(crate) fn journals(&self) -> Arc<dyn Journals> {
        match &self.folder {
            Some(folder) => Arc::new(JsonLines::in_folder(folder)),
            None => Arc::new(NoJournals),
        }
    }

    /// Refusals of this run can be looked up later.
    pub(crate) fn is_kept(&self) -> bool {
        self.folder.is_some()
    }
}

/// Makes the folder, makes room in it, and notes which config the run is of.
fn prepare(folder: &Path, room: &RoomId, config: &Path) -> io::Result<()> {
    make_private(folder)?;
    forget_oldest(folder, RUNS.saturating_sub(1));
    let config = std::path::absolute(config)?;
    fs::write(folder.join(format!("{room}.{CONFIG_ENDING}")), config.as_os_str().as_encoded_bytes())
}

/// Removes all but the newest runs. One that cannot be removed stays; the next run tries again.
fn forget_oldest(folder: &Path, most: usize) {
    let Ok(runs) = runs(folder) else { return };
    let old: Vec<&str> = runs.iter().skip(most).map(|(run, _)| run.as_str()).collect();
    if old.is_empty() {
        return;
    }
    for file in files(folder).unwrap_or_default() {
        if file_run(&file).is_some_and(|run| old.contains(&run.as_str())) {
            let _ = fs::remove_file(&file);
        }
    }
}

/// The runs of a folder, newest first. A run is as old as the file of its first room.
///
/// # Errors
/// When the folder cannot be read.
pub(crate) fn runs(folder: &Path) -> io::Result<Vec<(String, SystemTime)>> {
    let mut runs = Vec::new();
    for file in files(folder)?.iter().filter(|file| file.extension().is_some_and(|ending| ending == ENDING)) {
        let Some(run) = file_run(file).filter(|run| file.file_stem().is_some_and(|stem| *stem == **run)) else { continue };
        let changed = fs::metadata(file).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        runs.push((run, changed));
    }
    runs.sort_by(|(one, at_one), (other, at_other)| at_other.cmp(at_one).then_with(|| one.cmp(other)));
    Ok(runs)
}

/// Journals, and what lies beside them; nothing else that somebody put there.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let ours = |path: &PathBuf| path.extension().is_some_and(|ending| ending == ENDING || ending == CONFIG_ENDING);
    Ok(fs::read_dir(folder)?.flatten().map(|entry| entry.path()).filter(ours).collect())
}

/// The run that a file belongs to: its name up to the first child room. One of a batch is called `RUN-batch-3`.
fn file_run(file: &Path) -> Option<String> {
    let stem = file.file_stem()?.to_str()?;
    let first = |name: &str| name.split('-').next().unwrap_or(name).to_owned();
    Some(match stem.split_once("-batch-") {
        Some((batch, rest)) => format!("{batch}-batch-{}", first(rest)),
        None => first(stem),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_runs_stay_with_all_their_rooms() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path();
        for (run, age) in [("aa", 3), ("bb", 1), ("cc", 2)] {
            for name in [format!("{run}.jsonl"), format!("{run}-1.jsonl"), format!("{run}.config")] {
                fs::write(folder.join(&name), "").unwrap();
                let at = SystemTime::now() - std::time::Duration::from_secs(60 * age);
                fs::File::options().write(true).open(folder.join(&name)).unwrap().set_modified(at).unwrap();
            }
        }
        fs::write(folder.join("notes.txt"), "").unwrap();
        let names = |folder: &Path| runs(folder).unwrap().into_iter().map(|(run, _)| run).collect::<Vec<_>>();
        assert_eq!(names(folder), ["bb", "cc", "aa"]);
        forget_oldest(folder, 1);
        assert_eq!(names(folder), ["bb"]);
        let mut left: Vec<String> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["bb-1.jsonl", "bb.config", "bb.jsonl", "notes.txt"]);
    }
}

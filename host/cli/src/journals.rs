//! Which journals a run keeps: in the folder of the command line, else in the user's state folder, where the newest runs stay. What serves a
//! client keeps one journal for each call, `SERVING.CALL`; a client's calls never push out a run, nor what another client did. The runtime
//! writes them; `conclave why` reads them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use std::{fs, io};

use conclave_core::ids::RoomId;
use conclave_runtime::ids::Ids;
use conclave_runtime::journal::{Journals, JsonLines, NoJournals};

use crate::show::{ODD, paint};
use crate::state_folder::{journals_folder, make_private};

/// Runs whose journals stay in the state folder.
const RUNS: usize = 200;
/// Servings of clients whose journals stay in the state folder, besides the runs.
const SERVINGS: usize = 50;
/// The newest calls of one serving that stay in the state folder.
const CALLS: u64 = 1_000;
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
        Self::in_state_folder(off, |folder| prepare(folder, room, config))
    }

    /// As `open`, for what serves a client; each call is prepared when it comes.
    pub(crate) fn open_serving(given: Option<&Path>, off: bool) -> Self {
        if let Some(folder) = given {
            return Self { folder: Some(folder.to_owned()) };
        }
        Self::in_state_folder(off, make_private)
    }

    fn in_state_folder(off: bool, prepare: impl FnOnce(&Path) -> io::Result<()>) -> Self {
        let Some(folder) = journals_folder().filter(|_| !off) else { return Self { folder: None } };
        match prepare(&folder) {
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
    write_private(&folder.join(format!("{room}.{CONFIG_ENDING}")), config.as_os_str().as_encoded_bytes())
}

/// Writes a file that its owner alone may read, as the journals are.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(bytes)
}

/// The calls of one client: runs of one serving, counted from 1.
#[derive(Debug)]
pub(crate) struct Serving {
    id: RoomId,
    /// Where what is too old is removed; none where nothing is.
    folder: Option<PathBuf>,
    config: PathBuf,
    last: AtomicU64,
}

impl Serving {
    /// Makes room in the state folder, as far as the journals are kept there.
    pub(crate) fn new(id: RoomId, kept: &Kept, is_given: bool, config: &Path) -> Self {
        let folder = kept.folder.clone().filter(|_| !is_given);
        Self { id, folder, config: config.to_owned(), last: AtomicU64::new(0) }
    }

    fn prepare(&self, folder: &Path, call: u64) {
        if call == 1 {
            forget_servings(folder, SERVINGS.saturating_sub(1));
            let config = std::path::absolute(&self.config).unwrap_or_else(|_| self.config.clone());
            let _ = fs::write(folder.join(format!("{}.{CONFIG_ENDING}", self.id)), config.as_os_str().as_encoded_bytes());
        }
        if let Some(old) = call.checked_sub(CALLS).filter(|old| *old > 0) {
            let old = format!("{}.{old}", self.id);
            remove(folder, |file| file_call(file).is_some_and(|call| call == old));
        }
    }
}

impl Ids for Serving {
    fn run(&self) -> RoomId {
        let call = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(folder) = &self.folder {
            self.prepare(folder, call);
        }
        RoomId::from(format!("{}.{call}", self.id).as_str())
    }
}

/// Removes all but the newest runs; what clients did is not counted and stays. One that cannot be removed stays; the next run tries again.
fn forget_oldest(folder: &Path, most: usize) {
    forget(folder, most, |is_serving| !is_serving);
}

/// As `forget_oldest`, of servings.
fn forget_servings(folder: &Path, most: usize) {
    forget(folder, most, |is_serving| is_serving);
}

fn forget(folder: &Path, most: usize, is_meant: impl Fn(bool) -> bool) {
    let Ok(kept) = kept(folder) else { return };
    let old: Vec<String> = kept.into_iter().filter(|kept| is_meant(kept.is_serving)).skip(most).map(|kept| kept.run).collect();
    if !old.is_empty() {
        remove(folder, |file| file_run(file).is_some_and(|run| old.contains(&run)));
    }
}

fn remove(folder: &Path, is_old: impl Fn(&Path) -> bool) {
    for file in files(folder).unwrap_or_default() {
        if is_old(&file) {
            let _ = fs::remove_file(&file);
        }
    }
}

/// A run, or a serving with all its calls.
struct KeptRun {
    run: String,
    is_serving: bool,
    changed: SystemTime,
}

/// The runs of a folder, newest first, and among them the servings of clients, each of them once. A run is as old as the file of its first
/// room, a serving as its newest call.
///
/// # Errors
/// When the folder cannot be read.
pub(crate) fn runs(folder: &Path) -> io::Result<Vec<(String, SystemTime)>> {
    Ok(kept(folder)?.into_iter().map(|kept| (kept.run, kept.changed)).collect())
}

fn kept(folder: &Path) -> io::Result<Vec<KeptRun>> {
    let mut found: BTreeMap<String, KeptRun> = BTreeMap::new();
    for file in files(folder)?.iter().filter(|file| file.extension().is_some_and(|ending| ending == ENDING)) {
        let Some(call) = file_call(file).filter(|call| file.file_stem().is_some_and(|stem| *stem == **call)) else { continue };
        let changed = fs::metadata(file).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let run = serving_of(&call).to_owned();
        let is_serving = run != call;
        let kept = found.entry(run.clone()).or_insert(KeptRun { run, is_serving, changed });
        kept.changed = kept.changed.max(changed);
    }
    let mut kept: Vec<KeptRun> = found.into_values().collect();
    kept.sort_by(|one, other| other.changed.cmp(&one.changed).then_with(|| one.run.cmp(&other.run)));
    Ok(kept)
}

/// Journals, and what lies beside them; nothing else that somebody put there.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let ours = |path: &PathBuf| path.extension().is_some_and(|ending| ending == ENDING || ending == CONFIG_ENDING);
    Ok(fs::read_dir(folder)?.flatten().map(|entry| entry.path()).filter(ours).collect())
}

/// The run or the serving that a file belongs to.
fn file_run(file: &Path) -> Option<String> {
    file_call(file).map(|call| serving_of(&call).to_owned())
}

/// `3f2a91c0` of its call `3f2a91c0.4`; another run as it is.
fn serving_of(call: &str) -> &str {
    call.split('.').next().unwrap_or(call)
}

/// The run that a file belongs to, one call where it is a client's: its name up to the first child room. One of a batch is called
/// `RUN-batch-3`.
fn file_call(file: &Path) -> Option<String> {
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
    #[cfg(unix)]
    fn what_lies_beside_a_journal_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt;

        let temp = tempfile::tempdir().unwrap();
        prepare(temp.path(), &RoomId::from("aa"), Path::new("conclave.toml")).unwrap();
        assert_eq!(fs::metadata(temp.path().join("aa.config")).unwrap().permissions().mode() & 0o777, 0o600);
    }

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

    #[test]
    fn the_calls_of_a_client_push_out_no_run_and_no_other_client() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path();
        let keep = |name: &str| fs::write(folder.join(format!("{name}.jsonl")), "").unwrap();
        ["aa", "aa-1", "cc.1"].into_iter().for_each(keep);
        let kept = Kept { folder: Some(folder.to_owned()) };
        let serving = Serving::new(RoomId::from("bb"), &kept, false, Path::new("c.toml"));
        for _ in 0..CALLS + 5 {
            let call = serving.run();
            keep(call.as_str());
            keep(&format!("{call}-1"));
        }
        let is_there = |name: &str| folder.join(format!("{name}.jsonl")).exists();
        assert!(is_there("aa") && is_there("aa-1") && is_there("cc.1"));
        assert!(!is_there("bb.5") && !is_there("bb.5-1") && is_there("bb.6") && is_there("bb.6-1") && is_there("bb.1005"));
        assert!(folder.join("bb.config").exists());
        let mut names: Vec<String> = runs(folder).unwrap().into_iter().map(|(run, _)| run).collect();
        names.sort();
        assert_eq!(names, ["aa", "bb", "cc"]);
        forget_oldest(folder, 0);
        assert!(!is_there("aa") && !is_there("aa-1") && is_there("bb.6"), "a run makes no room among servings");
        forget_servings(folder, 0);
        assert!(files(folder).unwrap().is_empty());
    }
}

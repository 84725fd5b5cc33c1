//! What a folder for writing holds, and whose turn it is to change it. A quota is on everything
//! below the folder, whoever put it there, so it is measured on the disk; between two writes of the
//! same folder the figure is kept. Folders that lie in one another, or are the same one under two
//! grants, wait for each other: nobody writes between the check and the write of another.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;

use super::FolderFailure;

/// After this long the disk is looked at again: others may write there too.
const FRESH: Duration = Duration::from_secs(2);
/// Folders within folders that are looked into.
const DEPTH: usize = 64;

/// What is below a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FolderSize {
    /// Of all files together; a file counts its whole length, holes too.
    pub(super) bytes: u64,
    /// Files, directories and whatever else has a name.
    pub(super) entries: u64,
}

/// What a folder may hold, and what it held when last seen.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) most: FolderSize,
    /// Its own, and those of every folder that overlaps; in one order everywhere, so that nobody
    /// waits in a circle.
    locks: Vec<Arc<FolderLocks>>,
    known: Mutex<Option<FolderUsage>>,
}

/// One for each open folder for writing in this process.
#[derive(Debug)]
struct FolderLocks {
    path: PathBuf,
    /// Counts the changes made by those who held it.
    changes: Mutex<u64>,
}

#[derive(Clone, Copy, Debug)]
struct FolderUsage {
    changes: u64,
    at: Instant,
    usage: FolderSize,
}

/// Every folder for writing in this process: a directory is one thing, whichever host opened it.
static LOCKS: Mutex<Vec<Weak<FolderLocks>>> = Mutex::new(Vec::new());

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// For the folder at this path, which leads through no link.
    pub(super) fn open(path: &Path, most: FolderSize) -> Self {
        let own = Arc::new(FolderLocks { path: path.to_owned(), changes: Mutex::default() });
        let mut all = held(&LOCKS);
        all.retain(|lock| lock.strong_count() > 0);
        // Whoever comes later takes the locks of those before: any two that overlap share one. The
        // list keeps its order.
        let overlap =
            |lock: &Arc<FolderLocks>| lock.path.starts_with(path) || path.starts_with(&lock.path);
        let mut locks: Vec<Arc<FolderLocks>> =
            all.iter().filter_map(Weak::upgrade).filter(overlap).collect();
        all.push(Arc::downgrade(&own));
        locks.push(own);
        Self { most, locks, known: Mutex::default() }
    }

    /// Waits until nobody else changes the folder.
    pub(super) fn turn(&self) -> FolderPermit<'_> {
        FolderPermit {
            ledger: self,
            changes: self.locks.iter().map(|lock| held(&lock.changes)).collect(),
        }
    }
}

/// The right to change a folder, until it is dropped.
pub(super) struct FolderPermit<'a> {
    ledger: &'a Ledger,
    changes: Vec<MutexGuard<'a, u64>>,
}

impl FolderPermit<'_> {
    /// What is there now.
    pub(super) fn usage(&self, dir: &Dir) -> Result<FolderSize, FolderFailure> {
        let changes = self.count();
        let known = *held(&self.ledger.known);
        if let Some(known) =
            known.filter(|known| known.changes == changes && known.at.elapsed() < FRESH)
        {
            return Ok(known.usage);
        }
        let mut usage = FolderSize::default();
        measure(dir, 0, self.ledger.most.entries, &mut usage)?;
        *held(&self.ledger.known) = Some(FolderUsage { changes, at: Instant::now(), usage });
        Ok(usage)
    }

    /// Something was changed; none: and nobody can say how much is there now.
    pub(super) fn changed(mut self, usage: Option<FolderSize>) {
        self.changes.iter_mut().for_each(|changes| **changes = changes.wrapping_add(1));
        let changes = self.count();
        let mut known = held(&self.ledger.known);
        *known = known.zip(usage).map(|(known, usage)| FolderUsage { changes, usage, ..known });
    }

    /// A file of so many bytes went away.
    pub(super) fn removed(self, bytes: u64) {
        let changes = self.count();
        let known = *held(&self.ledger.known);
        let left = |usage: FolderSize| FolderSize {
            bytes: usage.bytes.saturating_sub(bytes),
            entries: usage.entries.saturating_sub(1),
        };
        self.changed(known.filter(|known| known.changes == changes).map(|known| left(known.usage)));
    }

    fn count(&self) -> u64 {
        self.changes.iter().fold(0, |sum, changes| sum.wrapping_add(**changes))
    }
}

/// Adds up what is below a directory, and follows no link. Stops at one entry more than may be
/// there.
fn measure(
    dir: &Dir,
    depth: usize,
    most: u64,
    usage: &mut FolderSize,
) -> Result<(), FolderFailure> {
    if depth > DEPTH {
        return Err(FolderFailure::Quota(most));
    }
    for item in dir.entries()? {
        let item = item?;
        usage.entries += 1;
        if usage.entries > most {
            return Err(FolderFailure::Quota(most));
        }
        // What went away meanwhile is not there.
        let Ok(metadata) = item.metadata() else { continue };
        if metadata.is_file() {
            usage.bytes = usage.bytes.saturating_add(metadata.len());
        } else if metadata.is_dir() {
            measure(&dir.open_dir_nofollow(item.file_name())?, depth + 1, most, usage)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;

    use super::*;

    fn ledger(path: &Path) -> (Ledger, Dir) {
        let path = path.canonicalize().unwrap();
        let dir = Dir::open_ambient_dir(&path, ambient_authority()).unwrap();
        (Ledger::open(&path, FolderSize { bytes: 100, entries: 10 }), dir)
    }

    #[test]
    fn a_change_in_a_folder_is_seen_by_those_around_and_within_it_at_once() {
        let temp = tempfile::tempdir().unwrap();
        let (inner, beside) = (temp.path().join("inner"), temp.path().join("beside"));
        [&inner, &beside].iter().for_each(|path| std::fs::create_dir(path).unwrap());
        let ((outer, outer_dir), (within, within_dir)) = (ledger(temp.path()), ledger(&inner));
        let (other, other_dir) = ledger(&beside);
        assert_eq!(outer.turn().usage(&outer_dir).unwrap(), FolderSize { bytes: 0, entries: 2 });
        assert_eq!(other.turn().usage(&other_dir).unwrap(), FolderSize::default());
        // Each of these would be too fresh to look at again.
        let turn = within.turn();
        turn.usage(&within_dir).unwrap();
        std::fs::write(inner.join("a"), "12345").unwrap();
        turn.changed(Some(FolderSize { bytes: 5, entries: 1 }));
        assert_eq!(outer.turn().usage(&outer_dir).unwrap(), FolderSize { bytes: 5, entries: 3 });
        assert_eq!(within.turn().usage(&within_dir).unwrap(), FolderSize { bytes: 5, entries: 1 });
    }

    #[test]
    fn folders_that_overlap_wait_for_each_other_and_others_do_not() {
        let temp = tempfile::tempdir().unwrap();
        let (inner, beside) = (temp.path().join("inner"), temp.path().join("inner-beside"));
        [&inner, &beside].iter().for_each(|path| std::fs::create_dir(path).unwrap());
        let (within, outer, other) = (ledger(&inner).0, ledger(temp.path()).0, ledger(&beside).0);
        let shared = |one: &Ledger, two: &Ledger| {
            one.locks.iter().any(|lock| two.locks.iter().any(|with| Arc::ptr_eq(lock, with)))
        };
        assert!(shared(&within, &outer) && shared(&outer, &other));
        assert!(!shared(&within, &other), "a name that begins alike is another folder");
    }

    #[test]
    fn what_is_below_is_counted_up_to_what_may_be_there() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("a/b")).unwrap();
        std::fs::write(temp.path().join("a/b/c"), "123").unwrap();
        let dir = Dir::open_ambient_dir(temp.path(), ambient_authority()).unwrap();
        let mut usage = FolderSize::default();
        measure(&dir, 0, 3, &mut usage).unwrap();
        assert_eq!(usage, FolderSize { bytes: 3, entries: 3 });
        assert!(matches!(
            measure(&dir, 0, 2, &mut FolderSize::default()),
            Err(FolderFailure::Quota(2))
        ));
    }
}

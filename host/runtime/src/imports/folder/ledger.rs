//! Quotas and locks of writable folders. A quota counts everything below the folder, including
//! files of other programs, so it is measured on disk. The result is cached between writes.
//! Overlapping folders, and one folder under two grants, share a lock, so no write comes between
//! another's check and its write.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;

use super::FolderFailure;

/// Age at which a cached size is measured again, since other programs may write too.
const FRESH: Duration = Duration::from_secs(2);
/// Maximum depth of nested folders.
const DEPTH: usize = 64;

/// The size of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FolderSize {
    /// Bytes of all files, by their length, holes included.
    pub(super) bytes: u64,
    /// Number of files, directories and other entries.
    pub(super) entries: u64,
}

/// The quota of a folder, and its size when last measured.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) most: FolderSize,
    /// Its own lock and those of all overlapping folders, in one global order that prevents
    /// deadlocks.
    locks: Vec<Arc<FolderLocks>>,
    known: Mutex<Option<FolderUsage>>,
}

/// The lock of one open writable folder in this process.
#[derive(Debug)]
struct FolderLocks {
    path: PathBuf,
    /// Number of changes made under this lock.
    changes: Mutex<u64>,
}

#[derive(Clone, Copy, Debug)]
struct FolderUsage {
    changes: u64,
    at: Instant,
    usage: FolderSize,
}

/// All writable folders of this process. They are global because several hosts may open one
/// directory.
static LOCKS: Mutex<Vec<Weak<FolderLocks>>> = Mutex::new(Vec::new());

fn lock_data<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// The ledger of the folder at this path, which must be canonical.
    pub(super) fn open(path: &Path, most: FolderSize) -> Self {
        let own = Arc::new(FolderLocks { path: path.to_owned(), changes: Mutex::default() });
        // Held until the new lock is listed, so that two overlapping ledgers cannot miss each
        // other.
        let mut all = lock_data(&LOCKS);
        all.retain(|lock| lock.strong_count() > 0);
        // A later ledger takes the locks of all earlier ones that it overlaps, so any two share
        // one. The list keeps its order, so all of them lock in the same order.
        let overlap =
            |lock: &Arc<FolderLocks>| lock.path.starts_with(path) || path.starts_with(&lock.path);
        let mut locks: Vec<Arc<FolderLocks>> =
            all.iter().filter_map(Weak::upgrade).filter(overlap).collect();
        all.push(Arc::downgrade(&own));
        locks.push(own);
        Self { most, locks, known: Mutex::default() }
    }

    /// Waits for exclusive permission to change the folder.
    pub(super) fn turn(&self) -> FolderPermit<'_> {
        FolderPermit {
            ledger: self,
            changes: self.locks.iter().map(|lock| lock_data(&lock.changes)).collect(),
        }
    }
}

/// Permission to change a folder, held until it is dropped.
pub(super) struct FolderPermit<'a> {
    ledger: &'a Ledger,
    changes: Vec<MutexGuard<'a, u64>>,
}

impl FolderPermit<'_> {
    /// Returns the current size of the folder.
    pub(super) fn usage(&self, dir: &Dir) -> Result<FolderSize, FolderFailure> {
        let changes = self.count();
        let known = *lock_data(&self.ledger.known);
        if let Some(known) =
            known.filter(|known| known.changes == changes && known.at.elapsed() < FRESH)
        {
            return Ok(known.usage);
        }
        let mut usage = FolderSize::default();
        measure(dir, 0, self.ledger.most.entries, &mut usage)?;
        *lock_data(&self.ledger.known) = Some(FolderUsage { changes, at: Instant::now(), usage });
        Ok(usage)
    }

    /// Records a change. `usage` is the new size; `None` if it is unknown.
    pub(super) fn changed(mut self, usage: Option<FolderSize>) {
        self.changes.iter_mut().for_each(|changes| **changes = changes.wrapping_add(1));
        let changes = self.count();
        let mut known = lock_data(&self.ledger.known);
        *known = known.zip(usage).map(|(known, usage)| FolderUsage { changes, usage, ..known });
    }

    /// Records the removal of a file of so many bytes.
    pub(super) fn removed(self, bytes: u64) {
        // Read before `changed` counts this removal: a cached size is valid only for the current
        // count.
        let changes = self.count();
        let known = *lock_data(&self.ledger.known);
        let remaining = |usage: FolderSize| FolderSize {
            bytes: usage.bytes.saturating_sub(bytes),
            entries: usage.entries.saturating_sub(1),
        };
        self.changed(
            known.filter(|known| known.changes == changes).map(|known| remaining(known.usage)),
        );
    }

    fn count(&self) -> u64 {
        self.changes.iter().fold(0, |sum, changes| sum.wrapping_add(**changes))
    }
}

/// Adds up the size of everything below a directory without following links. Fails at the first
/// entry above the quota.
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
        // Counted before the entry is inspected, so that a huge folder costs no more than the
        // quota.
        if usage.entries > most {
            return Err(FolderFailure::Quota(most));
        }
        // The entry was removed meanwhile.
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
        // The cached sizes would be fresh enough if the shared count did not invalidate them.
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

//! Compiled components on disk. Loading one runs machine code from a file, so only entries of this
//! host are accepted. Each carries a MAC under a private key, in a folder that other users cannot
//! write.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::checked_code::CheckedCode;
use crate::support::durable_file::sync_folder;

/// The cache folder cannot be trusted with compiled code. The host then works without a cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A file or folder of the cache cannot be read or written.
    #[error("the cache in {} cannot be used: {cause}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The folder or the key is not protected from other users.
    #[error("the cache in {} cannot be used: {problem}. {help}", path.display())]
    Unsafe {
        /// The file or folder with the problem.
        path: PathBuf,
        /// The problem, for display.
        problem: &'static str,
        /// The remedy, as a sentence for display.
        help: &'static str,
    },
    /// The operating system gives no randomness for the key; the text is its reason.
    #[error("the cache needs a random key, and the system gives none: {0}")]
    NoRandomness(String),
}

/// A cache of compiled components.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    key: [u8; KEY],
}

/// The result of a lookup.
#[derive(Debug)]
pub(crate) enum Lookup {
    Hit(CheckedCode),
    /// No entry, or an incomplete one, which was deleted.
    Miss,
    /// An entry that this host did not write. It was deleted.
    Tampered,
}

/// The classification of an entry.
enum CacheEntry {
    Code(CheckedCode),
    /// Shorter than its header says, as a crash leaves it, or of another format version.
    Incomplete,
    Foreign,
}

const KEY: usize = 32;
const KEY_FILE: &str = "key";
/// Prefix of every entry, in every format version; two digits follow.
const FAMILY: &[u8; 6] = b"ccwasm";
const MAGIC: &[u8; 8] = b"ccwasm03";
/// Bytes of the length field, after the magic.
const LENGTH: usize = 8;
const MAC: usize = 32;
const HEADER: usize = MAGIC.len() + LENGTH + MAC;
/// Maximum size of all entries in bytes. Above it, the least recently used ones are removed.
const KEPT: u64 = 1 << 30;
/// Age from which a temporary file counts as abandoned.
const STALE: Duration = Duration::from_secs(60 * 60);

impl Cache {
    /// Opens the cache in a folder, which is created if it is missing.
    ///
    /// # Errors
    /// `Unsafe` if another user owns the folder or the key, or can change them; `Io` if they cannot
    /// be created or read.
    pub fn open(folder: &Path) -> Result<Self, CacheError> {
        let failed = |cause| CacheError::Io { path: folder.to_owned(), cause };
        private::make_folder(folder).map_err(failed)?;
        // Also a folder that was there before: another user may have made it.
        private::check(
            folder,
            &fs::symlink_metadata(folder).map_err(failed)?,
            private::EntryKind::Folder,
        )?;
        let key = read_or_make_key(folder)?;
        Ok(Self { folder: folder.to_owned(), key })
    }

    /// The entry of this name.
    pub(crate) fn get(&self, name: &str) -> Lookup {
        let path = self.path(name);
        let Ok(file) = File::open(&path) else { return Lookup::Miss };
        let Ok(entry) = self.read(name, &file) else { return Lookup::Miss };
        match entry {
            CacheEntry::Code(code) => {
                // Marks the entry as recently used. If that fails, it is only evicted a little
                // earlier.
                let _ = file.set_modified(SystemTime::now());
                Lookup::Hit(code)
            }
            // If the removal fails, the next lookup refuses the entry again.
            CacheEntry::Incomplete => {
                let _ = fs::remove_file(path);
                Lookup::Miss
            }
            CacheEntry::Foreign => {
                let _ = fs::remove_file(path);
                Lookup::Tampered
            }
        }
    }

    /// Stores code under a name, atomically: readers see the old entry or the new one, even after a
    /// power cut.
    pub(crate) fn put(&self, name: &str, code: &[u8]) -> Result<(), CacheError> {
        let path = self.path(name);
        let failed = |cause| CacheError::Io { path: path.clone(), cause };
        let mut entry = Vec::with_capacity(HEADER + code.len());
        entry.extend_from_slice(MAGIC);
        entry.extend_from_slice(&(code.len() as u64).to_le_bytes());
        entry.extend_from_slice(self.mac(name).update(code).finalize().as_bytes());
        entry.extend_from_slice(code);
        // In the same folder: only within one file system is a rename atomic.
        let temporary = temporary(&self.folder)?;
        // Bytes first, then the name, then the folder: a power cut leaves a whole entry or none.
        let written = write_synced(&temporary, &entry).and_then(|()| fs::rename(&temporary, &path));
        let written = written.and_then(|()| sync_folder(&self.folder));
        written.map_err(|cause| {
            let _ = fs::remove_file(&temporary);
            failed(cause)
        })?;
        self.trim(KEPT, &path);
        Ok(())
    }

    /// Removes the least recently used entries until the rest fits in `most` bytes; the entry just
    /// `written` stays. A failed removal is retried with the next `put`.
    fn trim(&self, most: u64, written: &Path) {
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let (path, Ok(metadata)) = (entry.path(), entry.metadata()) else { continue };
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("cwasm") => entries.push((used, metadata.len(), path)),
                // A younger one may still be written by another host.
                Some("tmp") if used.elapsed().is_ok_and(|age| age > STALE) => {
                    drop(fs::remove_file(path))
                }
                _ => {}
            }
        }
        let mut total: u64 = entries.iter().map(|(_, length, _)| length).sum();
        entries.sort();
        for (_, length, path) in entries.into_iter().filter(|(_, _, path)| path != written) {
            if total <= most {
                return;
            }
            if fs::remove_file(path).is_ok() {
                total -= length;
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.cwasm"))
    }

    fn read(&self, name: &str, file: &File) -> io::Result<CacheEntry> {
        let mut head = Vec::with_capacity(HEADER);
        file.take(HEADER as u64).read_to_end(&mut head)?;
        let is_of_family = head.starts_with(FAMILY) || FAMILY.starts_with(&head);
        // After a crash, a file whose length reached the disk before its bytes consists of zeros.
        if is_blank(&head) || (is_of_family && !head.starts_with(MAGIC)) {
            return Ok(CacheEntry::Incomplete);
        }
        if head.len() < HEADER {
            return Ok(if is_of_family { CacheEntry::Incomplete } else { CacheEntry::Foreign });
        }
        let (expected, found) = head[MAGIC.len()..].split_at(LENGTH);
        let expected = expected.try_into().map_or(0, u64::from_le_bytes);
        let mut mac = self.mac(name);
        let (code, length) = CheckedCode::copy(file, |bytes| {
            mac.update(bytes);
        })?;
        // In constant time.
        let is_own = mac.finalize() == *found;
        Ok(match is_of_family && is_own {
            true if length == expected => CacheEntry::Code(code),
            _ if is_of_family && length < expected => CacheEntry::Incomplete,
            _ => CacheEntry::Foreign,
        })
    }

    /// The MAC of an entry without its code.
    fn mac(&self, name: &str) -> blake3::Hasher {
        let mut mac = blake3::Hasher::new_keyed(&self.key);
        // It covers the name, so that no entry can replace another.
        mac.update(&(name.len() as u64).to_le_bytes());
        mac.update(name.as_bytes());
        mac
    }
}

fn read_or_make_key(folder: &Path) -> Result<[u8; KEY], CacheError> {
    let path = folder.join(KEY_FILE);
    let failed = |cause| CacheError::Io { path: path.clone(), cause };
    match read_key(&path) {
        Err(CacheError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {}
        Err(CacheError::Io { cause, .. }) if is_torn(&cause) => put_aside(folder, &path)?,
        read => return read,
    }
    let temporary = temporary(folder)?;
    random().and_then(|key| write_synced(&temporary, &key)).map_err(failed)?;
    // A hard link does not replace a file: if another host made a key meanwhile, both use that one.
    let linked = fs::hard_link(&temporary, &path);
    let _ = fs::remove_file(&temporary);
    match linked.and_then(|()| sync_folder(folder)) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => Err(failed(cause)),
        _ => read_key(&path),
    }
}

/// Removes an incomplete key and every entry, since the key that authenticates them is lost.
fn put_aside(folder: &Path, path: &Path) -> Result<(), CacheError> {
    let moved = temporary(folder)?;
    match fs::rename(path, &moved) {
        // Another host has removed it.
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed.map_err(|cause| CacheError::Io { path: path.to_owned(), cause })?,
    }
    if read_key(&moved).is_ok() {
        // Another host has written a complete key meanwhile, so it goes back.
        let _ = fs::hard_link(&moved, path);
    } else {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "cwasm") {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
    let _ = fs::remove_file(moved);
    Ok(())
}

/// Reads the key. A key that is too short, or all zeros, is [torn](is_torn).
fn read_key(path: &Path) -> Result<[u8; KEY], CacheError> {
    let failed = |cause| CacheError::Io { path: path.to_owned(), cause };
    let metadata = fs::symlink_metadata(path).map_err(failed)?;
    private::check(path, &metadata, private::EntryKind::Key)?;
    let mut key = [0; KEY];
    let mut file = File::open(path).map_err(failed)?;
    file.read_exact(&mut key).map_err(failed)?;
    if is_blank(&key) {
        return Err(failed(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(key)
}

fn is_torn(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::UnexpectedEof
}

/// Whether the bytes begin with zeros alone.
fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().take(MAGIC.len()).all(|byte| *byte == 0)
}

/// Creates a private file and syncs its bytes, before anything is named after it.
fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = private::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn temporary(folder: &Path) -> Result<PathBuf, CacheError> {
    let bytes = random().map_err(|error| CacheError::NoRandomness(error.to_string()))?;
    let name: String = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(folder.join(format!("{name}.tmp")))
}

fn random() -> io::Result<[u8; KEY]> {
    let mut bytes = [0; KEY];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// Files that only their owner can read or write.
#[cfg(unix)]
mod private {
    use std::fs::{DirBuilder, File, Metadata, OpenOptions};
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
    use std::path::Path;

    use super::CacheError;

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) enum EntryKind {
        Folder,
        Key,
    }

    pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)
    }

    pub(super) fn create(path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }

    pub(super) fn check(
        path: &Path,
        metadata: &Metadata,
        kind: EntryKind,
    ) -> Result<(), CacheError> {
        let (fits, forbidden) = match kind {
            EntryKind::Folder => (metadata.is_dir(), 0o022),
            EntryKind::Key => (metadata.is_file(), 0o077),
        };
        let problem = if !fits {
            "something else is in its place"
        } else if metadata.uid() != rustix::process::geteuid().as_raw() {
            "it belongs to another user"
        } else if metadata.mode() & forbidden != 0 {
            "others may change or read it"
        } else {
            return Ok(());
        };
        let help = match kind {
            EntryKind::Folder => "Make it a folder of your own with mode 700, or delete it.",
            EntryKind::Key => "Delete the cache's folder: it is made again.",
        };
        Err(CacheError::Unsafe { path: path.to_owned(), problem, help })
    }
}

/// Without a portable check of file permissions, the host trusts no cache here.
#[cfg(not(unix))]
mod private {
    use std::fs::{File, Metadata};
    use std::io;
    use std::path::Path;

    use super::CacheError;

    #[derive(Clone, Copy)]
    pub(super) enum EntryKind {
        Folder,
        Key,
    }

    pub(super) fn make_folder(_: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn create(_: &Path) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn check(_: &Path, _: &Metadata, _: EntryKind) -> Result<(), CacheError> {
        Ok(())
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    fn cache() -> (TempDir, Cache) {
        let temp = tempfile::tempdir().unwrap();
        let cache = Cache::open(&temp.path().join("state/cache")).unwrap();
        (temp, cache)
    }

    #[derive(Debug, PartialEq)]
    enum Found {
        Hit(Vec<u8>),
        Miss,
        Tampered,
    }

    fn get(cache: &Cache, name: &str) -> Found {
        match cache.get(name) {
            Lookup::Hit(CheckedCode::Bytes(bytes)) => Found::Hit(bytes),
            Lookup::Hit(code) => Found::Hit(fs::read(code.path().unwrap()).unwrap()),
            Lookup::Miss => Found::Miss,
            Lookup::Tampered => Found::Tampered,
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn an_entry_comes_back_even_after_the_cache_is_opened_again() {
        let (_temp, cache) = cache();
        cache.put("a", b"code").unwrap();
        let reopened = Cache::open(&cache.folder).unwrap();
        assert_eq!(get(&reopened, "a"), Found::Hit(b"code".to_vec()));
        assert_eq!(get(&reopened, "b"), Found::Miss);
    }

    #[test]
    fn what_was_used_longest_ago_goes_when_there_is_too_much() {
        let (_temp, cache) = cache();
        let ago = |seconds: u64| SystemTime::now() - Duration::from_secs(seconds);
        let used =
            |path: &Path, when: SystemTime| File::open(path).unwrap().set_modified(when).unwrap();
        for (name, seconds) in [("a", 400), ("b", 300), ("c", 200)] {
            cache.put(name, &[0; 100]).unwrap();
            used(&cache.path(name), ago(seconds));
        }
        let (stale, recent) = (cache.folder.join("0.tmp"), cache.folder.join("1.tmp"));
        for file in [&stale, &recent] {
            fs::write(file, b"half").unwrap();
        }
        used(&stale, ago(4_000));
        // The lookup makes this the most recently used entry.
        assert!(matches!(get(&cache, "a"), Found::Hit(_)));
        cache.trim(300, &cache.path("c"));
        let exist = |names: [&str; 3]| names.map(|name| cache.path(name).exists());
        assert_eq!(exist(["a", "b", "c"]), [true, false, true]);
        assert_eq!(
            (stale.exists(), recent.exists()),
            (false, true),
            "another host may still write it"
        );
        cache.trim(0, &cache.path("c"));
        assert_eq!(exist(["a", "b", "c"]), [false, false, true], "what was just written stays");
        assert!(cache.folder.join(KEY_FILE).exists());
    }

    #[test]
    fn folder_and_files_are_private() {
        let (_temp, cache) = cache();
        cache.put("a", b"code").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&cache.folder), 0o700);
        assert_eq!(mode(&cache.folder.join(KEY_FILE)), 0o600);
        assert_eq!(mode(&cache.path("a")), 0o600);
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 2, "nothing temporary is left");
    }

    #[test]
    fn any_changed_byte_is_noticed_and_the_entry_deleted() {
        let (_temp, cache) = cache();
        cache.put("a", b"code").unwrap();
        let original = fs::read(cache.path("a")).unwrap();
        for at in 0..original.len() {
            let mut changed = original.clone();
            changed[at] ^= 1;
            fs::write(cache.path("a"), changed).unwrap();
            // A changed format or length looks like another version, or like a crash.
            let is_harmless = (FAMILY.len()..MAGIC.len()).contains(&at)
                || (MAGIC.len()..MAGIC.len() + LENGTH).contains(&at);
            let found = get(&cache, "a");
            assert!(
                found == Found::Tampered || (is_harmless && found == Found::Miss),
                "byte {at}: {found:?}"
            );
            assert_eq!(get(&cache, "a"), Found::Miss, "it was deleted");
        }
    }

    #[test]
    fn an_entry_that_was_not_written_to_its_end_is_missing_and_no_alarm() {
        let (_temp, cache) = cache();
        cache.put("a", b"code").unwrap();
        let original = fs::read(cache.path("a")).unwrap();
        for length in 0..original.len() {
            let zeros = vec![0; length];
            for cut in [&original[..length], &zeros] {
                fs::write(cache.path("a"), cut).unwrap();
                assert_eq!(get(&cache, "a"), Found::Miss, "{length} bytes");
                assert!(!cache.path("a").exists(), "it was deleted");
                cache.put("a", b"again").unwrap();
                assert_eq!(get(&cache, "a"), Found::Hit(b"again".to_vec()));
            }
        }
        let longer = [&original[..], b"more"].concat();
        fs::write(cache.path("a"), longer).unwrap();
        assert_eq!(get(&cache, "a"), Found::Tampered, "no crash makes an entry longer");
    }

    #[test]
    fn a_torn_key_is_replaced_and_the_entries_are_made_again() {
        let key = [7; KEY];
        let cuts = (0..KEY).map(|length| key[..length].to_vec()).chain([vec![0; KEY]]);
        for torn in cuts {
            let (_temp, cache) = cache();
            cache.put("a", b"code").unwrap();
            fs::write(cache.folder.join(KEY_FILE), &torn).unwrap();
            let reopened = Cache::open(&cache.folder).unwrap();
            assert_eq!(
                get(&reopened, "a"),
                Found::Miss,
                "no alarm about an entry of the lost key; key of {} bytes",
                torn.len()
            );
            reopened.put("a", b"code").unwrap();
            let third = Cache::open(&cache.folder).unwrap();
            assert_eq!((third.key, get(&third, "a")), (reopened.key, Found::Hit(b"code".to_vec())));
            assert_eq!(
                fs::read_dir(&cache.folder).unwrap().count(),
                2,
                "nothing temporary is left"
            );
        }
    }

    #[test]
    fn a_torn_key_that_others_could_read_is_refused_still() {
        let (_temp, cache) = cache();
        fs::write(cache.folder.join(KEY_FILE), b"short").unwrap();
        set_mode(&cache.folder.join(KEY_FILE), 0o644);
        assert!(matches!(Cache::open(&cache.folder), Err(CacheError::Unsafe { .. })));
    }

    #[test]
    fn no_entry_stands_in_for_another() {
        let (_temp, cache) = cache();
        cache.put("a", b"code").unwrap();
        fs::copy(cache.path("a"), cache.path("b")).unwrap();
        assert_eq!(get(&cache, "b"), Found::Tampered);
        // Nor does an entry of another cache, which has another key.
        let (_other_temp, other) = self::cache();
        fs::copy(cache.path("a"), other.path("a")).unwrap();
        assert_eq!(get(&other, "a"), Found::Tampered);
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let (_temp, cache) = cache();
        for mode in [0o770, 0o702, 0o777] {
            set_mode(&cache.folder, mode);
            let error = Cache::open(&cache.folder).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("others may change or read it. Make it a folder of your own"),
                "{error}"
            );
        }
        set_mode(&cache.folder, 0o700);
        set_mode(&cache.folder.join(KEY_FILE), 0o640);
        assert!(matches!(Cache::open(&cache.folder), Err(CacheError::Unsafe { .. })));
    }

    #[test]
    fn links_in_the_place_of_folder_or_key_are_refused() {
        let (temp, cache) = cache();
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(&cache.folder, &link).unwrap();
        assert!(matches!(Cache::open(&link), Err(CacheError::Unsafe { .. })));
        let key = cache.folder.join(KEY_FILE);
        fs::rename(&key, temp.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(temp.path().join("elsewhere"), &key).unwrap();
        assert!(matches!(Cache::open(&cache.folder), Err(CacheError::Unsafe { .. })));
    }
}

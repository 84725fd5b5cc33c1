//! The shared folder with the large blobs of a database: one file for each, by the name of its
//! digest. A file is durable before the row of its blob, and is removed after it.
//!
//! Hosts write and remove files under a lock of the database: shared by those that write a file and
//! its row, and exclusive for the one that removes files without a row.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::link::Link;
use super::schema;
use crate::storage::store::PostgresAddress;
use crate::storage::store::record::StoredBytes;
use crate::storage::store::sql::{SqlError, SqlErrorKind, SqlResult};
use crate::support::digest::sha256;
use crate::support::durable_file::{self, FileAccess};

/// The number of bytes above which a blob is a file.
const LARGE: usize = 1 << 20;
/// The file with the identity of the store that has the folder.
const IDENTITY: &str = "conclave-store";
/// The lock of the files: `blobfile` in ASCII.
const FILES: i64 = i64::from_be_bytes(*b"blobfile");
/// The number of files that are removed under one lock, which is held for a moment only: a server
/// ends a transaction that asks nothing for ten seconds.
const CHUNK: usize = 100;
/// The age from which a draft belongs to no host that still writes it.
const DRAFT_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder of one store.
pub(in crate::storage::store) struct BlobFolder {
    path: PathBuf,
    /// What the file of the identity says.
    identity: String,
}

/// The files that were removed because no row names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::storage::store) struct SweptFiles {
    pub(in crate::storage::store) files: u64,
    pub(in crate::storage::store) bytes: u64,
}

/// A file of the folder that has the bytes of a blob.
struct BlobFile {
    sha256: String,
    path: PathBuf,
    bytes: u64,
    /// Whether a removal has moved it aside and did not end.
    is_aside: bool,
}

/// Returns the folder of an address for a host that writes; `None` if all blobs are in the tables.
/// The first host with a folder makes it the store's.
///
/// # Errors
/// `BlobFolder` if the address names no folder and the store has one, or the folder is not there
/// or is not this store's.
pub(in crate::storage::store) fn join(
    link: &Link,
    address: &PostgresAddress,
) -> SqlResult<Option<BlobFolder>> {
    let has_folder = meta(link, "blob_folder")?.is_some();
    let Some(folder) = BlobFolder::of(link, address)? else {
        return if has_folder { Err(not_named()) } else { Ok(None) };
    };
    if !has_folder {
        link.batch("BEGIN")?;
        // Of several hosts that start at once, one writes the file.
        link.run("SELECT pg_advisory_xact_lock(?1)", &[&schema::MIGRATING])?;
        folder.claim()?;
        // Before it is noted: a store that has noted a folder cannot do without one.
        folder.check()?;
        link.batch("INSERT INTO meta (name, value) VALUES ('blob_folder', 1) ON CONFLICT DO NOTHING; COMMIT")?;
    }
    folder.check()?;
    Ok(Some(folder))
}

/// Returns the folder of an address for a reader. One without a folder can read the rest.
///
/// # Errors
/// `BlobFolder` if the named folder is not there or is not this store's.
pub(super) fn of_reader(link: &Link, address: &PostgresAddress) -> SqlResult<Option<BlobFolder>> {
    let folder = BlobFolder::of(link, address)?;
    if let Some(folder) = &folder {
        folder.check()?;
    }
    Ok(folder)
}

/// Returns the folder for a reader of all blobs.
///
/// # Errors
/// As [`join`], which may also make it the store's.
pub(super) fn join_as_reader(
    link: &Link,
    address: &PostgresAddress,
) -> SqlResult<Option<BlobFolder>> {
    match (of_reader(link, address)?, meta(link, "blob_folder")?) {
        (None, Some(_)) => Err(not_named()),
        (folder, _) => Ok(folder),
    }
}

/// Checks that this host can read the large blobs of all runs. A host may have begun before the first
/// one with a folder, and a folder may be unmounted while a host lives.
///
/// # Errors
/// As [`join`].
pub(in crate::storage::store) fn require(
    link: &Link,
    folder: Option<&BlobFolder>,
) -> SqlResult<()> {
    match folder {
        Some(folder) => folder.check(),
        None if meta(link, "blob_folder")?.is_some() => Err(not_named()),
        None => Ok(()),
    }
}

/// While it lasts, no host removes a file. Dropping it ends its connection.
pub(super) struct FilesLock(#[expect(dead_code, reason = "it holds the lock")] Link);

impl FilesLock {
    /// Takes the lock on a connection of its own.
    pub(super) fn shared(link: Link) -> SqlResult<Self> {
        link.run("SELECT pg_advisory_lock_shared(?1)", &[&FILES])?;
        Ok(Self(link))
    }
}

/// The error of a blob in a folder that the address does not name.
pub(super) fn not_named() -> SqlError {
    refusal("this store has them in a shared folder: add `?blobs=FOLDER` to its address (`&blobs=FOLDER` behind other parameters)".to_owned())
}

fn refusal(what: String) -> SqlError {
    SqlError::new(SqlErrorKind::BlobFolder, what)
}

/// A path as an argument of a shell.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    match path.chars().all(is_plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

fn meta(link: &Link, name: &str) -> SqlResult<Option<i64>> {
    let rows = link.rows("SELECT value FROM conclave.meta WHERE name = ?1", &[&name])?;
    rows.first().map(|row| Ok(row.try_get(0)?)).transpose()
}

impl BlobFolder {
    fn of(link: &Link, address: &PostgresAddress) -> SqlResult<Option<Self>> {
        let Some(path) = address.blobs() else { return Ok(None) };
        let identity = meta(link, "identity")?.unwrap_or_default();
        Ok(Some(Self { path, identity: format!("{identity:016x}") }))
    }

    /// Makes the folder the store's, unless another store has it.
    fn claim(&self) -> SqlResult<()> {
        match durable_file::read_own(&self.path.join(IDENTITY)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.path.is_dir() => {
                let identity = format!("{}\n", self.identity);
                let path = self.path.join(IDENTITY);
                durable_file::create(&path, identity.as_bytes(), &FileAccess::Private)
                    .map_err(|error| self.failed(&error))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(refusal(format!(
                "the folder {} is not there: mount it, or make it with `mkdir -m 700 -p {}`",
                self.path.display(),
                quoted(&self.path)
            ))),
            // What is in it is compared by `check`.
            _ => Ok(()),
        }
    }

    /// Checks that the folder is there and this store's.
    fn check(&self) -> SqlResult<()> {
        let (path, identity) = (self.path.display(), &self.identity);
        match durable_file::read_own(&self.path.join(IDENTITY)) {
            Ok(found) if found.trim_ascii() == identity.as_bytes() => Ok(()),
            Ok(found) => Err(refusal(format!(
                "{path} has those of another store ({}; this one is {identity}): name the folder of this store in `blobs`",
                String::from_utf8_lossy(&found).trim().escape_debug().take(40).collect::<String>(),
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.path.is_dir() => {
                Err(refusal(format!(
                    "{path} has no file `{IDENTITY}`, so it is not their folder: mount the shared folder there. If its files were moved to it: `echo {identity} > {}`",
                    quoted(&self.path.join(IDENTITY))
                )))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(refusal(format!(
                "the folder {path} is not there: mount the shared folder there, or name its place on this machine in `blobs`"
            ))),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// The folder's path on this machine.
    pub(in crate::storage::store) fn path(&self) -> &Path {
        &self.path
    }

    fn failed(&self, error: &io::Error) -> SqlError {
        let what = format!("{}: {error}", self.path.display());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                SqlError::new(SqlErrorKind::Full, what)
            }
            _ => refusal(what),
        }
    }

    /// Returns the bytes of a file, which the caller compares with the digest; `None` if it is not
    /// in the folder.
    pub(in crate::storage::store) fn read(&self, sha256: &str) -> SqlResult<Option<Arc<[u8]>>> {
        match durable_file::read_own(&self.path.join(sha256)) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // An empty place of a mount is no answer.
                self.check()?;
                Ok(None)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn has_bytes(&self, sha256: &str, bytes: &[u8]) -> SqlResult<bool> {
        Ok(self.read(sha256)?.is_some_and(|found| *found == *bytes))
    }

    /// Whether a blob belongs into the folder.
    pub(in crate::storage::store) fn is_large(blob: &StoredBytes) -> bool {
        blob.bytes.len() > LARGE
    }

    /// Stores a large blob and its row, unless both are there. A file that was lost or damaged is
    /// written again. May be called again when the outcome is unknown.
    pub(in crate::storage::store) fn store(
        &self,
        link: &Link,
        blob: &StoredBytes,
    ) -> SqlResult<()> {
        let (sha256, length) = (&blob.sha256, blob.bytes.len() as i64);
        let is_in_table = "SELECT bytes IS NOT NULL FROM blobs WHERE sha256 = ?1";
        if let Some(row) = link.rows(is_in_table, &[sha256])?.first()
            && (row.try_get(0)? || self.has_bytes(sha256, &blob.bytes)?)
        {
            return Ok(());
        }
        self.check()?;
        // Before the lock, because a large file takes its time.
        let path = self.path.join(sha256);
        let draft = durable_file::draft_of(&path, &blob.bytes, &FileAccess::Private)
            .map_err(|error| self.failed(&error))?;
        link.batch("BEGIN")?;
        link.run("SELECT pg_advisory_xact_lock_shared(?1)", &[&FILES])?;
        draft.publish().map_err(|error| self.failed(&error))?;
        link.run(
            "INSERT INTO blobs (sha256, length) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            &[sha256, &length],
        )?;
        link.batch("COMMIT")
    }

    /// Removes the files that no row names; a dry run only counts them. While a backup copies files or
    /// a host stores one, those that remain are left to the next call.
    ///
    /// Each is moved aside under the lock, and removed if no row came meanwhile. So if the lock was
    /// lost between the two, a file that a host has written anew is never removed: it is moved back,
    /// here or by the next call.
    pub(in crate::storage::store) fn sweep(
        &self,
        link: &Link,
        is_dry: bool,
    ) -> SqlResult<SweptFiles> {
        self.check()?;
        let files = self.files().map_err(|error| self.failed(&error))?;
        let mut swept = SweptFiles::default();
        for files in files.chunks(CHUNK) {
            link.batch("BEGIN")?;
            // Not waited for: behind this wait, each host that stores a large blob would wait until a
            // backup has copied all files.
            let is_free = link.row("SELECT pg_try_advisory_xact_lock(?1)", &[&FILES])?;
            if !is_free.try_get::<_, bool>(0)? {
                link.batch("ROLLBACK")?;
                break;
            }
            let rows = rows_of(link, files)?;
            let (with_row, orphans): (Vec<_>, Vec<_>) =
                files.iter().partition(|file| rows.contains(&file.sha256));
            swept.files += orphans.len() as u64;
            swept.bytes += orphans.iter().map(|file| file.bytes).sum::<u64>();
            if !is_dry {
                for file in with_row.into_iter().filter(|file| file.is_aside) {
                    self.move_back(&file.path, &file.sha256)?;
                }
                let aside_paths = orphans.iter().map(|file| self.move_aside(file));
                let aside_paths: Vec<PathBuf> = aside_paths.collect::<SqlResult<_>>()?;
                // Fails if the lock was lost.
                let rows = rows_of(link, files)?;
                for (file, aside_path) in orphans.iter().zip(&aside_paths) {
                    match rows.contains(&file.sha256) {
                        true => self.move_back(aside_path, &file.sha256)?,
                        false => self.there(std::fs::remove_file(aside_path))?,
                    }
                }
                durable_file::sync_folder(&self.path).map_err(|error| self.failed(&error))?;
            }
            link.batch("COMMIT")?;
        }
        Ok(swept)
    }

    /// Copies files and the identity into a new folder, durably. Returns their size in bytes.
    pub(super) fn copy(&self, digests: &[String], to: &Path) -> SqlResult<u64> {
        let failed = |path: &Path, error: &io::Error| {
            SqlError::new(SqlErrorKind::Other, format!("{}: {error}", path.display()))
        };
        durable_file::make_folders(to, 0o700).map_err(|error| failed(to, &error))?;
        let mut bytes = 0;
        for name in digests.iter().map(String::as_str).chain([IDENTITY]) {
            let (from, copy) = (self.path.join(name), to.join(name));
            let found = durable_file::read_own(&from).map_err(|error| failed(&from, &error))?;
            if name != IDENTITY && sha256(&found) != name {
                let what = format!("{} is damaged, so the copy would not be whole", from.display());
                return Err(SqlError::new(SqlErrorKind::Damaged, what));
            }
            bytes += found.len() as u64;
            std::fs::write(&copy, &found).map_err(|error| failed(&copy, &error))?;
            let file = std::fs::File::open(&copy).and_then(|file| file.sync_all());
            file.map_err(|error| failed(&copy, &error))?;
        }
        durable_file::sync_folder(to).map_err(|error| failed(to, &error))?;
        Ok(bytes)
    }

    /// Moves a file to a name that no other call uses.
    fn move_aside(&self, file: &BlobFile) -> SqlResult<PathBuf> {
        let number = getrandom::u64().map_err(|error| refusal(error.to_string()))?;
        let aside_path = self.path.join(format!("{}.{number:016x}.aside", file.sha256));
        self.there(std::fs::rename(&file.path, &aside_path))?;
        Ok(aside_path)
    }

    /// Moves a file back, over one that has the same bytes.
    fn move_back(&self, aside_path: &Path, sha256: &str) -> SqlResult<()> {
        self.there(std::fs::rename(aside_path, self.path.join(sha256)))
    }

    /// The result of a change to a file that another host may have removed.
    fn there(&self, result: io::Result<()>) -> SqlResult<()> {
        match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(&error)),
            _ => Ok(()),
        }
    }

    /// Returns the files of blobs, and removes drafts of hosts that are gone.
    fn files(&self) -> io::Result<Vec<BlobFile>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let sha256 = name.split('.').next().unwrap_or_default();
            let is_draft =
                sha256.is_empty() && Path::new(name).extension() == Some(OsStr::new("new"));
            let is_aside = Path::new(name).extension() == Some(OsStr::new("aside"));
            let is_blob = is_digest(sha256) && (is_aside || name == sha256);
            if !is_blob && !is_draft {
                continue;
            }
            let metadata = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            if is_blob {
                let (sha256, path, bytes) = (sha256.to_owned(), entry.path(), metadata.len());
                files.push(BlobFile { sha256, path, bytes, is_aside });
            } else if metadata.modified()?.elapsed().is_ok_and(|age| age > DRAFT_AGE) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(files)
    }
}

/// The digests of files that have a row.
fn rows_of(link: &Link, files: &[BlobFile]) -> SqlResult<HashSet<String>> {
    let digests: Vec<&str> = files.iter().map(|file| file.sha256.as_str()).collect();
    let rows = link.rows("SELECT sha256 FROM blobs WHERE sha256 = ANY (?1)", &[&digests])?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

fn is_digest(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

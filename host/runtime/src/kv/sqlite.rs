//! The store in a file: one table of SQLite. The file is made when a plugin first uses it, for its owner's eyes only.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conclave_core::grant::KvGrant;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{KvError, KvOwner, KvStore, fits, weight};
use crate::durable_file;

/// Of the table below; a file with a higher one was written by a newer host.
const SCHEMA: i64 = 1;
/// How long another process may hold the file.
const PATIENCE: Duration = Duration::from_secs(5);
/// Keys are bytes, so that they are kept in byte order and a NUL is no end.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS kv (
    home TEXT NOT NULL, plugin TEXT NOT NULL, manifest TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (home, plugin, manifest, key)) WITHOUT ROWID";

/// Values of all plugins in one file, which several programs may use at once.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    open: Mutex<Option<Connection>>,
}

/// The open file.
struct Opened<'a>(MutexGuard<'a, Option<Connection>>);

impl Sqlite {
    /// Values in this file. Nothing is touched before the first use; missing folders are made then.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), open: Mutex::default() }
    }

    fn opened(&self) -> Result<Opened<'_>, KvError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() {
            let failed =
                |cause: &dyn std::fmt::Display| KvError::Other(format!("the store {} cannot be opened: {cause}", self.path.display()));
            prepare(&self.path).map_err(|error| failed(&error))?;
            *open = Some(connect(&self.path).map_err(|error| failed(&error))?);
        }
        Ok(Opened(open))
    }
}

impl Opened<'_> {
    fn connection(&mut self) -> Result<&mut Connection, KvError> {
        self.0.as_mut().ok_or_else(|| KvError::Other("the store is closed".to_owned()))
    }
}

/// Makes the folder and an empty file, for their owner alone; SQLite gives its other files the same permissions.
fn prepare(path: &Path) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
    let folder = durable_file::folder_of(path);
    durable_file::make_folders(folder, 0o700)?;
    file.write(true).create(true).truncate(false).open(path)?;
    // Also of a file that was there: whoever made it may have died before this.
    durable_file::sync_folder(folder)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::symlink_metadata(path)?;
        if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            return Err(io::Error::other("it must be a file that belongs to this user, and that nobody else can write"));
        }
    }
    Ok(())
}

fn connect(path: &Path) -> Result<Connection, KvError> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // The journal says that a value is kept as soon as this says so.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // On macOS an fsync alone does not reach the disk.
    connection.pragma_update(None, "fullfsync", true)?;
    // What a file says of itself is not believed.
    connection.pragma_update(None, "trusted_schema", false)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > SCHEMA {
        return Err(KvError::Other(format!("it was written by a newer version (format {found}; this one knows {SCHEMA})")));
    }
    transaction.execute_batch(TABLE)?;
    transaction.pragma_update(None, "user_version", SCHEMA)?;
    transaction.commit()?;
    Ok(connection)
}

impl From<rusqlite::Error> for KvError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl KvStore for Sqlite {
    fn get(&self, owner: &KvOwner, key: &str) -> Result<Option<Vec<u8>>, KvError> {
        let mut opened = self.opened()?;
        let mut query = opened.connection()?.prepare("SELECT value FROM kv WHERE home = ? AND plugin = ? AND manifest = ? AND key = ?")?;
        Ok(query.query_row(params![owner.home, owner.plugin, owner.manifest, key.as_bytes()], |row| row.get(0)).optional()?)
    }

    fn set(&self, owner: &KvOwner, key: &str, value: &[u8], most: KvGrant) -> Result<(), KvError> {
        let mut opened = self.opened()?;
        let transaction = opened.connection()?.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (now, old) = usage(&transaction, owner, key)?;
        if !fits(now, old, weight(key, value), most) {
            return Err(KvError::Full(most));
        }
        transaction.prepare("INSERT OR REPLACE INTO kv (home, plugin, manifest, key, value) VALUES (?, ?, ?, ?, ?)")?.execute(params![
            owner.home,
            owner.plugin,
            owner.manifest,
            key.as_bytes(),
            value
        ])?;
        Ok(transaction.commit()?)
    }

    fn delete(&self, owner: &KvOwner, key: &str) -> Result<(), KvError> {
        let mut opened = self.opened()?;
        opened.connection()?.prepare("DELETE FROM kv WHERE home = ? AND plugin = ? AND manifest = ? AND key = ?")?.execute(params![
            owner.home,
            owner.plugin,
            owner.manifest,
            key.as_bytes()
        ])?;
        Ok(())
    }

    fn keys(&self, owner: &KvOwner, prefix: &str, after: Option<&str>, count: usize) -> Result<Vec<String>, KvError> {
        let mut opened = self.opened()?;
        let mut query = opened.connection()?.prepare(
            "SELECT key FROM kv WHERE home = ? AND plugin = ? AND manifest = ? AND key >= ? AND (? IS NULL OR key > ?) ORDER BY key LIMIT ?",
        )?;
        let after = after.map(str::as_bytes);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let rows = query.query_map(params![owner.home, owner.plugin, owner.manifest, prefix.as_bytes(), after, after, count], |row| {
            row.get::<_, Vec<u8>>(0)
        })?;
        let mut keys = Vec::new();
        for row in rows {
            match String::from_utf8(row?) {
                Ok(key) if key.starts_with(prefix) => keys.push(key),
                // In byte order nothing of the prefix comes after it.
                _ => break,
            }
        }
        Ok(keys)
    }
}

/// What the owner holds, and what of it is under this key.
fn usage(transaction: &Transaction<'_>, owner: &KvOwner, key: &str) -> rusqlite::Result<(KvGrant, Option<u64>)> {
    let of =
        |row: &rusqlite::Row<'_>, index| row.get::<_, Option<i64>>(index).map(|value| value.and_then(|value| u64::try_from(value).ok()));
    transaction
        .prepare(
            "SELECT count(*), sum(length(key) + length(value)), max(CASE WHEN key = ? THEN length(key) + length(value) END)
             FROM kv WHERE home = ? AND plugin = ? AND manifest = ?",
        )?
        .query_row(params![key.as_bytes(), owner.home, owner.plugin, owner.manifest], |row| {
            Ok((KvGrant { keys: of(row, 0)?.unwrap_or(0), bytes: of(row, 1)?.unwrap_or(0) }, of(row, 2)?))
        })
}

#[cfg(test)]
mod tests {
    use super::super::tests::behaves;
    use super::*;

    fn owner() -> KvOwner {
        KvOwner { home: "/".to_owned(), plugin: "p".to_owned(), manifest: "m".to_owned() }
    }

    #[test]
    fn the_store_in_a_file_behaves() {
        let temp = tempfile::tempdir().unwrap();
        behaves(&Sqlite::new(temp.path().join("kv.sqlite")));
    }

    #[test]
    fn values_outlive_the_program_and_two_programs_share_them() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("deep/er/kv.sqlite");
        let (one, two) = (Sqlite::new(&path), Sqlite::new(&path));
        assert!(!path.exists(), "nothing is made before it is used");
        one.set(&owner(), "k", b"v", KvGrant::default()).unwrap();
        assert_eq!(two.get(&owner(), "k").unwrap().as_deref(), Some(&b"v"[..]));
        drop((one, two));
        assert_eq!(Sqlite::new(&path).get(&owner(), "k").unwrap().as_deref(), Some(&b"v"[..]));
    }

    #[cfg(unix)]
    #[test]
    fn the_file_is_its_owners_alone() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("state/kv.sqlite");
        let store = Sqlite::new(&path);
        store.set(&owner(), "k", b"v", KvGrant::default()).unwrap();
        let folder = std::fs::read_dir(path.parent().unwrap()).unwrap();
        for file in folder.map(|file| file.unwrap()) {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.file_name());
        }
        assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        let link = temp.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(Sqlite::new(&link).get(&owner(), "k").is_err(), "no link is followed");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(Sqlite::new(&path).get(&owner(), "k").is_err(), "others could have written it");
    }

    #[test]
    fn a_file_of_a_newer_version_or_none_of_ours_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("kv.sqlite");
        Sqlite::new(&path).delete(&owner(), "k").unwrap();
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 2).unwrap();
        let refused = Sqlite::new(&path).get(&owner(), "k").unwrap_err().to_string();
        assert!(refused.contains("newer version"), "{refused}");
        let other = temp.path().join("other");
        std::fs::write(&other, "this is no database, however long it is").unwrap();
        assert!(Sqlite::new(&other).get(&owner(), "k").is_err());
    }
}

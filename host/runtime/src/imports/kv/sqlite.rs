//! The key-value store in an SQLite file. The file is created at the first use, readable by its
//! owner only.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::permissions::grants::KvGrant;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{KvError, KvOwner, KvStore, fits, weight};
use crate::support::durable_file;

/// Version of the schema; a file with a higher one was written by a newer host.
const SCHEMA: i64 = 2;
/// Time to wait for a lock that another process holds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two attempts to get a lock for which SQLite does not wait.
const PAUSE: Duration = Duration::from_millis(10);
/// Keys are blobs, for byte order and so that a NUL does not end them.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS kv (
    home TEXT NOT NULL, plugin TEXT NOT NULL, manifest TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (home, plugin, manifest, key)) WITHOUT ROWID";

/// Totals of each owner, so that a quota needs no scan of the keys. Updated in the same statement
/// as `kv`.
const USED: &str = "CREATE TABLE IF NOT EXISTS used (
    home TEXT NOT NULL, plugin TEXT NOT NULL, manifest TEXT NOT NULL, keys INTEGER NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY (home, plugin, manifest)) WITHOUT ROWID";
/// Triggers keep the totals, because a format-1 host with the file already open does not know them.
/// A trigger inherits the conflict clause of the firing statement, so none here relies on its own.
/// The deletion by a `REPLACE` fires no trigger, so the replaced row is subtracted first.
const SUMMING: &str = "CREATE TRIGGER used_put BEFORE INSERT ON kv BEGIN
    INSERT INTO used (home, plugin, manifest, keys, bytes) SELECT NEW.home, NEW.plugin, NEW.manifest, 0, 0
        WHERE NOT EXISTS (SELECT 1 FROM used WHERE home = NEW.home AND plugin = NEW.plugin AND manifest = NEW.manifest);
    UPDATE used SET
        keys = keys + 1 - (SELECT count(*) FROM kv
            WHERE home = NEW.home AND plugin = NEW.plugin AND manifest = NEW.manifest AND key = NEW.key),
        bytes = bytes + length(NEW.key) + length(NEW.value) - coalesce((SELECT length(key) + length(value) FROM kv
            WHERE home = NEW.home AND plugin = NEW.plugin AND manifest = NEW.manifest AND key = NEW.key), 0)
        WHERE home = NEW.home AND plugin = NEW.plugin AND manifest = NEW.manifest;
END;
CREATE TRIGGER used_removed AFTER DELETE ON kv BEGIN
    UPDATE used SET keys = keys - 1, bytes = bytes - length(OLD.key) - length(OLD.value)
        WHERE home = OLD.home AND plugin = OLD.plugin AND manifest = OLD.manifest;
END;";
const IS_SUMMED: &str = "SELECT count(*) = 2 FROM sqlite_schema WHERE type = 'trigger' AND name IN ('used_put', 'used_removed')";
/// Computes the totals of a file that lacks the triggers.
const SUM_UP: &str = "DROP TRIGGER IF EXISTS used_put; DROP TRIGGER IF EXISTS used_removed; DELETE FROM used;
    INSERT INTO used (home, plugin, manifest, keys, bytes)
    SELECT home, plugin, manifest, count(*), sum(length(key) + length(value)) FROM kv GROUP BY home, plugin, manifest";

const WEIGHT: &str = "SELECT length(key) + length(value) FROM kv WHERE home = ? AND plugin = ? AND manifest = ? AND key = ?";
const USAGE: &str = "SELECT keys, bytes FROM used WHERE home = ? AND plugin = ? AND manifest = ?";
const PUT: &str =
    "INSERT OR REPLACE INTO kv (home, plugin, manifest, key, value) VALUES (?, ?, ?, ?, ?)";
const DELETE: &str = "DELETE FROM kv WHERE home = ? AND plugin = ? AND manifest = ? AND key = ?";

/// The values of all plugins in one file, which several processes may share.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    open: Mutex<Option<Connection>>,
}

/// The open file, locked.
struct KvFile<'a>(MutexGuard<'a, Option<Connection>>);

impl Sqlite {
    /// Returns a store in this file. The file and its folders are created at the first use.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), open: Mutex::default() }
    }

    fn opened(&self) -> Result<KvFile<'_>, KvError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() {
            let failed = |cause: &dyn std::fmt::Display| {
                KvError::Other(format!(
                    "the store {} cannot be opened: {cause}",
                    self.path.display()
                ))
            };
            // SQLite would create the file with the permissions of the umask.
            prepare(&self.path).map_err(|error| failed(&error))?;
            *open = Some(connect(&self.path).map_err(|error| failed(&error))?);
        }
        Ok(KvFile(open))
    }
}

impl KvFile<'_> {
    fn connection(&mut self) -> Result<&mut Connection, KvError> {
        self.0.as_mut().ok_or_else(|| KvError::Other("the store is closed".to_owned()))
    }
}

/// Creates the folder and an empty file for their owner alone. SQLite gives its other files the
/// same permissions.
fn prepare(path: &Path) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
    let folder = durable_file::folder_of(path);
    durable_file::make_folders(folder, 0o700)?;
    file.write(true).create(true).truncate(false).open(path)?;
    // For an existing file too: the host that created it may have stopped before it synced.
    durable_file::sync_folder(folder)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::symlink_metadata(path)?;
        if !metadata.is_file()
            || metadata.uid() != rustix::process::geteuid().as_raw()
            || metadata.mode() & 0o022 != 0
        {
            return Err(io::Error::other(
                "it must be a file that belongs to this user, and that nobody else can write",
            ));
        }
    }
    Ok(())
}

fn connect(path: &Path) -> Result<Connection, KvError> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    begin_log(&connection)?;
    // A reported write must be durable, because the journal then records it as done.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // On macOS an `fsync` alone does not reach the disk.
    connection.pragma_update(None, "fullfsync", true)?;
    // Schema objects in the file cannot call functions with side effects.
    connection.pragma_update(None, "trusted_schema", false)?;
    // An immediate transaction, so that two hosts cannot both create the triggers.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > SCHEMA {
        return Err(KvError::Other(format!(
            "it was written by a newer version (format {found}; this one knows {SCHEMA})"
        )));
    }
    transaction.execute_batch(TABLE)?;
    transaction.execute_batch(USED)?;
    if !transaction.query_row(IS_SUMMED, [], |row| row.get::<_, bool>(0))? {
        transaction.execute_batch(SUM_UP)?;
        transaction.execute_batch(SUMMING)?;
    }
    transaction.pragma_update(None, "user_version", SCHEMA)?;
    transaction.commit()?;
    Ok(connection)
}

/// Switches a file to a write-ahead log. Of several hosts that do so at once in a new file, SQLite
/// refuses all but one, and does not wait as for other locks.
fn begin_log(connection: &Connection) -> rusqlite::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && Instant::now() < until =>
            {
                std::thread::sleep(PAUSE);
            }
            switched => return switched,
        }
    }
}

impl From<rusqlite::Error> for KvError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl KvStore for Sqlite {
    fn get(&self, owner: &KvOwner, key: &str) -> Result<Option<Vec<u8>>, KvError> {
        let mut opened = self.opened()?;
        let mut query = opened.connection()?.prepare(
            "SELECT value FROM kv WHERE home = ? AND plugin = ? AND manifest = ? AND key = ?",
        )?;
        Ok(query
            .query_row(params![owner.home, owner.plugin, owner.manifest, key.as_bytes()], |row| {
                row.get(0)
            })
            .optional()?)
    }

    fn set(&self, owner: &KvOwner, key: &str, value: &[u8], most: KvGrant) -> Result<(), KvError> {
        let mut opened = self.opened()?;
        let transaction =
            opened.connection()?.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Within the write transaction, so that no other process writes between check and change.
        let (now, old) = (usage(&transaction, owner)?, stored_size(&transaction, owner, key)?);
        let new = weight(key, value);
        if !fits(now, old, new, most) {
            return Err(KvError::Full(most));
        }
        let values = params![owner.home, owner.plugin, owner.manifest, key.as_bytes(), value];
        transaction.prepare_cached(PUT)?.execute(values)?;
        Ok(transaction.commit()?)
    }

    fn delete(&self, owner: &KvOwner, key: &str) -> Result<(), KvError> {
        let mut opened = self.opened()?;
        let transaction =
            opened.connection()?.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.prepare_cached(DELETE)?.execute(params![
            owner.home,
            owner.plugin,
            owner.manifest,
            key.as_bytes()
        ])?;
        Ok(transaction.commit()?)
    }

    fn keys(
        &self,
        owner: &KvOwner,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> Result<Vec<String>, KvError> {
        let mut opened = self.opened()?;
        let mut query = opened.connection()?.prepare(
            "SELECT key FROM kv WHERE home = ? AND plugin = ? AND manifest = ? AND key >= ? AND (? IS NULL OR key > ?) ORDER BY key LIMIT ?",
        )?;
        let after = after.map(str::as_bytes);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let rows = query.query_map(
            params![
                owner.home,
                owner.plugin,
                owner.manifest,
                prefix.as_bytes(),
                after,
                after,
                count
            ],
            |row| row.get::<_, Vec<u8>>(0),
        )?;
        let mut keys = Vec::new();
        for row in rows {
            match String::from_utf8(row?) {
                Ok(key) if key.starts_with(prefix) => keys.push(key),
                // Keys are in byte order, so no later one has the prefix.
                _ => break,
            }
        }
        Ok(keys)
    }
}

/// Returns the totals of the owner.
fn usage(transaction: &Transaction<'_>, owner: &KvOwner) -> rusqlite::Result<KvGrant> {
    let number = |row: &rusqlite::Row<'_>, index| {
        row.get::<_, i64>(index).map(|number| u64::try_from(number).unwrap_or(0))
    };
    let mut query = transaction.prepare_cached(USAGE)?;
    let found = query.query_row(params![owner.home, owner.plugin, owner.manifest], |row| {
        Ok(KvGrant { keys: number(row, 0)?, bytes: number(row, 1)? })
    });
    Ok(found.optional()?.unwrap_or(KvGrant { keys: 0, bytes: 0 }))
}

/// Returns the size of a key and its value in bytes; `None` if the key is absent.
fn stored_size(
    transaction: &Transaction<'_>,
    owner: &KvOwner,
    key: &str,
) -> rusqlite::Result<Option<u64>> {
    let mut query = transaction.prepare_cached(WEIGHT)?;
    let found = query
        .query_row(params![owner.home, owner.plugin, owner.manifest, key.as_bytes()], |row| {
            row.get::<_, i64>(0)
        });
    Ok(found.optional()?.map(|weight| u64::try_from(weight).unwrap_or(0)))
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
            assert_eq!(
                file.metadata().unwrap().permissions().mode() & 0o777,
                0o600,
                "{:?}",
                file.file_name()
            );
        }
        assert_eq!(
            std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777,
            0o700
        );
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
        Connection::open(&path).unwrap().pragma_update(None, "user_version", SCHEMA + 1).unwrap();
        let refused = Sqlite::new(&path).get(&owner(), "k").unwrap_err().to_string();
        assert!(refused.contains("newer version"), "{refused}");
        let other = temp.path().join("other");
        std::fs::write(&other, "this is no database, however long it is").unwrap();
        assert!(Sqlite::new(&other).get(&owner(), "k").is_err());
    }

    /// The stored totals of the owner, and those counted from its rows.
    fn noted_and_counted(path: &Path) -> [Option<(i64, i64)>; 2] {
        let connection = Connection::open(path).unwrap();
        let count = "SELECT count(*), sum(length(key) + length(value)) FROM kv WHERE home = ? AND plugin = ? AND manifest = ?";
        [USAGE, count].map(|sql| {
            let KvOwner { home, plugin, manifest } = owner();
            let found = connection.query_row(sql, params![home, plugin, manifest], |row| {
                Ok((row.get(0)?, row.get(1)?))
            });
            found.optional().unwrap()
        })
    }

    #[test]
    fn the_sums_are_those_of_the_keys_and_outlive_the_program() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("kv.sqlite");
        let most = KvGrant { bytes: 60, keys: 5 };
        // A new connection for each step, so that the totals are read from disk.
        let set = |key: &str, length: usize| {
            Sqlite::new(&path).set(&owner(), key, &vec![7; length], most)
        };
        let delete = |key: &str| Sqlite::new(&path).delete(&owner(), key);
        let steps: [(&str, Option<usize>, bool); 9] = [
            ("a", Some(10), true),
            ("bb", Some(0), true),
            ("a", Some(30), true),
            ("c", Some(40), false),
            ("a", Some(5), true),
            ("c", Some(40), true),
            ("none", None, true),
            ("c", None, true),
            ("c", Some(51), true),
        ];
        for (key, length, fits) in steps {
            let result = length.map_or_else(|| delete(key), |length| set(key, length));
            assert_eq!(result.is_ok(), fits, "{key} {length:?}");
            let [recorded, counted] = noted_and_counted(&path);
            assert_eq!(recorded, counted, "{key} {length:?}");
        }
        assert_eq!(noted_and_counted(&path)[0], Some((3, 60)));
        assert!(matches!(set("d", 0), Err(KvError::Full(_))), "full to the last byte");
    }

    #[test]
    fn a_file_of_format_1_is_summed_up() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("kv.sqlite");
        prepare(&path).unwrap();
        let old = Connection::open(&path).unwrap();
        old.execute_batch(TABLE).unwrap();
        let KvOwner { home, plugin, manifest } = owner();
        for key in ["a", "bb"] {
            old.execute(PUT, params![home, plugin, manifest, key.as_bytes(), b"12345"]).unwrap();
        }
        old.pragma_update(None, "user_version", 1).unwrap();
        drop(old);
        let store = Sqlite::new(&path);
        assert_eq!(store.get(&owner(), "a").unwrap().as_deref(), Some(&b"12345"[..]));
        assert_eq!(noted_and_counted(&path), [Some((2, 13)); 2]);
        assert!(matches!(
            store.set(&owner(), "c", b"", KvGrant { bytes: 13, keys: 9 }),
            Err(KvError::Full(_))
        ));
        store.set(&owner(), "c", b"", KvGrant { bytes: 14, keys: 3 }).unwrap();
    }

    #[test]
    fn a_host_of_format_1_that_has_the_file_open_keeps_the_sums_right() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("kv.sqlite");
        prepare(&path).unwrap();
        // Opened with the statements of a format-1 host.
        let old = Connection::open(&path).unwrap();
        old.pragma_update(None, "trusted_schema", false).unwrap();
        old.execute_batch(TABLE).unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        let KvOwner { home, plugin, manifest } = owner();
        let mut put = old.prepare(PUT).unwrap();
        let mut put = |key: &str, value: &[u8]| {
            put.execute(params![home, plugin, manifest, key.as_bytes(), value]).unwrap()
        };
        put("a", b"12345");
        let store = Sqlite::new(&path);
        let most = KvGrant { bytes: 20, keys: 3 };
        store.set(&owner(), "b", b"12345", most).unwrap();
        assert_eq!(noted_and_counted(&path), [Some((2, 12)); 2]);
        // A host with totals enforces the quota independently of the other host.
        put("a", b"1234567890123");
        assert_eq!(noted_and_counted(&path), [Some((2, 20)); 2]);
        assert!(matches!(store.set(&owner(), "c", b"", most), Err(KvError::Full(_))));
        old.execute(DELETE, params![home, plugin, manifest, b"a"]).unwrap();
        put("b", b"");
        assert_eq!(noted_and_counted(&path), [Some((1, 1)); 2]);
        store.set(&owner(), "c", &[7; 18], most).unwrap();
        assert_eq!(noted_and_counted(&path), [Some((2, 20)); 2]);
    }

    #[test]
    fn a_file_whose_sums_nobody_kept_is_summed_up_again() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("kv.sqlite");
        Sqlite::new(&path).set(&owner(), "a", b"12345", KvGrant::default()).unwrap();
        let spoilt = "DROP TRIGGER used_put; UPDATE used SET bytes = 0; INSERT INTO used VALUES ('/', 'gone', 'm', 9, 9)";
        Connection::open(&path).unwrap().execute_batch(spoilt).unwrap();
        Sqlite::new(&path).get(&owner(), "a").unwrap();
        assert_eq!(noted_and_counted(&path), [Some((1, 6)); 2]);
    }

    #[test]
    fn no_step_of_a_set_looks_at_other_keys() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("kv.sqlite");
        Sqlite::new(&path).set(&owner(), "k", b"v", KvGrant::default()).unwrap();
        let connection = Connection::open(&path).unwrap();
        let plan = |sql: &str| {
            let mut query = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let blanks = vec![rusqlite::types::Null; query.parameter_count()];
            let rows = query
                .query_map(rusqlite::params_from_iter(blanks), |row| row.get::<_, String>(3))
                .unwrap();
            rows.map(Result::unwrap).collect::<Vec<_>>()
        };
        for sql in [WEIGHT, DELETE] {
            let plan = plan(sql);
            assert!(
                matches!(&plan[..], [one] if one.starts_with("SEARCH") && one.contains("AND key=?")),
                "{sql}: {plan:?}"
            );
        }
        let one_row = plan(USAGE);
        assert!(
            matches!(&one_row[..], [one] if one.starts_with("SEARCH used") && one.contains("AND manifest=?")),
            "{one_row:?}"
        );
        assert_eq!(plan(PUT), Vec::<String>::new(), "an insert looks at nothing");
    }
}

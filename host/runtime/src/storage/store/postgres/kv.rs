//! The key-value store in a PostgreSQL database, beside the runs of many hosts.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use conclave_core::permissions::grants::KvGrant;

use super::{Link, Session, SqlResult, call_safely, check_commit};
use crate::imports::kv::{KvError, KvOwner, KvStore};
use crate::storage::store::PostgresAddress;

/// The time for which a lost connection is made again: a call of a plugin waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The values of all plugins in one database, which several hosts share.
pub struct PostgresKv {
    address: PostgresAddress,
    open: Mutex<Option<Session>>,
}

impl fmt::Debug for PostgresKv {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("PostgresKv").field(&self.address).finish()
    }
}

impl PostgresKv {
    /// Returns a store in this database. The connection is made at the first use.
    #[must_use]
    pub fn new(address: PostgresAddress) -> Self {
        Self { address, open: Mutex::default() }
    }

    /// Runs a statement. After a lost answer it runs again, which none of them minds.
    fn ask<T>(&self, statement: impl FnMut(&Link) -> SqlResult<T>) -> Result<T, KvError> {
        // Held while it waits: one connection runs one statement after the other.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() {
            let session = Session::open(&self.address).map_err(|error| {
                KvError::Other(format!("the store {} cannot be opened: {error}", self.address))
            })?;
            *open = Some(session.with_patience(PATIENCE));
        }
        let session =
            open.as_mut().ok_or_else(|| KvError::Other("the store is closed".to_owned()))?;
        session.retry(statement).map_err(|error| KvError::Other(error.to_string()))
    }
}

impl KvStore for PostgresKv {
    fn get(&self, owner: &KvOwner, key: &str) -> Result<Option<Vec<u8>>, KvError> {
        let KvOwner { home, plugin, manifest } = owner;
        self.ask(|link| {
            let rows = link.rows(
                "SELECT value FROM kv WHERE home = ?1 AND plugin = ?2 AND manifest = ?3 AND key = ?4",
                &[home, plugin, manifest, &key.as_bytes()],
            )?;
            Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
        })
    }

    fn set(&self, owner: &KvOwner, key: &str, value: &[u8], most: KvGrant) -> Result<(), KvError> {
        let KvOwner { home, plugin, manifest } = owner;
        let [bytes, keys] =
            [most.bytes, most.keys].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        let is_set: bool = self.ask(|link| {
            let row = link.row(
                "SELECT kv_set(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                &[home, plugin, manifest, &key.as_bytes(), &value, &bytes, &keys],
            )?;
            check_commit(link)?;
            Ok(row.try_get(0)?)
        })?;
        if is_set { Ok(()) } else { Err(KvError::Full(most)) }
    }

    fn delete(&self, owner: &KvOwner, key: &str) -> Result<(), KvError> {
        let KvOwner { home, plugin, manifest } = owner;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [home, plugin, manifest, &key.as_bytes()];
        self.ask(|link| call_safely(link, "kv_delete(?1, ?2, ?3, ?4)", &parameters))
    }

    fn keys(
        &self,
        owner: &KvOwner,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> Result<Vec<String>, KvError> {
        let KvOwner { home, plugin, manifest } = owner;
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let after = after.map(str::as_bytes);
        let rows = self.ask(|link| {
            link.rows(
                "SELECT key FROM kv WHERE home = ?1 AND plugin = ?2 AND manifest = ?3
                 AND key >= ?4 AND substring(key FROM 1 FOR octet_length(?4)) = ?4
                 AND (?5::BYTEA IS NULL OR key > ?5) ORDER BY key LIMIT ?6",
                &[home, plugin, manifest, &prefix.as_bytes(), &after, &count],
            )
        })?;
        let text = |row: &tokio_postgres::Row| {
            let key: Vec<u8> = row.try_get(0).map_err(|error| KvError::Other(error.to_string()))?;
            String::from_utf8(key).map_err(|error| KvError::Other(error.to_string()))
        };
        rows.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::imports::kv::tests::behaves;
    use crate::storage::store::TestDatabase;

    #[test]
    fn the_store_in_a_database_behaves() {
        let Some(database) = TestDatabase::new() else { return };
        behaves(&PostgresKv::new(database.address.clone()));
    }

    #[test]
    fn writers_of_many_hosts_never_exceed_a_quota() {
        let Some(database) = TestDatabase::new() else { return };
        let owner =
            KvOwner { home: "/".to_owned(), plugin: "p".to_owned(), manifest: "m".to_owned() };
        let most = KvGrant { bytes: 200, keys: 12 };
        let set = |writer: usize| {
            let store = PostgresKv::new(database.address.clone());
            let mut is_set = 0;
            for turn in 0..12 {
                let (key, value) = (format!("{}", (writer + turn) % 16), vec![7; 5 + turn * 2]);
                match store.set(&owner, &key, &value, most) {
                    Ok(()) => is_set += 1,
                    Err(KvError::Full(_)) => store.delete(&owner, &key).unwrap(),
                    Err(other) => panic!("{other}"),
                }
            }
            is_set
        };
        let all: usize = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8).map(|writer| scope.spawn(move || set(writer))).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        assert!(all > 0);
        let totals = database.link().row(
            "SELECT used.keys = count(*), used.bytes = sum(octet_length(key) + octet_length(value)),
             used.keys <= 12 AND used.bytes <= 200
             FROM kv, used GROUP BY used.keys, used.bytes",
            &[],
        );
        let totals = totals.unwrap();
        assert_eq!([0, 1, 2].map(|column| totals.get::<_, bool>(column)), [true; 3]);
        // Nobody saw the totals exceed the quota meanwhile either: each change checks them.
        let store = PostgresKv::new(database.address.clone());
        assert!(matches!(store.set(&owner, "big", &[0; 201], most), Err(KvError::Full(_))));
    }
}

//! Reading a store in PostgreSQL.

use std::cell::{Cell, RefCell};

use super::connecting::Connecting;
use super::link::Link;
use super::schema::{self, Tables};
use crate::storage::store::sql::{EngineKind, Sql, SqlResult, TakeRow, Value};
use crate::storage::store::{PostgresAddress, StoreAddress, StoreError};

/// The settings of a connection that reads.
const SETTINGS: &str = "SET search_path = conclave; SET default_transaction_read_only = on";

/// Connections for reading. A question within the rows of another has its own connection, because
/// the first one is busy.
pub(in crate::storage::store) struct PostgresReader {
    connecting: Connecting,
    /// The free connections.
    links: RefCell<Vec<Link>>,
    /// The number of questions that are open.
    depth: Cell<usize>,
}

/// Opens the tables of an address for reading.
pub(in crate::storage::store) fn open_reader(
    address: &PostgresAddress,
) -> Result<PostgresReader, StoreError> {
    let place = || StoreAddress::Postgres(address.clone()).to_string().into();
    let failed = |error: crate::storage::store::sql::SqlError| StoreError::Other {
        folder: place(),
        what: error.to_string(),
    };
    let connecting = Connecting::of(address).map_err(failed)?;
    let link = connected(&connecting).map_err(failed)?;
    let known = schema::VERSION;
    match schema::tables(&link).map_err(failed)? {
        Tables::Current => {}
        Tables::Missing => return Err(StoreError::Missing { folder: place() }),
        Tables::Older(version) => {
            return Err(StoreError::Older { folder: place(), version, known });
        }
        Tables::Newer(version) => {
            return Err(StoreError::Newer { folder: place(), version, known });
        }
    }
    Ok(PostgresReader { connecting, links: RefCell::new(vec![link]), depth: Cell::new(0) })
}

impl PostgresReader {
    /// Runs one question on a connection that no other question has.
    fn on_a_link<T>(&self, ask: impl FnOnce(&Link) -> SqlResult<T>) -> SqlResult<T> {
        let free = self.links.borrow_mut().pop().filter(|link| !link.is_lost());
        let link = match free {
            Some(link) => link,
            None => connected(&self.connecting)?,
        };
        let result = ask(&link);
        if !link.is_lost() {
            self.links.borrow_mut().push(link);
        }
        result
    }
}

fn connected(connecting: &Connecting) -> SqlResult<Link> {
    let link = Link::open(connecting)?;
    link.batch(SETTINGS)?;
    Ok(link)
}

impl Sql for PostgresReader {
    fn query(&self, statement: &str, values: &[Value<'_>], take: TakeRow<'_>) -> SqlResult<()> {
        self.on_a_link(|link| link.query(statement, values, take))
    }

    fn execute(&self, statement: &str, values: &[Value<'_>]) -> SqlResult<u64> {
        self.on_a_link(|link| link.execute(statement, values))
    }

    fn engine(&self) -> EngineKind {
        EngineKind::Postgres
    }
}

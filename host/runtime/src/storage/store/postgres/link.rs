//! A connection to the database, with a small thread that drives it. Callers block, and may be
//! inside an executor themselves.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use futures_util::future::try_join;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, SimpleQueryMessage, Statement};

use super::connecting::Connecting;
use super::statement::with_dollars;
use super::tls;
use super::values::Parameter;
use crate::storage::store::sql::{
    EngineKind, Sql, SqlError, SqlErrorKind, SqlResult, SqlRow, TakeRow, Value,
};

/// The time for a statement. One that waits longer is never cancelled, because the server would
/// then acknowledge a commit that no standby has: its connection is closed, and the outcome is
/// unknown.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time for a connection, to whichever of the servers of an address.
const CONNECT: Duration = Duration::from_secs(15);
/// A setting of a session that no server knows.
const MARK: &str = "conclave.session";
/// The time in which a connection that is dropped says goodbye.
const GOODBYE: Duration = Duration::from_millis(200);

pub(crate) struct Link {
    client: Option<Client>,
    /// The thread's runtime, whose timers end statements.
    handle: Handle,
    prepared: RefCell<HashMap<String, Statement>>,
    patience: Cell<Duration>,
    /// Whether a statement's time was up. Nothing more is asked of this connection.
    is_given_up: AtomicBool,
    has_standby: bool,
    /// Dropped to end the thread.
    ending: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// Connects to the database of an address.
    #[cfg(test)]
    pub(crate) fn to(address: &crate::storage::store::PostgresAddress) -> SqlResult<Self> {
        Self::open(&Connecting::of(address)?)
    }

    /// Connects to the database.
    pub(super) fn open(connecting: &Connecting) -> SqlResult<Self> {
        let (ready, connected) = mpsc::sync_channel(1);
        let (ending, ended) = oneshot::channel();
        let options = connecting.clone();
        let thread = std::thread::Builder::new()
            .name("postgres".to_owned())
            .spawn(move || drive(&options, &ready, ended))
            .map_err(|error| SqlError::new(SqlErrorKind::Other, error.to_string()))?;
        let (client, handle) = connected.recv().unwrap_or_else(|_| Err(connection_lost()))?;
        let link = Self {
            client: Some(client),
            handle,
            prepared: RefCell::default(),
            patience: Cell::new(PATIENCE),
            is_given_up: AtomicBool::new(false),
            has_standby: connecting.has_standby(),
            ending: Some(ending),
            thread: Some(thread),
        };
        link.check_session()?;
        Ok(link)
    }

    /// Refuses a pooler that gives each transaction another session: the settings of a connection
    /// would be lost, or be those of others. Each connection marks its session, so it is another
    /// one's if it is marked, and another one if the mark is gone.
    fn check_session(&self) -> SqlResult<()> {
        let mark = format!(
            "SELECT current_setting('{MARK}', true), set_config('{MARK}', 'conclave', false)"
        );
        let before = self.word(&mark)?;
        let after = self.word(&format!("SELECT current_setting('{MARK}', true)"))?;
        if before.is_empty() && after == "conclave" {
            return Ok(());
        }
        let what = "the pooler gives each transaction another session (PgBouncer: pool_mode = \
                    transaction), so settings are lost: connect to the server itself, or set \
                    pool_mode = session";
        Err(SqlError::new(SqlErrorKind::Other, what))
    }

    /// Returns the first value of a question that is not prepared; one that is missing is empty.
    fn word(&self, question: &str) -> SqlResult<String> {
        let messages = self.wait(self.client()?.simple_query(question))?;
        let value = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        Ok(value.unwrap_or_default().to_owned())
    }

    /// Whether the connection can be used no more.
    pub(super) fn is_lost(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
            || self.client.as_ref().is_none_or(Client::is_closed)
    }

    /// Whether the address names several servers, of which one takes over from another.
    pub(crate) fn has_standby(&self) -> bool {
        self.has_standby
    }

    fn client(&self) -> SqlResult<&Client> {
        self.client.as_ref().filter(|_| !self.is_lost()).ok_or_else(connection_lost)
    }

    /// Runs statements that read much, each of which may take this long.
    pub(crate) fn patiently<T>(&self, patience: Duration, run: impl FnOnce(&Self) -> T) -> T {
        let before = self.patience.replace(patience);
        let result = run(self);
        self.patience.set(before);
        result
    }

    /// Sets the time for each statement from now on.
    pub(super) fn set_patience(&self, patience: Duration) {
        self.patience.set(patience);
    }

    /// Runs statements without parameters.
    pub(crate) fn batch(&self, statements: &str) -> SqlResult<()> {
        self.wait(self.client()?.batch_execute(statements))
    }

    /// Returns the rows of a statement in PostgreSQL's own words.
    pub(crate) fn rows(
        &self,
        statement: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> SqlResult<Vec<Row>> {
        let statement = self.prepare(statement)?;
        self.wait(self.client()?.query(&statement, values))
    }

    /// Returns the only row of a statement.
    pub(crate) fn row(&self, statement: &str, values: &[&(dyn ToSql + Sync)]) -> SqlResult<Row> {
        let statement = self.prepare(statement)?;
        self.wait(self.client()?.query_one(&statement, values))
    }

    /// Returns the rows of a statement and the only row of a further one. The server gets both at
    /// once, and runs the second in a transaction of its own behind the first.
    pub(crate) fn rows_and_row(
        &self,
        (first, values): (&str, &[&(dyn ToSql + Sync)]),
        (second, its_values): (&str, &[&(dyn ToSql + Sync)]),
    ) -> SqlResult<(Vec<Row>, Row)> {
        let (first, second) = (self.prepare(first)?, self.prepare(second)?);
        let client = self.client()?;
        let both = try_join(client.query(&first, values), client.query_one(&second, its_values));
        self.wait(both)
    }

    /// Runs a statement and returns the number of changed rows.
    pub(crate) fn run(&self, statement: &str, values: &[&(dyn ToSql + Sync)]) -> SqlResult<u64> {
        let statement = self.prepare(statement)?;
        self.wait(self.client()?.execute(&statement, values))
    }

    /// Returns a statement that the server has prepared; each is prepared once.
    fn prepare(&self, text: &str) -> SqlResult<Statement> {
        if let Some(known) = self.prepared.borrow().get(text) {
            return Ok(known.clone());
        }
        let statement = self.wait(self.client()?.prepare(&with_dollars(text)))?;
        self.prepared.borrow_mut().insert(text.to_owned(), statement.clone());
        Ok(statement)
    }

    fn wait<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> SqlResult<T> {
        let timed = {
            let _runtime = self.handle.enter();
            tokio::time::timeout(self.patience.get(), answer)
        };
        // `unconstrained`, because the caller may be a task whose polling budget is used up.
        match futures_executor::block_on(tokio::task::unconstrained(timed)) {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                self.is_given_up.store(true, Ordering::Relaxed);
                Err(silent(self.patience.get()))
            }
        }
    }
}

impl Sql for Link {
    /// Only one question at a time: within `take` the connection is busy.
    fn query(&self, statement: &str, values: &[Value<'_>], take: TakeRow<'_>) -> SqlResult<()> {
        let statement = self.prepare(statement)?;
        let parameters = values.iter().map(|value| Parameter(*value));
        let mut rows = Box::pin(self.wait(self.client()?.query_raw(&statement, parameters))?);
        // Waits for one row at a time, so that a table is never in memory as a whole. A server may
        // stop between two rows, and answer the keep-alive all the same.
        while let Some(row) = self.wait(rows.try_next())? {
            if let ControlFlow::Break(()) = take(&SqlRow::Postgres(&row))? {
                break;
            }
        }
        Ok(())
    }

    fn execute(&self, statement: &str, values: &[Value<'_>]) -> SqlResult<u64> {
        let statement = self.prepare(statement)?;
        let parameters = values.iter().map(|value| Parameter(*value));
        self.wait(self.client()?.execute_raw(&statement, parameters))
    }

    fn begin_snapshot(&self) -> SqlResult<()> {
        self.batch("BEGIN ISOLATION LEVEL REPEATABLE READ")
    }

    fn end_snapshot(&self) {
        let _ = self.batch("ROLLBACK");
    }

    fn engine(&self) -> EngineKind {
        EngineKind::Postgres
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.client.take();
        self.ending.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Connected = SqlResult<(Client, Handle)>;

/// Connects, and drives the connection until its link is dropped.
fn drive(
    connecting: &Connecting,
    ready: &mpsc::SyncSender<Connected>,
    mut ended: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(SqlError::new(SqlErrorKind::Other, error.to_string())));
            return;
        }
    };
    runtime.block_on(async {
        let connector = match tls::connector(&connecting.tls) {
            Ok(connector) => connector,
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        };
        // The limit of `tokio-postgres` is for TCP alone; a server may also stop in the middle.
        let connected = connecting.config.connect(connector);
        let connected = tokio::time::timeout(CONNECT, connected).await;
        let (client, connection) = match connected {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => {
                let _ = ready.send(Err(error.into()));
                return;
            }
            Err(_) => {
                let _ = ready.send(Err(silent(CONNECT)));
                return;
            }
        };
        if ready.send(Ok((client, Handle::current()))).is_err() {
            return;
        }
        let mut connection = Box::pin(connection);
        let is_lost = tokio::select! {
            _ = &mut connection => true,
            _ = &mut ended => false,
        };
        if is_lost {
            // Dropped first, so that statements that wait get their error. Their timers need the
            // runtime until the link is dropped.
            drop(connection);
            let _ = ended.await;
        } else {
            let _ = tokio::time::timeout(GOODBYE, connection).await;
        }
    });
}

/// The error of a connection that is gone.
fn connection_lost() -> SqlError {
    SqlError::new(SqlErrorKind::Unknown, "the connection to PostgreSQL is lost")
}

/// The error of a server that does not answer.
fn silent(patience: Duration) -> SqlError {
    let what = format!("PostgreSQL did not answer within {} s", patience.as_secs());
    SqlError::new(SqlErrorKind::Unknown, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::store::TestDatabase;

    /// More than the server's buffer before it stops, so that rows arrive first.
    const STOPS: &str = "SELECT repeat('x', 100000), CASE WHEN n = 50 THEN pg_sleep(10) END
        FROM generate_series(1, 100) AS n";

    #[test]
    fn a_server_that_stops_in_the_middle_of_an_answer_is_not_waited_for() {
        let Some(database) = TestDatabase::new() else { return };
        let link = Link::to(&database.address).unwrap();
        let mut rows = 0;
        let result = link.patiently(Duration::from_millis(300), |link| {
            link.query(STOPS, &[], &mut |_| {
                rows += 1;
                Ok(ControlFlow::Continue(()))
            })
        });
        let error = result.unwrap_err();
        assert_eq!(error.kind, SqlErrorKind::Unknown, "{error}");
        assert!(rows > 0, "it answered at first");
        assert!(link.is_lost(), "nothing more is asked of it");
    }
}

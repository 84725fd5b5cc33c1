//! A connection to the database. The thread of its caller drives it while it waits for an answer: a
//! change of thread would take as long as a statement. Callers may be inside an executor.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use futures_util::future::try_join;
use tokio::runtime::{Handle, Runtime};
use tokio::task::{JoinHandle, yield_now};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Connection, Row, SimpleQueryMessage, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

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
/// The time for a connection, shared by the servers of an address.
const CONNECT: Duration = Duration::from_secs(15);
/// A setting of a session that no server knows.
const MARK: &str = "conclave.session";
/// The time in which a connection that is dropped says goodbye.
const GOODBYE: Duration = Duration::from_millis(200);

pub(crate) struct Link {
    client: Option<Client>,
    runtime: Option<Runtime>,
    /// The task of the runtime that sends and receives.
    connection: Option<JoinHandle<Result<(), tokio_postgres::Error>>>,
    prepared: RefCell<HashMap<String, Statement>>,
    patience: Cell<Duration>,
    /// The time after which no statement is waited for.
    end: Cell<Option<Instant>>,
    /// Whether a statement's time was up. Nothing more is asked of this connection.
    is_given_up: Cell<bool>,
    has_standby: bool,
}

impl Link {
    /// Connects to the database of an address.
    #[cfg(test)]
    pub(crate) fn to(address: &crate::storage::store::PostgresAddress) -> SqlResult<Self> {
        Self::open(&Connecting::of(address)?, None)
    }

    /// Connects to the database. After `end` neither the connection nor a statement is waited for.
    pub(super) fn open(connecting: &Connecting, end: Option<Instant>) -> SqlResult<Self> {
        let failed = |error: io::Error| SqlError::new(SqlErrorKind::Other, error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let within = end.map_or(CONNECT, |end| end.saturating_duration_since(Instant::now()));
        let connected = drive(&runtime, connect(connecting, within)).and_then(|result| result);
        let (client, connection) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                // Its threads may still ask for the address of a name.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let link = Self {
            client: Some(client),
            connection: Some(runtime.spawn(connection)),
            runtime: Some(runtime),
            prepared: RefCell::default(),
            patience: Cell::new(PATIENCE),
            end: Cell::new(end),
            is_given_up: Cell::new(false),
            has_standby: connecting.has_standby(),
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

    /// Whether the connection can be used no more. Also looks at what the server sent meanwhile:
    /// nothing is received between two statements.
    pub(super) fn is_lost(&self) -> bool {
        if let Some(runtime) = self.runtime.as_ref().filter(|_| !self.is_closed()) {
            // The first time wakes the task of the connection, and the second one lets it run.
            let look = async {
                yield_now().await;
                yield_now().await;
            };
            let _ = drive(runtime, look);
        }
        self.is_closed()
    }

    fn is_closed(&self) -> bool {
        self.is_given_up.get() || self.client.as_ref().is_none_or(Client::is_closed)
    }

    /// Whether the address names several servers, of which one takes over from another.
    pub(crate) fn has_standby(&self) -> bool {
        self.has_standby
    }

    fn client(&self) -> SqlResult<&Client> {
        self.client.as_ref().filter(|_| !self.is_closed()).ok_or_else(connection_lost)
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

    /// Sets the time after which no statement is waited for.
    pub(super) fn set_end(&self, end: Option<Instant>) {
        self.end.set(end);
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

    fn wait<T: Send>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>> + Send,
    ) -> SqlResult<T> {
        let runtime = self.runtime.as_ref().ok_or_else(connection_lost)?;
        let rest = self.end.get().map(|end| end.saturating_duration_since(Instant::now()));
        let patience = rest.map_or(self.patience.get(), |rest| rest.min(self.patience.get()));
        // Within the runtime, whose timers end statements.
        let timed = async move { tokio::time::timeout(patience, answer).await };
        match drive(runtime, timed)? {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                self.is_given_up.set(true);
                Err(silent(patience))
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
        let (Some(runtime), Some(connection)) = (self.runtime.take(), self.connection.take())
        else {
            return;
        };
        let _ = drive(&runtime, async { tokio::time::timeout(GOODBYE, connection).await.is_ok() });
        runtime.shutdown_background();
    }
}

/// Runs a future on the thread of the caller; on a thread of its own where an executor runs the
/// caller, because no executor runs within another.
fn drive<T: Send>(runtime: &Runtime, future: impl Future<Output = T> + Send) -> SqlResult<T> {
    if Handle::try_current().is_err() {
        return Ok(runtime.block_on(future));
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("postgres".to_owned())
            .spawn_scoped(scope, || runtime.block_on(future))
            .map_err(|error| SqlError::new(SqlErrorKind::Other, error.to_string()))?;
        thread.join().map_or_else(|panic| std::panic::resume_unwind(panic), Ok)
    })
}

type ServerConnection = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Connects to the first server that can be used. Each gets the same part of the time, so that one
/// that accepts connections and does not answer leaves time for the one that took over.
async fn connect(
    connecting: &Connecting,
    within: Duration,
) -> SqlResult<(Client, ServerConnection)> {
    let connector = tls::connector(&connecting.tls)?;
    let servers = connecting.servers();
    let part = within / u32::try_from(servers.len()).unwrap_or(u32::MAX).max(1);
    let mut failure = connection_lost();
    for server in servers {
        // The limit of `tokio-postgres` is for TCP alone; a server may also stop in the middle.
        let connected = server.connect(connector.clone());
        failure = match tokio::time::timeout(part, connected).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => error.into(),
            Err(_) => silent(part),
        };
    }
    Err(failure)
}

/// The error of a connection that is gone.
fn connection_lost() -> SqlError {
    SqlError::new(SqlErrorKind::Unknown, "the connection to PostgreSQL is lost")
}

/// The error of a server that does not answer.
fn silent(patience: Duration) -> SqlError {
    let what = format!("PostgreSQL did not answer within {:.3} s", patience.as_secs_f64());
    SqlError::new(SqlErrorKind::Unknown, what)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::connecting::with_servers;
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

    #[test]
    fn a_server_that_accepts_and_does_not_answer_leaves_time_for_the_next() {
        let Some(database) = TestDatabase::new() else { return };
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connecting = Connecting::of(&database.address).unwrap();
        let port = connecting.config.get_ports()[0];
        let both = [silent.local_addr().unwrap().port(), port];
        let host = connecting.config.get_hosts()[0].clone();
        connecting.config =
            with_servers(&connecting.config, &both.map(|port| (host.clone(), port)));
        let end = Instant::now() + Duration::from_secs(4);
        let link = Link::open(&connecting, Some(end)).unwrap();
        assert!(Instant::now() < end);
        link.batch("SELECT 1").unwrap();
        // Alone it takes no longer than it may.
        connecting.config = with_servers(&connecting.config, &[(host, both[0])]);
        let end = Instant::now() + Duration::from_millis(300);
        let error = Link::open(&connecting, Some(end)).map(drop).unwrap_err();
        assert_eq!(error.kind, SqlErrorKind::Unknown, "{error}");
    }

    #[test]
    fn a_connection_that_was_cut_between_two_statements_is_lost() {
        let Some(database) = TestDatabase::new() else { return };
        let link = Link::to(&database.address).unwrap();
        let process: i32 = link.row("SELECT pg_backend_pid()", &[]).unwrap().get(0);
        assert!(!link.is_lost());
        let other = Link::to(&database.address).unwrap();
        other.row("SELECT pg_terminate_backend(?1, 10000)", &[&process]).unwrap();
        assert!(link.is_lost());
    }

    #[tokio::test]
    async fn a_caller_within_an_executor_waits_and_drops_as_others_do() {
        let Some(database) = TestDatabase::new() else { return };
        let link = Link::to(&database.address).unwrap();
        let one: i32 = link.row("SELECT 1", &[]).unwrap().get(0);
        assert!(one == 1 && !link.is_lost());
        drop(link);
    }
}

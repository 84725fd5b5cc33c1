//! A host's connection for writing, which is made again when it is lost.

use std::time::{Duration, Instant};

use super::connecting::Connecting;
use super::link::Link;
use super::schema::{self, Tables};
use crate::storage::store::closing::CloseTime;
use crate::storage::store::sql::{SqlError, SqlErrorKind, SqlResult};
use crate::storage::store::{PostgresAddress, StoreAddress, StoreError};

/// The time for which a lost connection is made again, before the store counts as broken.
pub(in crate::storage::store) const PATIENCE: Duration = Duration::from_secs(60);
/// The pauses between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The settings of a connection that writes. Statements wait for each other's rows as READ COMMITTED
/// does, and none is ended by the server: it could end the wait for a standby, and acknowledge.
const SETTINGS: &str = "SET search_path = conclave;
    SET default_transaction_isolation = 'read committed';
    SET default_transaction_read_only = off;
    SET statement_timeout = 0; SET lock_timeout = 0;
    SET idle_in_transaction_session_timeout = '10s'";

/// A connection for writing.
pub(crate) struct Session {
    connecting: Connecting,
    link: Option<Link>,
    patience: Duration,
    /// The time for one try of all statements, with the connection if it is made again; `None` if
    /// each statement has its own.
    attempt: Option<Duration>,
    close: CloseTime,
}

impl Session {
    /// Connects, checks the server and brings the tables to this host's version.
    pub(crate) fn open(address: &PostgresAddress) -> Result<Self, SessionError> {
        let connecting = Connecting::of(address)?;
        let link = connected(&connecting, None)?;
        if let Tables::Newer(version) = schema::migrate(&link)? {
            return Err(SessionError::Newer { version, known: schema::VERSION });
        }
        let close = CloseTime::default();
        Ok(Self { connecting, link: Some(link), patience: PATIENCE, attempt: None, close })
    }

    /// The same, which makes a lost connection again for this long.
    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same, which does so no longer than until its store has closed.
    pub(in crate::storage::store) fn with_close(self, close: &CloseTime) -> Self {
        Self { close: close.clone(), ..self }
    }

    /// Sets the time for one try of all statements, with the connection if it is made again.
    pub(super) fn set_attempt(&mut self, attempt: Duration) {
        self.attempt = Some(attempt);
    }

    /// Runs statements that may be run again if their outcome is unknown: again when the connection
    /// was lost, or another transaction was in the way.
    pub(crate) fn retry<T>(
        &mut self,
        mut statements: impl FnMut(&Link) -> SqlResult<T>,
    ) -> SqlResult<T> {
        let (mut until, mut pause, mut is_unknown) = (None, FIRST_PAUSE, false);
        loop {
            let result = self.link().and_then(&mut statements);
            let Err(mut error) = result else { return result };
            // An unsafe server may soon be safe again: one that took over gets its standby.
            let is_lost = matches!(
                error.kind,
                SqlErrorKind::Unknown | SqlErrorKind::ReadOnly | SqlErrorKind::Unsafe
            );
            is_unknown |= is_lost;
            // A transaction may be open.
            self.link.take_if(|link| is_lost || link.batch("ROLLBACK").is_err());
            if error.kind == SqlErrorKind::Incomplete
                && let Some(Ok(Tables::Newer(version))) = self.link.as_ref().map(schema::tables)
            {
                let known = schema::VERSION;
                let newer = SessionError::Newer { version, known }.to_string();
                error = SqlError::new(SqlErrorKind::Other, format!("{newer}: use a newer program"));
            }
            let until = *until.get_or_insert_with(|| Instant::now() + self.patience);
            let is_final = !is_lost && error.kind != SqlErrorKind::Conflict;
            if is_final || Instant::now() + pause > self.close.or(until) {
                if is_unknown {
                    // Whatever ended the last try, an earlier one may have taken effect.
                    error.kind = SqlErrorKind::Unknown;
                }
                return Err(error);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Returns the connection, which is made anew if it was lost.
    fn link(&mut self) -> SqlResult<&Link> {
        let end = self.attempt.map(|attempt| Instant::now() + attempt);
        self.link.take_if(|link| link.is_lost());
        match &mut self.link {
            Some(link) => {
                link.set_end(end);
                Ok(link)
            }
            none => Ok(none.insert(connected(&self.connecting, end)?)),
        }
    }
}

/// Connects and checks the server; another one may have taken over.
fn connected(connecting: &Connecting, end: Option<Instant>) -> SqlResult<Link> {
    let link = Link::open(connecting, end)?;
    schema::check_durability(&link)?;
    link.batch(schema::KEEP_SYNCHRONOUS)?;
    link.batch(SETTINGS)?;
    Ok(link)
}

/// The reason why a database cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("its tables have the format {version}, and this host knows {known}")]
    Newer { version: i64, known: i64 },
    #[error(transparent)]
    Sql(#[from] SqlError),
}

impl SessionError {
    /// The error of the store at this address.
    pub(in crate::storage::store) fn of(self, store: &StoreAddress) -> StoreError {
        match self {
            Self::Newer { version, known } => {
                StoreError::Newer { store: store.clone(), version, known }
            }
            Self::Sql(error) => error.of(store),
        }
    }
}

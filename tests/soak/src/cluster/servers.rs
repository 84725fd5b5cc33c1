//! The servers of a soak: a primary whose standby the soak promotes, or a pair under Patroni, which
//! promotes it.

use std::net::SocketAddr;

use conclave_test_servers::{PostgresFailure, TestDatabase, TestPatroni, TestPostgres};

pub(super) enum Servers {
    Pair { primary: Box<TestPostgres>, standby: Box<TestPostgres> },
    Patroni(Box<TestPatroni>),
}

impl Servers {
    /// Starts the servers, with an empty database.
    pub(super) fn start(is_patroni: bool) -> Result<(Self, TestDatabase), PostgresFailure> {
        if is_patroni {
            let pair = TestPatroni::start()?;
            let database = pair.database()?;
            return Ok((Self::Patroni(Box::new(pair)), database));
        }
        let primary = TestPostgres::start()?;
        let database = primary.database()?;
        let standby = primary.standby()?;
        Ok((Self::Pair { primary: Box::new(primary), standby: Box::new(standby) }, database))
    }

    /// Returns the address of the primary.
    pub(super) fn address(&self) -> Result<SocketAddr, PostgresFailure> {
        match self {
            Self::Pair { primary, .. } => Ok(primary.address()),
            Self::Patroni(pair) => pair.address(),
        }
    }

    /// Returns the URL of the database that names both servers, which needs no proxy to lead to the
    /// primary; `None` where the soak promotes.
    pub(super) fn url(&self, database: &TestDatabase) -> Option<String> {
        match self {
            Self::Pair { .. } => None,
            Self::Patroni(pair) => Some(pair.url(database)),
        }
    }

    /// Crashes the primary, which starts again; Patroni promotes the other one instead.
    pub(super) fn crash(&mut self) -> Result<(), PostgresFailure> {
        match self {
            Self::Pair { primary, .. } => primary.restart(),
            Self::Patroni(pair) => pair.crash_primary(),
        }
    }

    /// Ends the primary for good, or its machine for a while. `promoted` is called with the address
    /// of the one that takes its place, before that has a standby.
    pub(super) fn fail_over(
        &mut self,
        promoted: impl FnOnce(SocketAddr) -> std::io::Result<()>,
    ) -> Result<(), super::ClusterFailure> {
        match self {
            Self::Pair { primary, standby } => {
                primary.stop()?;
                standby.promote()?;
                promoted(standby.address())?;
                let next = standby.standby()?;
                **primary = std::mem::replace(&mut **standby, next);
            }
            Self::Patroni(pair) => pair.kill_primary()?,
        }
        Ok(())
    }
}

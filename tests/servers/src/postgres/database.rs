//! A database of a test's own, on a server that other tests may use at the same time.

use std::io;
use std::net::SocketAddr;

use super::installation::Installation;
use super::{PostgresFailure, random_word};
use crate::fault_proxy::FaultProxy;

/// A database that was empty at first.
#[derive(Debug)]
pub struct TestDatabase {
    installation: Installation,
    /// The URL of the server's superuser, up to the name of a database.
    server: String,
    name: String,
    /// Whether the server outlives it. Otherwise it goes with the server's folder.
    is_temporary: bool,
}

impl TestDatabase {
    /// Creates a database that stays until the server ends.
    pub(crate) fn create(installation: Installation, url: &str) -> Result<Self, PostgresFailure> {
        let server = url.rsplit_once('/').map_or(url, |(server, _)| server).to_owned();
        let name = format!("test_{}", random_word());
        installation.query(url, &[&format!("CREATE DATABASE {name}")])?;
        Ok(Self { installation, server, name, is_temporary: false })
    }

    /// Creates a database that is removed when it is dropped.
    pub(crate) fn temporary(
        installation: Installation,
        url: &str,
    ) -> Result<Self, PostgresFailure> {
        let mut database = Self::create(installation, url)?;
        database.is_temporary = true;
        Ok(database)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the URL of the database, with the password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}/{}", self.server, self.name)
    }

    /// Returns the URL of the database behind another address: that of a proxy, or of a standby.
    #[must_use]
    pub fn url_through(&self, address: SocketAddr) -> String {
        let user = self.server.rsplit_once('@').map_or("", |(user, _)| user);
        format!("{user}@{address}/{}", self.name)
    }

    /// Starts a proxy before the server. Returns it, and the URL of the database through it.
    ///
    /// # Errors
    /// If the server is not on the loopback, or the loopback has no free port.
    pub fn behind_proxy(&self) -> io::Result<(FaultProxy, String)> {
        let address = self.server.rsplit_once('@').map_or("", |(_, address)| address);
        let address = address.parse().map_err(io::Error::other)?;
        let proxy = FaultProxy::before(address)?;
        let url = self.url_through(proxy.address());
        Ok((proxy, url))
    }

    /// Runs statements with `psql`, each in a transaction of its own. Returns the rows as text,
    /// with `|` between two columns.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses a statement.
    pub fn query(&self, statements: &[&str]) -> Result<String, PostgresFailure> {
        self.installation.query(&self.url(), statements)
    }

    /// Does the same at another address.
    ///
    /// # Errors
    /// Those of [`Self::query`].
    pub fn query_through(
        &self,
        address: SocketAddr,
        statements: &[&str],
    ) -> Result<String, PostgresFailure> {
        self.installation.query(&self.url_through(address), statements)
    }
}

impl TestDatabase {
    /// Restores a dump of `pg_dump --format=custom` into the database.
    ///
    /// # Errors
    /// If the dump cannot be read, or is refused.
    pub fn restore(&self, dump: &std::path::Path) -> Result<(), PostgresFailure> {
        let file = std::fs::File::open(dump)
            .map_err(|error| PostgresFailure::io("open the dump", &error))?;
        let mut restore = self.installation.command("pg_restore");
        restore.args(["--no-owner", "--exit-on-error", "--dbname", &self.url()]);
        // The account of the server may be unable to enter the folder of the file.
        super::installation::run(restore.stdin(file)).map(drop)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if self.is_temporary {
            let url = format!("{}/postgres", self.server);
            let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
            let _ = self.installation.query(&url, &[&drop]);
        }
    }
}

//! A PostgreSQL server for tests, started from the programs that this machine has. It listens on
//! the loopback, is as durable as an operator's, and ends with its owner.

mod database;
pub(crate) mod installation;
pub(crate) mod server_folder;

use std::env;
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::OnceLock;

pub use database::TestDatabase;
use installation::Installation;
use server_folder::ServerFolder;

use crate::{TestCertificate, is_skipped};

/// The variable with the URL of a server that many test processes share, as its superuser.
const SHARED_SERVER: &str = "CONCLAVE_TEST_POSTGRES";

/// The variable that chooses the kind of store on which tests of any store are played.
const STORE_KIND: &str = "CONCLAVE_TEST_STORE";

pub(crate) const USER: &str = "conclave";

/// The settings of every server. Nothing here makes it less durable than the store requires.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
shared_buffers = '32MB'
fsync = on
synchronous_commit = on
log_timezone = 'UTC'
timezone = 'UTC'
";

/// Below the ports that Linux gives to outgoing connections. Such a connection could take the port
/// of a server that restarts.
const PORTS: Range<u16> = 20_000..30_000;

/// The number of ports that are tried before a start fails.
const PORT_ATTEMPTS: u32 = 20;

/// The reason why there is no server, or why it did not do what it was asked.
#[derive(Clone, Debug)]
pub enum PostgresFailure {
    /// This machine has no PostgreSQL that is new enough.
    NotInstalled,
    /// This machine has no Patroni, or no etcd.
    NoPatroni,
    /// This machine has no PgBouncer.
    NoPooler,
    /// A program of PostgreSQL failed; its own words.
    Failed(String),
}

impl Display for PostgresFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInstalled => out.write_str(
                "PostgreSQL 15 or newer is not installed: `apt install postgresql` brings it",
            ),
            Self::NoPatroni => out.write_str(
                "Patroni or etcd is not installed: `apt install patroni etcd-server` brings them",
            ),
            Self::NoPooler => {
                out.write_str("PgBouncer is not installed: `apt install pgbouncer` brings it")
            }
            Self::Failed(reason) => out.write_str(reason),
        }
    }
}

impl std::error::Error for PostgresFailure {}

impl PostgresFailure {
    pub(crate) fn io(what: &str, error: &std::io::Error) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }
}

/// Returns the server or database. Returns `None` where PostgreSQL is not installed, and reports to
/// the runner that the test was skipped.
///
/// # Panics
/// If PostgreSQL is installed and failed.
#[must_use]
pub fn postgres_or_skip<T>(started: Result<T, PostgresFailure>) -> Option<T> {
    match started {
        Ok(started) => Some(started),
        Err(PostgresFailure::Failed(reason)) => panic!("PostgreSQL failed: {reason}"),
        Err(missing) => {
            let _ = is_skipped(Err(missing.to_string()));
            None
        }
    }
}

/// Returns a database for the store of a test if the variable `CONCLAVE_TEST_STORE` is `postgres`;
/// otherwise the test has its store in a folder.
///
/// # Panics
/// If PostgreSQL is not installed or failed.
#[must_use]
pub fn database_of_test_store() -> Option<TestDatabase> {
    match env::var(STORE_KIND).as_deref() {
        Ok("postgres") => match TestPostgres::shared() {
            Ok(database) => Some(database),
            Err(failure) => panic!("there is no database for the test's store: {failure}"),
        },
        _ => None,
    }
}

/// A running server with its own folder and port. When it is dropped, or its process ends in any
/// way, the server ends and the folder is removed.
#[derive(Debug)]
pub struct TestPostgres {
    installation: Installation,
    folder: ServerFolder,
    password: String,
    port: u16,
}

impl TestPostgres {
    /// Starts a new server.
    ///
    /// # Errors
    /// If PostgreSQL is not installed, or does not start.
    pub fn start() -> Result<Self, PostgresFailure> {
        let installation = Installation::find()?;
        let folder = ServerFolder::new(&installation)?;
        let password = random_word();
        let password_file = folder.path().join("password");
        fs::write(&password_file, &password)
            .map_err(|error| PostgresFailure::io("write the password", &error))?;
        let mut initdb = installation.command("initdb");
        initdb.args(["--username", USER, "--auth", "scram-sha-256", "--encoding", "UTF8"]);
        // The files are synced when the server writes them; a folder that was lost is no test.
        initdb.args(["--locale", "C", "--no-sync", "--no-instructions", "--pwfile"]);
        installation::run(initdb.arg(&password_file).arg("--pgdata").arg(folder.data()))?;
        OpenOptions::new()
            .append(true)
            .open(folder.data().join("postgresql.conf"))
            .and_then(|mut config| config.write_all(SETTINGS.as_bytes()))
            .map_err(|error| PostgresFailure::io("write the settings", &error))?;
        Self::start_on_free_port(installation, folder, password)
    }

    /// Returns a new database of a server that many tests share: the one that the variable
    /// `CONCLAVE_TEST_POSTGRES` names, otherwise one of this process.
    ///
    /// # Errors
    /// Those of [`Self::start`] and [`Self::database`].
    pub fn shared() -> Result<TestDatabase, PostgresFailure> {
        static OWN: OnceLock<Result<TestPostgres, PostgresFailure>> = OnceLock::new();
        if let Ok(url) = env::var(SHARED_SERVER) {
            return TestDatabase::temporary(Installation::find()?, &url);
        }
        OWN.get_or_init(Self::start).as_ref().map_err(Clone::clone)?.database()
    }

    /// Returns a new empty database of this server.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn database(&self) -> Result<TestDatabase, PostgresFailure> {
        TestDatabase::create(self.installation.clone(), &self.url())
    }

    /// Returns the address on which the server listens, for a proxy before it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(crate) fn password(&self) -> &str {
        &self.password
    }

    /// Returns the URL of the superuser, with the password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://{USER}:{}@{}/postgres", self.password, self.address())
    }

    /// Crashes the server if it runs, and starts it again on the same port.
    ///
    /// # Errors
    /// If it does not start.
    pub fn restart(&self) -> Result<(), PostgresFailure> {
        self.control(&["restart", "--mode", "immediate"])
    }

    /// Crashes the server: it writes nothing more and cuts its connections.
    ///
    /// # Errors
    /// If it does not run.
    pub fn stop(&self) -> Result<(), PostgresFailure> {
        self.control(&["stop", "--mode", "immediate"])
    }

    /// Changes a setting that needs no restart. Connections that begin later have the new value;
    /// others get it at their next statement.
    ///
    /// # Errors
    /// If the server does not accept the setting.
    pub fn set(&self, name: &str, value: &str) -> Result<(), PostgresFailure> {
        let query = |sql: &str| self.query(&[sql]);
        let load_time = "SELECT pg_conf_load_time()";
        let before = query(load_time)?;
        let change = format!("ALTER SYSTEM SET {name} = '{}'", value.replace('\'', "''"));
        self.query(&[&change, "SELECT pg_reload_conf()"])?;
        while query(load_time)? == before {}
        // Commits wait for a standby as soon as the checkpointer has read the new settings, and it
        // reads them before its next checkpoint.
        query("CHECKPOINT").map(drop)
    }

    /// Encrypts connections with this certificate. Clients whose certificate an authority in
    /// `clients` has issued are recognised; `clients` may be the authority of the server.
    ///
    /// # Errors
    /// If the server does not accept the files.
    pub fn encrypt(
        &self,
        server: &TestCertificate,
        clients: &TestCertificate,
    ) -> Result<(), PostgresFailure> {
        let files = [
            ("ssl_cert_file", &server.certificate),
            ("ssl_key_file", &server.key),
            ("ssl_ca_file", &clients.certificate),
        ];
        for (setting, file) in files {
            // The server reads its own copy, which nobody else may access.
            self.folder
                .write(setting, &fs::read(file).unwrap_or_default())
                .map_err(|error| PostgresFailure::io("copy a certificate", &error))?;
            self.set(setting, &self.folder.path().join(setting).display().to_string())?;
        }
        self.set("ssl", "on")
    }

    /// Adds a rule before those of `pg_hba.conf`.
    ///
    /// # Errors
    /// If the file cannot be changed, or the server does not accept it.
    pub fn add_access_rule(&self, rule: &str) -> Result<(), PostgresFailure> {
        let file = self.folder.data().join("pg_hba.conf");
        let failed = |error| PostgresFailure::io("change pg_hba.conf", &error);
        let rules = fs::read_to_string(&file).map_err(failed)?;
        fs::write(&file, format!("{rule}\n{rules}")).map_err(failed)?;
        // Any setting makes the server read its files.
        self.set("log_min_messages", "warning")
    }

    /// Starts a standby of this server. From then on each commit with `synchronous_commit = on`
    /// waits for it.
    ///
    /// # Errors
    /// If the standby cannot copy this server, or does not start.
    pub fn standby(&self) -> Result<Self, PostgresFailure> {
        let installation = self.installation.clone();
        let folder = ServerFolder::new(&installation)?;
        let (address, password) = (self.address(), self.password.clone());
        let primary = format!(
            "host={} port={} user={USER} password={password} application_name=standby",
            address.ip(),
            address.port()
        );
        let mut copy = installation.command("pg_basebackup");
        copy.args(["--dbname", &primary, "--write-recovery-conf", "--checkpoint", "fast"]);
        installation::run(copy.args(["--no-sync", "--pgdata"]).arg(folder.data()))?;
        let standby = Self::start_on_free_port(installation, folder, password)?;
        self.set("synchronous_standby_names", "*")?;
        let is_synchronous = "SELECT count(*) FROM pg_stat_replication \
             WHERE state = 'streaming' AND sync_state = 'sync'";
        while self.query(&[is_synchronous])? == "0" {}
        Ok(standby)
    }

    /// Makes a standby the primary server.
    ///
    /// # Errors
    /// If it is no standby.
    pub fn promote(&self) -> Result<(), PostgresFailure> {
        self.control(&["promote"])
    }

    fn start_on_free_port(
        installation: Installation,
        folder: ServerFolder,
        password: String,
    ) -> Result<Self, PostgresFailure> {
        let mut server = Self { installation, folder, password, port: 0 };
        let mut attempts = 0;
        loop {
            attempts += 1;
            server.port = free_port()?;
            let failure = match server.control(&["start", "-o", &format!("-p {}", server.port)]) {
                Ok(()) => return Ok(server),
                Err(failure) => failure,
            };
            // Another process can take the port before the server does.
            let is_taken = failure.to_string().contains("could not bind");
            if !is_taken || attempts == PORT_ATTEMPTS {
                return Err(failure);
            }
        }
    }

    /// Runs `pg_ctl`, which waits until the server is in the new state.
    fn control(&self, words: &[&str]) -> Result<(), PostgresFailure> {
        let log = self.folder.path().join("log");
        let _ = fs::remove_file(&log);
        let mut command = self.installation.command("pg_ctl");
        command.args(words).arg("--pgdata").arg(self.folder.data());
        // Longer than any machine is slow.
        command.args(["--wait", "--timeout", "600"]);
        if matches!(words, ["start" | "restart", ..]) {
            command.arg("--log").arg(&log);
        }
        installation::run(&mut command).map(drop).map_err(|failure| {
            let log = fs::read_to_string(&log).unwrap_or_default();
            PostgresFailure::Failed(format!("{failure}\n{log}").trim_end().to_owned())
        })
    }

    fn query(&self, statements: &[&str]) -> Result<String, PostgresFailure> {
        self.installation.query(&self.url(), statements)
    }
}

pub(crate) fn free_port() -> Result<u16, PostgresFailure> {
    let width = u64::from(PORTS.end - PORTS.start);
    for _ in 0..PORT_ATTEMPTS {
        let offset = u16::try_from(random() % width).unwrap_or_default();
        let port = PORTS.start + offset;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(PostgresFailure::Failed(format!("no free port was found in {PORTS:?}")))
}

/// Returns a random number. A hasher's own seed is random enough.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// Returns 16 random hexadecimal digits.
pub(crate) fn random_word() -> String {
    format!("{:016x}", random())
}

/// Returns `PATH` of this process, the only variable that the programs get.
fn search_path() -> OsString {
    env::var_os("PATH").unwrap_or_default()
}

#[cfg(test)]
mod tests;

//! A pair of PostgreSQL servers under Patroni, with an etcd of their own. Patroni decides which one
//! is the primary, and lets the other one follow it synchronously.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::postgres::installation::{self, Installation};
use crate::postgres::server_folder::ServerFolder;
use crate::postgres::{PostgresFailure, TestDatabase, USER, free_port, random_word};

/// The longest time for a start, or for a failover with the return of the old primary.
const PATIENCE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(200);

/// A pair of servers, which end with this value or with its process.
#[derive(Debug)]
pub struct TestPatroni {
    installation: Installation,
    folder: ServerFolder,
    password: String,
    etcd: Child,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    name: String,
    port: u16,
    patroni: Option<Child>,
}

impl TestPatroni {
    /// Starts etcd and both servers, and waits until one follows the other.
    ///
    /// # Errors
    /// If PostgreSQL, Patroni or etcd is not installed or does not start.
    pub fn start() -> Result<Self, PostgresFailure> {
        let installation = Installation::find()?;
        let folder = ServerFolder::new(&installation)?;
        let (client, peer) = (free_port()?, free_port()?);
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut etcd = installation.as_account("etcd");
        etcd.arg("--data-dir").arg(folder.path().join("etcd")).arg("--unsafe-no-fsync");
        etcd.args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)]);
        etcd.args(["--listen-peer-urls", &url(peer)]);
        let etcd = spawn(etcd, &folder, "etcd")?;
        let mut pair =
            Self { installation, folder, password: random_word(), etcd, nodes: Vec::new() };
        for name in ["node0", "node1"] {
            let (name, port) = (name.to_owned(), free_port()?);
            let config = pair.config(&name, port, free_port()?, client);
            pair.folder
                .write(&format!("{name}.yml"), config.as_bytes())
                .map_err(|error| PostgresFailure::io("write the config of Patroni", &error))?;
            pair.nodes.push(Node { name, port, patroni: None });
        }
        for node in 0..pair.nodes.len() {
            pair.start_node(node)?;
        }
        pair.await_standby()?;
        Ok(pair)
    }

    /// Returns a new empty database.
    ///
    /// # Errors
    /// If the primary refuses it.
    pub fn database(&self) -> Result<TestDatabase, PostgresFailure> {
        let url = self.url_of(self.primary().ok_or_else(no_primary)?);
        TestDatabase::create(self.installation.clone(), &url)
    }

    /// Returns the URL of a database with both servers, as a client of Patroni writes it.
    #[must_use]
    pub fn url(&self, database: &TestDatabase) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| node.address().to_string()).collect();
        let (hosts, name) = (hosts.join(","), database.name());
        let password = &self.password;
        format!("postgres://{USER}:{password}@{hosts}/{name}?target_session_attrs=read-write")
    }

    /// Returns the address of the primary server, after waiting for one.
    ///
    /// # Errors
    /// If there is none for a long time.
    pub fn address(&self) -> Result<SocketAddr, PostgresFailure> {
        let node = await_some(|| self.primary())?;
        Ok(self.nodes[node].address())
    }

    /// Crashes the primary server. Patroni is there, and lets the other one take its place.
    ///
    /// # Errors
    /// If no server becomes the primary, or it gets no standby.
    pub fn crash_primary(&mut self) -> Result<(), PostgresFailure> {
        let primary = await_some(|| self.primary())?;
        self.kill_server(primary)?;
        self.await_other(primary)?;
        self.await_standby()
    }

    /// Kills the machine of the primary server: Patroni and the server. Once the other one has
    /// taken its place, the machine starts again.
    ///
    /// # Errors
    /// If no server becomes the primary, or it gets no standby.
    pub fn kill_primary(&mut self) -> Result<(), PostgresFailure> {
        let primary = await_some(|| self.primary())?;
        self.end_patroni(primary);
        self.kill_server(primary)?;
        self.await_other(primary)?;
        self.start_node(primary)?;
        self.await_standby()
    }

    /// Waits until the other server is the primary.
    fn await_other(&self, than: usize) -> Result<(), PostgresFailure> {
        await_some(|| self.primary().filter(|node| *node != than)).map(drop)
    }

    /// Waits until each commit waits for a standby.
    fn await_standby(&self) -> Result<(), PostgresFailure> {
        let count = "SELECT count(*) FROM pg_stat_replication \
             WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')";
        await_some(|| {
            let primary = self.url_of(self.primary()?);
            let standbys = self.installation.query(&primary, &[count]).ok()?;
            (standbys != "0").then_some(())
        })
    }

    fn primary(&self) -> Option<usize> {
        let is_primary = |node: &usize| {
            let recovers =
                self.installation.query(&self.url_of(*node), &["SELECT pg_is_in_recovery()"]);
            recovers.is_ok_and(|recovers| recovers == "f")
        };
        (0..self.nodes.len()).find(is_primary)
    }

    fn url_of(&self, node: usize) -> String {
        format!("postgres://{USER}:{}@{}/postgres", self.password, self.nodes[node].address())
    }

    fn start_node(&mut self, node: usize) -> Result<(), PostgresFailure> {
        let name = self.nodes[node].name.clone();
        let mut patroni = self.installation.as_account("patroni");
        patroni.arg(self.folder.path().join(format!("{name}.yml")));
        self.nodes[node].patroni = Some(spawn(patroni, &self.folder, &name)?);
        Ok(())
    }

    fn end_patroni(&mut self, node: usize) {
        if let Some(mut patroni) = self.nodes[node].patroni.take() {
            let _ = patroni.kill();
            let _ = patroni.wait();
        }
    }

    /// Ends a server by SIGKILL; its connections end with it.
    fn kill_server(&self, node: usize) -> Result<(), PostgresFailure> {
        let lock = self.folder.path().join(format!("data-{}", self.nodes[node].name));
        let lock = fs::read_to_string(lock.join("postmaster.pid"))
            .map_err(|error| PostgresFailure::io("read postmaster.pid", &error))?;
        let id = lock.lines().next().unwrap_or_default();
        installation::run(self.installation.as_account("kill").args(["-KILL", id])).map(drop)
    }

    /// Returns a config. Its times are the shortest that Patroni accepts.
    fn config(&self, name: &str, port: u16, api: u16, etcd: u16) -> String {
        let (folder, programs) = (self.folder.path().display(), self.installation.programs());
        let (programs, password) = (programs.display(), &self.password);
        format!(
            "scope: conclave
name: {name}
restapi: {{listen: '127.0.0.1:{api}', connect_address: '127.0.0.1:{api}'}}
etcd3: {{host: '127.0.0.1:{etcd}'}}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 1
    retry_timeout: 3
    master_start_timeout: 0
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      parameters: {{max_connections: 200, shared_buffers: 32MB, wal_keep_size: 256MB}}
  initdb: [{{encoding: UTF8}}, {{locale: C}}, no-sync]
postgresql:
  listen: 127.0.0.1:{port}
  connect_address: 127.0.0.1:{port}
  data_dir: {folder}/data-{name}
  bin_dir: {programs}
  pgpass: {folder}/{name}.pgpass
  authentication:
    superuser: {{username: {USER}, password: '{password}'}}
    replication: {{username: replicator, password: '{password}'}}
  parameters: {{unix_socket_directories: '', log_timezone: UTC, timezone: UTC}}
  pg_hba:
    - host all all 127.0.0.1/32 scram-sha-256
    - host replication replicator 127.0.0.1/32 scram-sha-256
"
        )
    }
}

impl Node {
    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

impl Drop for TestPatroni {
    fn drop(&mut self) {
        for node in 0..self.nodes.len() {
            self.end_patroni(node);
        }
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
    }
}

/// Starts a process that ends with the folder, and writes its log there.
fn spawn(
    mut command: std::process::Command,
    folder: &ServerFolder,
    name: &str,
) -> Result<Child, PostgresFailure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => PostgresFailure::NoPatroni,
        _ => PostgresFailure::io(&program, &error),
    };
    let log = File::create(folder.path().join(format!("{name}.log"))).map_err(failed)?;
    let child = command.stdout(Stdio::null()).stderr(log).spawn().map_err(failed)?;
    folder.write(&format!("{name}.pid"), child.id().to_string().as_bytes()).map_err(failed)?;
    Ok(child)
}

fn await_some<T>(mut look: impl FnMut() -> Option<T>) -> Result<T, PostgresFailure> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = look() {
            return Ok(value);
        }
        if Instant::now() > until {
            return Err(no_primary());
        }
        sleep(PAUSE);
    }
}

fn no_primary() -> PostgresFailure {
    PostgresFailure::Failed("Patroni has brought up no primary with a standby".to_owned())
}

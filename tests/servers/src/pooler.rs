//! A PgBouncer before a server.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::thread::yield_now;

use crate::postgres::installation::Installation;
use crate::postgres::server_folder::ServerFolder;
use crate::postgres::{PostgresFailure, TestPostgres, USER, free_port};

/// A pooler, which ends with this value or with its process.
#[derive(Debug)]
pub struct TestPooler {
    process: Child,
    port: u16,
    _folder: ServerFolder,
}

impl TestPooler {
    /// Starts a pooler of connections as the superuser. The mode is that of PgBouncer: `session` or
    /// `transaction`.
    ///
    /// # Errors
    /// If PgBouncer is not installed or does not start.
    pub fn before(server: &TestPostgres, mode: &str) -> Result<Self, PostgresFailure> {
        let installation = Installation::find()?;
        let folder = ServerFolder::new(&installation)?;
        let port = free_port()?;
        let config = format!(
            "[databases]
* = host=127.0.0.1 port={} user={USER} password={}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 50
",
            server.address().port(),
            server.password()
        );
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => PostgresFailure::NoPooler,
            _ => PostgresFailure::io("pgbouncer", &error),
        };
        folder.write("pgbouncer.ini", config.as_bytes()).map_err(failed)?;
        let mut command = installation.as_account("pgbouncer");
        command.arg(folder.path().join("pgbouncer.ini"));
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut process = process.map_err(failed)?;
        let id = process.id().to_string();
        folder.write("pgbouncer.pid", id.as_bytes()).map_err(failed)?;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Some(status) = process.try_wait().map_err(failed)? {
                return Err(PostgresFailure::Failed(format!("pgbouncer ended: {status}")));
            }
            yield_now();
        }
        Ok(Self { process, port, _folder: folder })
    }

    /// Returns the address on which the pooler listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

impl Drop for TestPooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! The server under test as a process: started, killed, drained and measured.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::ServerPlan;
use super::client::Client;

/// The interval between two looks at a server that starts.
const LOOK: Duration = Duration::from_millis(20);
/// Looks until a server that has not answered counts as one that does not start.
const LOOKS: u32 = 6_000;
/// Bytes of the log that a failure shows.
const LOG_END: u64 = 2_000;

/// What memory a process has, in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// All of it, also pages of its program's file.
    pub(super) resident: u64,
    /// What it has allocated.
    pub(super) anonymous: u64,
}

/// A `conclave serve` on loopback, always at the same address.
pub(super) struct ServerProcess {
    plan: ServerPlan,
    folder: PathBuf,
    address: SocketAddr,
    child: Option<Child>,
}

impl ServerProcess {
    /// A server that was not started yet. Its config, its store and its state are in the folder.
    pub(super) fn new(plan: &ServerPlan, folder: &Path) -> io::Result<Self> {
        // A port that is free now. Servers that start again must be found where they were.
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        Ok(Self { plan: plan.clone(), folder: folder.to_owned(), address, child: None })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn store(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// `conclave` in the environment of the soak alone.
    fn conclave(&self) -> Command {
        let mut command = Command::new(&self.plan.conclave);
        command
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("CONCLAVE_CACHE", &self.plan.cache)
            .env("CONCLAVE_STATE", self.folder.join("state"))
            .env("HOME", &self.folder)
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        command
    }

    /// Gives a person a token.
    pub(super) fn token(&self, name: &str, role: &str) -> Result<String, String> {
        let mut command = self.conclave();
        let made = command.args(["server", "token", "add", name, "--role", role]).output();
        let made = made.map_err(|error| error.to_string())?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&made.stdout).trim().to_owned())
    }

    /// Starts the server, and returns when it answers.
    pub(super) async fn start(&mut self) -> Result<(), String> {
        let log = File::options().append(true).create(true).open(self.log());
        let log = log.map_err(|error| error.to_string())?;
        let mut command = self.conclave();
        command.args(["serve", "c.toml", "--quiet", "--store"]).arg(self.store());
        command.args(["--listen", &self.address.to_string()]).stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        for _ in 0..LOOKS {
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                break;
            }
            let answer = Client::new(self.address, "").request("GET", "/readyz", None, "").await;
            if answer.is_ok_and(|answer| answer.status == 200) {
                self.child = Some(child);
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(format!("the server does not start: {}", self.log_end()))
    }

    /// Kills the server at once.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill()?;
        child.wait().map(drop)
    }

    /// Sends SIGTERM, and waits for the end.
    pub(super) fn drain(&mut self) -> io::Result<ExitStatus> {
        let mut child = self.child.take().ok_or(io::ErrorKind::NotFound)?;
        let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        kill_process(process.ok_or(io::ErrorKind::NotFound)?, Signal::TERM)?;
        child.wait()
    }

    /// `None` where the system does not say.
    pub(super) fn memory(&self) -> Option<Memory> {
        let child = self.child.as_ref()?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Memory { resident: number("VmRSS:")?, anonymous: number("RssAnon:")? })
    }

    fn log(&self) -> PathBuf {
        self.folder.join("serve.log")
    }

    /// The end of what the server printed.
    pub(super) fn log_end(&self) -> String {
        let mut end = Vec::new();
        let read = File::open(self.log()).and_then(|mut file| {
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(LOG_END)))?;
            file.read_to_end(&mut end)
        });
        match read {
            Ok(_) => String::from_utf8_lossy(&end).into_owned(),
            Err(error) => error.to_string(),
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

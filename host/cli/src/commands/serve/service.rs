//! What the system and a service manager such as systemd give a server: files, and a socket on which
//! it says that it is ready, that it lives and that it stops.

#[cfg(unix)]
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// The socket of the service manager, if one started the server.
pub(super) struct ServiceManager {
    #[cfg(unix)]
    socket: Option<UnixDatagram>,
    /// The interval of signs of life, if the manager asks for them.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The manager that the environment names.
    pub(super) fn of_environment() -> Self {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        // The variables may be those of a parent process.
        let is_own = number("WATCHDOG_PID").is_none_or(|id| id == u64::from(std::process::id()));
        // Twice in the time of the manager, so that one late sign does not end the server.
        let watchdog = number("WATCHDOG_USEC").filter(|time| is_own && *time > 0);
        let watchdog = watchdog.map(|time| Duration::from_micros((time / 2).max(1)));
        Self {
            #[cfg(unix)]
            socket: std::env::var_os("NOTIFY_SOCKET").and_then(|name| connect(&name)),
            watchdog,
        }
    }

    pub(super) fn ready(&self) {
        self.notify("READY=1");
    }

    /// Says how the server does, in a line for people.
    pub(super) fn status(&self, line: &str) {
        self.notify(&format!("STATUS={line}"));
    }

    pub(super) fn stopping(&self) {
        self.notify("STOPPING=1");
    }

    /// Sends signs of life as often as the manager asks for, and never returns.
    pub(super) async fn live(&self) {
        let Some(interval) = self.watchdog else { return std::future::pending().await };
        let mut interval = tokio::time::interval(interval);
        loop {
            interval.tick().await;
            self.notify("WATCHDOG=1");
        }
    }

    /// Sends a message. A manager that does not read it ends the server by its own rules.
    fn notify(&self, message: &str) {
        #[cfg(unix)]
        if let Some(socket) = &self.socket {
            let _ = socket.send(message.as_bytes());
        }
        #[cfg(not(unix))]
        let _ = message;
    }
}

#[cfg(unix)]
fn connect(name: &std::ffi::OsStr) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    match name.as_encoded_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt as _;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name).ok()?;
            socket.connect_addr(&address).ok()?;
        }
        _ => socket.connect(name).ok()?,
    }
    Some(socket)
}

/// Allows this process as many open files as its user may have: each event stream is one, and the
/// usual limit is lower than their number.
pub(super) fn allow_files() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        // Without it, connections past the limit wait until others end.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

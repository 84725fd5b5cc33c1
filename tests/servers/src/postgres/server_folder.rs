//! The folder of a server, and the process that ends the server and removes the folder.

use std::env;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::PostgresFailure;
use super::installation::Installation;

/// Waits until its input ends, which also happens when the owner is killed. Then ends the processes
/// and servers of the folder and removes it. Its arguments: the folder of the programs, and the
/// folder.
const WATCHDOG: &str = r#"cat
for file in "$2"/*.pid; do kill -KILL "$(cat "$file")"; done
for data in "$2"/data*; do "$1/pg_ctl" stop --mode immediate --pgdata "$data"; done
rm -rf "$2""#;

/// A folder that is removed when this is dropped, or when this process ends in any way. Its server
/// is ended before.
#[derive(Debug)]
pub(crate) struct ServerFolder {
    path: PathBuf,
    watchdog: Child,
}

impl ServerFolder {
    /// Creates an empty folder, which belongs to the account of the server.
    pub(crate) fn new(installation: &Installation) -> Result<Self, PostgresFailure> {
        // Another account may be unable to enter the folder that TMPDIR names.
        let account = installation.account();
        let parent = if account.is_some() { PathBuf::from("/tmp") } else { env::temp_dir() };
        let folder = tempfile::Builder::new()
            .prefix("conclave-postgres-")
            .tempdir_in(parent)
            .map_err(|error| PostgresFailure::io("create the folder of the server", &error))?;
        if let Some(account) = account {
            chown(folder.path(), Some(account.user), Some(account.group))
                .map_err(|error| PostgresFailure::io("change the owner of the folder", &error))?;
        }
        let mut watchdog = installation.as_account("sh");
        watchdog.args(["-c", WATCHDOG, "sh"]).arg(installation.programs()).arg(folder.path());
        watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Not in the group of the test, which an interrupt or a test runner ends as a whole.
        let watchdog = watchdog.process_group(0).spawn();
        let watchdog = watchdog.map_err(|error| PostgresFailure::io("start sh", &error))?;
        Ok(Self { path: folder.keep(), watchdog })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file that only the server can read.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let file = self.path.join(name);
        std::fs::write(&file, bytes)?;
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600))?;
        let folder = std::fs::metadata(&self.path)?;
        chown(&file, Some(folder.uid()), Some(folder.gid()))
    }

    /// Returns the folder of the server's data.
    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }
}

impl Drop for ServerFolder {
    fn drop(&mut self) {
        // The end of its input.
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

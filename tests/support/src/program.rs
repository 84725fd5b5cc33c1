//! The program `conclave` in an isolated environment: no home folder, stores, keys, terminal width,
//! colors or proxies of the machine. Its files are in the rig's folders and are removed with them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Rig, cache};

/// The timeout of waits that can only end well: for a line, a request or a file. Long enough that
/// no test depends on the speed of the machine. The test runner ends a hanging test
/// (`host/xtask/nextest.toml`).
const PATIENCE: Duration = Duration::from_secs(600);

/// The polling interval for state that changes without a notification.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Returns the path of the program. `cargo xtask test` builds it before the tests and passes its
/// path.
#[must_use]
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a test runs from a file");
    let folder = test.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps");
    let program = folder.join(format!("conclave{}", std::env::consts::EXE_SUFFIX));
    assert!(program.exists(), "{} is not there: run `cargo xtask build`", program.display());
    program
}

/// Returns a command whose environment contains only PATH.
#[must_use]
pub fn bare(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    // Windows programs cannot start without SYSTEMROOT.
    for name in ["PATH", "SYSTEMROOT"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command
}

impl Rig {
    /// Returns `conclave ARGUMENTS` in the rig's folder, with an empty stdin. Home, state and
    /// temporary files are in the rig, and so are the runs unless they are in a database. All tests share the compilation cache.
    #[must_use]
    pub fn conclave(&self, arguments: &[&str]) -> Command {
        let mut command = self.bare(program());
        command
            .args(arguments)
            .env("CONCLAVE_CACHE", cache())
            .env("CONCLAVE_STATE", self.root().join("state"))
            .stdin(Stdio::null());
        if let Some(database) = self.database().get() {
            command.env("CONCLAVE_STORE", database.url());
        }
        command
    }

    /// Returns another program in the same environment.
    #[must_use]
    pub fn bare(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = bare(program);
        for (name, folder) in [("HOME", "home"), ("TMPDIR", "tmp")] {
            let folder = self.root().join(folder);
            std::fs::create_dir_all(&folder).expect("a test can make a folder");
            command.env(name, folder);
        }
        command.current_dir(self.folder());
        command
    }
}

/// Kills a process at once, without a signal that it could handle. See [`Rig::kill`].
///
/// # Panics
/// If the process cannot be killed.
pub fn kill(mut child: Child) {
    child.kill().expect("it can be killed");
    child.wait().expect("it has ended");
}

/// Polls until `look` returns a value.
///
/// # Panics
/// If no value appears before the timeout.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what} never came");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Polls until the condition holds, and lets other tasks of this thread's runtime run.
///
/// # Panics
/// If the condition does not hold before the timeout.
pub async fn until_so(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it never happened: {what}");
        tokio::time::sleep(LOOK_AGAIN / 10).await;
    }
}

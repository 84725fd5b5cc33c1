//! The program `conclave` as a test starts it: nothing of the machine's own reaches it. No home of
//! anybody's, no stores, no keys, no terminal's width, no colours, no proxies; what it keeps lies
//! in the rig's folders and goes with them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Rig, cache};

/// For a wait that can only end well: for a line, a request, a file. Whoever waits this long waits
/// for what never comes; no test passes or fails by how fast the machine is. A test that is stuck
/// all the same is ended by its runner (`host/xtask/nextest.toml`).
const PATIENCE: Duration = Duration::from_secs(600);

/// How long to let others work before something is looked at again that tells nobody when it
/// changes.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The program; `cargo xtask test` builds it before the tests, and says where it is.
#[must_use]
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a test runs from a file");
    let folder = test.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps");
    let program = folder.join(format!("conclave{}", std::env::consts::EXE_SUFFIX));
    assert!(program.exists(), "{} is not there: run `cargo xtask build`", program.display());
    program
}

/// A command that knows the PATH and nothing else of this process's environment.
#[must_use]
pub fn bare(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    // What Windows programs cannot start without.
    for name in ["PATH", "SYSTEMROOT"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command
}

impl Rig {
    /// `conclave ARGUMENTS` in the rig's folder, with nobody on stdin. Its home, its state and its
    /// folder for temporary files are the rig's own; what was compiled is kept where all tests keep
    /// it.
    #[must_use]
    pub fn conclave(&self, arguments: &[&str]) -> Command {
        let mut command = self.bare(program());
        command
            .args(arguments)
            .env("CONCLAVE_CACHE", cache())
            .env("CONCLAVE_STATE", self.root().join("state"))
            .stdin(Stdio::null());
        command
    }

    /// Another program, likewise.
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

/// Looks until what is looked for is there.
///
/// # Panics
/// When it does not come.
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

/// The same, while others work in this thread's runtime.
///
/// # Panics
/// When it does not come.
pub async fn until_so(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it never happened: {what}");
        tokio::time::sleep(LOOK_AGAIN / 10).await;
    }
}

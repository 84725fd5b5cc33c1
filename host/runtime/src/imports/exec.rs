//! Programs of the machine, for `grants.exec`. The host starts a second process of its own program,
//! the launcher, which isolates and confines itself before it starts the granted program.
#![cfg_attr(
    not(all(feature = "exec", target_os = "linux")),
    expect(dead_code, reason = "no program starts")
)]

#[cfg(all(feature = "exec", target_os = "linux"))]
mod linux;
#[cfg(not(all(feature = "exec", target_os = "linux")))]
mod unsupported;

pub(crate) mod trees;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout};

use conclave_core::types::side_effect::ProgramEnding;
use serde::{Deserialize, Serialize};

#[cfg(all(feature = "exec", target_os = "linux"))]
use linux as platform;
#[cfg(not(all(feature = "exec", target_os = "linux")))]
use unsupported as platform;

pub use platform::{ServerProcess, run_confined, run_supervised, stop_servers};

/// The port on which a server finds the proxy of the host, in a network of its own.
pub(crate) const PROXY_PORT: u16 = 3_128;

/// The program that confines itself and then starts a granted program, for `grants.exec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramLauncher {
    /// A program that calls [`run_confined`](crate::exec::run_confined) before it starts any thread;
    /// it is started without environment variables.
    pub program: PathBuf,
    /// The arguments before those for `run_confined`.
    pub args: Vec<OsString>,
    /// The folder for the private folder of each program, which is removed with it.
    pub folder: PathBuf,
}

/// A program to start, with all that confines it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProgramSpec {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    /// The working directory; `None` for the private folder.
    pub(crate) directory: Option<PathBuf>,
    /// Files and folders that it may read, besides the system's.
    pub(crate) read: Vec<PathBuf>,
    /// Programs that it may start, and folders of such, besides itself and its interpreter.
    pub(crate) starts: Vec<PathBuf>,
    /// Folders that it may also write.
    pub(crate) write: Vec<PathBuf>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) network: NetworkAccess,
    /// Whether it is a server, which lives for long: it hears a polite signal before its end, and
    /// the users of the machine are not its concern.
    #[serde(default)]
    pub(crate) is_server: bool,
    /// Whether it must not start without full confinement.
    pub(crate) required: bool,
    pub(crate) cpu_ms: u64,
    pub(crate) memory: u64,
    pub(crate) processes: u32,
    pub(crate) file_size: u64,
}

/// The network that a program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NetworkAccess {
    None,
    /// That of the machine.
    Machine,
    /// One of its own, in which nothing is but the proxy of the host.
    Proxy,
}

/// The limits that the host watches itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedLimits {
    pub(crate) time_ms: u64,
    /// Of standard output and standard error together.
    pub(crate) output: u64,
}

/// The result of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramOutput {
    pub(crate) ending: ProgramEnding,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// The bytes beyond the limit of output.
    pub(crate) dropped: u64,
}

/// The pipes of a server.
#[derive(Debug)]
pub struct ServerPipes {
    /// Its standard input.
    pub stdin: ChildStdin,
    /// Its standard output.
    pub stdout: ChildStdout,
    /// Its standard error. The server is ended when nobody has it open.
    pub stderr: ChildStderr,
}

/// What happens with the listener of a server's proxy, in the server's network.
pub(crate) type OnListener = Box<dyn FnOnce(TcpListener) + Send>;

/// The reason why a program did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchFailure {
    /// The kernel cannot confine it as the grant requires.
    Unconfined(String),
    /// It cannot be executed, such as a file that is missing.
    NotStarted(String),
    /// The launcher failed.
    Launcher(String),
}

impl ProgramLauncher {
    /// Runs a program and waits for its end. Dropping the future kills it with all that it started.
    pub(crate) async fn run(
        &self,
        spec: ProgramSpec,
        input: Vec<u8>,
        limits: WatchedLimits,
    ) -> Result<ProgramOutput, LaunchFailure> {
        platform::run(self.clone(), spec, input, limits).await
    }

    /// Starts a server, which runs until its end or until it is dropped. `on_listener` is for one
    /// with [`NetworkAccess::Proxy`].
    pub(crate) fn start_server(
        &self,
        spec: ProgramSpec,
        on_listener: Option<OnListener>,
    ) -> Result<(ServerProcess, ServerPipes), LaunchFailure> {
        platform::start_server(self, spec, on_listener)
    }
}

/// The interpreters of a script, as far as they are known: that of its first line, that of the
/// interpreter if it is a script too, and the program that `env` looks up by the name in that line.
/// `path` is the `PATH` of the script.
pub(crate) fn interpreters(program: &Path, path: Option<&str>) -> Vec<PathBuf> {
    /// As many as the kernel follows.
    const DEPTH: usize = 5;
    let (mut found, mut next) = (Vec::new(), Some(program.to_owned()));
    while let Some((interpreter, word)) =
        next.filter(|_| found.len() < DEPTH).as_deref().and_then(interpreter)
    {
        let looked_up = interpreter.ends_with("env").then_some(word).flatten();
        next = Some(interpreter.clone());
        found.push(interpreter);
        let Some(name) = looked_up else { continue };
        // Where `env` looks without a `PATH`.
        let folders = path.unwrap_or("/bin:/usr/bin").split(':');
        next = folders.map(|folder| Path::new(folder).join(&name)).find(|it| it.is_file());
        found.extend(next.clone());
    }
    found
}

/// Whether this is in a folder of the system, which every program may read anyway.
pub(crate) fn is_of_system(path: &Path) -> bool {
    ["/usr", "/lib", "/lib64", "/bin", "/sbin"].iter().any(|folder| path.starts_with(folder))
}

/// The interpreter in the first line of a script, and the word after it.
fn interpreter(program: &Path) -> Option<(PathBuf, Option<String>)> {
    use std::io::Read as _;
    let mut start = Vec::new();
    std::fs::File::open(program).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = String::from_utf8_lossy(&start);
    let mut words = line.strip_prefix("#!")?.lines().next()?.split_whitespace();
    Some((PathBuf::from(words.next()?), words.next().map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_the_interpreter_of_its_line_and_the_one_that_env_finds() {
        let temp = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = temp.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let folder = temp.path().display().to_string();
        let plain = file("plain", "no script");
        let script = file("script", &format!("#! {folder}/plain -x\n"));
        let nested = file("nested", &format!("#!{folder}/script\n"));
        let looked_up = file("looked-up", "#!/usr/bin/env plain\n");
        let ring = file("ring", &format!("#!{folder}/ring\n"));
        assert_eq!(interpreters(&plain, None), [] as [PathBuf; 0]);
        assert_eq!(interpreters(&script, None), std::slice::from_ref(&plain));
        assert_eq!(interpreters(&nested, None), [script, plain.clone()]);
        let env = PathBuf::from("/usr/bin/env");
        assert_eq!(interpreters(&looked_up, Some(&folder)), [env.clone(), plain]);
        assert_eq!(interpreters(&looked_up, None), [env]);
        assert_eq!(interpreters(&ring, None).len(), 5);
    }
}

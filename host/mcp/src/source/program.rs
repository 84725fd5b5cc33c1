//! The process of a local server: its start, its environment, its stderr and its end. A confined
//! one is started by the runtime. The protocol is not in here.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use conclave_runtime::servers::{
    ConfinedServer, LaunchFailure, ServerEnvironment, ServerFailure, ServerLauncher, stop_servers,
};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::ServerSupervisor;
use super::backlog::{Answers, Backlog, FLOODED, MessageKind, MessageKinds};
use super::redaction::KeyFilter;
use super::weight::JsonWeight;
use crate::text::display;

/// Characters of the last stderr line that are shown.
const LAST_WORDS: usize = 600;
/// Maximum bytes of a line that are buffered.
const LINE: usize = 64 << 10;
/// Maximum weight of a message, as [`JsonWeight`] counts it: about 50 MB in memory. The longest list
/// of tools that is admitted weighs a tenth of it.
const WEIGHT: usize = 500_000;
/// Time to end after the first signal, before the process is killed. A supervisor has more, because
/// it waits as long itself, and then ends the whole tree.
const GRACE: Duration = Duration::from_millis(250);
const SUPERVISOR_GRACE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(10);
/// Time for the launcher of a confined server to report its end.
const REPORT: Duration = Duration::from_millis(500);

/// A running server.
pub(super) struct Program {
    process: Process,
    last_words: Arc<Mutex<String>>,
    is_too_long: Arc<AtomicBool>,
    backlog: Backlog,
}

enum Process {
    Confined(ConfinedServer),
    Unconfined(UnconfinedProcess),
}

/// A process with its process group.
struct UnconfinedProcess {
    child: Child,
    group: u32,
    is_supervised: bool,
}

/// The limits of what is read from a server.
pub(super) struct OutputRules<'a> {
    /// The bytes of a message.
    pub(super) message_max: usize,
    /// Redacts its last stderr line.
    pub(super) filter: &'a KeyFilter,
}

/// The pipes of the protocol: the output, which fails at a message that is too long, and the input.
pub(super) type Pipes = (LineFrames<ChildStdout>, Answers<ChildStdin>);

impl Program {
    /// Starts a confined process.
    pub(super) fn start_confined(
        launcher: &ServerLauncher,
        command: &[String],
        cwd: &str,
        environment: &ServerEnvironment,
        rules: &OutputRules<'_>,
    ) -> Result<(Self, Pipes), ServerFailure> {
        let (server, pipes) =
            launcher.start(command, Path::new(cwd), environment).map_err(unstarted)?;
        let pipes = ChildStdin::from_std(pipes.stdin).and_then(|stdin| {
            Ok((stdin, ChildStdout::from_std(pipes.stdout)?, ChildStderr::from_std(pipes.stderr)?))
        });
        let pipes = pipes.map_err(|error| format!("its pipes cannot be used: {error}"))?;
        Ok(Self::listening(Process::Confined(server), pipes, rules))
    }

    /// Starts a process, through the supervisor if there is one. `variables` is its whole
    /// environment.
    pub(super) fn start(
        supervisor: Option<&ServerSupervisor>,
        command: &[String],
        cwd: &str,
        variables: &BTreeMap<String, String>,
        rules: &OutputRules<'_>,
    ) -> Result<(Self, Pipes), String> {
        let (name, arguments) = command.split_first().ok_or("it names no program")?;
        // A relative path is meant from the current directory. The child would resolve it from its
        // own.
        let absolute = name.contains('/').then(|| std::path::absolute(name).ok()).flatten();
        let program = absolute.as_deref().unwrap_or(Path::new(name));
        let mut process = match supervisor {
            Some(supervisor) => Command::new(&supervisor.program),
            None => Command::new(program),
        };
        if let Some(supervisor) = supervisor {
            process.args(&supervisor.args).arg(program);
        }
        process.args(arguments).env_clear().envs(variables).current_dir(if cwd.is_empty() {
            "."
        } else {
            cwd
        });
        process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        process.process_group(0);
        let mut child = process
            .spawn()
            .map_err(|error| format!("{} could not be started: {error}", display(name, 100)))?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("its pipes are not there".to_owned());
        };
        let group = child.id().ok_or("it ended at once")?;
        // Registered before the handshake, so that `stop_all` also finds a server that hangs in it.
        let is_supervised = supervisor.is_some();
        running().insert(group, is_supervised);
        let process = Process::Unconfined(UnconfinedProcess { child, group, is_supervised });
        Ok(Self::listening(process, (stdin, stdout, stderr), rules))
    }

    fn listening(
        process: Process,
        (stdin, stdout, stderr): (ChildStdin, ChildStdout, ChildStderr),
        rules: &OutputRules<'_>,
    ) -> (Self, Pipes) {
        let (last_words, is_too_long) = (Arc::default(), Arc::default());
        let backlog = Backlog::default();
        tokio::spawn(listen(stderr, Arc::clone(&last_words), rules.filter.clone()));
        let lines = LineFrames {
            inner: stdout,
            most: rules.message_max,
            length: 0,
            weight: JsonWeight::default(),
            kinds: MessageKinds::default(),
            backlog: backlog.clone(),
            is_too_long: Arc::clone(&is_too_long),
        };
        let stdin = Answers::new(stdin, backlog.clone());
        (Self { process, last_words, is_too_long, backlog }, (lines, stdin))
    }

    /// Returns why the server did not begin to answer: `what`, and as far as the process shows it.
    pub(super) async fn failure(&mut self, what: &str) -> ServerFailure {
        // Its output is closed before the launcher has reported why.
        let until = Instant::now() + REPORT;
        while let Process::Confined(server) = &self.process
            && Instant::now() < until
        {
            match server.ended() {
                None => tokio::time::sleep(TICK).await,
                Some(Ok(_)) => break,
                Some(Err(failure)) => return unstarted(failure),
            }
        }
        ServerFailure::Other(format!("{what}: {}", self.epitaph()))
    }

    /// Returns why the server stopped answering, as far as the process shows it.
    pub(super) fn epitaph(&mut self) -> String {
        if self.is_too_long.load(Ordering::Relaxed) {
            return "it sent a message that is too long".to_owned();
        }
        if self.backlog.is_flooded() {
            return FLOODED.to_owned();
        }
        let ended = match &mut self.process {
            Process::Confined(server) => server.ended().and_then(Result::ok),
            Process::Unconfined(process) => {
                let status = process.child.try_wait().ok().flatten();
                status.map(|status| format!("it ended ({status})"))
            }
        };
        let ended = ended.unwrap_or_else(|| "it stopped answering".to_owned());
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.is_empty() { ended } else { format!("{ended}; it said: {words}") }
    }
}

fn unstarted(failure: LaunchFailure) -> ServerFailure {
    match failure {
        LaunchFailure::Unconfined(reason) => ServerFailure::Unconfined(reason),
        LaunchFailure::NotStarted(reason) => {
            ServerFailure::Other(format!("it could not be started: {reason}"))
        }
        LaunchFailure::Launcher(reason) => {
            ServerFailure::Other(format!("the launcher of programs failed: {reason}"))
        }
    }
}

impl Drop for UnconfinedProcess {
    /// Ends the whole process group, since a server is often started by a wrapper.
    fn drop(&mut self) {
        // A polite signal first, so that the server can clean up.
        signal(self.group, false);
        let mut waited = Duration::ZERO;
        let grace = if self.is_supervised { SUPERVISOR_GRACE } else { GRACE };
        while waited < grace && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(TICK);
            waited += TICK;
        }
        // Also when the leader has ended: its children may still run.
        signal(self.group, true);
        running().remove(&self.group);
        let _ = self.child.start_kill();
    }
}

/// The running process groups, and whether each has a supervisor, so that `stop_all` can end them
/// at exit.
static RUNNING: Mutex<BTreeMap<u32, bool>> = Mutex::new(BTreeMap::new());

fn running() -> MutexGuard<'static, BTreeMap<u32, bool>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all started process groups at once. A supervisor ends its own when this process exits,
/// with what has left the group.
pub(super) fn stop_all() {
    stop_servers();
    for (group, is_supervised) in std::mem::take(&mut *running()) {
        signal(group, !is_supervised);
    }
}

#[cfg(unix)]
fn signal(group: u32, at_once: bool) {
    use rustix::process::{Pid, Signal, kill_process_group};

    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, if at_once { Signal::KILL } else { Signal::TERM });
    }
}

#[cfg(not(unix))]
fn signal(_: u32, _: bool) {}

/// Keeps the last line that is not empty. Reads everything, so that a full pipe never blocks the
/// server.
async fn listen(stderr: ChildStderr, last_words: Arc<Mutex<String>>, filter: KeyFilter) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        let (took, ended) = match stderr.fill_buf().await {
            Ok([]) | Err(_) => return,
            Ok(bytes) => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let part = &bytes[..end.unwrap_or(bytes.len())];
                let room = LINE.saturating_sub(line.len());
                line.extend_from_slice(&part[..part.len().min(room)]);
                (end.map_or(bytes.len(), |end| end + 1), end.is_some())
            }
        };
        stderr.consume(took);
        if ended {
            let words = filter.words(&String::from_utf8_lossy(&line), LAST_WORDS);
            if !words.trim().is_empty() {
                *last_words.lock().unwrap_or_else(PoisonError::into_inner) = words;
            }
            line.clear();
        }
    }
}

/// A reader that fails at a line that is longer than a message may be, or has more values, and at
/// a request while too many answers are not read.
pub(super) struct LineFrames<R> {
    inner: R,
    most: usize,
    length: usize,
    weight: JsonWeight,
    kinds: MessageKinds,
    backlog: Backlog,
    is_too_long: Arc<AtomicBool>,
}

impl<R: AsyncRead + Unpin> AsyncRead for LineFrames<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        for index in before..buffer.filled().len() {
            let byte = buffer.filled()[index];
            self.length = if byte == b'\n' { 0 } else { self.length + 1 };
            if self.weight.add(byte) > WEIGHT || self.length > self.most {
                self.is_too_long.store(true, Ordering::Relaxed);
                buffer.set_filled(before);
                return Poll::Ready(Err(io::Error::other("a message is too long")));
            }
            if self.kinds.add(byte) == Some(MessageKind::Request) && !self.backlog.open() {
                buffer.set_filled(before);
                return Poll::Ready(Err(io::Error::other("answers are not read")));
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_is_the_end() {
        let is_too_long = Arc::<AtomicBool>::default();
        let lines = |text: &'static str| LineFrames {
            inner: text.as_bytes(),
            most: 4,
            length: 0,
            weight: JsonWeight::default(),
            kinds: MessageKinds::default(),
            backlog: Backlog::default(),
            is_too_long: Arc::clone(&is_too_long),
        };
        let mut text = String::new();
        lines("1234\n12\n").read_to_string(&mut text).await.unwrap();
        assert!(!is_too_long.load(Ordering::Relaxed));
        assert!(lines("12\n12345\n").read_to_string(&mut text).await.is_err());
        assert!(is_too_long.load(Ordering::Relaxed));
    }

    /// Each object takes six hundred bytes once it is parsed.
    #[tokio::test]
    async fn a_line_with_too_many_values_is_the_end() {
        let is_too_long = Arc::<AtomicBool>::default();
        let objects = |count: usize| format!("[{}{{}}]\n", "{\"a\":{}},".repeat(count));
        for (count, is_read) in [(1_000, true), (WEIGHT / 16, false)] {
            let text = objects(count);
            let mut lines = LineFrames {
                inner: text.as_bytes(),
                most: usize::MAX,
                length: 0,
                weight: JsonWeight::default(),
                kinds: MessageKinds::default(),
                backlog: Backlog::default(),
                is_too_long: Arc::clone(&is_too_long),
            };
            let read = lines.read_to_string(&mut String::new()).await;
            assert_eq!(read.is_ok(), is_read, "{count}");
        }
    }
}

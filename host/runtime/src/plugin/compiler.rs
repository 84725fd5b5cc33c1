//! Who turns a component into machine code: this process, or a process of its own that can be
//! stopped and holds nothing of the host's. The side of the host; the child's is in `child`.

pub(crate) mod child;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use conclave_core::types::limits::PluginLimits;
use conclave_core::types::text::{show_duration as duration, show_size as size};

use super::LoadError;
use crate::imports::call::log::excerpt;

/// Who compiles components that are not the program's own stock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Compiler {
    /// This process. A load that takes longer than `limits.compile_time` is refused, but its thread
    /// works on to the end, and `limits.compile_memory` is not kept: for components whose makers
    /// you trust.
    #[default]
    InProcess,
    /// A program that calls [`compile_component`](crate::plugin::compile_component) and nothing
    /// else: both limits hold.
    Child {
        program: PathBuf,
        /// What stands before the two numbers that `compile_component` takes: bytes of memory, and
        /// seconds of computing.
        args: Vec<OsString>,
    },
}

/// Bytes of compiled code that are taken. A small component can ask for large images of its
/// memories.
const CODE: u64 = 512 << 20;
/// Bytes of the child's words that are looked at.
const WORDS: u64 = 8 << 10;
/// How often it is asked whether a child that has said everything has ended.
const PATIENCE: Duration = Duration::from_millis(2);
/// The child's exit code when it has written machine code.
pub(super) const DONE: i32 = 0;
/// When it has written why there is none.
pub(super) const REFUSED: i32 = 3;

/// Has a component compiled by a child.
///
/// # Errors
/// `Compile` with the compiler's reason, `CompileTime` or `CompileMemory` when it was stopped at a
/// limit.
pub(super) fn in_child(
    program: &Path,
    args: &[OsString],
    component: &[u8],
    limits: &PluginLimits,
) -> Result<Vec<u8>, LoadError> {
    let began = Instant::now();
    let wall = Duration::from_millis(limits.compile_ms);
    let failed = |error: &io::Error| {
        LoadError::Compile(format!(
            "the compiler {} could not be started: {error}",
            program.display()
        ))
    };
    let mut process = Process(spawn(program, args, limits).map_err(|error| failed(&error))?);
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (process.0.stdin.take(), process.0.stdout.take(), process.0.stderr.take())
    else {
        return Err(failed(&io::Error::other("it has no pipes")));
    };
    let (answer, words, status) = std::thread::scope(|scope| {
        // Whether it took everything is seen from how it ends.
        scope.spawn(move || stdin.write_all(component));
        let words = scope.spawn(move || read(stderr, WORDS).unwrap_or_default());
        let (told, answered) = mpsc::channel();
        scope.spawn(move || told.send(read(stdout, CODE + 1)));
        let answer = answered.recv_timeout(wall.saturating_sub(began.elapsed()));
        let status = if answer.is_ok() { process.end_by(began + wall) } else { None };
        // Only now: it ends the pipes, and with them the threads.
        process.kill();
        (answer, words.join().unwrap_or_default(), status)
    });
    let (Ok(answer), Some(status)) = (answer, status) else { return Err(too_long(limits)) };
    let answer = answer.map_err(|error| {
        LoadError::Compile(format!("the compiler's answer could not be read: {error}"))
    })?;
    judge(status, answer, &String::from_utf8_lossy(&words), limits)
}

fn spawn(program: &Path, args: &[OsString], limits: &PluginLimits) -> io::Result<Child> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    // It stops the child should this process be gone; while it lives, the wall clock comes first.
    let seconds = limits.compile_ms.div_ceil(1_000).saturating_mul(cores) + 1;
    let mut command = Command::new(program);
    command.args(args).arg(limits.compile_memory.to_string()).arg(seconds.to_string());
    command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if cfg!(unix) {
        command.current_dir("/");
    }
    command.spawn()
}

fn read(pipe: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What an ended child says.
fn judge(
    status: ExitStatus,
    answer: Vec<u8>,
    words: &str,
    limits: &PluginLimits,
) -> Result<Vec<u8>, LoadError> {
    if answer.len() as u64 > CODE {
        return Err(LoadError::Compile(format!(
            "it becomes more than {} of machine code",
            size(CODE)
        )));
    }
    let no_memory = |text: &str| {
        ["memory allocation of", "Cannot allocate memory", "temporarily unavailable"]
            .iter()
            .any(|sign| text.contains(sign))
    };
    match status.code() {
        Some(DONE) => return Ok(answer),
        Some(REFUSED) if !no_memory(&String::from_utf8_lossy(&answer)) => {
            return Err(LoadError::Compile(excerpt(&String::from_utf8_lossy(&answer), 600)));
        }
        _ => {}
    }
    if stopped_for_time(status) {
        return Err(too_long(limits));
    }
    if no_memory(words) || no_memory(&String::from_utf8_lossy(&answer)) || killed(status, words) {
        return Err(LoadError::CompileMemory { limit: size(limits.compile_memory) });
    }
    let last =
        words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(LoadError::Compile(format!(
        "the compiler ended without an answer ({status}): {}",
        excerpt(last, 300)
    )))
}

fn too_long(limits: &PluginLimits) -> LoadError {
    LoadError::CompileTime { limit: duration(limits.compile_ms) }
}

/// The signal of a limit on computing.
#[cfg(unix)]
fn stopped_for_time(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(rustix::process::Signal::XCPU.as_raw())
}

/// The kernel took it, which it does when memory ends, or it gave up without a word, for which it
/// would have needed some.
#[cfg(unix)]
fn killed(status: ExitStatus, words: &str) -> bool {
    use rustix::process::Signal;
    use std::os::unix::process::ExitStatusExt;
    let by = |signal: Signal| status.signal() == Some(signal.as_raw());
    by(Signal::KILL) || by(Signal::ABORT) && words.trim().is_empty()
}

#[cfg(not(unix))]
fn stopped_for_time(_: ExitStatus) -> bool {
    false
}

#[cfg(not(unix))]
fn killed(_: ExitStatus, _: &str) -> bool {
    false
}

/// A child that does not outlive its owner, nor stays behind as a zombie.
struct Process(Child);

impl Process {
    /// How it ended; none when it has not by then.
    fn end_by(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            if let Ok(Some(status)) = self.0.try_wait() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(PATIENCE);
        }
    }

    fn kill(&mut self) {
        // One that has ended is not there to be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

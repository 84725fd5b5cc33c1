//! Compiles components, in this process or in a child that can be killed and holds none of the
//! host's data. The host's side is here; the child's is in `child`.

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
use crate::support::escape::excerpt;

/// The compiler of third-party components.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Compiler {
    /// Compiles in this process. A load above `limits.compile_time` fails, but its thread runs to
    /// the end. `limits.compile_memory` is not enforced, so it is for trusted components only.
    #[default]
    InProcess,
    /// Compiles with a program that only calls
    /// [`compile_component`](crate::plugin::compile_component). Both limits are enforced.
    Child {
        /// The program; it is started without environment variables.
        program: PathBuf,
        /// The arguments before the two numbers for `compile_component`: bytes of memory, and
        /// seconds of CPU time.
        args: Vec<OsString>,
    },
}

/// Maximum bytes of compiled code. A small component can request large memory images.
const CODE: u64 = 512 << 20;
/// Maximum bytes of the child's stderr that are read.
const WORDS: u64 = 8 << 10;
/// Interval between polls of a child that has closed its output.
const PATIENCE: Duration = Duration::from_millis(2);
/// The child's exit code after writing machine code.
pub(super) const DONE: i32 = 0;
/// The child's exit code after writing an error.
pub(super) const REFUSED: i32 = 3;

/// Compiles a component in a child process.
///
/// # Errors
/// `Compile` with the compiler's reason; `CompileTime` or `CompileMemory` if it was stopped at a
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
    // One thread per pipe: a child that blocks on one full pipe must not stop the others.
    let (answer, words, status) = std::thread::scope(|scope| {
        // A failed write shows in the child's exit status.
        scope.spawn(move || stdin.write_all(component));
        let words = scope.spawn(move || read(stderr, WORDS).unwrap_or_default());
        let (sender, answered) = mpsc::channel();
        // One byte more than allowed, so that an oversized answer is recognised.
        scope.spawn(move || sender.send(read(stdout, CODE + 1)));
        let answer = answered.recv_timeout(wall.saturating_sub(began.elapsed()));
        let status = if answer.is_ok() { process.end_by(began + wall) } else { None };
        // After the output was read: killing the child closes the pipes, which ends the threads.
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
    // This limit only stops the child if the host is gone. Otherwise the wall clock stops it
    // earlier.
    let seconds = limits.compile_ms.div_ceil(1_000).saturating_mul(cores) + 1;
    let mut command = Command::new(program);
    command.args(args).arg(limits.compile_memory.to_string()).arg(seconds.to_string());
    // The environment may contain keys, which the child must not see.
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

/// Returns the result of an ended child.
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
        // The last one is the decoder's, which reports a failed allocation as an error.
        [
            "memory allocation of",
            "Cannot allocate memory",
            "temporarily unavailable",
            "out of memory",
        ]
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
    // Limits are recognised by the exit, because a killed compiler writes no reason.
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

/// Whether the signal of the CPU limit ended the child.
#[cfg(unix)]
fn stopped_for_time(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(rustix::process::Signal::XCPU.as_raw())
}

/// Whether the child ran out of memory.
#[cfg(unix)]
fn killed(status: ExitStatus, words: &str) -> bool {
    use rustix::process::Signal;
    use std::os::unix::process::ExitStatusExt;
    let by = |signal: Signal| status.signal() == Some(signal.as_raw());
    // Either the kernel killed it, or it aborted without a message, which would have needed memory.
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

/// A child that is killed and reaped when it is dropped.
struct Process(Child);

impl Process {
    /// Returns the exit status, or `None` after the deadline.
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
        // An ended child cannot be killed, which is no error.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

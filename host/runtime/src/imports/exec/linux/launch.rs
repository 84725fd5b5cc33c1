//! The host's side: starts the launcher, passes the input, collects the output and watches the
//! limits. Does not use `tokio::process`, which installs a signal handler; a library must not.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::types::side_effect::ProgramEnding;
use conclave_core::types::text::{show_duration, show_size};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::confine::{HOME, LOCK, Launch, PROXY, ProgramReport, REPORT, SPEC};
use super::remove::remove_tree;
use super::supervise::kill_all_below;
use super::usage::{tasks_of_machine, usage_below};
use crate::imports::exec::{
    LaunchFailure, ProgramLauncher, ProgramOutput, ProgramSpec, WatchedLimits,
};
use crate::support::abandonment::{AbandonFlag, AbandonGuard};

/// The beginning of the names of private folders.
const PRIVATE: &str = "conclave-exec-";
/// A file in a private folder that its host locks for as long as it lives.
const HOST_LOCK: &str = "host.lock";
/// The folders of private folders that this process has cleaned.
static CLEANED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Interval between two looks at a running program.
const TICK: Duration = Duration::from_millis(5);
/// Interval between two measurements of its resources, which read a file of each process.
pub(super) const MEASURE: Duration = Duration::from_millis(100);
/// The time of the launcher to end all that a program started, before the host does it.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes that a pipe takes without waiting for space, on every system.
const PIPE_SPACE: usize = 4_096;
/// Bytes that a pipe holds at most, so that what still comes after the end is not for ever.
const PIPE_BYTES: usize = 1 << 20;

/// Runs a program on a thread of its own.
pub(crate) async fn run(
    launcher: ProgramLauncher,
    spec: ProgramSpec,
    input: Vec<u8>,
    limits: WatchedLimits,
) -> Result<ProgramOutput, LaunchFailure> {
    let ProgramLauncher { program, args, folder } = launcher;
    let launch = Launch { program, args, spec };
    let guard = AbandonGuard::default();
    let flag = guard.flag();
    let ran =
        tokio::task::spawn_blocking(move || run_blocking(&launch, &folder, input, limits, &flag))
            .await;
    ran.unwrap_or_else(|_| Err(LaunchFailure::Launcher("broke off".to_owned())))
}

/// Runs the launcher on this thread until the program ends or a limit stops it. Its private folder
/// is made in `private_folders`.
fn run_blocking(
    launch: &Launch,
    private_folders: &Path,
    input: Vec<u8>,
    limits: WatchedLimits,
    abandoned: &AbandonFlag,
) -> Result<ProgramOutput, LaunchFailure> {
    let failed = |error: std::io::Error| LaunchFailure::Launcher(error.to_string());
    let spec = &launch.spec;
    let folder = PrivateFolder::new(private_folders, launch).map_err(failed)?;
    let mut process = RunningProgram::start(launch, &folder).map_err(failed)?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (process.0.stdin.take(), process.0.stdout.take(), process.0.stderr.take())
    else {
        return Err(LaunchFailure::Launcher("it has no pipes".to_owned()));
    };
    let remaining = AtomicU64::new(limits.output);
    let dropped = AtomicU64::new(0);
    // Tells the threads that the program is over. They do not wait for the end of the pipes then,
    // which a process outside of the launcher's reach could hold open.
    let (over, running) = std::io::pipe().map_err(failed)?;
    // One thread per pipe: a program that blocks on one full pipe must not stop the others.
    let (stdout, stderr, stopped) = std::thread::scope(|scope| {
        scope.spawn(|| feed(stdin, &input, &over));
        let stdout = scope.spawn(|| collect(stdout, &over, &remaining, &dropped));
        let stderr = scope.spawn(|| collect(stderr, &over, &remaining, &dropped));
        let home = folder.path.join(HOME);
        let stopped = watch(&mut process, spec, &home, limits, abandoned);
        drop(running);
        process.finish();
        (stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default(), stopped)
    });
    let ending = match stopped {
        Some(limit) => ProgramEnding::Stopped { limit },
        None => match folder.report() {
            Some(ProgramReport::Exited { code }) => ProgramEnding::Exited { code },
            Some(ProgramReport::Killed { signal }) => killed(signal, spec),
            Some(ProgramReport::Unconfined { reason }) => {
                return Err(LaunchFailure::Unconfined(reason));
            }
            Some(ProgramReport::NotStarted { reason }) => {
                return Err(LaunchFailure::NotStarted(reason));
            }
            // The kernel kills it when the machine has no memory left.
            None => {
                let message = String::from_utf8_lossy(&stderr).trim().to_owned();
                return Err(LaunchFailure::Launcher(format!(
                    "it was ended from inside, or for want of memory. {message}"
                )));
            }
        },
    };
    Ok(ProgramOutput { ending, stdout, stderr, dropped: dropped.into_inner() })
}

/// The end of a program that a signal ended; two signals stand for limits.
pub(super) fn killed(signal: u8, spec: &ProgramSpec) -> ProgramEnding {
    let is = |limit: Signal| i32::from(signal) == limit.as_raw();
    if is(Signal::XCPU) {
        ProgramEnding::Stopped { limit: format!("cpu = {}", show_duration(spec.cpu_ms)) }
    } else if is(Signal::XFSZ) {
        ProgramEnding::Stopped { limit: format!("file_size = {}", show_size(spec.file_size)) }
    } else {
        ProgramEnding::Killed { signal }
    }
}

/// Waits for the end of a program, and returns the limit at which it must be stopped.
fn watch(
    process: &mut RunningProgram,
    spec: &ProgramSpec,
    home: &Path,
    limits: WatchedLimits,
    abandoned: &AbandonFlag,
) -> Option<String> {
    let began = Instant::now();
    let (time, mut measured) = (Duration::from_millis(limits.time_ms), began);
    let mut tasks = tasks_of_machine();
    loop {
        // Looked at before the limits: a program that is done has reached none.
        if process.has_ended() || abandoned.is_set() {
            return None;
        }
        if began.elapsed() >= time {
            return Some(format!("timeout = {}", show_duration(limits.time_ms)));
        }
        // Processes that start processes fill the machine within one interval.
        let is_crowded = tasks_of_machine() > tasks.saturating_add(spec.processes.into());
        if is_crowded || measured.elapsed() >= MEASURE {
            if let Some(limit) = exceeded(process, spec, home) {
                return Some(limit);
            }
            (measured, tasks) = (Instant::now(), tasks_of_machine());
        }
        std::thread::sleep(TICK);
    }
}

/// Measures a program with all that it started, and returns the limit that it exceeds.
pub(super) fn exceeded(
    process: &RunningProgram,
    spec: &ProgramSpec,
    home: &Path,
) -> Option<String> {
    let used = usage_below(Pid::from_child(&process.0).as_raw_nonzero().get(), home);
    if used.processes > u64::from(spec.processes) {
        return Some(format!("processes = {}", spec.processes));
    }
    if used.memory > spec.memory {
        return Some(format!("memory = {}", show_size(spec.memory)));
    }
    (used.cpu_ms > spec.cpu_ms).then(|| format!("cpu = {}", show_duration(spec.cpu_ms)))
}

/// Writes the input to a program, which need not read it.
fn feed(mut stdin: ChildStdin, input: &[u8], over: &PipeReader) {
    for part in input.chunks(PIPE_SPACE) {
        let ready = wait_ready(&stdin, PollFlags::OUT, over);
        if ready != Some(false) || stdin.write_all(part).is_err() {
            return;
        }
    }
}

/// Reads a pipe to its end, or to what is in it when the program is over; keeps what the shared
/// limit leaves.
fn collect(
    mut pipe: impl Read + AsFd,
    over: &PipeReader,
    remaining: &AtomicU64,
    dropped: &AtomicU64,
) -> Vec<u8> {
    let (mut output, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let mut after = 0;
    while let Some(is_over) = wait_ready(&pipe, PollFlags::IN, over)
        && after < PIPE_BYTES
    {
        // Whatever was read before an error is kept.
        let Ok(read @ 1..) = pipe.read(&mut buffer) else { break };
        if is_over {
            after += read;
        }
        let length = read as u64;
        let mut accepted = 0;
        // Both pipes take from one limit at the same time.
        let _ = remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |remaining| {
            accepted = length.min(remaining);
            Some(remaining - accepted)
        });
        output.extend_from_slice(&buffer[..usize::try_from(accepted).unwrap_or_default()]);
        dropped.fetch_add(length - accepted, Ordering::Relaxed);
    }
    output
}

/// Waits until a pipe is ready, and returns whether the program is over; `None` if it is over and
/// the pipe is not ready.
fn wait_ready(pipe: &impl AsFd, flags: PollFlags, over: &PipeReader) -> Option<bool> {
    loop {
        let mut polled = [PollFd::new(pipe, flags), PollFd::new(over, PollFlags::empty())];
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
        }
        let is_over = !polled[1].revents().is_empty();
        match (polled[0].revents().is_empty(), is_over) {
            (false, _) => return Some(is_over),
            (true, true) => return None,
            (true, false) => {}
        }
    }
}

/// The launcher, which ends with all that it started when the output is not read any more. Killed
/// with it when it is dropped.
pub(super) struct RunningProgram(pub(super) Child);

impl RunningProgram {
    /// Starts the launcher, with pipes.
    pub(super) fn start(launch: &Launch, folder: &PrivateFolder) -> std::io::Result<Self> {
        let mut command = Command::new(&launch.program);
        // The host's own environment may hold keys of models.
        command.args(&launch.args).arg(&folder.path).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, so that all of it can be killed without the host.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().map(Self)
    }

    /// Whether the launcher has ended. One that cannot be waited for counts as ended.
    pub(super) fn has_ended(&self) -> bool {
        // It is not reaped, so that its number stays its own until it is killed.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(rustix::process::waitid(WaitId::Pid(Pid::from_child(&self.0)), options), Ok(None))
    }

    /// Waits for the launcher's end, now that its output is not read any more.
    pub(super) fn finish(&self) {
        let until = Instant::now() + GRACE;
        while !self.has_ended() && Instant::now() < until {
            std::thread::sleep(TICK);
        }
    }

    /// Kills all that is left. Where the program has a namespace of processes, the kernel does so
    /// when the launcher ends.
    fn kill(&mut self) {
        let launcher = Pid::from_child(&self.0);
        if !self.has_ended() {
            kill_all_below(launcher);
        }
        // An ended child is no error.
        let _ = rustix::process::kill_process_group(launcher, Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The private folder of a program, removed when it is dropped.
pub(super) struct PrivateFolder {
    pub(super) path: PathBuf,
    /// The lock that tells other hosts that this one lives.
    _lock: File,
}

impl PrivateFolder {
    pub(super) fn new(parent: &Path, launch: &Launch) -> std::io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        // Links in the path would hide the folder from its own rules.
        let parent = parent.canonicalize()?;
        if CLEANED.lock().unwrap_or_else(PoisonError::into_inner).insert(parent.clone()) {
            remove_abandoned(&parent);
        }
        let mut name = [0; 8];
        getrandom::fill(&mut name).map_err(std::io::Error::other)?;
        let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = parent.join(format!("{PRIVATE}{name}"));
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700);
        builder.create(&path)?;
        // Locked before it has its name: a file of that name without a lock is of a host that ended.
        let unnamed = path.join("lock");
        let lock = File::create(&unnamed)?;
        lock.lock()?;
        std::fs::rename(unnamed, path.join(HOST_LOCK))?;
        let folder = Self { path, _lock: lock };
        builder.create(folder.path.join(HOME))?;
        std::fs::write(folder.path.join(SPEC), serde_json::to_vec(launch)?)?;
        Ok(folder)
    }

    pub(super) fn report(&self) -> Option<ProgramReport> {
        serde_json::from_slice(&std::fs::read(self.path.join(REPORT)).ok()?).ok()
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        remove_private(&self.path);
    }
}

/// Removes the private folders of hosts that were killed. What cannot be removed stays.
fn remove_abandoned(parent: &Path) {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PRIVATE)) {
        // In a folder for all users, another one may have made a folder or a link of such a name.
        let is_own = entry.metadata().is_ok_and(|it| it.is_dir() && it.uid() == user);
        let is_free =
            |name: &str| File::open(entry.path().join(name)).map(|file| file.try_lock().is_ok());
        // The launcher ends right after its host. A program that was never launched has no launcher.
        if is_own && is_free(HOST_LOCK).unwrap_or(false) && is_free(LOCK).unwrap_or(true) {
            remove_private(&entry.path());
        }
    }
}

/// Removes a private folder, its locks last: by them, another host finds what could not be removed.
fn remove_private(folder: &Path) {
    remove_tree(&folder.join(HOME));
    for name in [SPEC, REPORT, PROXY, LOCK, HOST_LOCK] {
        let _ = std::fs::remove_file(folder.join(name));
    }
    let _ = std::fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn folders_of_killed_hosts_are_removed_and_all_others_stay() {
        let temp = tempfile::tempdir().unwrap();
        let folder = |name: &str, files: &[&str]| {
            let path = temp.path().join(name);
            std::fs::create_dir(&path).unwrap();
            files.iter().for_each(|file| std::fs::write(path.join(file), "").unwrap());
            path
        };
        let killed = folder("conclave-exec-1", &[HOST_LOCK, LOCK, SPEC]);
        let never_launched = folder("conclave-exec-2", &[HOST_LOCK]);
        let (alive, launched) = (
            folder("conclave-exec-3", &[HOST_LOCK]),
            folder("conclave-exec-4", &[HOST_LOCK, LOCK]),
        );
        let (incomplete, other) =
            (folder("conclave-exec-5", &["lock"]), folder("other", &[HOST_LOCK]));
        let foreign = folder("elsewhere", &[HOST_LOCK]);
        symlink(&foreign, temp.path().join("conclave-exec-6")).unwrap();
        let locks =
            [alive.join(HOST_LOCK), launched.join(LOCK)].map(|path| File::open(path).unwrap());
        locks.iter().for_each(|file| file.lock().unwrap());
        remove_abandoned(temp.path());
        assert!(!killed.exists() && !never_launched.exists());
        for path in [alive, launched, incomplete, other, foreign.join(HOST_LOCK)] {
            assert!(path.exists(), "{}", path.display());
        }
    }
}

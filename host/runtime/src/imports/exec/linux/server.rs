//! The host's side of a server: a confined program that lives until it ends, its limits are
//! exceeded, or the host has no use for it. A thread of its own watches it.

use std::collections::BTreeMap;
use std::io::PipeWriter;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use conclave_core::types::side_effect::ProgramEnding;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::confine::{HOME, Launch, PROXY, ProgramReport};
use super::launch::{MEASURE, PrivateFolder, RunningProgram, exceeded, killed};
use super::loopback::receive_listener;
use super::usage::tasks_of_machine;
use crate::imports::exec::{LaunchFailure, OnListener, ProgramLauncher, ProgramSpec, ServerPipes};

/// Interval between two looks at a server. It is longer than that of a program, because a server
/// mostly waits.
const LOOK: Duration = Duration::from_millis(50);
/// Measurements are this many times rarer than those of a program, for the same reason.
const RARER: u32 = 5;
/// The time of a launcher to end its server politely, and then the rest.
const GRACE: Duration = Duration::from_secs(2);

/// The end of a server, in words, or why it never started.
type Ending = Result<String, LaunchFailure>;

/// A confined server. Dropping it ends the server with all that it started.
#[derive(Debug)]
pub struct ServerProcess {
    number: u64,
    ending: Arc<Mutex<Option<Ending>>>,
}

/// What ends a running server, and waits for its end.
struct Stop {
    /// The thread ends the server when this is closed.
    alive: PipeWriter,
    thread: JoinHandle<()>,
}

/// The running servers by a number of their own, so that a process that exits can end them.
static RUNNING: Mutex<BTreeMap<u64, Stop>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

fn running() -> MutexGuard<'static, BTreeMap<u64, Stop>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends all confined servers of this process, for one that exits without dropping its state.
pub fn stop_servers() {
    let stops: Vec<Stop> = std::mem::take(&mut *running()).into_values().collect();
    // All are asked before the first is waited for.
    let threads: Vec<_> = stops.into_iter().map(|Stop { alive: _, thread }| thread).collect();
    for thread in threads {
        let _ = thread.join();
    }
}

impl ServerProcess {
    /// How it ended; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<Result<String, LaunchFailure>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let stop = running().remove(&self.number);
        if let Some(Stop { alive, thread }) = stop {
            drop(alive);
            let _ = thread.join();
        }
    }
}

pub(crate) fn start_server(
    launcher: &ProgramLauncher,
    spec: ProgramSpec,
    on_listener: Option<OnListener>,
) -> Result<(ServerProcess, ServerPipes), LaunchFailure> {
    let failed = |error: std::io::Error| LaunchFailure::Launcher(error.to_string());
    let ProgramLauncher { program, args, folder } = launcher.clone();
    let launch = Launch { program, args, spec };
    let folder = PrivateFolder::new(&folder, &launch).map_err(failed)?;
    let proxy = match on_listener {
        None => None,
        Some(on_listener) => {
            let socket = UnixListener::bind(folder.path.join(PROXY)).map_err(failed)?;
            Some((socket, on_listener))
        }
    };
    let mut process = RunningProgram::start(&launch, &folder).map_err(failed)?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (process.0.stdin.take(), process.0.stdout.take(), process.0.stderr.take())
    else {
        return Err(LaunchFailure::Launcher("it has no pipes".to_owned()));
    };
    let (alive_reader, alive) = std::io::pipe().map_err(failed)?;
    let (number, ending) = (NEXT.fetch_add(1, Ordering::Relaxed), Arc::default());
    let watched =
        Watched { process, spec: launch.spec, folder, proxy, ending: Arc::clone(&ending) };
    let thread = std::thread::Builder::new().name("server".to_owned());
    let thread = thread.spawn(move || watched.watch(&alive_reader)).map_err(failed)?;
    running().insert(number, Stop { alive, thread });
    Ok((ServerProcess { number, ending }, ServerPipes { stdin, stdout, stderr }))
}

/// A server with all that its thread needs.
struct Watched {
    process: RunningProgram,
    spec: ProgramSpec,
    folder: PrivateFolder,
    proxy: Option<(UnixListener, OnListener)>,
    ending: Arc<Mutex<Option<Ending>>>,
}

impl Watched {
    /// Waits for the end of the server, and ends it with all that it started.
    fn watch(mut self, alive: &impl AsFd) {
        let limit = self.run(alive);
        if limit.is_none() && !self.process.has_ended() {
            // The launcher passes it on, and kills after a grace time.
            let launcher = Pid::from_child(&self.process.0);
            let _ = rustix::process::kill_process(launcher, Signal::TERM);
            let until = Instant::now() + GRACE;
            while !self.process.has_ended() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let ending = match limit {
            Some(limit) => Ok(format!("it was ended at its limit {limit}")),
            None => self.ending(),
        };
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner) = Some(ending);
    }

    /// Returns the limit at which it must be ended, or `None` when it has ended, or nobody needs it.
    fn run(&mut self, alive: &impl AsFd) -> Option<String> {
        let launcher = Pid::from_child(&self.process.0);
        let launched = rustix::process::pidfd_open(launcher, PidfdFlags::empty()).ok();
        let home = self.folder.path.join(HOME);
        let (mut measured, mut tasks) = (Instant::now(), tasks_of_machine());
        let look = Timespec::try_from(LOOK).ok();
        loop {
            let mut polled = vec![PollFd::new(alive, PollFlags::empty())];
            polled.extend(launched.as_ref().map(|it| PollFd::new(it, PollFlags::IN)));
            let socket = self.proxy.as_ref().map(|(socket, _)| socket);
            polled.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
            let _ = poll(&mut polled, look.as_ref());
            let is_unneeded = !polled[0].revents().is_empty();
            let has_called = socket.is_some() && polled.last().is_some_and(is_ready);
            drop(polled);
            if is_unneeded || self.process.has_ended() {
                return None;
            }
            if has_called && let Some((socket, on_listener)) = self.proxy.take() {
                // A launcher that cannot send it ends by itself.
                let received = socket.accept().and_then(|(caller, _)| receive_listener(&caller));
                if let Ok(listener) = received {
                    on_listener(listener);
                }
                // Nobody else calls.
                let _ = std::fs::remove_file(self.folder.path.join(PROXY));
                continue;
            }
            // Processes that start processes fill the machine within one interval.
            let is_crowded = tasks_of_machine() > tasks.saturating_add(self.spec.processes.into());
            if is_crowded || measured.elapsed() >= MEASURE * RARER {
                if let Some(limit) = exceeded(&self.process, &self.spec, &home) {
                    return Some(limit);
                }
                (measured, tasks) = (Instant::now(), tasks_of_machine());
            }
        }
    }

    /// The end that the launcher reports.
    fn ending(&self) -> Ending {
        match self.folder.report() {
            Some(ProgramReport::Exited { code }) => Ok(format!("it ended (exit status: {code})")),
            Some(ProgramReport::Killed { signal }) => Ok(match killed(signal, &self.spec) {
                ProgramEnding::Stopped { limit } => {
                    format!("it was ended at its limit {limit}")
                }
                _ => format!("it ended (signal: {signal})"),
            }),
            Some(ProgramReport::Unconfined { reason }) => Err(LaunchFailure::Unconfined(reason)),
            Some(ProgramReport::NotStarted { reason }) => Err(LaunchFailure::NotStarted(reason)),
            None => Ok("it was ended from outside, or for want of memory".to_owned()),
        }
    }
}

fn is_ready(polled: &PollFd<'_>) -> bool {
    !polled.revents().is_empty()
}

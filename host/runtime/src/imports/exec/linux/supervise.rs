//! The supervisor of a program: a process that ends all that the program started, as soon as the
//! program has ended or the reader of its standard error is gone. That pipe therefore binds it to
//! the host: the host stops a program by closing it, and the kernel closes it when the host is
//! killed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as BlockedSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use super::usage::descendants;

/// The exit code if the program could not be started, as of a shell.
const NOT_STARTED: u8 = 127;
/// The time of a program to end after a polite signal to its supervisor.
const GRACE: Duration = Duration::from_millis(250);
/// Interval between two looks at a child, on a kernel without `pidfd_open` (before Linux 5.3).
const LOOK: Duration = Duration::from_millis(10);
/// Pause for the kernel to end killed processes.
const PAUSE: Duration = Duration::from_millis(1);

/// Starts a program with the same environment, pipes and process group, and waits for its end.
/// Meant for a program started by a [`ProgramLauncher`](crate::exec::ProgramLauncher), which must
/// call it before it starts any thread, and exit with the code that it returns. The arguments are
/// the program and its own arguments.
///
/// All that the program started ends with it, and when the other side of the pipe that is the
/// standard error is closed. `SIGTERM` ends it after a grace time.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "it is a process of its own, whose stderr is the log of the program"
)]
pub fn run_supervised(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let mut arguments = arguments.into_iter();
    let Some(program) = arguments.next() else { return NOT_STARTED };
    adopt_orphans();
    let mut child = match Command::new(&program).args(arguments).spawn() {
        Ok(child) => child,
        Err(error) => {
            let program = program.to_string_lossy();
            let _ = writeln!(io::stderr(), "{program} could not be started: {error}");
            return NOT_STARTED;
        }
    };
    // The program alone reads its input. The output stays open here, so that its end is the end of
    // this process, whose status then tells why.
    if let Ok(null) = File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
    }
    // Blocked after the start, because the program would inherit it.
    let polite = block_polite();
    let ended = supervise(&mut child, polite.as_ref().map(AsFd::as_fd), false);
    let status = ended.unwrap_or_default();
    if let Some(signal) = status.signal().and_then(Signal::from_named_raw) {
        // Ends in the same way, for the one who reads the status.
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Blocks `SIGTERM`, and returns where it arrives instead.
pub(super) fn block_polite() -> Option<SignalFd> {
    let polite = SigSet::from(BlockedSignal::SIGTERM);
    let blocked = polite.thread_block();
    blocked.and_then(|()| SignalFd::with_flags(&polite, SfdFlags::empty())).ok()
}

/// Makes this process the parent of all that its children leave behind.
pub(super) fn adopt_orphans() {
    // Any process number stands for yes.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Whether the reader of this process's standard error is gone.
pub(super) fn is_unread() -> bool {
    let stderr = rustix::stdio::stderr();
    let mut polled = [PollFd::new(&stderr, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_err() || is_closed(&polled[0])
}

fn is_closed(pipe: &PollFd<'_>) -> bool {
    pipe.revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Waits until a child ends, the reader of standard error is gone, or the grace time
/// after a `polite` signal is over. Then kills all processes below this one. Returns the status of
/// a child that ended by itself. `forwards` sends the polite signal on to the processes below the
/// child, which are outside of the group that it was sent to.
pub(super) fn supervise(
    child: &mut Child,
    polite: Option<BorrowedFd<'_>>,
    forwards: bool,
) -> Option<ExitStatus> {
    let ended = wait_for_end(child, polite, forwards);
    let _ = child.kill();
    let _ = child.wait();
    kill_below();
    ended
}

fn wait_for_end(
    child: &mut Child,
    polite: Option<BorrowedFd<'_>>,
    forwards: bool,
) -> Option<ExitStatus> {
    let process = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok();
    let stderr = rustix::stdio::stderr();
    let (mut polite, mut is_ending) = (polite, false);
    loop {
        let mut polled = vec![PollFd::new(&stderr, PollFlags::empty())];
        polled.extend(process.as_ref().map(|process| PollFd::new(process, PollFlags::IN)));
        polled.extend(polite.as_ref().map(|polite| PollFd::new(polite, PollFlags::IN)));
        let wait = is_ending.then_some(GRACE).or(process.is_none().then_some(LOOK));
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        let found = poll(&mut polled, wait.as_ref());
        let is_unread = is_closed(&polled[0]);
        let is_asked = polite.is_some() && polled.last().is_some_and(|it| !it.revents().is_empty());
        drop(polled);
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        match found {
            Ok(0) if is_ending => return None,
            Ok(_) if is_unread => return None,
            Ok(_) if is_asked => {
                (is_ending, polite) = (true, None);
                if forwards {
                    signal_all_below(Pid::from_child(child), Signal::TERM);
                }
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Kills all processes below this one, and waits for their end.
fn kill_below() {
    let own = rustix::process::getpid();
    loop {
        // Every orphan below becomes a child of this process, so that it finds all of them.
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => {
                kill_all_below(own);
                std::thread::sleep(PAUSE);
            }
            Err(_) => return,
        }
    }
}

/// Kills the processes that are below another one at this moment.
pub(super) fn kill_all_below(top: Pid) {
    signal_all_below(top, Signal::KILL);
}

fn signal_all_below(top: Pid, signal: Signal) {
    for pid in descendants(top.as_raw_nonzero().get()) {
        if let Some(pid) = Pid::from_raw(pid) {
            // One that has ended meanwhile is no error.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

//! Detects that the terminal has gone away. The line editor never returns from reading such a
//! terminal, so a thread watches for its end. It leaves the run interrupted, as SIGHUP does.

use std::sync::LazyLock;

use tokio::sync::watch;

/// Set once the terminal has gone away.
static GONE: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// Resolves once the watched terminal has gone away.
pub(super) async fn is_gone() {
    // The sender is static, so it is never dropped.
    let _ = GONE.subscribe().wait_for(|is_closed| *is_closed).await;
}

/// Whether the watched terminal has gone away.
pub(super) fn has_gone() -> bool {
    *GONE.borrow()
}

/// Records that reading the terminal failed: it is closed, or its session is over.
pub(super) fn note_failed_read() {
    GONE.send_replace(true);
}

/// Decides why the input of a user ended: whether their terminal went away, rather than that they
/// pressed Ctrl-D. The end of the input, an error and SIGHUP arrive in any order, so a terminal
/// whose input ended is asked whether it is still there.
pub(super) fn is_hang_up(was_terminal: bool) -> bool {
    was_terminal && (has_gone() || terminal::has_ended())
}

/// Starts to watch the terminal behind stdin.
pub(super) fn watch() {
    let watching = || {
        if terminal::wait_for_end() {
            GONE.send_replace(true);
        }
    };
    // Without the thread, the signal that a closing terminal sends ends the program.
    let _ = std::thread::Builder::new().name("conclave-hang-up".to_owned()).spawn(watching);
}

#[cfg(unix)]
mod terminal {
    use std::io::{IsTerminal, stdin};
    use std::slice::from_mut;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;

    /// Waits for the end of the terminal. Returns false if it cannot be waited for.
    pub(super) fn wait_for_end() -> bool {
        ends_within(None)
    }

    /// Whether the terminal behind stdin has ended. A terminal without a session no longer answers
    /// as one.
    pub(super) fn has_ended() -> bool {
        !stdin().is_terminal() || ends_within(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    fn ends_within(timeout: Option<&Timespec>) -> bool {
        let stdin = stdin();
        // No event is requested, since a hang-up is always reported.
        let mut terminal = PollFd::new(&stdin, PollFlags::empty());
        loop {
            match poll(from_mut(&mut terminal), timeout) {
                Ok(_) => return terminal.revents().intersects(PollFlags::HUP | PollFlags::ERR),
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

#[cfg(not(unix))]
mod terminal {
    pub(super) fn wait_for_end() -> bool {
        false
    }

    pub(super) fn has_ended() -> bool {
        use std::io::IsTerminal;

        !std::io::stdin().is_terminal()
    }
}

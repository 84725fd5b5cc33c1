//! Whether the terminal is still there. The line editor reads on for ever from one that has gone
//! away, and returns nothing; so its end is watched for beside it.

use std::sync::LazyLock;

use tokio::sync::watch;

/// The terminal has gone away.
static GONE: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// Returns once the terminal that is watched has gone away.
pub(super) async fn is_gone() {
    // The sender is there for as long as the program.
    let _ = GONE.subscribe().wait_for(|gone| *gone).await;
}

/// Returns whether the terminal that is watched has gone away.
pub(super) fn has_gone() -> bool {
    *GONE.borrow()
}

/// Begins to watch the terminal that stdin is.
pub(super) fn watch() {
    let watching = || {
        if terminal::wait_for_end() {
            GONE.send_replace(true);
        }
    };
    // Without the thread the program ends with the signal that a terminal sends at its end.
    let _ = std::thread::Builder::new().name("conclave-hang-up".to_owned()).spawn(watching);
}

#[cfg(unix)]
mod terminal {
    use std::io::stdin;
    use std::slice::from_mut;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;

    /// Waits for the end of the terminal; false where it cannot be waited for.
    pub(super) fn wait_for_end() -> bool {
        let stdin = stdin();
        // No event is asked for: an end is reported anyway.
        let mut terminal = PollFd::new(&stdin, PollFlags::empty());
        loop {
            match poll(from_mut(&mut terminal), None) {
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
}

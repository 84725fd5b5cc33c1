//! Ctrl-C, on a thread of its own, so that the program ends however busy its other threads are. A
//! run gets a short time to end. A conversation stops its turn, and ends only if the turn does not.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::program::exit;

/// Time that a run gets to end after Ctrl-C. A spinning guest yields at its next tick, and nothing
/// else delays the end.
const GRACE: Duration = Duration::from_millis(500);

/// The present effect of Ctrl-C.
static MEANING: AtomicU8 = AtomicU8::new(ENDS);
/// Ends the program at once.
const ENDS: u8 = 0;
/// Notifies the run, and then ends the program.
const ENDS_RUN: u8 = 1;
/// Stops the conversation's turn.
const STOPS_TURN: u8 = 2;

/// Set while part of a run must end by itself, however long that takes. Only a second Ctrl-C ends
/// the program then.
static LINGERS: AtomicBool = AtomicBool::new(false);

/// The turn in progress, if any.
static TURN: InterruptibleTurn =
    InterruptibleTurn { goes_on: AtomicBool::new(false), has_warned: AtomicBool::new(false) };

/// The state of a turn, as far as Ctrl-C depends on it.
struct InterruptibleTurn {
    goes_on: AtomicBool,
    /// Whether Ctrl-C was pressed since a turn last began or ended.
    has_warned: AtomicBool,
}

/// The way in which Ctrl-C arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressed {
    /// A signal.
    Signal,
    /// A key, because a line was being edited.
    Key,
}

impl InterruptibleTurn {
    fn begins(&self) {
        self.goes_on.store(true, Ordering::SeqCst);
        self.has_warned.store(false, Ordering::SeqCst);
    }

    fn is_over(&self) {
        self.goes_on.store(false, Ordering::SeqCst);
        self.has_warned.store(false, Ordering::SeqCst);
    }

    /// Whether the turn was stopped before and is still in progress. Without a turn, a key answers
    /// a question and does not count. A signal does count then, since its prompt cannot read keys.
    fn is_stuck(&self, pressed: Pressed) -> bool {
        let counts = pressed == Pressed::Signal || self.goes_on.load(Ordering::SeqCst);
        counts && self.has_warned.swap(true, Ordering::SeqCst)
    }
}

/// Notified when Ctrl-C arrives as a key, because a line was being edited.
static RAISED: LazyLock<Notify> = LazyLock::new(Notify::new);

/// A receiver of all Ctrl-C presses.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts(watch::Receiver<u32>);

impl Interrupts {
    /// Starts to listen. Before a run begins, Ctrl-C ends the program at once; afterwards the run
    /// gets a short time to end.
    pub(crate) fn listen() -> Self {
        let (sender, receiver) = watch::channel(0);
        // Without this thread, Ctrl-C keeps its default effect of ending the program at once.
        let _ = std::thread::Builder::new()
            .name("conclave-interrupt".to_owned())
            .spawn(move || wait(&sender));
        Self(receiver)
    }

    /// Records that a run has begun.
    pub(crate) fn run_begins(&self) {
        MEANING.store(ENDS_RUN, Ordering::SeqCst);
    }

    /// Makes Ctrl-C wait for the run to end, without the usual time limit.
    pub(crate) fn lingers(&self) {
        LINGERS.store(true, Ordering::SeqCst);
    }

    /// Records that a conversation has begun.
    pub(crate) fn chat_begins(&self) {
        MEANING.store(STOPS_TURN, Ordering::SeqCst);
    }

    /// Records the start of a turn. Ctrl-C stops it, and a second one ends the program.
    pub(crate) fn turn_begins(&self) {
        TURN.begins();
    }

    /// Records the end of the turn, so that the next Ctrl-C is a first one again.
    pub(crate) fn turn_is_over(&self) {
        TURN.is_over();
    }

    /// Reports Ctrl-C from a terminal mode in which it arrives as a key.
    pub(crate) fn raise(&self) {
        RAISED.notify_one();
    }

    /// Ends the program at once, and drops nothing. A room that is dropped would record an end,
    /// while one whose process ended is resumed.
    #[cfg(feature = "serve")]
    pub(crate) fn exit(code: u8) -> ! {
        // An stdout that cannot be written was reported before.
        let _ = crate::ui::stdout::drain();
        leave(code)
    }

    /// Resolves at the next Ctrl-C.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // Without the listening thread, no Ctrl-C arrives here.
            std::future::pending::<()>().await;
        }
    }
}

fn wait(sender: &watch::Sender<u32>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    runtime.block_on(async {
        loop {
            let Some(pressed) = next_press().await else { return };
            match MEANING.load(Ordering::SeqCst) {
                ENDS_RUN => {
                    sender.send_modify(|count| *count += 1);
                    tokio::select! {
                        () = tokio::time::sleep(GRACE), if !LINGERS.load(Ordering::SeqCst) => {}
                        // A second Ctrl-C ends the program without waiting for the run.
                        _ = next_press() => {}
                    }
                    end();
                }
                // A second Ctrl-C, with the turn still in progress.
                STOPS_TURN if TURN.is_stuck(pressed) => end(),
                STOPS_TURN => sender.send_modify(|count| *count += 1),
                _ => end(),
            }
        }
    });
}

/// Waits for Ctrl-C. Returns `None` if the system cannot report it.
async fn next_press() -> Option<Pressed> {
    tokio::select! {
        signal = tokio::signal::ctrl_c() => signal.is_ok().then_some(Pressed::Signal),
        () = RAISED.notified() => Some(Pressed::Key),
    }
}

fn end() -> ! {
    leave(exit::INTERRUPTED)
}

/// Ends the program because its terminal has gone away. Nothing is dropped, so that the run stays
/// interrupted and can be resumed, as after SIGHUP.
pub(crate) fn hang_up() -> ! {
    leave(exit::HUNG_UP)
}

fn leave(code: u8) -> ! {
    crate::ui::user::restore_terminal();
    crate::program::mcp_servers::stop_all();
    std::process::exit(i32::from(code));
}

/// Waits for `SIGTERM`, with which a client or a service manager ends a server.
#[cfg(any(feature = "mcp", feature = "postgres", feature = "serve"))]
pub(crate) async fn terminated() {
    #[cfg(unix)]
    if let Ok(mut signal) =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
    {
        signal.recv().await;
        return;
    }
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::{InterruptibleTurn, Pressed};

    #[test]
    fn the_second_interrupt_of_a_turn_ends_the_program() {
        let turn = InterruptibleTurn {
            goes_on: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
        };
        assert!(
            !turn.is_stuck(Pressed::Key) && !turn.is_stuck(Pressed::Key),
            "nothing goes on that could be stuck"
        );
        turn.begins();
        assert!(!turn.is_stuck(Pressed::Key), "the first of this turn");
        turn.is_over();
        turn.begins();
        assert!(!turn.is_stuck(Pressed::Signal), "the first of the next");
        assert!(turn.is_stuck(Pressed::Signal));
    }

    #[test]
    fn two_signals_at_a_plain_prompt_end_the_program() {
        let turn = InterruptibleTurn {
            goes_on: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
        };
        assert!(!turn.is_stuck(Pressed::Signal) && turn.is_stuck(Pressed::Signal));
    }
}

//! Ctrl-C, on a thread of its own: however busy everything else is, the program ends. A run is told
//! and gets a moment; a conversation is told to stop its turn, and ends only when it does not.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::program::exit;

/// How long a run may take to end after Ctrl-C: a spinning guest gives way at its next tick, and
/// there is nothing else to wait for.
const GRACE: Duration = Duration::from_millis(500);

/// What Ctrl-C means now.
static MEANING: AtomicU8 = AtomicU8::new(ENDS);
/// The program ends at once.
const ENDS: u8 = 0;
/// A run goes on that should be told before the program ends.
const ENDS_RUN: u8 = 1;
/// A conversation goes on: its turn is stopped.
const STOPS_TURN: u8 = 2;

/// Something of the run is to come to its own end, however long that takes: only a second Ctrl-C
/// ends the program.
static LINGERS: AtomicBool = AtomicBool::new(false);

/// The turn that goes on, if one does.
static TURN: InterruptibleTurn =
    InterruptibleTurn { goes_on: AtomicBool::new(false), was_told: AtomicBool::new(false) };

/// What Ctrl-C needs to know of a turn.
struct InterruptibleTurn {
    goes_on: AtomicBool,
    /// Ctrl-C came, and neither did a turn begin nor one end since.
    was_told: AtomicBool,
}

/// How Ctrl-C came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressed {
    /// As a signal.
    Signal,
    /// As a key, because a line was being edited.
    Key,
}

impl InterruptibleTurn {
    fn begins(&self) {
        self.goes_on.store(true, Ordering::SeqCst);
        self.was_told.store(false, Ordering::SeqCst);
    }

    fn is_over(&self) {
        self.goes_on.store(false, Ordering::SeqCst);
        self.was_told.store(false, Ordering::SeqCst);
    }

    /// It was told to stop before, and still goes on. A key while no turn goes on answers a
    /// question and counts for nothing; a signal does then, since it came to a prompt that cannot
    /// read keys.
    fn is_stuck(&self, pressed: Pressed) -> bool {
        let counts = pressed == Pressed::Signal || self.goes_on.load(Ordering::SeqCst);
        counts && self.was_told.swap(true, Ordering::SeqCst)
    }
}

/// Ctrl-C that came as a key, because a line was being edited.
static RAISED: LazyLock<Notify> = LazyLock::new(Notify::new);

/// Tells of each Ctrl-C.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts(watch::Receiver<u32>);

impl Interrupts {
    /// Starts to listen. Before a run has begun Ctrl-C ends the program at once; after that the run
    /// gets a moment to end.
    pub(crate) fn listen() -> Self {
        let (sender, receiver) = watch::channel(0);
        // Without this thread Ctrl-C does what it does anyway: it ends the program at once.
        let _ = std::thread::Builder::new()
            .name("conclave-interrupt".to_owned())
            .spawn(move || wait(&sender));
        Self(receiver)
    }

    /// A run has begun.
    pub(crate) fn run_begins(&self) {
        MEANING.store(ENDS_RUN, Ordering::SeqCst);
    }

    /// A run has begun that has to be waited for when it is told to end.
    pub(crate) fn lingers(&self) {
        LINGERS.store(true, Ordering::SeqCst);
    }

    /// A conversation has begun.
    pub(crate) fn chat_begins(&self) {
        MEANING.store(STOPS_TURN, Ordering::SeqCst);
    }

    /// Something began that Ctrl-C stops, and a second one ends together with the program.
    pub(crate) fn turn_begins(&self) {
        TURN.begins();
    }

    /// The turn has ended, so the next Ctrl-C is a first one again.
    pub(crate) fn turn_is_over(&self) {
        TURN.is_over();
    }

    /// Somebody pressed Ctrl-C where it is a key like any other.
    pub(crate) fn raise(&self) {
        RAISED.notify_one();
    }

    /// Ends with the next Ctrl-C.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody listens, so none will come this way.
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
                        _ = next_press() => {}
                    }
                    end();
                }
                // The second one, and the turn still goes on.
                STOPS_TURN if TURN.is_stuck(pressed) => end(),
                STOPS_TURN => sender.send_modify(|count| *count += 1),
                _ => end(),
            }
        }
    });
}

/// Waits for Ctrl-C; none when the system gives none.
async fn next_press() -> Option<Pressed> {
    tokio::select! {
        signal = tokio::signal::ctrl_c() => signal.is_ok().then_some(Pressed::Signal),
        () = RAISED.notified() => Some(Pressed::Key),
    }
}

fn end() -> ! {
    crate::ui::person::restore_terminal();
    conclave_mcp::source::stop_all();
    std::process::exit(i32::from(exit::INTERRUPTED));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::{InterruptibleTurn, Pressed};

    #[test]
    fn only_the_second_one_of_a_turn_ends_the_program() {
        let turn =
            InterruptibleTurn { goes_on: AtomicBool::new(false), was_told: AtomicBool::new(false) };
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
    fn a_signal_at_a_prompt_without_an_editor_comes_twice_to_end_the_program() {
        let turn =
            InterruptibleTurn { goes_on: AtomicBool::new(false), was_told: AtomicBool::new(false) };
        assert!(!turn.is_stuck(Pressed::Signal) && turn.is_stuck(Pressed::Signal));
    }
}

//! Ctrl-C, on a thread of its own: however busy everything else is, the program ends. A run is told and gets a moment; a conversation is
//! told to stop its turn, and ends only when it does not.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::exit;

/// How long a run may take to end after Ctrl-C: a spinning guest gives way at its next tick, and there is nothing else to wait for.
const GRACE: Duration = Duration::from_millis(500);

/// What Ctrl-C means now.
static MEANING: AtomicU8 = AtomicU8::new(ENDS);
/// The program ends at once.
const ENDS: u8 = 0;
/// A run goes on that should be told before the program ends.
const ENDS_RUN: u8 = 1;
/// A conversation goes on: its turn is stopped.
const STOPS_TURN: u8 = 2;

/// A turn was told to stop, and goes on still.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// Ctrl-C that came as a key, because a line was being edited.
static RAISED: LazyLock<Notify> = LazyLock::new(Notify::new);

/// Tells of each Ctrl-C.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts(watch::Receiver<u32>);

impl Interrupts {
    /// Starts to listen. Before a run has begun Ctrl-C ends the program at once; after that the run gets a moment to end.
    pub(crate) fn listen() -> Self {
        let (sender, receiver) = watch::channel(0);
        // Without this thread Ctrl-C does what it does anyway: it ends the program at once.
        let _ = std::thread::Builder::new().name("conclave-interrupt".to_owned()).spawn(move || wait(&sender));
        Self(receiver)
    }

    /// A run has begun.
    pub(crate) fn run_begins(&self) {
        MEANING.store(ENDS_RUN, Ordering::SeqCst);
    }

    /// A conversation has begun.
    pub(crate) fn chat_begins(&self) {
        MEANING.store(STOPS_TURN, Ordering::SeqCst);
    }

    /// The turn has ended, so the next Ctrl-C is a first one again.
    pub(crate) fn turn_is_over(&self) {
        STOPPING.store(false, Ordering::SeqCst);
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
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        loop {
            if !pressed().await {
                return;
            }
            match MEANING.load(Ordering::SeqCst) {
                ENDS_RUN => {
                    sender.send_modify(|count| *count += 1);
                    tokio::select! {
                        () = tokio::time::sleep(GRACE) => {}
                        _ = pressed() => {}
                    }
                    end();
                }
                // The second one, and the turn still goes on.
                STOPS_TURN if STOPPING.swap(true, Ordering::SeqCst) => end(),
                STOPS_TURN => sender.send_modify(|count| *count += 1),
                _ => end(),
            }
        }
    });
}

/// Waits for Ctrl-C; false when the system gives none.
async fn pressed() -> bool {
    tokio::select! {
        signal = tokio::signal::ctrl_c() => signal.is_ok(),
        () = RAISED.notified() => true,
    }
}

fn end() -> ! {
    crate::person::restore_terminal();
    std::process::exit(i32::from(exit::INTERRUPTED));
}

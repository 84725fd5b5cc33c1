//! Ctrl-C, on a thread of its own: however busy everything else is, the program ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::exit;

/// How long a run may take to end after Ctrl-C: a spinning guest gives way at its next tick, and there is nothing else to wait for.
const GRACE: Duration = Duration::from_millis(500);

/// A run goes on that should be told before the program ends.
static RUNNING: AtomicBool = AtomicBool::new(false);

/// Tells of the first Ctrl-C.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts(watch::Receiver<bool>);

impl Interrupts {
    /// Starts to listen. Before a run has begun Ctrl-C ends the program at once; after that the run gets a moment to end.
    pub(crate) fn listen() -> Self {
        let (sender, receiver) = watch::channel(false);
        // Without this thread Ctrl-C does what it does anyway: it ends the program at once.
        let _ = std::thread::Builder::new().name("conclave-interrupt".to_owned()).spawn(move || wait(&sender));
        Self(receiver)
    }

    /// A run has begun.
    pub(crate) fn run_begins(&self) {
        RUNNING.store(true, Ordering::SeqCst);
    }

    /// Ends with the first Ctrl-C.
    pub(crate) async fn first(&mut self) {
        if self.0.wait_for(|interrupted| *interrupted).await.is_err() {
            // Nobody listens, so none will come this way.
            std::future::pending::<()>().await;
        }
    }
}

fn wait(sender: &watch::Sender<bool>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        if tokio::signal::ctrl_c().await.is_err() {
            return;
        }
        if RUNNING.load(Ordering::SeqCst) {
            let _ = sender.send(true);
            tokio::select! {
                () = tokio::time::sleep(GRACE) => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        std::process::exit(i32::from(exit::INTERRUPTED));
    });
}

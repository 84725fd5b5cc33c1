//! What is read in the course of writing: a thread with a connection of its own, so that no room's
//! loop runs SQL or waits for a mutex while somebody else does. It knows no tables.

use std::sync::mpsc;
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;

type Look = Box<dyn FnOnce(&Connection) + Send>;

/// The thread; dropping this waits until it has ended, and its connection is closed.
pub(super) struct ReaderThread {
    looks: Option<mpsc::Sender<Look>>,
    thread: Option<JoinHandle<()>>,
}

impl ReaderThread {
    pub(super) fn start(connection: Connection) -> std::io::Result<Self> {
        let (looks, received) = mpsc::channel::<Look>();
        let run = move || {
            for look in received {
                // A look that panics has no answer; the next one has.
                let _ =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(&connection)));
            }
        };
        let thread = std::thread::Builder::new().name("store-reader".to_owned()).spawn(run)?;
        Ok(Self { looks: Some(looks), thread: Some(thread) })
    }

    /// Looks beside the caller, one after the other.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        let (answer, answered) = oneshot::channel();
        self.ask(Box::new(move |connection| drop(answer.send(look(connection)))))?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// The same for a thread that may wait.
    pub(super) fn look_now<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.ask(Box::new(move |connection| drop(answer.send(look(connection)))))?;
        answered.recv().unwrap_or_else(|_| Err(gone()))
    }

    fn ask(&self, look: Look) -> rusqlite::Result<()> {
        let looks = self.looks.as_ref().ok_or_else(gone)?;
        looks.send(look).map_err(|_| gone())
    }
}

impl Drop for ReaderThread {
    fn drop(&mut self) {
        // The thread ends when nothing more can come.
        self.looks.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread is gone, or the look broke off.
fn gone() -> rusqlite::Error {
    rusqlite::Error::InvalidQuery
}

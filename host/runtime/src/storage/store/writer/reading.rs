//! Reads that writing needs: a thread with its own connection, so that no room's loop runs SQL or
//! waits for a mutex meanwhile. It does not know the tables.

use std::sync::mpsc;
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;

type Look = Box<dyn FnOnce(&Connection) + Send>;

/// The reading thread. Dropping it waits until the thread has ended and its connection is closed.
pub(super) struct ReaderThread {
    looks: Option<mpsc::Sender<Look>>,
    thread: Option<JoinHandle<()>>,
}

impl ReaderThread {
    pub(super) fn start(connection: Connection) -> std::io::Result<Self> {
        let (looks, received) = mpsc::channel::<Look>();
        let run = move || {
            for look in received {
                // A query that panics gets no answer; later ones do.
                let _ =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(&connection)));
            }
        };
        let thread = std::thread::Builder::new().name("store-reader".to_owned()).spawn(run)?;
        Ok(Self { looks: Some(looks), thread: Some(thread) })
    }

    /// Runs a query on the thread and waits for it; queries run one after the other.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        let (answer, answered) = oneshot::channel();
        self.ask(Box::new(move |connection| drop(answer.send(look(connection)))))?;
        answered.await.unwrap_or_else(|_| Err(thread_gone()))
    }

    /// Does the same on a thread that may block.
    pub(super) fn look_now<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.ask(Box::new(move |connection| drop(answer.send(look(connection)))))?;
        answered.recv().unwrap_or_else(|_| Err(thread_gone()))
    }

    fn ask(&self, look: Look) -> rusqlite::Result<()> {
        let looks = self.looks.as_ref().ok_or_else(thread_gone)?;
        looks.send(look).map_err(|_| thread_gone())
    }
}

impl Drop for ReaderThread {
    fn drop(&mut self) {
        // Closing the channel ends the thread.
        self.looks.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The error for a thread that is gone, or a query that panicked.
fn thread_gone() -> rusqlite::Error {
    rusqlite::Error::InvalidQuery
}

//! Reads that writing needs: a thread with its own connection, so that no room's loop runs SQL or
//! waits for a mutex meanwhile. It does not know the tables.

use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::storage::store::sql::{Sql, SqlError, SqlResult};

type Look = Box<dyn FnOnce(&dyn Sql) + Send>;

/// The reading thread. Dropping it waits until the thread has ended and its connection is closed.
pub(super) struct ReaderThread {
    looks: Option<mpsc::Sender<Look>>,
    thread: Option<JoinHandle<()>>,
}

impl ReaderThread {
    pub(super) fn start(tables: Box<dyn Sql>) -> std::io::Result<Self> {
        let (looks, received) = mpsc::channel::<Look>();
        let run = move || {
            for look in received {
                // A query that panics gets no answer; later ones do.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(&*tables)));
            }
        };
        let thread = std::thread::Builder::new().name("store-reader".to_owned()).spawn(run)?;
        Ok(Self { looks: Some(looks), thread: Some(thread) })
    }

    /// Runs a query on the thread and waits for it; queries run one after the other.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&dyn Sql) -> SqlResult<T> + Send + 'static,
    ) -> SqlResult<T> {
        let (answer, answered) = oneshot::channel();
        self.ask(Box::new(move |tables| drop(answer.send(look(tables)))))?;
        answered.await.unwrap_or_else(|_| Err(SqlError::no_reader()))
    }

    /// Does the same on a thread that may block.
    pub(super) fn look_now<T: Send + 'static>(
        &self,
        look: impl FnOnce(&dyn Sql) -> SqlResult<T> + Send + 'static,
    ) -> SqlResult<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.ask(Box::new(move |tables| drop(answer.send(look(tables)))))?;
        answered.recv().unwrap_or_else(|_| Err(SqlError::no_reader()))
    }

    fn ask(&self, look: Look) -> SqlResult<()> {
        let looks = self.looks.as_ref().ok_or_else(SqlError::no_reader)?;
        looks.send(look).map_err(|_| SqlError::no_reader())
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

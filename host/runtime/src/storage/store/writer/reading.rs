//! Reads that writing needs: a thread with its own connection, so that no room's loop runs SQL or
//! waits for a mutex meanwhile. It does not know the tables.

use std::sync::mpsc;
use std::time::Instant;

use tokio::sync::oneshot;

use crate::storage::store::closing::StoreThread;
use crate::storage::store::sql::{Sql, SqlError, SqlResult};

type Look = Box<dyn FnOnce(&dyn Sql) + Send>;

/// The reading thread.
pub(super) struct ReaderThread {
    looks: mpsc::Sender<Look>,
    thread: StoreThread,
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
        let thread = StoreThread::spawn("store-reader", run)?;
        Ok(Self { looks, thread })
    }

    /// Waits until the thread has ended and its connection is closed, or until this time.
    pub(super) fn close(self, until: Option<Instant>) {
        // Closing the channel ends the thread.
        drop(self.looks);
        self.thread.join(until);
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
        self.looks.send(look).map_err(|_| SqlError::no_reader())
    }
}

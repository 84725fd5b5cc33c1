//! Threads that may block, beside those of the executor.

use std::cell::Cell;

use tokio::task::JoinHandle;

thread_local! {
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
}

/// Resets the mark of a thread, which serves other work afterwards.
struct Marked;

impl Drop for Marked {
    fn drop(&mut self) {
        MAY_BLOCK.set(false);
    }
}

/// Runs work that blocks, such as reading a store, on a thread of the executor for it. A store in
/// PostgreSQL drives its connection on such a thread itself, and else needs another one.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    tokio::task::spawn_blocking(move || {
        MAY_BLOCK.set(true);
        let _marked = Marked;
        work()
    })
}

/// Whether [`spawn`] began the work of this thread.
#[cfg(feature = "postgres")]
pub(crate) fn may_block() -> bool {
    MAY_BLOCK.get()
}

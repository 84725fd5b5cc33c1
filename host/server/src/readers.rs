//! The open readers of the store. They are few and used by one request each, so that neither many
//! requests nor many event streams open files and connections.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_runtime::store::{StoreAddress, StoreError, StoreReader};
use tokio::sync::Semaphore;

use crate::operator::Operator;

/// Requests that read at once. The others wait.
const READERS: usize = 4;

/// The readers of a store. Clones share them.
#[derive(Clone)]
pub(crate) struct Readers(Arc<ReadersState>);

struct ReadersState {
    store: StoreAddress,
    permits: Arc<Semaphore>,
    /// The open readers that no request uses.
    free: Mutex<Vec<StoreReader>>,
    operator: Arc<dyn Operator>,
}

/// The store could not be read. Its operator has seen the reason.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadFailed;

impl Readers {
    pub(crate) fn new(store: StoreAddress, operator: Arc<dyn Operator>) -> Self {
        let permits = Arc::new(Semaphore::new(READERS));
        Self(Arc::new(ReadersState { store, permits, free: Mutex::default(), operator }))
    }

    /// Reads from the store, away from the loops of rooms.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&StoreReader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ReadFailed> {
        let permit = Arc::clone(&self.0.permits).acquire_owned().await.map_err(|_| ReadFailed)?;
        let readers = Arc::clone(&self.0);
        let reading = conclave_runtime::blocking::spawn(move || {
            // A request that is given up still reads, and has its place until then.
            let _permit = permit;
            readers.read(read)
        });
        match reading.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                self.0.operator.store_unreadable(&error);
                Err(ReadFailed)
            }
            Err(_) => Err(ReadFailed),
        }
    }
}

impl ReadersState {
    fn read<T>(
        &self,
        read: impl FnOnce(&StoreReader) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let free = self.free().pop();
        let reader = match free {
            Some(reader) => reader,
            None => StoreReader::open(&self.store)?,
        };
        // A reader whose connection was lost is not used again.
        let value = read(&reader)?;
        self.free().push(reader);
        Ok(value)
    }

    fn free(&self) -> MutexGuard<'_, Vec<StoreReader>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

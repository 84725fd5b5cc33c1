//! The laws on journals in memory.

use std::sync::Arc;

use conclave_runtime::blobs::{Blobs, MemoryBlobs};
use conclave_runtime::journal::{Journals, MemoryJournals};
use conclave_runtime::kv::{KvStore, MemoryKv};
use conclave_runtime::store::StoreOptions;
use conclave_store_laws::{LawResult, TestedHost, TestedStore, try_all};

#[derive(Clone, Default)]
struct Memory {
    journals: MemoryJournals,
    blobs: Arc<MemoryBlobs>,
    kv: Arc<MemoryKv>,
}

impl TestedStore for Memory {
    fn open(&self, _: &StoreOptions) -> LawResult<Box<dyn TestedHost>> {
        Ok(Box::new(self.clone()))
    }

    /// The memory of a test outlives its hosts.
    fn crash(&self, host: Box<dyn TestedHost>) {
        drop(host);
    }

    fn kv(&self) -> Option<Arc<dyn KvStore>> {
        Some(Arc::clone(&self.kv) as _)
    }
}

impl TestedHost for Memory {
    fn journals(&self) -> Arc<dyn Journals> {
        Arc::new(self.journals.clone())
    }

    fn blobs(&self) -> Option<Arc<dyn Blobs>> {
        Some(Arc::clone(&self.blobs) as _)
    }
}

#[test]
fn journals_in_memory_obey_the_laws_of_one_host() {
    let report = try_all(Memory::default);
    assert_eq!(report.broken, [], "{report}");
    assert_eq!((report.held.len(), report.not_tried.len()), (11, 26), "{report}");
}

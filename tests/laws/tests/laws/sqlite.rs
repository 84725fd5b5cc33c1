//! The laws on the store in a folder.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use conclave_runtime::kv::{KvStore, Sqlite};
use conclave_runtime::store::{Store, StoreOptions};
use conclave_store_laws::{LawResult, TestedHost, TestedStore, try_all};

struct Folder {
    temp: tempfile::TempDir,
    /// The store's folder; a crash leaves it behind for a copy.
    store: Mutex<PathBuf>,
}

impl Folder {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let store = Mutex::new(temp.path().join("store"));
        Self { temp, store }
    }
}

impl TestedStore for Folder {
    fn open(&self, options: &StoreOptions) -> LawResult<Box<dyn TestedHost>> {
        let store = Store::open_with(self.store.lock().unwrap().as_path(), options)?;
        Ok(Box::new(store))
    }

    /// The next host opens the files as they are now. The crashed one never closes its own.
    fn crash(&self, host: Box<dyn TestedHost>) {
        let mut store = self.store.lock().unwrap();
        let copy = store.with_extension("crashed");
        copy_files(&store, &copy);
        *store = copy;
        std::mem::forget(host);
    }

    fn kv(&self) -> Option<Arc<dyn KvStore>> {
        Some(Arc::new(Sqlite::new(self.temp.path().join("kv.db"))))
    }

    fn change(&self, statement: &str) -> bool {
        let file = self.store.lock().unwrap().join("log.db");
        rusqlite::Connection::open(file).unwrap().execute_batch(statement).unwrap();
        true
    }
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, entry) = (entry.as_ref().unwrap().path(), entry.as_ref().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => copy_files(&path, &to.join(entry.file_name())),
            false => drop(std::fs::copy(path, to.join(entry.file_name())).unwrap()),
        }
    }
}

#[test]
fn the_store_in_a_folder_obeys_the_laws_of_one_host() {
    let report = try_all(Folder::new);
    assert_eq!(report.broken, [], "{report}");
    assert_eq!((report.held.len(), report.not_tried.len()), (21, 16), "{report}");
}

//! Files of every released format stay readable. UPDATE_FIXTURES=1 recreates them, only before a
//! release.

use std::path::{Path, PathBuf};

use conclave_runtime::ids::RoomId;
use conclave_runtime::journal::Unfinished;
use conclave_runtime::store::{RunFilter, RunState, Store, StoreOptions, StoreReader};
use serde_json::Value;

use crate::support::{copied, ended, records, run};

/// The format that this host writes.
const NEWEST: &str = "format-3";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/journal")
}

fn lines(folder: &Path) -> String {
    let reader = StoreReader::open(folder).unwrap();
    let rooms = ["done", "going", "going/1"].map(|room| reader.lines(&RoomId::from(room)).unwrap());
    rooms.concat().join("\n") + "\n"
}

/// Writes a store with the present format, and its twin in JSON lines.
fn make(folder: &Path) {
    std::fs::create_dir_all(fixtures()).unwrap();
    let options = StoreOptions { snapshot_every: Some(2), ..StoreOptions::default() };
    let store = Store::open_with(folder, &options).unwrap();
    ended(&store, "done");
    let (mut going, child) = (run(&store, "going", 3), run(&store, "going/1", 2));
    going.keep_snapshot(Unfinished::fold(records(folder, "going")));
    drop((going, child, store));
    std::fs::copy(folder.join("log.db"), fixtures().join(format!("{NEWEST}.db"))).unwrap();
    std::fs::write(fixtures().join(format!("{NEWEST}.jsonl")), lines(folder)).unwrap();
}

#[test]
fn every_format_stays_readable() {
    let temp = tempfile::tempdir().unwrap();
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        make(&temp.path().join("new"));
    }
    for format in ["format-1", "format-2", NEWEST] {
        stays_readable(format, &temp.path().join(format));
    }
}

fn stays_readable(format: &str, temp: &Path) {
    let folder = temp.join("old");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(fixtures().join(format!("{format}.db")), folder.join("log.db")).unwrap();
    // Independent of the umask of the checkout.
    #[cfg(unix)]
    std::fs::set_permissions(
        folder.join("log.db"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    // Opening it for writing migrates it, which must not change its records.
    drop(Store::open(&folder).unwrap());
    let values = |text: &str| {
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    let twin = std::fs::read_to_string(fixtures().join(format!("{format}.jsonl"))).unwrap();
    assert_eq!(values(&lines(&folder)), values(&twin), "{format}");
    assert!(values(&twin).len() == 8);
    let reader = StoreReader::open(&folder).unwrap();
    assert_eq!(reader.check().unwrap().problems, Vec::<String>::new(), "{format}");
    let runs = reader.runs(&RunFilter::default()).unwrap();
    assert_eq!(runs.len(), 2);
    assert!(
        runs.iter().any(|run| run.state == RunState::Interrupted)
            && runs.iter().any(|run| run.tokens == 40)
    );
    let copy = temp.join("again");
    copied(&folder, &copy);
    assert_eq!(lines(&copy), lines(&folder));
}

//! Files of every released format stay readable. UPDATE_FIXTURES=1 recreates them, only before a
//! release.

use std::path::{Path, PathBuf};

use conclave_runtime::ids::RoomId;
use conclave_runtime::store::{RunFilter, RunState, Store, StoreReader};
use serde_json::Value;

use crate::support::{copied, ended, run};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/journal")
}

fn lines(folder: &Path) -> String {
    let reader = StoreReader::open(folder).unwrap();
    let rooms = ["done", "going", "going/1"].map(|room| reader.lines(&RoomId::from(room)).unwrap());
    rooms.concat().join("\n") + "\n"
}

fn make(folder: &Path) {
    std::fs::create_dir_all(fixtures()).unwrap();
    let store = Store::open(folder).unwrap();
    ended(&store, "done");
    drop((run(&store, "going", 3), run(&store, "going/1", 2), store));
    std::fs::copy(folder.join("log.db"), fixtures().join("format-1.db")).unwrap();
    std::fs::write(fixtures().join("format-1.jsonl"), lines(folder)).unwrap();
}

#[test]
fn format_1_stays_readable() {
    let temp = tempfile::tempdir().unwrap();
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        make(&temp.path().join("new"));
    }
    let folder = temp.path().join("old");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(fixtures().join("format-1.db"), folder.join("log.db")).unwrap();
    // Independent of the umask of the checkout.
    #[cfg(unix)]
    std::fs::set_permissions(
        folder.join("log.db"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    // Opening it for writing migrates it, which must not change its records.
    drop(Store::open(&folder).unwrap());
    let values = |text: &str| {
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    let twin = std::fs::read_to_string(fixtures().join("format-1.jsonl")).unwrap();
    assert_eq!(values(&lines(&folder)), values(&twin));
    assert!(values(&twin).len() == 8);
    let reader = StoreReader::open(&folder).unwrap();
    assert_eq!(reader.check().unwrap().problems, Vec::<String>::new());
    let runs = reader.runs(&RunFilter::default()).unwrap();
    assert_eq!(runs.len(), 2);
    assert!(
        runs.iter().any(|run| run.state == RunState::Interrupted)
            && runs.iter().any(|run| run.tokens == 40)
    );
    let again = temp.path().join("again");
    copied(&folder, &again);
    assert_eq!(lines(&again), lines(&folder));
}

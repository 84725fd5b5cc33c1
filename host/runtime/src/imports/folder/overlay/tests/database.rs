//! Overlays whose changes are in a database, so that each host has the same.

use conclave_core::types::ids::Millis;

use super::*;
use crate::storage::overlay::ChangeDecision;
use crate::storage::store::{
    Durability, Retention, RunOrigin, Store, StoreAddress, StoreOptions, StoreReader, TestDatabase,
};

/// A run in a database, and hosts that have it one after the other.
struct Shared {
    database: TestDatabase,
    temp: TempDir,
    /// The parameters of the address.
    parameters: String,
}

/// A host with the run.
struct TestHost {
    rig: Rig,
    /// Dropped last.
    store: Store,
}

impl Shared {
    fn new() -> Option<Self> {
        let (database, temp) = (TestDatabase::new()?, tempfile::tempdir().unwrap());
        let shared = Self { database, temp, parameters: String::new() };
        filled(&shared.temp.path().join("base"));
        // Opened once for its tables.
        drop(Store::open(shared.address()).unwrap());
        shared.run(
            "INSERT INTO rooms (room, run, started, changed, entry, agents, text, turns, tokens,
             cost_micro_usd, spent, records, durability, command, locked, principal, approvals,
             questions, epoch, ended) VALUES ('run', 'run', 1, 1, 't', '[]', '', 0, 0, 0, '{}', 0,
             'group', 'run', 0, 'ada', '', '', 1, 2)",
        );
        Some(shared)
    }

    fn address(&self) -> StoreAddress {
        format!("{}{}", self.database.address.url(), self.parameters).parse().unwrap()
    }

    fn run(&self, statement: &str) {
        self.database.link().batch(statement).unwrap();
    }

    fn base(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.temp.path().join("base").join(path)).ok()
    }

    /// The next host, to which the run belongs from now on.
    fn host(&self, epoch: u64) -> TestHost {
        self.run(&format!("UPDATE rooms SET epoch = {epoch}"));
        let copies = Some(self.temp.path().join("copies"));
        let options = StoreOptions { copies, ..StoreOptions::default() };
        let store = Store::open_with(self.address(), &options).unwrap();
        let journals = store.journals(Durability::Group, RunOrigin::default());
        let place = journals.overlays(&RoomId::from(RUN), epoch).unwrap();
        let temp = tempfile::tempdir().unwrap();
        let quota = (64 << 20, 100);
        let folder = grant(&self.temp.path().join("base"), FileMode::Overlay, quota);
        TestHost { rig: Rig { temp, folder, run: RunOverlays::of(place) }, store }
    }

    fn changes(&self) -> RunChanges {
        RunChanges::read(&self.address(), &RoomId::from(RUN)).unwrap()
    }

    fn reader(&self) -> StoreReader {
        StoreReader::open(self.address()).unwrap()
    }

    fn pending(&self) -> usize {
        self.reader().pending_changes(&RoomId::from(RUN)).unwrap()
    }

    fn decisions(&self) -> Vec<ChangeDecision> {
        self.reader().change_decisions(&RoomId::from(RUN)).unwrap()
    }

    /// Removes all ended runs. Returns how many are gone, and how many stay.
    fn collect(&self) -> (usize, usize) {
        let store = Store::open(self.address()).unwrap();
        let keep = Retention { before: Some(Millis(u64::MAX)), ..Retention::default() };
        let collected = store.collect(&keep).unwrap();
        (collected.runs.len(), collected.remaining_runs.len())
    }
}

#[test]
fn another_host_has_the_recorded_changes_and_no_others() {
    let Some(shared) = Shared::new() else { return };
    let one = shared.host(1);
    assert_eq!(one.rig.write("a", b"ONE").unwrap(), 3);
    one.rig.view(|view| view.write(change("b", 8, b"!!", false))).unwrap();
    one.rig.view(|view| view.write(change("b", 0, b"?", false))).unwrap();
    one.rig.write("made/new", b"").unwrap();
    one.rig.write("gone", b"x").unwrap();
    one.rig.remove("gone").unwrap();
    one.rig.remove("d/a").unwrap();
    let two = shared.host(2);
    let seen = |host: &TestHost| {
        ["a", "b", "made/new", "gone", "d/a"].map(|path| host.rig.read(path).ok())
    };
    let text = |text: &str| Some(text.to_owned());
    let recorded = [text("ONE"), text("?1234567!!"), text(""), None, None];
    assert_eq!(seen(&two), recorded);
    // What the host before writes late is refused, and its own next look is the recorded state.
    for late in [one.rig.write("a", b"LATE").map(drop), one.rig.remove("b")] {
        assert!(matches!(late, Err(FolderFailure::NotRecorded(RecordFailure::Fenced))), "{late:?}");
        assert_eq!(seen(&one), recorded);
    }
    two.rig.write("a", b"TWO").unwrap();
    assert_eq!(two.rig.read("a").unwrap(), "TWO");
    assert_eq!(shared.base("a").as_deref(), Some("one\ntwo\n"), "the folder is as it was");
    let names = |changes: &RunChanges| -> Vec<String> {
        changes.folders[0].files.iter().map(|file| file.path.clone()).collect()
    };
    assert_eq!(names(&shared.changes()), ["a", "b", "d/a", "made/new"]);
    assert_eq!(shared.pending(), 4);
    assert!(StoreReader::open(shared.address()).unwrap().check().is_ok());
}

#[test]
fn a_person_applies_and_drops_what_is_in_a_database() {
    let Some(shared) = Shared::new() else { return };
    let host = shared.host(1);
    host.rig.write("a", b"ONE").unwrap();
    host.rig.write("b", b"dropped").unwrap();
    host.rig.remove("d/a").unwrap();
    // While a host has the run, nobody applies its changes.
    shared.run("UPDATE rooms SET host = (SELECT host FROM hosts WHERE until > now() LIMIT 1)");
    let changes = shared.changes();
    assert!(matches!(changes.apply(), Err(OverlayError::InUse { .. })));
    shared.run("UPDATE rooms SET host = NULL");
    let file = &changes.folders[0].files[0];
    let contents = changes.folders[0].contents(file).unwrap();
    assert_eq!(
        (contents.old.as_deref(), contents.new.as_deref()),
        (Some(&b"one\ntwo\n"[..]), Some(&b"ONE"[..]))
    );
    let mut dropped = shared.changes();
    dropped.retain(|path| path == "b");
    assert_eq!(dropped.discard().unwrap(), 1);
    // The host that still has it open learns that, and reads it anew.
    let refused = host.rig.write("a", b"AGAIN");
    assert!(matches!(refused, Err(FolderFailure::NotRecorded(RecordFailure::Behind))));
    assert_eq!(host.rig.read("b").unwrap(), "0123456789", "the folder's own");
    host.rig.write("a", b"AGAIN").unwrap();
    assert!(matches!(changes.apply(), Err(OverlayError::ChangedAgain { .. })));
    assert_eq!(shared.changes().apply().unwrap(), 2);
    assert_eq!((shared.base("a").as_deref(), shared.base("d/a")), (Some("AGAIN"), None));
    assert_eq!((shared.pending(), shared.changes().folders.len()), (0, 0));
    let kinds: Vec<_> = shared.decisions().iter().map(|decision| decision.kind).collect();
    assert_eq!(kinds, [ChangeDecisionKind::Dropped, ChangeDecisionKind::Applied]);
}

#[test]
fn retention_spares_changes_and_what_is_lost_is_named() {
    let Some(shared) = Shared::new() else { return };
    let host = shared.host(1);
    let most = 16 << 20;
    let refused = host.rig.write("a", &vec![0; most + 1]);
    let limit = most as u64;
    assert!(matches!(refused, Err(FolderFailure::TooLargeToRecord { most }) if most == limit));
    host.rig.write("a", b"ONE").unwrap();
    host.rig.write("a", b"TWO").unwrap();
    host.rig.write("b", b"THREE").unwrap();
    drop(host);
    let blobs = || shared.database.number("SELECT count(*) FROM blobs");
    assert_eq!((shared.collect(), blobs()), ((0, 1), 3), "the run has changes");
    let collect_blobs = || {
        let store = Store::open(shared.address()).unwrap();
        store.collect(&Retention::default()).unwrap();
        blobs()
    };
    assert_eq!(collect_blobs(), 2, "the content of before is no longer needed");
    shared.run("DELETE FROM blobs WHERE octet_length(bytes) = 5");
    let files = &shared.changes().folders[0].files;
    assert_eq!(files.iter().map(|file| file.is_lost).collect::<Vec<_>>(), [false, true]);
    assert_eq!(shared.reader().blocked_changes(&RoomId::from(RUN)).unwrap(), 1);
    let problems = StoreReader::open(shared.address()).unwrap().check().unwrap().problems;
    assert!(problems.iter().any(|problem| problem.contains("\"b\"")), "{problems:?}");
    shared.run("UPDATE overlay_files SET length = 99 WHERE path = 'a'");
    let problems = StoreReader::open(shared.address()).unwrap().check().unwrap().problems;
    assert!(problems.iter().any(|problem| problem.contains("\"a\"")), "{problems:?}");
    assert_eq!(shared.changes().discard().unwrap(), 2);
    assert_eq!((shared.collect(), collect_blobs()), ((1, 0), 0));
    let rows = "SELECT (SELECT count(*) FROM overlays) + (SELECT count(*) FROM overlay_decisions)";
    assert_eq!(shared.database.number(rows), 0);
}

#[test]
fn working_copies_go_with_their_process() {
    let Some(shared) = Shared::new() else { return };
    let (one, two) = (shared.host(1), shared.host(2));
    two.rig.write("a", b"x").unwrap();
    assert_eq!(one.rig.read("a").unwrap(), "x");
    let copies = shared.temp.path().join("copies");
    let folders =
        || fs::read_dir(&copies).unwrap().filter(|it| it.as_ref().unwrap().path().is_dir());
    assert_eq!(folders().count(), 2);
    // As after a kill, nobody holds this one.
    fs::create_dir(copies.join("killed")).unwrap();
    fs::write(copies.join("killed/file"), "x").unwrap();
    drop((one, two));
    assert!(copies.join("killed").is_dir());
    let three = shared.host(3);
    assert_eq!(three.rig.read("a").unwrap(), "x");
    assert_eq!(folders().count(), 1);
}

#[test]
fn a_content_that_the_shared_folder_does_not_take_is_reported_once_for_each_cause() {
    let Some(mut shared) = Shared::new() else { return };
    let blobs = shared.temp.path().join("blobs");
    fs::create_dir(&blobs).unwrap();
    shared.parameters = format!("?blobs={}", blobs.display());
    let host = shared.host(1);
    let report = || host.store.report_rejection().map(|error| error.to_string());
    let content = |byte: u8| vec![byte; 2 << 20];
    let in_the_way = |byte: u8| blobs.join(crate::support::digest::sha256(&content(byte)));
    let name = blobs.to_str().unwrap();
    for byte in [1, 2] {
        fs::create_dir(in_the_way(byte)).unwrap();
        let refused = host.rig.write("a", &content(byte));
        let Err(FolderFailure::NotRecorded(failure)) = &refused else { panic!("{refused:?}") };
        assert!(failure.cause().is_some_and(|cause| cause.contains(name)), "{failure:?}");
        assert!(!failure.to_string().contains(name), "{failure}");
    }
    assert!(report().is_some_and(|text| text.contains(name)));
    assert_eq!(report(), None, "it is the same cause");
    fs::remove_dir(in_the_way(2)).unwrap();
    host.rig.write("small", b"x").unwrap();
    host.rig.write("a", &content(2)).unwrap();
    assert_eq!(report(), None);
    assert!(host.rig.write("a", &content(1)).is_err());
    assert!(report().is_some(), "it came again");
}

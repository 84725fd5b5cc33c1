//! Large blobs in a shared folder, and the blobs that retention spares.

use std::path::Path;

use conclave_core::overlay::changes::ChangeRecord;

use super::*;
use crate::storage::store::{Store, StoreAddress, StoreError, StoreReader};
use crate::support::overlay_files::OverlayOrigin;

/// The database with a folder for large blobs.
fn with_folder(database: &TestDatabase, folder: &Path) -> PostgresAddress {
    let url = format!("{}?blobs={}", database.address.url(), folder.display());
    let Ok(StoreAddress::Postgres(address)) = url.parse() else { panic!("{url}") };
    address
}

fn open(address: &PostgresAddress, host: &str) -> Result<PostgresEngine, StoreError> {
    let entry = HostEntry { host: host.to_owned(), ..HostEntry::default() };
    PostgresEngine::open(address, entry)
        .map_err(|error| error.of(&StoreAddress::Postgres(address.clone())))
}

fn large(byte: u8) -> StoredBytes {
    part(vec![byte; (1 << 20) + 1])
}

fn keep(engine: &mut PostgresEngine, blob: &StoredBytes) {
    let blobs = std::slice::from_ref(blob);
    engine.commit(&CommitGroup { blobs, ..CommitGroup::default() }).unwrap();
}

fn collect(engine: &mut PostgresEngine) -> Collected {
    engine.collect(&Retention::default(), &HashSet::new(), &HashSet::new()).unwrap()
}

/// Why a store is not opened, where it is because of its folder.
fn refusal<T>(opened: Result<T, StoreError>) -> String {
    match opened.map(drop).unwrap_err() {
        StoreError::BlobFolder { what, .. } => what,
        other => panic!("{other}"),
    }
}

/// What a check says about blobs. The records of these tests are no events.
fn blob_problems(reader: &StoreReader) -> Vec<String> {
    let problems = reader.check().unwrap().problems;
    problems.into_iter().filter(|problem| problem.contains("blob")).collect()
}

#[test]
fn a_large_blob_is_a_file_and_is_read_by_whoever_has_the_folder() {
    let Some(database) = TestDatabase::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    let address = with_folder(&database, temp.path());
    let mut engine = open(&address, "one").unwrap();
    let (blob, small) = (large(7), part(b"small".to_vec()));
    let part_of_event = part(format!("\"{}\"", "x".repeat(1 << 20)).into_bytes());
    let mut first = Write { parts: vec![part_of_event.clone()], ..write("a", 1, 0..2) };
    first.rows[1].parts = Some(format!("{{\"text\":\"{}\"}}", part_of_event.sha256));
    first.rows[1].body = "{\"event\":\"sent\"}".to_owned();
    let blobs = [blob.clone(), small.clone()];
    let group = CommitGroup { writes: vec![&first], blobs: &blobs, ..CommitGroup::default() };
    assert_eq!(engine.commit(&group).unwrap().refused, []);
    // The same bytes again, also of a host that does not know them.
    keep(&mut open(&address, "two").unwrap(), &blob);
    assert_eq!(std::fs::read(temp.path().join(&blob.sha256)).unwrap(), &blob.bytes[..]);
    assert!(temp.path().join(&part_of_event.sha256).is_file());
    #[cfg(unix)]
    for name in [&*blob.sha256, "conclave-store"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(temp.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 3, "no draft is left");
    assert_eq!(database.number("SELECT count(*) FROM blobs WHERE bytes IS NULL"), 2);
    let reader = StoreReader::open(StoreAddress::Postgres(address)).unwrap();
    for blob in [&blob, &small] {
        assert_eq!(reader.blob(&blob.sha256).unwrap().as_ref(), Some(&blob.bytes));
    }
    assert_eq!(blob_problems(&reader), Vec::<String>::new());
    // Without the folder the rest can be read, and a large blob is not absent.
    let without = StoreReader::open(StoreAddress::Postgres(database.address.clone())).unwrap();
    assert!(without.blob(&small.sha256).unwrap().is_some());
    assert!(refusal(without.blob(&blob.sha256)).contains("?blobs=FOLDER"));
    assert!(refusal(without.check()).contains("?blobs=FOLDER"));
    // Other bytes are not returned, and a lost file is damage.
    std::fs::write(temp.path().join(&blob.sha256), b"other").unwrap();
    assert_eq!(reader.blob(&blob.sha256).unwrap(), None);
    let problems = blob_problems(&reader);
    assert_eq!(problems, [format!("the blob {} is not what was written", blob.sha256)]);
    std::fs::remove_file(temp.path().join(&blob.sha256)).unwrap();
    assert!(matches!(reader.blob(&blob.sha256), Err(StoreError::Damaged { .. })));
    let problems = blob_problems(&reader);
    assert!(problems.len() == 1 && problems[0].contains("is not in"), "{problems:?}");
    // Whoever stores the same bytes again writes the file again.
    for damage in [None, Some(b"other")] {
        if let Some(damage) = damage {
            std::fs::write(temp.path().join(&blob.sha256), damage).unwrap();
        }
        keep(&mut engine, &blob);
        assert_eq!(reader.blob(&blob.sha256).unwrap().as_ref(), Some(&blob.bytes));
    }
    // An empty place of a mount is no loss.
    std::fs::remove_file(temp.path().join(&blob.sha256)).unwrap();
    std::fs::remove_file(temp.path().join("conclave-store")).unwrap();
    assert!(refusal(reader.blob(&blob.sha256)).contains("mount the shared folder"));
}

/// A host may have started before the first one with a folder, or lose its folder while it lives.
#[test]
fn a_host_without_the_folder_of_a_store_takes_no_run() {
    let Some(database) = TestDatabase::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    let (blobs, other_place) = (temp.path().join("blobs"), temp.path().join("aside"));
    std::fs::create_dir(&blobs).unwrap();
    let at = |address: &PostgresAddress| StoreAddress::Postgres(address.clone());
    let older = Store::open(at(&database.address)).unwrap();
    older.announce_worker(&["pool"], 4).unwrap();
    let with_it = Store::open(at(&with_folder(&database, &blobs))).unwrap();
    with_it.announce_worker(&["pool"], 4).unwrap();
    let due = "INSERT INTO rooms (room, run, started, changed, entry, agents, text, turns, tokens,
        cost_micro_usd, spent, records, durability, command, locked, principal, approvals,
        questions, epoch, pool, wake_at) VALUES ('run', 'run', 1, 1, 'a', '[]', '', 0, 0, 0, '{}',
        1, 'group', 'worker', 1, 'ada', '', '', 1, 'pool', 0)";
    database.link().batch(due).unwrap();
    assert!(refusal(older.claim("pool")).contains("?blobs=FOLDER"));
    std::fs::rename(&blobs, &other_place).unwrap();
    assert!(refusal(with_it.claim("pool")).contains("mount the shared folder"));
    // The run is still free for whoever has the folder.
    std::fs::rename(&other_place, &blobs).unwrap();
    assert_eq!(with_it.claim("pool").unwrap(), Some(RoomId::from("run")));
    // Whoever was about to take it decides anew.
    database.link().batch("UPDATE rooms SET host = NULL").unwrap();
    database.link().batch("DELETE FROM meta WHERE name = 'blob_folder'").unwrap();
    let mut engine = open(&database.address, "three").unwrap();
    let marked = "INSERT INTO meta (name, value) VALUES ('blob_folder', 1)";
    database.link().batch(marked).unwrap();
    let error = engine.take(&RoomId::from("run"), Millis(1)).unwrap_err();
    assert_eq!(error.kind, SqlErrorKind::BlobFolder, "{error}");
    assert_eq!(database.number("SELECT epoch FROM rooms"), 1);
    let hosts = StoreReader::open(at(&with_folder(&database, &blobs))).unwrap().hosts().unwrap();
    let lacking: Vec<bool> = hosts.iter().map(|host| host.lacks_blob_folder).collect();
    assert_eq!(lacking, [true, false, false], "the last one is no worker");
}

#[test]
fn a_host_without_the_folder_of_a_store_does_not_start() {
    let (Some(database), Some(other)) = (TestDatabase::new(), TestDatabase::new()) else { return };
    let temp = tempfile::tempdir().unwrap();
    let address = with_folder(&database, temp.path());
    let missing = temp.path().join("missing");
    assert!(refusal(open(&with_folder(&database, &missing), "one")).contains("mkdir -m 700 -p"));
    drop(open(&database.address, "no blob is a file yet").unwrap());
    drop(open(&address, "one").unwrap());
    assert!(refusal(open(&database.address, "two")).contains("?blobs=FOLDER"));
    assert!(refusal(open(&with_folder(&other, temp.path()), "three")).contains("another store"));
    let empty = tempfile::tempdir().unwrap();
    let why = refusal(open(&with_folder(&database, empty.path()), "four"));
    // The line that mends it does.
    let (_, line) = why.split_once('`').and_then(|(_, rest)| rest.split_once("`echo ")).unwrap();
    let identity = line.split_once(' ').unwrap().0;
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0, "it is left alone");
    std::fs::write(empty.path().join("conclave-store"), identity).unwrap();
    drop(open(&with_folder(&database, empty.path()), "four").unwrap());
    let reader = StoreReader::open(StoreAddress::Postgres(with_folder(&database, &missing)));
    assert!(refusal(reader).contains("is not there"));
}

#[test]
fn a_folder_that_is_gone_fails_a_write_of_a_large_blob_alone() {
    let Some(database) = TestDatabase::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    let mut engine = open(&with_folder(&database, temp.path()), "one").unwrap();
    std::fs::remove_file(temp.path().join("conclave-store")).unwrap();
    let blobs = [large(1)];
    let group = CommitGroup { blobs: &blobs, ..CommitGroup::default() };
    assert_eq!(engine.commit(&group).unwrap_err().kind, SqlErrorKind::BlobFolder);
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
    assert_eq!(database.number("SELECT count(*) FROM blobs"), 0);
    assert_eq!(commit(&mut engine, &[write("a", 1, 0..1)]), []);
}

#[test]
fn an_attachment_that_cannot_be_read_is_not_absent() {
    let Some(database) = TestDatabase::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    let (folder, away) = (temp.path().join("shared"), temp.path().join("away"));
    std::fs::create_dir(&folder).unwrap();
    let store = Store::open(StoreAddress::Postgres(with_folder(&database, &folder))).unwrap();
    let blob = store.blobs().keep(&large(5).bytes, "image/png", None).unwrap();
    // Answered after the attachment is stored.
    store.collect(&Retention { dry: true, ..Retention::default() }).unwrap();
    assert!(store.blobs().read(&blob.sha256).unwrap().is_some());
    std::fs::rename(&folder, &away).unwrap();
    let why = store.blobs().read(&blob.sha256).unwrap_err().to_string();
    assert!(why.contains("mount the shared folder"), "{why}");
    assert_eq!(store.blobs().read(&"0".repeat(64)), Ok(None));
    std::fs::rename(&away, &folder).unwrap();
    assert!(store.blobs().read(&blob.sha256).unwrap().is_some());
}

#[test]
fn files_go_after_their_rows_and_come_back_with_them() {
    let Some(database) = TestDatabase::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    let mut engine = open(&with_folder(&database, temp.path()), "one").unwrap();
    let (used, deep, unused) = (large(1), large(2), large(3));
    for blob in [&used, &deep, &unused] {
        keep(&mut engine, blob);
    }
    // One is referred to by a record, and one by a part that is a file itself.
    let text = format!("\"{} {}\"", "x".repeat(1 << 20), deep.sha256);
    let in_part = part(text.into_bytes());
    let mut first = Write { parts: vec![in_part.clone()], ..write("a", 1, 0..2) };
    first.rows[0].body = format!("{{\"event\":\"sent\",\"sha256\":\"{}\"}}", used.sha256);
    first.rows[1].parts = Some(format!("{{\"text\":\"{}\"}}", in_part.sha256));
    assert_eq!(commit(&mut engine, &[first]), []);
    // A file of a host that ended before it stored the row.
    let orphan = "0".repeat(64);
    std::fs::write(temp.path().join(&orphan), b"orphan").unwrap();
    // A removal that lost its lock moved a file aside whose row came back.
    let path = |sha256: &str| temp.path().join(sha256);
    let aside_path = path(&format!("{}.0123456789abcdef.aside", used.sha256));
    std::fs::rename(path(&used.sha256), &aside_path).unwrap();
    let dry = Retention { dry: true, ..Retention::default() };
    let counted = engine.collect(&dry, &HashSet::new(), &HashSet::new()).unwrap();
    assert!(aside_path.exists() && path(&unused.sha256).exists() && path(&orphan).exists());
    let collected = collect(&mut engine);
    assert_eq!((collected.blobs, collected.bytes), (2, (1 << 20) + 1 + 6));
    assert_eq!(collected, counted);
    for blob in [&used, &deep, &in_part] {
        assert_eq!(std::fs::read(path(&blob.sha256)).unwrap(), &blob.bytes[..]);
    }
    assert!(!path(&unused.sha256).exists() && !path(&orphan).exists() && !aside_path.exists());
    // It is stored anew, although this host has stored it before.
    keep(&mut engine, &unused);
    assert!(path(&unused.sha256).exists());
    assert_eq!(collect(&mut engine).blobs, 1);
    assert!(!path(&unused.sha256).exists());
}

#[test]
fn an_attachment_is_spared_while_its_host_may_refer_to_it() {
    let Some(database) = TestDatabase::new() else { return };
    let (mut one, mut two) = (engine(&database, "one"), engine(&database, "two"));
    let blob = part(b"kept for long".to_vec());
    keep(&mut one, &blob);
    let age = || database.link().run("UPDATE blobs SET stored = now() - INTERVAL '2 hours'", &[]);
    age().unwrap();
    assert_eq!(collect(&mut two).blobs, 0);
    // Its lease has ended, and it may only be cut off.
    database.link().run("UPDATE hosts SET until = now() WHERE host = 'one'", &[]).unwrap();
    assert_eq!(collect(&mut two).blobs, 0);
    let mut first = write("a", 1, 0..1);
    first.rows[0].body = format!("{{\"event\":\"sent\",\"sha256\":\"{}\"}}", blob.sha256);
    let references = [blob.sha256.clone()];
    let group =
        CommitGroup { writes: vec![&first], references: &references, ..CommitGroup::default() };
    assert_eq!(one.commit(&group).unwrap().refused, []);
    // A message that no room has read yet refers to another.
    let sent = part(b"sent".to_vec());
    keep(&mut one, &sent);
    let body = format!("{{\"sha256\":\"{}\"}}", sent.sha256);
    let message = "INSERT INTO inbox (id, room, body, state) VALUES ('m', 'a', ?1, 0)";
    database.link().run(message, &[&body]).unwrap();
    let blob_of_host = part(b"of a host that is gone".to_vec());
    keep(&mut one, &blob_of_host);
    one.close(&[]);
    age().unwrap();
    assert_eq!(collect(&mut two).blobs, 1);
    database.link().run("DELETE FROM inbox", &[]).unwrap();
    assert_eq!(collect(&mut two).blobs, 1);
    // A host that was lost counts for an hour.
    let mut third = engine(&database, "lost");
    keep(&mut third, &blob_of_host);
    third.lease.take();
    let ago = |time: &str| {
        let until =
            format!("UPDATE hosts SET until = now() - INTERVAL '{time}' WHERE host = 'lost'");
        database.link().batch(&until).unwrap();
    };
    ago("50 minutes");
    assert_eq!(collect(&mut two).blobs, 0);
    ago("70 minutes");
    assert_eq!(collect(&mut two).blobs, 1);
}

/// A host may live for months, and what it stored for a call that failed has no record.
#[test]
fn an_attachment_without_a_record_is_spared_for_a_day() {
    let Some(database) = TestDatabase::new() else { return };
    let (mut one, mut two) = (engine(&database, "one"), engine(&database, "two"));
    let blob = part(b"of a call that failed".to_vec());
    let mut store = || {
        let both = [blob.clone(), blob.clone()];
        one.commit(&CommitGroup { blobs: &both, ..CommitGroup::default() }).unwrap();
    };
    let age = |since: &str| {
        database
            .link()
            .batch(&format!(
                "UPDATE blobs SET stored = now() - INTERVAL '2 days';
                 UPDATE held_blobs SET since = now() - INTERVAL '{since}'"
            ))
            .unwrap();
    };
    store();
    age("23 hours");
    assert_eq!(collect(&mut two).blobs, 0);
    age("25 hours");
    store();
    assert_eq!(collect(&mut two).blobs, 0, "it was stored again");
    age("25 hours");
    assert_eq!(collect(&mut two).blobs, 1);
    assert_eq!(database.number("SELECT count(*) FROM held_blobs"), 0);
}

/// A plugin may write a file again and again. Earlier contents must not stay until its host ends.
#[test]
fn a_content_of_an_overlay_is_spared_as_long_as_a_change_names_it() {
    let Some(database) = TestDatabase::new() else { return };
    let (mut one, mut two) = (engine(&database, "one"), engine(&database, "two"));
    assert_eq!(commit(&mut one, &[write("a", 1, 0..1)]), []);
    let origin = OverlayOrigin { dir: "/work".into(), display_path: "work".to_owned() };
    let contents = [&b"first"[..], b"second"].map(|bytes| part(bytes.to_vec()));
    let path = "notes.txt".to_owned();
    let record = ChangeRecord::Written { path, base: None, changed_since_read: false };
    let change = |number: u64, content: &StoredBytes| OverlayChange {
        run: RoomId::from("a"),
        epoch: 1,
        origin: origin.clone(),
        number,
        record: record.clone(),
        content: Some(content.clone()),
    };
    let stored = "SELECT count(*) FROM blobs";
    for (content, number) in contents.iter().zip(1..) {
        let answers = one.change_overlays(&[change(number, content)]).unwrap();
        assert_eq!(answers, [ChangeAnswer::Recorded]);
        // While its change may be under way, its age spares it.
        assert_eq!(collect(&mut two).blobs, 0);
    }
    assert_eq!(database.number("SELECT count(*) FROM held_blobs"), 0);
    let age = "UPDATE blobs SET stored = now() - INTERVAL '2 hours'";
    database.link().run(age, &[]).unwrap();
    assert_eq!(collect(&mut two).blobs, 1);
    assert_eq!(database.number(stored), 1);
    // A change that is late names a content that is gone: its bytes are sent again.
    let late = change(3, &contents[0]);
    assert_eq!(one.change_overlays(std::slice::from_ref(&late)).unwrap(), [ChangeAnswer::Recorded]);
    assert_eq!(database.number(stored), 2);
}

#[test]
fn a_record_that_refers_to_a_removed_attachment_is_refused() {
    let Some(database) = TestDatabase::new() else { return };
    let mut engine = engine(&database, "one");
    let blob = part(b"removed".to_vec());
    keep(&mut engine, &blob);
    // As after a day without the host.
    database.link().run("DELETE FROM blobs", &[]).unwrap();
    let (first, references) = (write("a", 1, 0..1), [blob.sha256.clone()]);
    let group =
        CommitGroup { writes: vec![&first], references: &references, ..CommitGroup::default() };
    assert_eq!(engine.commit(&group).unwrap_err().kind, SqlErrorKind::Constraint);
    assert_eq!(database.number("SELECT count(*) FROM events"), 0);
    assert_eq!(commit(&mut engine, &[first]), []);
}

#[test]
fn a_store_without_a_folder_does_not_get_one_by_the_folder_of_another() {
    let Some(database) = TestDatabase::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    drop(open(&database.address, "one").unwrap());
    let file = temp.path().join("file");
    std::fs::write(&file, "").unwrap();
    std::fs::write(temp.path().join("conclave-store"), "another\n").unwrap();
    for folder in [temp.path(), &file] {
        refusal(open(&with_folder(&database, folder), "one"));
        drop(open(&database.address, "one").unwrap());
    }
}

//! Snapshots of rooms: a resumption reads the newest one and the records behind it. The records are
//! the truth, so a snapshot that is missing, damaged or of another host costs time and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conclave_core::journal::snapshot::SNAPSHOT_FORMAT;
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::completion::{Completion, Prompt, StopReason, TokenUsage};
use conclave_runtime::config::Config;
use conclave_runtime::event::Record;
use conclave_runtime::ids::{Millis, RoomId};
use conclave_runtime::journal::{Journal, Reopened, Unfinished};
use conclave_runtime::models::{ModelClient, ModelFailure, TextSink};
use conclave_runtime::native::{self, Plugin, Step};
use conclave_runtime::outcome::Status;
use conclave_runtime::store::{
    Durability, Retention, SNAPSHOT_EVERY, Store, StoreAddress, StoreOptions, StoreReader,
};
use conclave_runtime::{Host, HostOptions, Prepared, RunOptions};
use tokio::sync::Notify;

use crate::support::{
    StorePlace, about, append, copied, damage, end, message_record, of_epoch, open, opened,
    records, reopen, sql, without_owned,
};

fn opened_every(store: impl Into<StoreAddress>, records: u64) -> Store {
    let options = StoreOptions { snapshot_every: Some(records), ..StoreOptions::default() };
    Store::open_with(store, &options).unwrap()
}

/// A journal with the room that its records lead to, as a driver has both.
struct Written {
    journal: Box<dyn Journal>,
    room: Unfinished,
}

impl Written {
    fn new(store: &Store, room: &str) -> Self {
        let mut written = Self { journal: open(store, room), room: Unfinished::default() };
        written.append(&[opened(room, "Good morning")]);
        written
    }

    /// Appends records, and a snapshot if one is due.
    fn append(&mut self, records: &[Arc<Record>]) {
        append(&mut *self.journal, records).unwrap();
        let records = of_epoch(&*self.journal, records);
        self.room.extend(records.iter().map(|record| Record::clone(record)));
        if self.journal.snapshot_due().unwrap() <= self.room.next {
            self.journal.keep_snapshot(self.room.clone());
        }
    }

    fn append_to(&mut self, next: u64) {
        for seq in self.room.next..next {
            self.append(&[message_record(seq, "yes")]);
        }
    }
}

/// Writes the room `a` with this number of records.
fn written(store: &Store, records: u64) {
    Written::new(store, "a").append_to(records);
}

/// Returns the number of the first record that was read, the number of records read, and the room
/// that they lead to.
async fn read(store: &Store) -> (u64, usize, String) {
    let reopening =
        store.journals(Durability::Group, about()).reopen(&RoomId::from("a"), Millis(1_000));
    let Reopened { snapshot, records, .. } = reopening.await.unwrap().unwrap();
    let mut room = snapshot.map(|snapshot| *snapshot).unwrap_or_default();
    let (first, count) = (room.next, without_owned(records.clone()).len());
    room.extend(records);
    (first, count, room.to_snapshot().unwrap())
}

fn resumed(store: &Store) -> (u64, usize, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(read(store))
}

/// Returns the room that all records of `a` lead to.
fn folded(store: impl Into<StoreAddress>) -> String {
    Unfinished::fold(records(store, "a")).to_snapshot().unwrap()
}

#[test]
fn a_resumed_room_reads_the_records_behind_its_snapshot_and_no_others() {
    for (count, first) in [(9, 0), (10, 10), (25, 20), (30, 30)] {
        let place = StorePlace::new();
        let store = opened_every(place.address(), 10);
        written(&store, count);
        let (from, read, room) = resumed(&store);
        assert_eq!((from, read as u64), (first, count - first));
        assert_eq!(store.written().snapshots, count / 10, "one for every ten records");
        assert_eq!(room, folded(place.address()));
        let rows = place.count("snapshots", "true");
        assert_eq!(rows, usize::from(first > 0), "a room has its newest alone");
    }
}

#[test]
fn what_is_read_does_not_grow_with_the_journal() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let mut room = Written::new(&store, "a");
    let mut seq = 1;
    for length in [1_500, 4_500] {
        while seq < length {
            let batch: Vec<_> = (seq..seq + 50).map(|seq| message_record(seq, "yes")).collect();
            seq += 50;
            room.append(&batch);
        }
        let temp = tempfile::tempdir().unwrap();
        // What a killed process leaves behind.
        copied(store.folder().unwrap(), temp.path());
        let (_, read, _) = resumed(&Store::open(temp.path()).unwrap());
        assert!(read as u64 <= SNAPSHOT_EVERY / 2, "{read} of {length} records");
    }
    assert_eq!(store.written().snapshots, 4);
}

#[test]
fn a_resumed_room_goes_on_with_its_snapshots_where_it_stopped() {
    let place = StorePlace::new();
    let store = opened_every(place.address(), 10);
    written(&store, 17);
    let Reopened { snapshot, records, journal, .. } = reopen(&store, "a");
    assert_eq!(journal.snapshot_due(), Some(20));
    let mut room = *snapshot.unwrap();
    room.extend(records);
    let mut going = Written { journal, room };
    going.append_to(21);
    drop(going);
    assert_eq!(resumed(&store).0, 20);
    // Without one, the next is due at once: another interruption must not cost all records again.
    place.change("DELETE FROM snapshots");
    let reopened = reopen(&store, "a");
    assert_eq!(reopened.records[0].seq, 0);
    assert_eq!(reopened.journal.snapshot_due(), Some(10));
}

#[test]
fn a_snapshot_that_cannot_be_used_is_ignored() {
    let of_record = "(SELECT hash FROM events WHERE room = 'a' AND seq = 19)";
    for (change, is_damage) in [
        // The process was killed before the commit.
        ("DELETE FROM snapshots".to_owned(), false),
        ("UPDATE snapshots SET body = substr(body, 2)".to_owned(), true),
        ("UPDATE snapshots SET body = hash".to_owned(), true),
        ("UPDATE snapshots SET hash = body".to_owned(), true),
        // Of another record, and of none.
        ("UPDATE snapshots SET next = 19".to_owned(), true),
        ("UPDATE snapshots SET next = 0".to_owned(), true),
        ("UPDATE snapshots SET next = 26".to_owned(), true),
        (format!("UPDATE snapshots SET hash = {of_record}"), true),
    ] {
        let place = StorePlace::new();
        let store = opened_every(place.address(), 10);
        written(&store, 25);
        assert_eq!(resumed(&store).0, 20);
        place.change(&change);
        assert_eq!(resumed(&store), (0, 25, folded(place.address())), "{change}");
        let problems = damage(&StoreReader::open(place.address()).unwrap().check().unwrap());
        let expected = ["the snapshot of room a is not what was written"];
        assert_eq!(problems, expected[..usize::from(is_damage)], "{change}");
    }
}

#[test]
fn a_snapshot_of_another_host_is_ignored_and_no_damage() {
    let temp = tempfile::tempdir().unwrap();
    let store = opened_every(temp.path(), 10);
    written(&store, 25);
    let format = |number: u32| format!("\"format\":{number}");
    let (own, newer) = (format(SNAPSHOT_FORMAT), format(SNAPSHOT_FORMAT + 1));
    let other = folded(temp.path()).replacen(&own, &newer, 1);
    assert_ne!(other, folded(temp.path()));
    let connection = sql(temp.path());
    let record: Vec<u8> = connection
        .query_row("SELECT hash FROM events WHERE seq = 19", [], |row| row.get(0))
        .unwrap();
    let hash = {
        use sha2::Digest;
        sha2::Sha256::new().chain_update(record).chain_update(&other).finalize().to_vec()
    };
    connection
        .execute("UPDATE snapshots SET body = ?, hash = ?", (other.as_bytes(), hash))
        .unwrap();
    assert_eq!(resumed(&store), (0, 25, folded(temp.path())));
    assert!(damage(&StoreReader::open(temp.path()).unwrap().check().unwrap()).is_empty());
    // A record of other rules is refused, as without a snapshot.
    connection.execute("UPDATE events SET rules = 1 WHERE seq = 19", []).unwrap();
    let journals = store.journals(Durability::Group, about());
    assert!(crate::support::reopened_in(&*journals, "a").is_err());
}

/// D10: the snapshot is outside of the audit chain, so whoever may write the file can give it any
/// state with a hash that fits.
#[test]
fn a_snapshot_that_was_changed_with_its_hash_is_found_and_grants_nothing() {
    // A change of the setup, and another one, which only the commands find.
    for (from, to, is_used) in [
        ("\"setup\":{\"entry\":\"desk\"", "\"setup\":{\"entry\":\"dusk\"", false),
        ("\"opened\":1000", "\"opened\":1001", true),
    ] {
        let temp = tempfile::tempdir().unwrap();
        let store = opened_every(temp.path(), 10);
        written(&store, 25);
        let connection = sql(temp.path());
        let (body, record): (Vec<u8>, Vec<u8>) = connection
            .query_row(
                "SELECT snapshots.body, events.hash FROM snapshots, events WHERE events.seq = 19",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap();
        let body = String::from_utf8(body).unwrap();
        let changed = body.replacen(from, to, 1);
        assert_ne!(changed, body, "{from}");
        let hash = {
            use sha2::Digest;
            sha2::Sha256::new().chain_update(record).chain_update(&changed).finalize().to_vec()
        };
        connection
            .execute("UPDATE snapshots SET body = ?, hash = ?", (changed.as_bytes(), hash))
            .unwrap();
        let reader = StoreReader::open(temp.path()).unwrap();
        let expected = ["the snapshot of room a is not the state that its records lead to"];
        assert_eq!(damage(&reader.check().unwrap()), expected, "{from}");
        assert_eq!(damage(&reader.verify(&[]).unwrap()), expected, "{from}");
        assert_eq!(resumed(&store).0, if is_used { 20 } else { 0 }, "{from}");
    }
}

#[test]
fn a_snapshot_is_never_ahead_of_its_records() {
    let place = StorePlace::new();
    let store = opened_every(place.address(), 10);
    let mut room = Written::new(&store, "a");
    room.append_to(15);
    // Its records were never appended.
    room.room.extend((15..20).map(|seq| Record::clone(&message_record(seq, "yes"))));
    room.journal.keep_snapshot(room.room.clone());
    // The journal failed, so its records do not lead to this room.
    assert!(append(&mut *room.journal, &[message_record(20, "a gap")]).is_err());
    drop(room);
    assert_eq!(resumed(&store).0, 10);
    assert_eq!(store.written().snapshots, 1);
}

#[test]
fn a_snapshot_for_which_there_is_no_space_stops_no_room() {
    let temp = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        most_bytes: Some(500 << 10),
        snapshot_every: Some(2),
        ..StoreOptions::default()
    };
    let store = Store::open_with(temp.path(), &options).unwrap();
    let mut room = Written { journal: open(&store, "a"), room: Unfinished::default() };
    // The room holds the text, so its snapshot is as large as its first record.
    room.append(&[opened("a", &"x".repeat(300_000))]);
    room.append_to(6);
    drop(room);
    assert_eq!(store.written().snapshots, 0);
    assert_eq!(resumed(&store), (0, 6, folded(temp.path())));
}

#[test]
fn a_snapshot_is_removed_with_its_run_and_is_in_no_export() {
    let temp = tempfile::tempdir().unwrap();
    let store = opened_every(temp.path(), 10);
    let mut room = Written::new(&store, "a");
    room.append_to(15);
    let secret = crate::support::SECRET.to_hex();
    let lines = StoreReader::open(temp.path()).unwrap().lines(&RoomId::from("a")).unwrap();
    assert_eq!(lines.iter().filter(|line| line.contains(&secret)).count(), 1, "its first record");
    end(&mut *room.journal, message_record(15, "bye"), Status::Done);
    drop(room);
    let copy = temp.path().join("copy");
    StoreReader::open(temp.path()).unwrap().backup(&copy).unwrap();
    assert_eq!(resumed(&Store::open(&copy).unwrap()).0, 10, "a backup is whole");
    let all = Retention { runs: Some(0), ..Retention::default() };
    assert_eq!(store.collect(&all).unwrap().runs.len(), 1);
    let remaining: i64 =
        sql(temp.path()).query_row("SELECT count(*) FROM snapshots", [], |row| row.get(0)).unwrap();
    assert_eq!(remaining, 0);
}

#[test]
fn a_run_that_is_given_up_ends_after_its_snapshot() {
    let place = StorePlace::new();
    let store = opened_every(place.address(), 10);
    written(&store, 10);
    store.give_up(&RoomId::from("a"), "enough").unwrap();
    let records = without_owned(records(place.address(), "a"));
    assert_eq!(records.len(), 12);
    assert!(records.iter().all(|record| record.principal == records[0].principal));
    assert!(damage(&StoreReader::open(place.address()).unwrap().check().unwrap()).is_empty());
}

/// A model that answers the first requests, and the others once it is let go.
#[derive(Default)]
struct Stalls {
    requests: AtomicU64,
    reached: Notify,
    is_free: std::sync::atomic::AtomicBool,
}

/// The number of requests that are answered at once.
const ANSWERED: u64 = 7;

struct StallingModel(Arc<Stalls>);

impl ModelClient for StallingModel {
    fn complete(
        &self,
        _: Prompt,
        _: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
        let stalls = Arc::clone(&self.0);
        Box::pin(async move {
            let number = stalls.requests.fetch_add(1, Ordering::SeqCst);
            if number >= ANSWERED && !stalls.is_free.load(Ordering::SeqCst) {
                stalls.reached.notify_one();
                std::future::pending::<()>().await;
            }
            let usage = TokenUsage { input_tokens: 10, output_tokens: 10, ..TokenUsage::default() };
            let (id, model) = (number.to_string(), "stalls".to_owned());
            let content = Some(format!("answer {number}"));
            let (reasoning, tool_calls, stop_reason) = (None, Vec::new(), StopReason::End);
            Ok(Completion { id, content, reasoning, tool_calls, stop: stop_reason, usage, model })
        })
    }
}

/// Returns an agent that calls its model ten times in each step, and answers with the last reply.
async fn prepared(model: &Arc<Stalls>) -> Prepared {
    let desk = Plugin::agent("desk", |step: Step| async move {
        let mut texts = Vec::new();
        for _ in 0..10 {
            texts.push(step.complete().await?.content.unwrap_or_default());
        }
        Ok(native::finish(format!("{} said {}", step.text(), texts.join(", "))))
    })
    .asks(conclave_runtime::Capability::Model, "Talks.");
    let models = [(
        "default".to_owned(),
        Arc::new(StallingModel(Arc::clone(model))) as Arc<dyn ModelClient>,
    )]
    .into();
    let options = HostOptions { native: vec![desk], models, ..HostOptions::default() };
    let config = "entry = 'desk'\n[models.default]\nkind = 'native'\n[plugins.desk]\nsource = 'native:desk'\n\
                  grants.model = ['default']\n[tasks.desk]\nagent = 'desk'\n";
    let host = Host::new(options).unwrap();
    host.load(&Config::parse("desk.toml", "", config).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_host_resumes_a_call_in_progress_from_a_snapshot_with_the_answers_that_it_had() {
    let (temp, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let model = Arc::new(Stalls::default());
    let prepared = prepared(&model).await;
    let store = opened_every(temp.path(), 4);
    let room = RoomId::from("a");
    let options = |store: &Store| RunOptions {
        ids: Arc::new(room.clone()),
        journals: store.journals(Durability::Group, about()),
        ..RunOptions::default()
    };
    let mut session = prepared.session(options(&store)).unwrap();
    let kill = async {
        model.reached.notified().await;
        // What a killed process leaves behind: nothing of the end that the dropped run gets.
        copied(temp.path(), killed.path());
    };
    tokio::select! {
        ended = session.run("One") => panic!("its model never answers: {ended:?}"),
        () = kill => {}
    }
    drop((session, store));

    let snapshot = read(&opened_every(killed.path(), 4)).await;
    assert!(snapshot.0 >= 12 && snapshot.1 < 8, "{snapshot:?}");
    assert_eq!(snapshot.2, folded(killed.path()), "the driver's snapshot is the fold");
    model.is_free.store(true, Ordering::SeqCst);
    let store = opened_every(killed.path(), 4);
    let mut session = prepared.reopen(&room, options(&store)).await.unwrap();
    assert!(session.is_cut_off());
    let outcome = session.resume().await.unwrap();
    let numbers = |text: &str| {
        text.split("answer ")
            .skip(1)
            .map(|part| part.trim_matches([' ', ',']).parse().unwrap())
            .collect::<Vec<u64>>()
    };
    let content = outcome.content.clone().unwrap();
    // Request 7 was sent twice, and no answered one was.
    assert_eq!(numbers(&content), [0, 1, 2, 3, 4, 5, 6, 8, 9, 10], "{content}");

    // A room that has ended is opened again, and another run begins in it.
    drop(session);
    let mut session = prepared.reopen(&room, options(&store)).await.unwrap();
    assert!(!session.is_cut_off());
    let outcome = session.run("Two").await.unwrap();
    assert_eq!(outcome.status, Status::Done, "{}", outcome.reason);
    drop(session);
    let (first, behind, snapshot) = read(&store).await;
    assert!(first > 40 && behind < 8, "{first} {behind}");
    assert_eq!(snapshot, folded(killed.path()));
    assert!(damage(&StoreReader::open(killed.path()).unwrap().check().unwrap()).is_empty());
}

/// Kills at the commit of a snapshot, in a process of its own.
#[cfg(feature = "kill-points")]
mod kills {
    use std::process::Command;

    use conclave_runtime::fail_points::{OF_SNAPSHOT, arm};
    use conclave_runtime::store::StoreAddress;

    use super::{folded, opened_every, resumed, written};
    use crate::support::StorePlace;

    /// The variable with the child's arguments; [`the_child`] does nothing without it.
    const WORDS: &str = "CONCLAVE_SNAPSHOT_CHILD";

    /// Not a test of its own: the process that the other test starts and kills.
    #[test]
    fn the_child() {
        let Ok(words) = std::env::var(WORDS) else { return };
        let (store, point): (String, String) = serde_json::from_str(&words).unwrap();
        // The second snapshot: the first is there to fall back on.
        arm(&point, 2);
        let store: StoreAddress = store.parse().unwrap();
        written(&opened_every(store, 10), 25);
    }

    #[test]
    fn a_process_that_is_killed_at_a_snapshot_has_its_records_and_the_one_before() {
        for (point, first) in OF_SNAPSHOT.into_iter().zip([10, 20]) {
            let place = StorePlace::new();
            let killed = Command::new(std::env::current_exe().unwrap())
                .args(["snapshots::kills::the_child", "--exact", "--test-threads=1"])
                .env(WORDS, serde_json::to_string(&(place.word(), point)).unwrap())
                .output()
                .unwrap();
            place.end_leases();
            assert!(!killed.status.success(), "{point} was never reached");
            let store = opened_every(place.address(), 10);
            let (from, read, room) = resumed(&store);
            assert_eq!(from, first, "{point}");
            assert!(from + read as u64 >= 20, "{point}: the records before it are durable");
            assert_eq!(room, folded(place.address()), "{point}");
        }
    }
}

//! What a store answers and does while a part of it cannot be read: the rest stays usable.

use conclave_core::journal::pending_work::WaitKey;
use conclave_runtime::ids::{CallId, RoomId};
use conclave_runtime::store::{
    ControlCommand, ControlMessage, Durability, Retention, RunFilter, RunState, Store,
    StoreAddress, StoreError, StoreReader,
};
use conclave_test_servers::{TestDatabase, TestPostgres, postgres_or_skip};
use futures_executor::block_on;

use crate::support::{about, ended, run, sql};

/// A store whose tables a test can change: a folder, or a database.
enum ChangedStore {
    Folder(tempfile::TempDir),
    Database(TestDatabase),
}

impl ChangedStore {
    /// One of each kind that this machine has.
    fn all() -> Vec<Self> {
        let folder = Self::Folder(tempfile::tempdir().unwrap());
        let database = postgres_or_skip(TestPostgres::shared()).map(Self::Database);
        std::iter::once(folder).chain(database).collect()
    }

    fn address(&self) -> StoreAddress {
        match self {
            Self::Folder(folder) => folder.path().into(),
            Self::Database(database) => database.url().parse().unwrap(),
        }
    }

    fn change(&self, statement: &str) {
        match self {
            Self::Folder(folder) => sql(folder.path()).execute_batch(statement).unwrap(),
            Self::Database(database) => {
                let statement = format!("SET search_path = conclave; {statement}");
                drop(database.query(&[&statement]).unwrap());
            }
        }
    }

    fn reader(&self) -> StoreReader {
        StoreReader::open(self.address()).unwrap()
    }
}

fn database() -> Option<(TestDatabase, StoreAddress)> {
    let database = postgres_or_skip(TestPostgres::shared())?;
    let address = database.url().parse().unwrap();
    Some((database, address))
}

#[test]
fn a_run_whose_row_cannot_be_read_is_listed_as_damaged_beside_the_others() {
    for place in ChangedStore::all() {
        let store = Store::open(place.address()).unwrap();
        ["a", "b", "c"].iter().for_each(|room| drop(run(&store, room, 2)));
        place.change("UPDATE rooms SET agents = 'no list' WHERE room = 'b'");
        let (runs, damaged) = place.reader().run_list(&RunFilter::default()).unwrap();
        let names: Vec<&str> = runs.iter().map(|run| run.run.as_str()).collect();
        assert_eq!(names, ["c", "a"]);
        let rooms: Vec<&str> = damaged.iter().map(|row| row.room.as_str()).collect();
        assert_eq!(rooms, ["b"]);
        assert!(damaged[0].what.contains("column 7"), "{}", damaged[0].what);
        assert_eq!(place.reader().runs(&RunFilter::default()).unwrap(), runs);
        let one = place.reader().run(&RoomId::from("b"));
        assert!(matches!(one, Err(StoreError::Damaged { .. })), "{one:?}");
    }
}

#[test]
fn pending_work_that_cannot_be_read_is_listed_beside_the_other() {
    for place in ChangedStore::all() {
        let store = Store::open(place.address()).unwrap();
        drop(run(&store, "a", 2));
        let wait = |key: &str| {
            place.change(&format!(
                "INSERT INTO waits (room, key, call, kind, target, since)
                 VALUES ('a', '{key}', 1, 'approval', 't', 5)"
            ));
        };
        wait("no key");
        wait(&serde_json::to_string(&WaitKey::Call(CallId(1))).unwrap());
        let (waits, damaged) = place.reader().approval_list(None).unwrap();
        assert_eq!((waits.len(), damaged.len()), (1, 1), "{waits:?} {damaged:?}");
        assert_eq!(place.reader().waits(None).unwrap().len(), 1);
    }
}

#[test]
fn a_run_with_a_damaged_record_is_ended_by_a_stop() {
    for damage in [
        "UPDATE events SET body = '{}' WHERE room = 'a' AND seq = 1",
        "DELETE FROM events WHERE room = 'a' AND seq = 1",
        "DELETE FROM events WHERE room = 'a' AND seq = 2",
    ] {
        for place in ChangedStore::all() {
            drop(run(&Store::open(place.address()).unwrap(), "a", 3));
            place.change(damage);
            // As from another machine: this process has not run it.
            let store = Store::open(place.address()).unwrap();
            store.give_up(&RoomId::from("a"), "enough").unwrap();
            let row = place.reader().run(&RoomId::from("a")).unwrap().unwrap();
            assert!(matches!(row.state, RunState::Ended(_)), "{damage}: {:?}", row.state);
        }
    }
}

#[test]
fn a_host_reads_the_records_of_rooms_on_the_connection_that_it_has() {
    let Some((database, address)) = database() else { return };
    let store = Store::open(&address).unwrap();
    drop(run(&store, "a", 3));
    let journals = store.journals(Durability::Group, about());
    // The setup is a blob, whose question within the answer needs a second connection.
    let read = || block_on(journals.records(&RoomId::from("a"))).unwrap().unwrap().len();
    assert_eq!(read(), 3);
    let close = "UPDATE pg_database SET datallowconn = false WHERE datname = current_database()";
    database.query(&[close]).unwrap();
    assert_eq!([read(), read()], [3, 3]);
    let refused = StoreReader::open(&address).map(drop);
    assert!(refused.is_err(), "no other connection was possible meanwhile");
}

fn stop(room: &str) -> ControlMessage {
    ControlMessage::new(RoomId::from(room), ControlCommand::Stop { reason: "enough".to_owned() })
}

#[test]
fn a_message_to_an_unknown_room_of_a_database_is_refused() {
    let Some((_database, address)) = database() else { return };
    let store = Store::open(&address).unwrap();
    drop(run(&store, "a", 2));
    let reader = StoreReader::open(&address).unwrap();
    reader.mail().send(&stop("a")).unwrap();
    match reader.mail().send(&stop("b")) {
        Err(StoreError::UnknownRoom { room, .. }) => assert_eq!(room.as_str(), "b"),
        other => panic!("{other:?}"),
    }
    assert_eq!(reader.mail().pending().unwrap().len(), 1);
}

#[test]
fn retention_removes_messages_to_rooms_that_have_ended_or_are_not_there() {
    let Some((database, address)) = database() else { return };
    let store = Store::open(&address).unwrap();
    ended(&store, "over");
    let open = run(&store, "open", 2);
    let reader = StoreReader::open(&address).unwrap();
    for room in ["over", "open"] {
        reader.mail().send(&stop(room)).unwrap();
        reader.mail().send(&stop(room).under_key(room)).unwrap();
    }
    let of_day_before = "INSERT INTO conclave.inbox (id, room, body, state)
        SELECT id || '-before', room, body, state FROM conclave.inbox
        UNION ALL SELECT '0', 'nowhere', '{}', 0";
    let before = "UPDATE conclave.inbox SET sent = now() - INTERVAL '25 hours'
        WHERE id = '0' OR id LIKE '%-before'";
    database.query(&[of_day_before, before]).unwrap();
    store.collect(&Retention::default()).unwrap();
    let rooms = database.query(&["SELECT room FROM conclave.inbox ORDER BY room"]).unwrap();
    let rooms: Vec<&str> = rooms.lines().collect();
    let expected = ["open", "open", "open", "open", "over", "over"];
    assert_eq!(rooms, expected, "a new one may be under way");
    drop(open);
}

#[test]
fn a_database_without_a_table_or_a_right_says_which_and_what_mends_it() {
    let Some((database, address)) = database() else { return };
    drop(run(&Store::open(&address).unwrap(), "a", 2));
    let failed = || StoreReader::open(&address).and_then(|reader| reader.waits(None)).unwrap_err();
    database.query(&["ALTER TABLE conclave.waits RENAME TO elsewhere"]).unwrap();
    match failed() {
        StoreError::Tables { what, remedy, .. } => {
            assert!(what.contains("\"waits\" does not exist"), "{what}");
            assert!(remedy.contains("DROP SCHEMA conclave"), "{remedy}");
        }
        other => panic!("{other:?}"),
    }
    database.query(&["ALTER TABLE conclave.meta ALTER COLUMN value TYPE TEXT"]).unwrap();
    assert!(matches!(failed(), StoreError::Tables { .. }), "the table of another product");
    let role = "CREATE ROLE stranger LOGIN PASSWORD 'x'";
    // Other tests may share the server.
    let _ = database.query(&[role]);
    let (_, server) =
        database.url().rsplit_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let address: StoreAddress = format!("postgres://stranger:x@{server}").parse().unwrap();
    for opened in [StoreReader::open(&address).map(drop), Store::open(&address).map(drop)] {
        match opened.unwrap_err() {
            StoreError::Tables { what, remedy, .. } => {
                assert!(what.contains("permission denied"), "{what}");
                assert!(remedy.contains("TO stranger"), "{remedy}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn hosts_without_a_lease_are_listed_while_they_have_runs() {
    let Some((database, address)) = database() else { return };
    let (with_run, idle) = (Store::open(&address).unwrap(), Store::open(&address).unwrap());
    let journal = run(&with_run, "a", 2);
    let reader = StoreReader::open(&address).unwrap();
    assert_eq!(reader.hosts().unwrap().len(), 2);
    let over = "UPDATE conclave.hosts SET until = now() - INTERVAL '40 s'";
    database.query(&[over]).unwrap();
    let hosts = reader.hosts().unwrap();
    let [host] = &hosts[..] else { panic!("{hosts:?}") };
    assert!(!host.is_live && host.runs == 1 && host.silent_ms >= 40_000, "{host:?}");
    assert_eq!(reader.host_of(&RoomId::from("a")).unwrap().unwrap().host, host.host);
    assert_eq!(reader.host_of(&RoomId::from("b")).unwrap(), None);
    drop((journal, idle));
}

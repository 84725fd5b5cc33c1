//! What the file holds beside the records follows from them: the lists of runs and of pending work,
//! and the tables. A change by hand is found, and decides nothing.

use std::sync::Arc;

use conclave_runtime::approval::{ApprovalAnswer, ApprovalRequest};
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::config::Config;
use conclave_runtime::ids::RoomId;
use conclave_runtime::native::{self, Call, Plugin, Step, Tool};
use conclave_runtime::store::{Durability, Store, StoreAddress, StoreReader};
use conclave_runtime::{Capability, Host, HostOptions, RunOptions};
use serde_json::json;

use crate::support::{about, sql};

const CONFIG: &str = "entry = 'desk'\n[plugins.desk]\nsource = 'native:desk'\ngrants.tools = ['bell.*']\n\
                      [plugins.bell]\nsource = 'native:bell'\n[tasks.desk]\nagent = 'desk'\n\
                      [[policy]]\ntool = 'bell.ring'\ndecide = 'ask'\n";

/// Never decides.
struct Absent;

impl Approver for Absent {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        Box::pin(std::future::pending())
    }
}

/// Stores a run that has ended, and one that waits for an approval and is interrupted.
pub(crate) async fn write(address: &StoreAddress) {
    let desk = Plugin::agent("desk", |step: Step| async move {
        Ok(match step.text() {
            "Rest." => native::finish("I did."),
            _ => native::call("bell.ring", json!({ "times": 3 })),
        })
    });
    let ring =
        Tool::new("ring", "Rings.", json!({ "type": "object" }), |_: Call| async { Ok("Ding.") });
    let native = vec![desk.asks(Capability::Tools, "Rings."), Plugin::tools("bell", [ring])];
    let host = Host::new(HostOptions { native, ..HostOptions::default() }).unwrap();
    let prepared = host.load(&Config::parse("bells.toml", "", CONFIG).unwrap()).await.unwrap();
    let store = Store::open(address).unwrap();
    let options = |room: &str| RunOptions {
        ids: Arc::new(RoomId::from(room)),
        journals: store.journals(Durability::Group, about()),
        approver: Arc::new(Absent),
        ..RunOptions::default()
    };
    let rest = prepared.start(Some("Rest.".to_owned()), options("rest")).unwrap();
    rest.outcome().await.unwrap();
    let ring = prepared.start(Some("Ring.".to_owned()), options("ring")).unwrap();
    let running = tokio::spawn(ring.outcome());
    while StoreReader::open(address).unwrap().approvals(None).unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lists_and_tables_of_a_store_are_those_that_its_records_lead_to() {
    let temp = tempfile::tempdir().unwrap();
    write(&temp.path().into()).await;
    let problems = || {
        let reader = StoreReader::open(temp.path()).unwrap();
        let (checked, verified) = (reader.check().unwrap(), reader.verify(&[]).unwrap());
        assert_eq!(checked.problems, verified.problems);
        checked.problems
    };
    assert_eq!(problems(), Vec::<String>::new());
    for (change, undo, expected) in [
        (
            "UPDATE waits SET target = 'bell.rest'",
            "UPDATE waits SET target = 'bell.ring'",
            "room ring is listed as waiting for approval bell.rest",
        ),
        (
            "UPDATE waits SET kind = 'tool'",
            "UPDATE waits SET kind = 'approval'",
            "by its records it waits for approval bell.ring",
        ),
        (
            "INSERT INTO waits VALUES ('rest', '{\"call\":9}', 9, 'approval', 'x.y', 1, NULL)",
            "DELETE FROM waits WHERE room = 'rest'",
            "room rest is listed as waiting for approval x.y ({\"call\":9}), and by its records it waits for nothing",
        ),
        (
            "UPDATE rooms SET status = NULL, ended = NULL WHERE room = 'rest'",
            "UPDATE rooms SET status = 'DONE', ended = 1 WHERE room = 'rest'",
            "the state of room rest in the list",
        ),
        (
            "UPDATE rooms SET status = 'DONE', reason = 'x' WHERE room = 'ring'",
            "UPDATE rooms SET status = NULL, reason = NULL WHERE room = 'ring'",
            "the state of room ring in the list",
        ),
        (
            "UPDATE rooms SET turns = turns + 1 WHERE room = 'ring'",
            "UPDATE rooms SET turns = turns - 1 WHERE room = 'ring'",
            "the usage of room ring in the list",
        ),
        (
            "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM waits; END",
            "DROP TRIGGER t",
            "the file has a trigger t, which no host of Conclave made",
        ),
        (
            "DROP INDEX open_runs; CREATE INDEX open_runs ON rooms (started)",
            "DROP INDEX open_runs; CREATE INDEX open_runs ON rooms (started) WHERE parent IS NULL AND status IS NULL",
            "the index open_runs of the file is not the one of its format",
        ),
        ("CREATE TABLE more (a)", "DROP TABLE more", "the file has a table more"),
    ] {
        sql(temp.path()).execute_batch(change).unwrap();
        let found = problems();
        assert!(found.iter().any(|what| what.contains(expected)), "{change}: {found:?}");
        sql(temp.path()).execute_batch(undo).unwrap();
        assert_eq!(problems(), Vec::<String>::new(), "{undo}");
    }
    sql(temp.path()).execute_batch("DELETE FROM waits").unwrap();
    assert!(problems()[0].contains("room ring is listed as waiting for nothing"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_approver_reads_in_the_list_follows_from_the_records() {
    let temp = tempfile::tempdir().unwrap();
    write(&temp.path().into()).await;
    let forge = "UPDATE waits SET request = '{\"tool\":\"bell.rest\",\"arguments\":{}}', target = 'bell.rest';
        INSERT INTO waits VALUES ('rest', '{\"call\":9}', 9, 'approval', 'bell.rest', 1, '{}')";
    sql(temp.path()).execute_batch(forge).unwrap();
    let listed = StoreReader::open(temp.path()).unwrap().approvals(None).unwrap();
    let of = |room: &str| listed.iter().find(|row| row.room.as_str() == room).unwrap();
    let request = of("ring").wait.request.as_deref().unwrap();
    assert_eq!((request.tool.as_str(), &request.arguments), ("bell.ring", &json!({ "times": 3 })));
    assert_eq!(of("rest").wait.request, None, "its records ask for no approval");
}

//! A repeated call receives the same error, identified by its code in the journal. The text beside
//! the code may change.

use std::sync::Arc;

use conclave_core::config::Config;
use conclave_core::protocol::event::{Event, Record};
use conclave_core::types::ids::RoomId;
use conclave_core::types::side_effect::SideEffectAnswer;
use conclave_models::test_server::{Server, TestReply};
use conclave_runtime::journal::{Journals, MemoryJournals};
use conclave_runtime::{Host, Prepared, RunOptions};
use conclave_test_support::{block_on, calling};
use serde_json::{Value, json};

use crate::replay::{At, BEGAN, LATER, Shop, Stops, host};

/// A tool call, in a folder that contains the file `box/there`.
struct World {
    folder: tempfile::TempDir,
    host: Host,
    config: String,
}

impl World {
    fn new((guest, tool, arguments, lines): (&str, &str, Value, &str)) -> Self {
        let folder = tempfile::tempdir().expect("a test can make a folder");
        std::fs::create_dir(folder.path().join("box")).expect("a test can make a folder");
        std::fs::write(folder.path().join("box/there"), "").expect("a test can write a file");
        Self {
            folder,
            host: host(&Arc::new(Shop::default())),
            config: calling(guest, tool, &arguments, lines),
        }
    }

    async fn prepare(&self) -> Prepared {
        let folder = self.folder.path().to_string_lossy().into_owned();
        let config = Config::parse("conclave.toml", &folder, &self.config)
            .unwrap_or_else(|problems| panic!("{problems}"));
        let prepared =
            self.host.prepare(&config, &(Arc::new(|_| {}) as conclave_runtime::Follow)).await;
        prepared.unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// Returns the records of a run whose host stops after `after` records, and its result if it
    /// ended.
    async fn begin(&self, after: usize) -> (Vec<Arc<Record>>, Option<String>) {
        let stops = Stops { after, kept: MemoryJournals::default() };
        let run = self
            .prepare()
            .await
            .start(Some("go".to_owned()), options(Arc::new(stops.clone()), At(BEGAN)))
            .expect("it opens");
        let outcome = run.outcome().await.ok();
        (
            stops.kept.records(&RoomId::from("test")),
            outcome.and_then(|outcome| outcome.content.clone()),
        )
    }

    async fn go_on(&self, records: Vec<Arc<Record>>) -> Option<String> {
        let room = RoomId::from("test");
        let journals = MemoryJournals::of(room.clone(), records);
        let mut session = self
            .prepare()
            .await
            .reopen(&room, options(Arc::new(journals), At(LATER)))
            .await
            .expect("it is kept");
        session.resume().await.expect("a journal in memory does not fail").content.clone()
    }
}

fn options(journals: Arc<dyn Journals>, clock: At) -> RunOptions {
    RunOptions {
        ids: Arc::new(RoomId::from("test")),
        journals,
        clock: Arc::new(clock),
        ..RunOptions::default()
    }
}

fn has_failed(record: &Record) -> bool {
    matches!(&record.event, Event::SideEffectEnded { answer: SideEffectAnswer::Failed { .. }, .. })
}

/// Returns the same record with another text.
fn reworded(record: &Arc<Record>) -> Arc<Record> {
    let mut record = Record::clone(record);
    if let Event::SideEffectEnded { answer: SideEffectAnswer::Failed { message, .. }, .. } =
        &mut record.event
    {
        *message = "in other words".to_owned();
    }
    Arc::new(record)
}

#[test]
fn an_error_that_is_told_again_is_read_from_its_code() {
    let server = Server::answering(|_| TestReply::bytes(200, "text/plain", "x".repeat(5_000)));
    let files = r#"grants.files = [{ dir = "box", at = "/folder", mode = "read-write", bytes = "10 kB", files = 5 }]"#;
    let fetch = |url: &str| {
        format!(
            "grants.fetch = {{ urls = [\"{url}/*\"], private = [\"127.0.0.1\"], response_size = \"1 kB\" }}"
        )
    };
    let (reached, nobody) = (fetch(&server.url()), fetch("http://127.0.0.1:1"));
    let get = |url: String| json!({ "method": "GET", "url": url });
    let calls = [
        ("files_quota", "run", json!({ "way": "files" }), files, "QuotaExceeded(5)"),
        (
            "files_write",
            "run",
            json!({ "path": "/folder/there/a", "bytes": 3 }),
            files,
            "NotADirectory",
        ),
        (
            "kv_quota",
            "run",
            json!({}),
            r#"grants.kv = { bytes = "2 kB", keys = 30 }"#,
            "QuotaExceeded(2000)",
        ),
        (
            "fetch_probe",
            "run",
            get(format!("{}/long", server.url())),
            reached.as_str(),
            "response_size",
        ),
        ("fetch_probe", "run", get("http://127.0.0.1:1/".to_owned()), nobody.as_str(), "error"),
    ];
    block_on(async {
        for (guest, tool, arguments, lines, expected) in calls {
            let call = (guest, tool, arguments, lines);
            let (records, told) = World::new(call.clone()).begin(usize::MAX).await;
            let told = told.unwrap_or_default();
            assert!(told.contains(expected), "{guest}: {told}");
            let failed = records
                .iter()
                .position(|record| has_failed(record))
                .unwrap_or_else(|| panic!("{guest}: nothing failed"));
            let world = World::new(call);
            let (records, ended) = world.begin(failed + 1).await;
            assert!(
                ended.is_none() && records.last().is_some_and(|record| has_failed(record)),
                "{guest}: it stops right after the failure"
            );
            let asked = server.requests().len();
            let again = world.go_on(records.iter().map(reworded).collect()).await;
            assert_eq!(again.as_deref(), Some(told.as_str()), "{guest}");
            assert_eq!(server.requests().len(), asked, "{guest}: nothing is sent again");
        }
    });
}

//! The number of commits and syncs of a single call and of a small task. They are counted, not
//! timed: the store of these tests delays for an hour what nothing waits for.

use std::path::Path;
use std::time::Duration;

use conclave_core::config::Config;
use conclave_runtime::store::{
    Durability, RunFilter, RunOrigin, RunState, Store, StoreOptions, StoreReader,
};
use conclave_runtime::{Caller, Prepared, RunOptions, ToolRun};
use conclave_test_support::{Rig, block_on, calling, guest, host};
use serde_json::{Value, json};
use tokio::sync::oneshot;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// A store, and a config whose calls and tasks it keeps.
struct Counted {
    folder: tempfile::TempDir,
    store: Store,
    prepared: Prepared,
}

impl Counted {
    async fn new(config: impl FnOnce(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().expect("a folder is made");
        let options = StoreOptions { group_delay: Some(HOUR), ..StoreOptions::default() };
        let store =
            Store::open_with(folder.path().join("store"), &options).expect("the store opens");
        let text = config(folder.path());
        let config = Config::parse("c.toml", &folder.path().to_string_lossy(), &text)
            .unwrap_or_else(|problems| panic!("{problems}"));
        let prepared = host().load(&config).await.unwrap_or_else(|error| panic!("{error}"));
        Self { folder, store, prepared }
    }

    /// Returns the config of one plugin without a task that matters.
    async fn tools_of(name: &str, lines: &str) -> Self {
        let lines = lines.to_owned();
        Self::new(|folder| {
            let lines = lines.replace("FOLDER", &folder.display().to_string());
            calling(name, "run", &json!({}), &lines)
        })
        .await
    }

    fn options(&self, durability: Durability) -> RunOptions {
        let journals = self.store.journals(durability, RunOrigin::default());
        RunOptions { journals, ..RunOptions::default() }
    }

    /// Calls a tool and returns its result and the numbers of commits and syncs at this time. The
    /// rest of the call goes on.
    async fn call(&self, tool: &str, arguments: Value) -> (ToolRun, (u64, u64)) {
        let options = self.options(Durability::Group);
        let calling = self
            .prepared
            .start_tool(Caller::Mcp, tool, arguments, options)
            .expect("the tool starts");
        let (answer, answered) = oneshot::channel();
        drop(tokio::spawn(calling.run(answer)));
        let run = answered.await.expect("the call has a result");
        (run, self.counts())
    }

    fn counts(&self) -> (u64, u64) {
        let written = self.store.written();
        (written.commits, written.synced)
    }

    /// Returns the number of runs that are stored with their end.
    fn ended(&self) -> usize {
        let reader =
            StoreReader::open(self.folder.path().join("store")).expect("the store is read");
        let runs = reader.runs(&RunFilter::default()).expect("the store has runs");
        runs.iter().filter(|run| matches!(run.state, RunState::Ended(_))).count()
    }
}

#[test]
fn calls_that_only_compute_are_answered_before_their_one_commit() {
    block_on(async {
        let counted = Counted::tools_of("echo", "").await;
        for _ in 0..3 {
            let (run, counts) = counted.call("subject.run", json!({ "text": "hello" })).await;
            assert_eq!(run.answer.unwrap().content.as_deref(), Some("hello"));
            assert_eq!(counts, (0, 0), "nothing leaves the host but what was computed");
        }
        // This caller waits for its records, and those of the calls before are ahead of them.
        let options = counted.options(Durability::Group);
        let text = json!({ "text": "hello" });
        counted.prepared.call_tool("subject.run", text, options).await.unwrap();
        assert_eq!((counted.counts(), counted.ended()), ((1, 1), 4));
    });
}

#[test]
fn a_call_that_reads_has_one_commit_before_its_answer() {
    block_on(async {
        let lines = "grants.files = [{ dir = \"FOLDER\", at = \"/data\", mode = \"read\" }]";
        let counted = Counted::tools_of("files_read", lines).await;
        std::fs::write(counted.folder.path().join("note"), "read").unwrap();
        let (run, counts) = counted.call("subject.run", json!({ "path": "/data/note" })).await;
        assert_eq!(run.answer.unwrap().content.as_deref(), Some("read"));
        assert_eq!((counts, counted.ended()), ((1, 1), 1));
    });
}

#[test]
fn a_call_that_is_refused_something_has_one_commit_before_its_answer() {
    block_on(async {
        let counted = Counted::tools_of("files_read", "").await;
        let (run, counts) = counted.call("subject.run", json!({ "path": "/etc/passwd" })).await;
        assert_eq!(run.report.denials.len(), 1, "{run:?}");
        assert_eq!((counts, counted.ended()), ((1, 1), 1));
    });
}

#[test]
fn a_call_that_a_rule_denies_has_one_commit_before_its_answer() {
    block_on(async {
        let denied = "[[policy]]\ntool = \"subject.*\"\ndecide = \"deny\"\n";
        let counted = Counted::tools_of("echo", denied).await;
        let (run, counts) = counted.call("subject.run", json!({ "text": "hello" })).await;
        assert!(run.answer.is_err(), "{run:?}");
        assert_eq!((counts, counted.ended()), ((1, 1), 1));
    });
}

#[test]
fn a_side_effect_has_a_commit_before_it_and_one_before_the_answer() {
    block_on(async {
        let counted = Counted::tools_of("kv_quota", "grants.kv = true").await;
        let (run, counts) = counted.call("subject.count", json!({})).await;
        assert_eq!(run.answer.unwrap().content.as_deref(), Some("1"));
        assert_eq!((counts, counted.ended()), ((2, 2), 1));
    });
}

/// Runs a task of two steps with a tool call between them, and returns its counts and the number of
/// its records.
async fn task(durability: Durability) -> ((u64, u64), u64) {
    let counted = Counted::new(|_| calling("echo", "run", &json!({ "text": "hello" }), "")).await;
    let options = counted.options(durability);
    let run = counted.prepared.start(Some("go".to_owned()), options).expect("the run starts");
    assert_eq!(run.outcome().await.expect("the run ends").content.as_deref(), Some("hello"));
    assert_eq!(counted.ended(), 1);
    (counted.counts(), counted.store.written().records)
}

#[test]
fn a_task_that_reaches_nothing_outside_has_one_commit_with_group_and_one_an_event_with_sync() {
    block_on(async {
        // Opened, a step, the tool's answer, a step.
        assert_eq!(task(Durability::Group).await, ((1, 1), 4));
        assert_eq!(task(Durability::Sync).await, ((4, 4), 4));
    });
}

#[test]
fn a_tool_call_by_hand_writes_nothing() {
    let (rig, echo) = (Rig::new(), guest("echo"));
    let source = echo.to_string_lossy();
    let call = rig.conclave(&["plugin", "call", &source, "run", "{\"text\":\"hello\"}"]).output();
    assert!(call.as_ref().unwrap().status.success(), "{call:?}");
    assert!(!rig.root().join("state").exists(), "it opens no store");
}

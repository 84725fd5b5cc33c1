//! A run with an analyzer, a condenser that asks a model, and a memory, interrupted at every record
//! of its journal. It resumes to the same end, and no model answer is bought twice.

use std::sync::Arc;

use conclave_core::protocol::event::{Event, Record};
use conclave_core::types::approval::{Approval, ApprovalRequest};
use conclave_core::types::ids::RoomId;
use conclave_core::types::outcome::Outcome;
use conclave_runtime::RunOptions;
use conclave_runtime::engine::EngineSettings;
use conclave_runtime::journal::{
    Journal, JournalBatch, JournalFailure, Journals, Keeping, MemoryJournals, Opening,
};
use conclave_test_support::block_on;
use serde_json::{Value, json};

use super::world::{Scripted, World, acting, says, steps, stocked};

/// A journal that fails after a number of records, as if the host had stopped.
#[derive(Clone)]
struct Stops {
    after: usize,
    kept: MemoryJournals,
}

struct StopsOne(RoomId, Stops, Box<dyn Journal>);

impl Journals for Stops {
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
        let (room, stops, kept) = (room.clone(), self.clone(), self.kept.open(room)?);
        Ok(Box::pin(async {
            let journal: Box<dyn Journal> = Box::new(StopsOne(room, stops, kept.await?));
            Ok(journal)
        }))
    }
}

impl Journal for StopsOne {
    fn append(&mut self, entry: &JournalBatch<'_>) -> Result<Keeping, JournalFailure> {
        let Self(room, stops, journal) = self;
        if stops.kept.records(room).len() + entry.records.len() > stops.after {
            let cause = std::io::Error::other("the host stops here");
            return Err(JournalFailure::new(room.clone(), "nowhere".to_owned(), cause));
        }
        journal.append(entry)
    }
}

fn config() -> String {
    let recall = |query: &str| json!({ "action": "recall", "args": { "query": query } });
    let read =
        json!({ "action": "read", "args": { "path": "/box/in.txt", "start": 0, "end": -1 } });
    let script = json!([recall("lamp"), read, recall("keeper"), { "action": "think", "args": { "thought": "well" } }, recall("lamp keeper")]);
    let task = "action_plugins = [\"workspace\"]\nmemory = \"notes\"\nstuck_detection = false\ncondense = { plugin = \"summary\", max_entries = 4 }\n\
        confirm = { policy = \"always\", analyzer = \"patterns\" }";
    let plugins = [
        stocked("notes", "grants.kv = { bytes = \"1 MiB\", keys = 200 }\nlimits.at_once = 1"),
        stocked("workspace", "grants.files = [{ dir = \"box\", at = \"/box\", mode = \"read\" }]"),
        stocked("patterns", ""),
        stocked(
            "summary",
            "grants.model = [\"summary\"]\nconfig = { model = \"summary\", keep_first = 1, keep_last = 2 }",
        ),
    ];
    let models =
        "[models.summary]\nkind = \"native\"\n[[policy]]\ntool = \"*\"\ndecide = \"allow\"\n";
    acting(&script, "grants.tools = [\"workspace.*\"]", task, &(plugins.concat() + models))
}

struct Cut {
    world: World,
    writer: Arc<Scripted>,
    config: String,
}

impl Cut {
    async fn new() -> Self {
        // The summary depends only on the prompt, so it is the same in every run.
        let writer = Scripted::new(|_, prompt| {
            says(&format!(
                "Summary of {} letters.",
                prompt.iter().map(|entry| entry.text().len()).sum::<usize>()
            ))
        });
        let world = World::with(EngineSettings::default(), vec![("summary", &writer)]);
        let world = world.deciding(|_: &ApprovalRequest, _| Approval::Approved);
        world.put("in.txt", "what is there");
        let config = config();
        let prepared = world.prepare(&config).await;
        for text in ["The lamp was lit in 1844.", "The keeper was called Ritson."] {
            let kept = prepared
                .call_tool("notes.remember", json!({ "text": text }), RunOptions::default())
                .await
                .expect("it is called");
            assert!(kept.answer.is_ok(), "{:?}", kept.answer);
        }
        Self { world, writer, config }
    }

    async fn begin(&self, after: usize) -> (Vec<Arc<Record>>, Option<Arc<Outcome>>) {
        let stops = Stops { after, kept: MemoryJournals::default() };
        let options = self.world.options(Arc::new(stops.clone()));
        let run = self
            .world
            .prepare(&self.config)
            .await
            .start(Some("go".to_owned()), options)
            .expect("it opens");
        let outcome = run.outcome().await.ok();
        (stops.kept.records(&RoomId::from("test")), outcome)
    }

    async fn go_on(&self, records: Vec<Arc<Record>>) -> (Arc<Outcome>, Vec<Arc<Record>>) {
        let room = RoomId::from("test");
        let journals = MemoryJournals::of(room.clone(), records);
        let prepared = self.world.prepare(&self.config).await;
        let mut session = prepared
            .reopen(&room, self.world.options(Arc::new(journals.clone())))
            .await
            .expect("it is kept");
        let outcome = session.resume().await.expect("a journal in memory does not fail");
        (outcome, journals.records(&room))
    }
}

/// Returns the number of model answers in the records.
fn paid(records: &[Arc<Record>]) -> usize {
    records.iter().filter(|record| matches!(record.event, Event::ModelAnswered { .. })).count()
}

fn consulted(records: &[Arc<Record>]) -> usize {
    records.iter().filter(|record| matches!(record.event, Event::PluginQueried { .. })).count()
}

#[test]
fn a_run_that_consults_goes_on_to_the_same_end_wherever_it_is_cut_off() {
    block_on(async {
        let whole = Cut::new().await;
        let (records, outcome) = whole.begin(usize::MAX).await;
        let expected: Vec<Value> = steps(&outcome.expect("nothing stops it"));
        let (answers, questions) = (paid(&records), consulted(&records));
        assert!(
            answers > 0 && questions > answers + 4,
            "{answers} answers, {questions} questions: {expected:#?}"
        );
        assert_eq!(whole.writer.shown().len(), answers);
        for cut in 1..records.len() {
            let world = Cut::new().await;
            let (before, ended) = world.begin(cut).await;
            if ended.is_some() || before.is_empty() {
                continue;
            }
            let (had, bought) = (paid(&before), world.writer.shown().len());
            let (outcome, after) = world.go_on(before.clone()).await;
            assert_eq!(
                steps(&outcome),
                expected,
                "cut at {cut}, behind {:?}",
                before.last().map(|record| &record.event)
            );
            assert_eq!(
                world.writer.shown().len() - bought,
                answers - had,
                "cut at {cut}: what was paid for is not bought again"
            );
            assert_eq!((paid(&after), consulted(&after)), (answers, questions), "cut at {cut}");
            assert!(
                after.iter().zip(0..).all(|(record, seq)| record.seq == seq),
                "cut at {cut}: the numbers have a gap"
            );
        }
    });
}

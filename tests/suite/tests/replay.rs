//! Interrupts a run at every record of its journal and resumes it. The run must reach the same end:
//! no model is asked again, no side effect is repeated, and a side effect with an unknown end is
//! reported as `interrupted`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use conclave_core::config::Config;
use conclave_core::protocol::event::{Event, Record};
use conclave_core::types::ids::{Millis, RoomId};
use conclave_core::types::outcome::Outcome;
use conclave_models::test_server::{Server, TestReply};
use conclave_runtime::clock::{BoxFuture, Clock};
use conclave_runtime::completion::{Completion, Prompt, StopReason, TokenUsage};
use conclave_runtime::journal::{
    Journal, JournalBatch, JournalFailure, Journals, Keeping, MemoryJournals, Opening,
};
use conclave_runtime::models::{ModelClient, ModelFailure, TextSink};
use conclave_runtime::{Host, HostOptions, Prepared, RunOptions};
use conclave_test_support::{block_on, cache, guest};
use serde_json::json;

pub(crate) const BEGAN: Millis = Millis(1_700_000_000_000);
pub(crate) const LATER: Millis = Millis(1_700_003_600_000);
const INTERRUPTED: &str = "interrupted: the host stopped";

/// A model and tool that answers at once and counts purchases.
#[derive(Default)]
pub(crate) struct Shop(Mutex<Vec<String>>);

impl ModelClient for Shop {
    fn complete(
        &self,
        prompt: Prompt,
        _: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
        let asked = prompt.last_text().to_owned();
        let content = Some(format!("answer to {asked}"));
        self.0.lock().expect("nobody panics").push(asked);
        let (id, model, usage) = ("1".to_owned(), "shop".to_owned(), TokenUsage::default());
        Box::pin(std::future::ready(Ok(Completion {
            id,
            content,
            reasoning: None,
            tool_calls: Vec::new(),
            stop: StopReason::End,
            usage,
            model,
        })))
    }
}

/// A clock that stands still.
pub(crate) struct At(pub(crate) Millis);

impl Clock for At {
    fn now(&self) -> Millis {
        self.0
    }

    fn sleep_until(&self, _: Millis) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// A journal that fails after a number of records, as if the host had stopped.
#[derive(Clone)]
pub(crate) struct Stops {
    pub(crate) after: usize,
    pub(crate) kept: MemoryJournals,
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

/// The environment of the run: a counting server, folders and a config.
struct World {
    server: Server,
    folder: tempfile::TempDir,
    shop: Arc<Shop>,
    host: Host,
    config: String,
}

/// The plugin that performs the side effects.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    Agent,
    Tool,
    Idempotent,
    /// A tool that another tool calls.
    Nested,
}

pub(crate) fn host(shop: &Arc<Shop>) -> Host {
    let cache = Some(cache());
    let models = [("default".to_owned(), Arc::clone(shop) as Arc<dyn ModelClient>)].into();
    Host::new(HostOptions { cache, models, ..HostOptions::default() }).expect("the engine starts")
}

impl World {
    fn new(who: Who) -> Self {
        let server = Server::answering(|request| match request.path.as_str() {
            "/v1/away" => TestReply::bytes(302, "text/plain", "").header("location", "/v1/there"),
            path => TestReply::bytes(200, "text/plain", format!("{} {path}", request.method)),
        });
        let folder = tempfile::tempdir().expect("a test can make a folder");
        std::fs::create_dir(folder.path().join("box")).expect("a test can make a folder");
        std::fs::write(folder.path().join("box/in.txt"), "what is there")
            .expect("a test can write a file");
        let (busy, url) = (guest("busy").display().to_string(), server.url());
        let grants = format!(
            r#"grants.model = ["default"]
grants.kv = true
grants.files = [{{ dir = "box", at = "/box", mode = "read-write" }}]
grants.fetch = {{ urls = ["{url}/*"], methods = ["GET", "POST"], private = ["127.0.0.1"] }}
config = {{ url = "{url}" }}"#
        );
        let model = "entry = \"main\"\n[models.default]\nkind = \"native\"\n[[policy]]\ntool = \"*\"\ndecide = \"allow\"\n";
        let config = match who {
            Who::Agent => format!(
                "{model}[plugins.busy]\nsource = \"{busy}\"\n{grants}\n[tasks.main]\nagent = \"busy\"\n"
            ),
            Who::Tool | Who::Idempotent | Who::Nested => {
                let (tool, arguments) = match who {
                    Who::Nested => ("nested.in_turn", "{ calls = [{ tool = \"subject.run\" }] }"),
                    Who::Idempotent => ("subject.again", "{}"),
                    Who::Tool | Who::Agent => ("subject.run", "{}"),
                };
                let (caller, nested) = (
                    guest("agent_caller").display().to_string(),
                    guest("nested").display().to_string(),
                );
                format!(
                    "{model}[plugins.caller]\nsource = \"{caller}\"\ngrants.tools = [\"subject.*\", \"nested.*\"]\nconfig = {{ tool = \"{tool}\", arguments = {arguments} }}\n\
                     [plugins.nested]\nsource = \"{nested}\"\ngrants.tools = [\"subject.*\"]\n\
                     [plugins.subject]\nsource = \"{busy}\"\n{grants}\n[tasks.main]\nagent = \"caller\"\n"
                )
            }
        };
        let shop = Arc::new(Shop::default());
        let host = host(&shop);
        Self { server, folder, shop, host, config }
    }

    async fn prepare(&self) -> Prepared {
        let folder = self.folder.path().to_string_lossy().into_owned();
        let config = Config::parse("conclave.toml", &folder, &self.config)
            .unwrap_or_else(|problems| panic!("{problems}"));
        let prepared =
            self.host.prepare(&config, &(Arc::new(|_| {}) as conclave_runtime::Follow)).await;
        prepared.unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn options(journals: Arc<dyn Journals>, now: Millis) -> RunOptions {
        RunOptions {
            ids: Arc::new(RoomId::from("test")),
            journals,
            clock: Arc::new(At(now)),
            ..RunOptions::default()
        }
    }

    /// Returns the records of a run whose host stops after `after` records, and its outcome if it
    /// ended before.
    async fn begin(&self, after: usize) -> (Vec<Arc<Record>>, Option<Arc<Outcome>>) {
        let stops = Stops { after, kept: MemoryJournals::default() };
        let prepared = self.prepare().await;
        let run = prepared
            .start(Some("go".to_owned()), Self::options(Arc::new(stops.clone()), BEGAN))
            .expect("it opens");
        let outcome = run.outcome().await.ok();
        (stops.kept.records(&RoomId::from("test")), outcome)
    }

    /// Resumes the run in another host.
    async fn go_on(&self, records: Vec<Arc<Record>>) -> (Arc<Outcome>, Vec<Arc<Record>>) {
        let room = RoomId::from("test");
        let journals = MemoryJournals::of(room.clone(), records);
        let prepared = self.prepare().await;
        let mut session = prepared
            .reopen(&room, Self::options(Arc::new(journals.clone()), LATER))
            .await
            .expect("it is kept");
        let outcome = session.resume().await.expect("a journal in memory does not fail");
        (outcome, journals.records(&room))
    }

    fn bought(&self) -> Vec<String> {
        self.shop.0.lock().expect("nobody panics").clone()
    }
}

/// Returns the prompts that the records contain an answer to.
fn answered(records: &[Arc<Record>]) -> Vec<String> {
    let mut asked = BTreeMap::new();
    let mut answered = Vec::new();
    for record in records {
        match &record.event {
            Event::ModelAsked { call, ordinal, request } => {
                let text = serde_json::to_value(request).expect("it is JSON")["prompt"][0]["draft"]
                    ["content"]
                    .clone();
                asked.insert((*call, *ordinal), text.as_str().unwrap_or_default().to_owned());
            }
            Event::ModelAnswered { call, ordinal, .. } => {
                answered.extend(asked.get(&(*call, *ordinal)).cloned())
            }
            _ => {}
        }
    }
    answered
}

fn count<T: Ord>(things: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    things.into_iter().for_each(|thing| *counts.entry(thing).or_default() += 1);
    counts
}

/// The number of side effects of the guest.
const SIDE_EFFECTS: usize = 6;

/// Repeats the cuts until each side effect was interrupted once. One round may miss a side effect,
/// because two parallel model calls are recorded in any order.
fn each_is_cut_off(who: Who) {
    let mut interrupted = BTreeSet::new();
    for _ in 0..5 {
        interrupted.append(&mut cut_everywhere(who));
        if interrupted.len() == SIDE_EFFECTS {
            return;
        }
    }
    panic!("of {SIDE_EFFECTS} side effects only these were cut off: {interrupted:?}");
}

/// Interrupts the run at every record and compares each end with the end of an uninterrupted run.
/// Returns the ordinals of the side effects that ended as interrupted.
fn cut_everywhere(who: Who) -> BTreeSet<u32> {
    block_on(async {
        let whole = World::new(who);
        let (records, outcome) = whole.begin(usize::MAX).await;
        let outcome = outcome.expect("nothing stops it");
        let expected = lines(&whole, &outcome);
        assert!(expected.len() >= 19, "{expected:#?}");
        assert_eq!(whole.bought().len(), 4, "{:?}", whole.bought());
        let mut interrupted = BTreeSet::new();
        for cut in 1..records.len() {
            let world = World::new(who);
            let (before, ended) = world.begin(cut).await;
            if ended.is_some() || before.is_empty() {
                continue;
            }
            let (paid, bought) = (answered(&before), world.bought().len());
            let (outcome, after) = world.go_on(before.clone()).await;
            let again = &world.bought()[bought..];
            assert!(
                again.iter().all(|asked| !paid.contains(asked)),
                "cut at {cut}: {again:?} were paid for: {paid:?}"
            );
            let asked = before
                .iter()
                .filter(|record| matches!(record.event, Event::SideEffectAsked { .. }))
                .count();
            let ended = before
                .iter()
                .filter(|record| matches!(record.event, Event::SideEffectEnded { .. }))
                .count();
            for (path, times) in
                count(world.server.requests().iter().map(|request| request.path.clone()))
            {
                let most = if who == Who::Idempotent && asked > ended { 2 } else { 1 };
                assert!(times <= most, "cut at {cut}: {path} was reached {times} times");
            }
            // A call that had not begun starts after the resume, at a time of its own. A call that
            // had begun replays its recorded time.
            let had_begun = before.iter().any(|record| match record.event {
                Event::ToolsAsked { .. } => who == Who::Nested,
                Event::AgentStepped { .. } => who != Who::Nested,
                _ => who == Who::Agent,
            });
            let mut got = lines(&world, &outcome);
            if !had_begun {
                got.iter_mut().for_each(|line| {
                    *line = line.replace(&LATER.0.to_string(), &BEGAN.0.to_string())
                });
            }
            if check(cut, who, asked > ended, &got, &expected) {
                let mut ordinals = before.iter().filter_map(|record| match &record.event {
                    Event::SideEffectAsked { ordinal, .. } => Some(*ordinal),
                    _ => None,
                });
                interrupted.extend(ordinals.next_back());
            }
            assert!(
                after.iter().zip(0..).all(|(record, seq)| record.seq == seq),
                "cut at {cut}: the numbers have a gap"
            );
        }
        interrupted
    })
}

/// Checks that the run ended as expected. Returns whether it reported an interrupted side effect.
fn check(cut: usize, who: Who, is_open: bool, got: &[String], expected: &[String]) -> bool {
    let told = got.iter().filter(|line| line.contains(INTERRUPTED)).count();
    if who == Who::Idempotent || !is_open {
        assert_eq!(got, expected, "cut at {cut}");
        return false;
    }
    assert_eq!(told, 1, "cut at {cut}: {got:#?}");
    if who == Who::Agent {
        // The line about an interrupted effect differs, and later reads show whether the effect
        // happened.
        let depends = |line: &str| {
            ["count: Some", "count: None", "std: ", "listed: ", "keys: "]
                .iter()
                .any(|word| line.starts_with(word))
        };
        for (got, expected) in got.iter().zip(expected) {
            assert!(
                got == expected || got.contains(INTERRUPTED) || depends(got),
                "cut at {cut}: {got} and not {expected}"
            );
        }
        assert_eq!(got.len(), expected.len(), "cut at {cut}");
    }
    true
}

/// Returns the guest's lines without the parts that differ from world to world.
fn lines(world: &World, outcome: &Outcome) -> Vec<String> {
    let text = outcome.content.clone().unwrap_or_else(|| json!(outcome).to_string());
    // A tool that calls others tells what came of each.
    let text = serde_json::from_str::<[String; 1]>(&text).map_or(text, |[told]| told);
    text.replace(&world.server.url(), "URL").lines().map(without_randomness).collect()
}

/// Removes the random values: each world's room has another secret.
/// `wasi::clock_and_randomness_are_the_same_when_a_call_is_run_again` checks that a repeated call
/// gets the same values.
fn without_randomness(line: &str) -> String {
    for drawn in ["dice: ", "std: Ok(\"0 "] {
        if let Some(number) = line.strip_prefix(drawn) {
            let rest = number.trim_start_matches(|letter: char| letter.is_ascii_digit());
            assert!(rest.len() < number.len(), "a number was drawn: {line}");
            return format!("{drawn}N{rest}");
        }
    }
    line.to_owned()
}

#[test]
fn a_step_that_is_cut_off_at_any_record_goes_on_as_it_began() {
    each_is_cut_off(Who::Agent);
}

#[test]
fn a_tool_that_is_cut_off_ends_as_interrupted_where_nobody_can_say_what_happened() {
    each_is_cut_off(Who::Tool);
}

#[test]
fn a_tool_that_another_tool_calls_is_cut_off_as_one_that_an_agent_calls() {
    each_is_cut_off(Who::Nested);
}

#[test]
fn an_idempotent_tool_that_is_cut_off_does_it_again() {
    cut_everywhere(Who::Idempotent);
}

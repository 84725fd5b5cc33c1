//! Writes through streams of `wasi:io` that the guest polls. No byte is lost, each write is a side
//! effect with one end, and a repeated call makes the same writes. Denials are reported, up to a
//! limit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use conclave_core::config::Config;
use conclave_core::protocol::event::{Event, Record};
use conclave_core::types::ids::RoomId;
use conclave_core::types::outcome::Status;
use conclave_core::types::side_effect::{SideEffect, SideEffectAnswer};
use conclave_runtime::engine::EngineSettings;
use conclave_runtime::journal::{Journals, MemoryJournals};
use conclave_runtime::models::ModelClient;
use conclave_runtime::{Host, HostOptions, Prepared, RunOptions};
use conclave_test_support::{Rig, block_on, cache, calling, guest};
use serde_json::json;

use crate::parking::{Slow, parks};
use crate::replay::{At, BEGAN, LATER, Shop, Stops};
use conclave_test_support::until_so as until;

/// The number of writes of one round: those through streams, and the files that are created first.
const STREAMED: u32 = 19;
const MADE: u32 = 8;
/// The first number of writes through streams.
const FIRST: u32 = 1 << 31;
const THERE: &str = "what is there";

/// Returns the files that one round of the guest leaves in the folder.
fn expected(name: &str) -> BTreeMap<String, Vec<u8>> {
    let runs = |runs: &[(u8, usize)]| {
        runs.iter().flat_map(|(byte, length)| vec![*byte; *length]).collect::<Vec<u8>>()
    };
    let words = b"one two three".to_vec();
    [
        ("asked", words.clone()),
        ("blocked", words),
        ("left", runs(&[(b'a', 10), (b'b', 60_000), (b'c', 3)])),
        ("right", runs(&[(b'i', 5_000), (b'j', 1)])),
        ("end", runs(&[(b'q', 7), (b'r', 70), (b's', 700), (b't', 7_000)])),
        ("dropped", b"let go".to_vec()),
        ("zeroes", vec![0; 100]),
        ("spliced", THERE.as_bytes().to_vec()),
    ]
    .map(|(file, bytes)| (format!("{name}-{file}"), bytes))
    .into()
}

/// Returns every file of a folder except the initial one.
fn found(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files =
        std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("it can be read"));
    let read = |entry: std::fs::DirEntry| {
        (
            entry.file_name().to_string_lossy().into_owned(),
            std::fs::read(entry.path()).expect("a file"),
        )
    };
    files.map(read).filter(|(name, _)| name != "in.txt").collect()
}

/// Returns the side effects of a journal in order. Each must be asked once, and ended once before
/// the next one is asked.
fn side_effects<'a>(
    events: impl IntoIterator<Item = &'a Event>,
) -> Vec<(u32, SideEffect, SideEffectAnswer)> {
    let mut open = None;
    let mut done: Vec<(u32, SideEffect, SideEffectAnswer)> = Vec::new();
    for event in events {
        match event {
            Event::SideEffectAsked { ordinal, side_effect, .. } => {
                assert_eq!(
                    open.replace((*ordinal, side_effect.clone())),
                    None,
                    "another is under way when {ordinal} is asked"
                );
            }
            Event::SideEffectEnded { ordinal, answer, .. } => {
                let (asked, side_effect) =
                    open.take().unwrap_or_else(|| panic!("{ordinal} ends, and was not asked"));
                assert_eq!(asked, *ordinal);
                assert!(
                    done.iter().all(|(other, ..)| other != ordinal),
                    "{ordinal} was asked twice"
                );
                done.push((asked, side_effect, answer.clone()));
            }
            _ => {}
        }
    }
    assert_eq!(open, None, "one has no end");
    done
}

/// Checks that the numbers have no gaps and that everything is done.
fn check_whole(done: &[(u32, SideEffect, SideEffectAnswer)], rounds: u32) {
    let numbers = |from: u32| {
        done.iter()
            .map(|(ordinal, ..)| *ordinal)
            .filter(move |ordinal| (*ordinal >= FIRST) == (from == FIRST))
    };
    assert!(numbers(0).eq(0..MADE * rounds), "{done:?}");
    assert!(numbers(FIRST).eq(FIRST..FIRST + STREAMED * rounds), "{done:?}");
    assert!(
        done.iter().all(|(.., answer)| matches!(answer, SideEffectAnswer::Done { .. })),
        "{done:?}"
    );
}

#[test]
fn a_guest_that_polls_loses_no_byte_and_each_write_ends() {
    let rig = Rig::new().with_file("box/in.txt", THERE);
    let lines = "grants.files = [{ dir = \"box\", at = \"/box\", mode = \"read-write\" }]\nlimits = { cpu = \"60 s\" }";
    let ran = rig.run(&calling("polled_streams", "run", &json!({}), lines), "go");
    assert_eq!(ran.status(), Status::Done, "{:?}", ran.outcome);
    let told: Vec<String> = serde_json::from_str(ran.content())
        .unwrap_or_else(|error| panic!("{error}: {}", ran.content()));
    // All writable streams are ready at once; the timer is not.
    let ready: Vec<Vec<u32>> =
        serde_json::from_str(&format!("[{}]", told[2].replace("] [", "],[")))
            .expect("lists of numbers");
    let sorted = ready.into_iter().map(BTreeSet::from_iter);
    let expected_ready =
        [vec![0, 1, 2], vec![0, 1, 2], vec![0, 1], vec![0]].map(BTreeSet::from_iter);
    assert!(sorted.eq(expected_ready), "{told:#?}");
    assert!(told.iter().all(|line| !line.contains("ERROR") && !line.contains("Err")), "{told:#?}");
    assert!(told.contains(&"left Ok(60013)".to_owned()), "it reads what it wrote: {told:#?}");
    assert_eq!(found(&rig.folder().join("box")), expected("tool"));
    check_whole(&side_effects(&ran.events("test")), 1);
}

#[test]
fn a_write_that_fails_is_told_once_and_then_the_stream_is_closed() {
    let rig = Rig::new().with_file("box/in.txt", THERE);
    let lines = r#"grants.files = [{ dir = "box", at = "/box", mode = "read-write", bytes = "10 kB", files = 20 }]"#;
    let ran = rig.run(&calling("polled_streams", "fails", &json!({}), lines), "go");
    let told: Vec<String> = serde_json::from_str(ran.content())
        .unwrap_or_else(|error| panic!("{error}: {}", ran.content()));
    let closed = r#"Err("closed")"#;
    let expected = [
        "first: Ok(0)".to_owned(),
        "check: Ok(65536)".to_owned(),
        "second: Ok(0)".to_owned(),
        r#"check: Err("failed")"#.to_owned(),
        format!("check: {closed}"),
        format!("flush: {closed}"),
        format!("third: {closed}"),
    ];
    assert_eq!(told, expected);
    assert_eq!(std::fs::read(rig.folder().join("box/full")).expect("it is there").len(), 8_000);
    let done = side_effects(&ran.events("test"));
    assert!(matches!(done.last(), Some((_, _, SideEffectAnswer::Failed { .. }))), "{done:?}");
}

#[cfg(unix)]
#[test]
fn thousands_of_refusals_through_streams_are_a_bounded_number_of_audit_events() {
    let rig = Rig::new().with_file("data/a.txt", "inside");
    for index in 0..200 {
        std::os::unix::fs::symlink("a.txt", rig.folder().join(format!("data/link-{index}")))
            .expect("a link can be made");
    }
    let lines = "grants.files = [{ dir = \"data\", at = \"/folder\", mode = \"read-write\" }]\nlimits = { cpu = \"60 s\", wall = \"120 s\" }";
    let ran = rig.run(
        &calling("stream_refusals", "run", &json!({ "links": 200, "times": 10 }), lines),
        "go",
    );
    assert_eq!(ran.content(), "2000 refused, 0 WROTE");
    assert_eq!(
        std::fs::read_to_string(rig.folder().join("data/a.txt")).expect("it is there"),
        "inside"
    );
    let denials = ran.denials();
    assert_eq!(denials.len(), 65);
    // The report names 64 links; the other 136 were tried ten times each.
    assert_eq!(denials.last().map(|record| record.denial.target.as_str()), Some("1360 more"));
    let targets: BTreeSet<&str> =
        denials.iter().map(|record| record.denial.target.as_str()).collect();
    assert_eq!(targets.len(), 65, "each is told once: {denials:?}");
}

/// The folder of an agent that polls its streams.
struct Polled(tempfile::TempDir);

impl Polled {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a test can make a folder");
        std::fs::create_dir(folder.path().join("box")).expect("a test can make a folder");
        std::fs::write(folder.path().join("box/in.txt"), THERE).expect("a test can write a file");
        Self(folder)
    }

    fn found(&self) -> BTreeMap<String, Vec<u8>> {
        found(&self.0.path().join("box"))
    }

    async fn prepare(&self, host: &Host) -> Prepared {
        let config = format!(
            "entry = \"main\"\n[models.default]\nkind = \"native\"\n[plugins.polls]\nsource = \"{}\"\ngrants.model = [\"default\"]\n\
             grants.files = [{{ dir = \"box\", at = \"/box\", mode = \"read-write\" }}]\nlimits = {{ cpu = \"60 s\", wall = \"120 s\" }}\n\
             [tasks.main]\nagent = \"polls\"\n",
            guest("polled_streams").display()
        );
        let folder = self.0.path().to_string_lossy().into_owned();
        let config = Config::parse("conclave.toml", &folder, &config)
            .unwrap_or_else(|problems| panic!("{problems}"));
        let prepared = host.prepare(&config, &(Arc::new(|_| {}) as conclave_runtime::Follow)).await;
        prepared.unwrap_or_else(|problems| panic!("{problems}"))
    }
}

fn host(model: Arc<dyn ModelClient>, engine: EngineSettings) -> Host {
    let cache = Some(cache());
    let models = [("default".to_owned(), model)].into();
    Host::new(HostOptions { cache, models, engine, ..HostOptions::default() })
        .expect("the engine starts")
}

fn options(journals: Arc<dyn Journals>, clock: At) -> RunOptions {
    RunOptions {
        ids: Arc::new(RoomId::from("test")),
        journals,
        clock: Arc::new(clock),
        ..RunOptions::default()
    }
}

fn both() -> BTreeMap<String, Vec<u8>> {
    expected("first").into_iter().chain(expected("second")).collect()
}

fn events(records: &[Arc<Record>]) -> impl Iterator<Item = &Event> {
    records.iter().map(|record| &record.event)
}

/// Returns the records of a run whose host stops after `after` records, and its result.
async fn begin(world: &Polled, host: &Host, after: usize) -> (Vec<Arc<Record>>, Option<String>) {
    let stops = Stops { after, kept: MemoryJournals::default() };
    let run = world
        .prepare(host)
        .await
        .start(Some("go".to_owned()), options(Arc::new(stops.clone()), At(BEGAN)))
        .expect("it opens");
    let outcome = run.outcome().await.ok();
    (stops.kept.records(&RoomId::from("test")), outcome.and_then(|outcome| outcome.content.clone()))
}

#[test]
fn a_step_that_polls_and_is_cut_off_anywhere_goes_on_as_it_began() {
    block_on(async {
        let host = host(Arc::new(Shop::default()), EngineSettings::default());
        let whole = Polled::new();
        let (records, told) = begin(&whole, &host, usize::MAX).await;
        let expected_told = told.expect("nothing stops it");
        assert_eq!(whole.found(), both());
        check_whole(&side_effects(events(&records)), 2);
        let mut interrupted = 0;
        // A step of 3 cuts after requests and after ends in turn; an even step would not.
        for cut in (1..records.len()).step_by(3) {
            let world = Polled::new();
            let (before, ended) = begin(&world, &host, cut).await;
            if ended.is_some() || before.is_empty() {
                continue;
            }
            let count = |is: fn(&Event) -> bool| events(&before).filter(|event| is(event)).count();
            let asked = count(|event| matches!(event, Event::SideEffectAsked { .. }));
            let is_open = asked > count(|event| matches!(event, Event::SideEffectEnded { .. }));
            let journals = MemoryJournals::of(RoomId::from("test"), before);
            let mut session = world
                .prepare(&host)
                .await
                .reopen(&RoomId::from("test"), options(Arc::new(journals.clone()), At(LATER)))
                .await
                .expect("kept");
            let outcome = session.resume().await.expect("a journal in memory does not fail");
            assert_eq!(outcome.status, Status::Done, "cut at {cut}: {outcome:?}");
            let told = outcome.content.clone().unwrap_or_default();
            let done =
                side_effects(events(&journals.records(&RoomId::from("test"))).collect::<Vec<_>>());
            if is_open {
                // The journal has no end for this write, so it may have happened or not. Later
                // writes to the same file are left out.
                interrupted += 1;
                let failed = done
                    .iter()
                    .filter(|(.., answer)| matches!(answer, SideEffectAnswer::Failed { .. }))
                    .count();
                assert_eq!(failed, 1, "cut at {cut}: {done:?}");
                assert!(told.matches("ERROR").count() <= 1, "cut at {cut}: {told}");
            } else {
                assert_eq!(told, expected_told, "cut at {cut}");
                assert_eq!(world.found(), both(), "cut at {cut}");
                check_whole(&done, 2);
            }
        }
        assert!(interrupted > 5, "{interrupted}");
    });
}

#[test]
fn a_call_that_polls_and_is_parked_writes_nothing_twice() {
    let run = |engine: EngineSettings| {
        block_on(async {
            let parks = engine.park_after.is_some();
            let (model, world) = (Slow::new(false), Polled::new());
            let host = host(Arc::clone(&model) as Arc<dyn ModelClient>, engine);
            let journals = MemoryJournals::default();
            let prepared = world.prepare(&host).await;
            let run = prepared
                .start(Some("go".to_owned()), options(Arc::new(journals.clone()), At(BEGAN)))
                .expect("it opens");
            let run = tokio::spawn(run.outcome());
            until("it asks", || model.asked() == 1).await;
            if parks {
                until("it is parked", || host.engine().waiting() == 1 && host.engine().live() == 0)
                    .await;
            }
            model.answer_all();
            let outcome =
                run.await.expect("it does not panic").expect("a journal in memory does not fail");
            assert_eq!(world.found(), both());
            let done =
                side_effects(events(&journals.records(&RoomId::from("test"))).collect::<Vec<_>>());
            check_whole(&done, 2);
            (outcome.content.clone(), done)
        })
    };
    assert_eq!(run(parks()), run(EngineSettings { park_after: None, ..parks() }));
}

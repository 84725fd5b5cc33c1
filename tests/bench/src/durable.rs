//! Durability: tasks with and without a store for their events, the cost of reading events back,
//! and waiting tasks.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conclave_core::config::Config;
use conclave_core::journal::record::fold;
use conclave_core::types::ids::RoomId;
use conclave_core::types::outcome::Status;
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::completion::{Completion, Prompt};
use conclave_runtime::journal::{Journals, NoJournals};
use conclave_runtime::models::{ModelClient, ModelFailure, TextSink};
use conclave_runtime::store::{Durability, RunOrigin, Store, StoreReader};
use conclave_runtime::{Host, HostOptions, Prepared, RunInput, RunOptions};
use tokio::task::JoinSet;

use crate::BenchError;
use crate::conclave::Hosted;
use crate::measure::Times;

/// A folder that is removed on drop. It is on the disk of the build, because the system's temporary
/// folder may be in memory.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn make(beside: &Path, name: &str) -> Result<Self, BenchError> {
        let path = beside.with_file_name(format!("bench-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)
            .map_err(|cause| BenchError::Write { path: path.clone(), cause })?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Runs in a store.
pub(crate) struct Durable {
    folder: Folder,
    store: Store,
}

impl Durable {
    pub(crate) fn open(guests: &Path) -> Result<Self, BenchError> {
        let folder = Folder::make(guests, "store")?;
        let store = Store::open(folder.0.join("store"))
            .map_err(|error| BenchError::Conclave(error.to_string()))?;
        Ok(Self { folder, store })
    }

    /// Returns the times of rounds of so many tasks at once, for both sides: without journals but
    /// with one fsync for each group that the other side committed, and with journals.
    pub(crate) async fn rounds(
        &self,
        hosted: &Hosted,
        tasks: u32,
        rounds: u32,
    ) -> Result<(Times, Times), BenchError> {
        let (mut without, mut with, mut syncs, mut groups) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..=rounds {
            let began = Instant::now();
            hosted.run_at_once(tasks, &(Arc::new(NoJournals) as Arc<dyn Journals>)).await?;
            without.push(began.elapsed());
            let before = self.store.written().synced;
            let journals = self.store.journals(Durability::Group, RunOrigin::default());
            let began = Instant::now();
            hosted.run_at_once(tasks, &journals).await?;
            with.push(began.elapsed());
            groups.push(u32::try_from(self.store.written().synced - before).unwrap_or(u32::MAX));
            syncs.push(self.sync()?);
        }
        let sync = Times::of(syncs).median_ns;
        let baseline = without
            .iter()
            .zip(&groups)
            .map(|(without, groups)| *without + Duration::from_nanos(sync) * *groups);
        // The first round only fills caches.
        Ok((Times::of(baseline.skip(1).collect()), Times::of(with.split_off(1))))
    }

    /// Returns the time of one fsync of a few pages in the same folder.
    fn sync(&self) -> Result<Duration, BenchError> {
        let path = self.folder.0.join("sync");
        let failed = |cause| BenchError::Write { path: path.clone(), cause };
        let mut file =
            fs::OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        let began = Instant::now();
        for _ in 0..8 {
            file.write_all(&[0; 16 * 1024]).and_then(|()| file.sync_data()).map_err(failed)?;
        }
        Ok(began.elapsed() / 8)
    }

    /// Stores a run until it has so many events, copies the store as a crash at this point would
    /// leave it, and measures the time from reading the copy to the resumed room.
    pub(crate) async fn resume(
        &self,
        hosted: &Hosted,
        events: u64,
        times: u32,
    ) -> Result<Times, BenchError> {
        let failed = |error: &dyn std::fmt::Display| BenchError::Conclave(error.to_string());
        let room = RoomId::from("interrupted");
        let journals = self.store.journals(Durability::Exit, RunOrigin::default());
        // A run that is dropped writes that nobody waits for it, so this one is kept.
        let mut run = Box::pin(hosted.run_long(&room, journals, Some(u32::MAX)));
        let stored = async {
            while self.store.written().records < events {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            ended = &mut run => {
                ended?;
                return Err(BenchError::Answer("the run ended before it was interrupted".into()));
            }
            () = stored => {}
        }
        let mut records = 0;
        while records != self.store.written().records {
            records = self.store.written().records;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let crashed = self.folder.0.join("crashed");
        copy(self.store.folder().unwrap_or(Path::new("")), &crashed)
            .map_err(|cause| BenchError::Write { path: crashed.clone(), cause })?;
        let store = Store::open(&crashed).map_err(|error| failed(&error))?;
        let mut resumed = Vec::new();
        for _ in 0..times {
            let until = Instant::now() + PATIENCE;
            let session = loop {
                let journals = store.journals(Durability::Group, RunOrigin::default());
                let options = RunOptions { journals, ..RunOptions::default() };
                let began = Instant::now();
                match hosted.prepared().reopen(&room, options).await {
                    Ok(session) => {
                        resumed.push(began.elapsed());
                        break session;
                    }
                    // The store's thread releases the room a moment after its session is dropped.
                    Err(_) if Instant::now() < until => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Err(error) => return Err(failed(&error)),
                }
            };
            if !session.is_cut_off() {
                return Err(BenchError::Answer("the run had ended".to_owned()));
            }
        }
        Ok(Times::of(resumed))
    }

    /// Stores one run of 10 000 steps, then measures folding its records, and reading and folding
    /// them. Times are per event.
    pub(crate) async fn replay(
        &self,
        hosted: &Hosted,
        times: u32,
    ) -> Result<(Times, Times), BenchError> {
        let failed = |error: &dyn std::fmt::Display| BenchError::Conclave(error.to_string());
        let room = RoomId::from("long");
        let journals = self.store.journals(Durability::Exit, RunOrigin::default());
        hosted.run_long(&room, journals, None).await?;
        let (mut folded, mut read) = (Vec::new(), Vec::new());
        for _ in 0..times {
            let began = Instant::now();
            let reader = StoreReader::open(self.store.address()).map_err(|error| failed(&error))?;
            let records = reader.records(&room).map_err(|error| failed(&error))?;
            let count = u32::try_from(records.len()).unwrap_or(u32::MAX).max(1);
            let took = began.elapsed();
            let began = Instant::now();
            if fold(records).outcome().is_none() {
                return Err(BenchError::Answer("the journal leads to no outcome".to_owned()));
            }
            folded.push(began.elapsed() / count);
            read.push((took + folded.last().map_or(Duration::ZERO, |one| *one * count)) / count);
        }
        Ok((Times::of(folded), Times::of(read)))
    }
}

/// Copies a folder with all it holds.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Tasks that wait for a model that never answers.
pub(crate) struct Waiting {
    /// The times of the first and the last tasks, from the start to the model request.
    pub(crate) first: Times,
    pub(crate) last: Times,
    /// KiB of the process per task.
    pub(crate) kib: f64,
    /// The number of live instances while all tasks wait.
    pub(crate) instances: u64,
}

/// The number of tasks in one time.
const SHARE: usize = 100;
/// The timeout for the release of all instances.
const PATIENCE: Duration = Duration::from_secs(60);

impl Waiting {
    pub(crate) async fn measure(guests: &Path, tasks: u32) -> Result<Self, BenchError> {
        let silent = Arc::new(Silent::default());
        let models = [("default".to_owned(), Arc::clone(&silent) as Arc<dyn ModelClient>)].into();
        let host = Host::new(HostOptions { models, ..HostOptions::default() })
            .map_err(|error| BenchError::Conclave(error.to_string()))?;
        let folder = std::path::absolute(guests)
            .map_err(|cause| BenchError::Component { path: guests.to_owned(), cause })?;
        let config = Config::parse("waiting.toml", &folder.to_string_lossy(), WAITING)
            .map_err(|problems| BenchError::Conclave(problems.to_string()))?;
        let prepared =
            host.load(&config).await.map_err(|error| BenchError::Conclave(error.to_string()))?;
        let before = resident();
        let (mut running, mut times) = (JoinSet::new(), Vec::new());
        for number in 1..=u64::from(tasks) {
            let began = Instant::now();
            running.spawn(start(&prepared)?);
            while silent.0.load(Ordering::Relaxed) < number {
                if began.elapsed() > PATIENCE {
                    return Err(BenchError::Answer(format!("task {number} never asked its model")));
                }
                tokio::task::yield_now().await;
            }
            times.push(began.elapsed());
        }
        let until = Instant::now() + PATIENCE;
        while host.engine().live() > 0 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let instances = host.engine().live() as u64;
        let kib = resident().saturating_sub(before) as f64 / f64::from(tasks);
        running.abort_all();
        let share = SHARE.min(times.len());
        let last = times.split_off(times.len() - share);
        // The very first tasks load and fill caches, so they are skipped.
        let first = times.into_iter().skip(share.min(10)).take(share).collect();
        Ok(Self { first: Times::of(first), last: Times::of(last), kib, instances })
    }
}

const WAITING: &str = r#"
entry = "main"
[models.default]
kind = "native"
[plugins.asks]
source = "agent_models.wasm"
grants.model = ["default"]
[tasks.main]
agent = "asks"
[limits.run]
wall = "1 h"
"#;

fn start(prepared: &Prepared) -> Result<impl Future<Output = ()> + Send + use<>, BenchError> {
    let run = prepared
        .start(Some("go".to_owned()), RunOptions::default())
        .map_err(|error| BenchError::Conclave(error.to_string()))?;
    Ok(async move { drop(run.outcome().await) })
}

/// A model that counts its requests and never answers.
#[derive(Default)]
struct Silent(AtomicU64);

impl ModelClient for Silent {
    fn complete(
        &self,
        _: Prompt,
        _: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::pending())
    }
}

/// Returns the resident memory of this process in KiB, or 0 if the system does not report it.
pub(crate) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next())
        .and_then(|kib| kib.parse().ok())
        .unwrap_or_default()
}

impl Hosted {
    /// Runs `tasks` tasks at once, each in its own run, until all have ended.
    pub(crate) async fn run_at_once(
        &self,
        tasks: u32,
        journals: &Arc<dyn Journals>,
    ) -> Result<(), BenchError> {
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            let options = RunOptions { journals: Arc::clone(journals), ..RunOptions::default() };
            let run = self
                .prepared()
                .start(Some("go".to_owned()), options)
                .map_err(|error| BenchError::Conclave(error.to_string()))?;
            running.spawn(run.outcome());
        }
        while let Some(ended) = running.join_next().await {
            let outcome = ended.map_err(|error| BenchError::Conclave(error.to_string()))?;
            let outcome = outcome.map_err(|error| BenchError::Conclave(error.to_string()))?;
            if outcome.status != Status::Done {
                return Err(BenchError::Answer(format!("{outcome:?}")));
            }
        }
        Ok(())
    }

    /// Runs 10 000 steps, or `turns`, and stores them under this name.
    async fn run_long(
        &self,
        room: &RoomId,
        journals: Arc<dyn Journals>,
        turns: Option<u32>,
    ) -> Result<(), BenchError> {
        let options = RunOptions { ids: Arc::new(room.clone()), journals, ..RunOptions::default() };
        let mut session = self
            .prepared()
            .session(options)
            .map_err(|error| BenchError::Conclave(error.to_string()))?;
        let ask = RunInput { entry: Some("talk".into()), turns, ..RunInput::from("go") };
        session.run(ask).await.map(drop).map_err(|error| BenchError::Conclave(error.to_string()))
    }
}

//! A host for one test, with a folder of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::config::{Config, Problems};
use conclave_core::types::ids::{ChannelId, RoomId, TaskName};
use conclave_core::types::outcome::Outcome;
use conclave_runtime::blobs::MemoryBlobs;
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::exec::ProgramLauncher;
use conclave_runtime::kv::MemoryKv;
use conclave_runtime::secrets::Sources;
use conclave_runtime::subscribe::{Published, Subscriber, Subscribers};
use conclave_runtime::{Follow, Host, HostOptions, Prepared, RunOptions};

use crate::ran::{ROOM, Ran, RunJournals};
use crate::store::RigDatabase;

/// A host, a folder, and scripted users.
pub struct Rig {
    /// Contains the folder of the configs and, beside it, the home folders of programs. A test may
    /// also write above its folder in here.
    root: tempfile::TempDir,
    folder: PathBuf,
    answers: Vec<String>,
    refuse_messages: bool,
    /// Outlives each run's host, like a file on disk.
    kv: Arc<MemoryKv>,
    blobs: Arc<MemoryBlobs>,
    database: RigDatabase,
}

impl Default for Rig {
    fn default() -> Self {
        Self::new()
    }
}

impl Rig {
    /// Creates a rig with an empty folder and a user who never answers.
    #[must_use]
    pub fn new() -> Self {
        let root = tempfile::tempdir().expect("a test can make a folder");
        // Nested in an empty folder, so that a test may grant the parent folder.
        let folder = root.path().join("above/folder");
        std::fs::create_dir_all(&folder).expect("a test can make a folder");
        Self {
            root,
            folder,
            answers: Vec::new(),
            refuse_messages: false,
            kv: Arc::default(),
            blobs: Arc::default(),
            database: RigDatabase::default(),
        }
    }

    /// Returns the folder of the configs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder above all of the rig's folders.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Returns the database of its runs, if it has one.
    pub(crate) fn database(&self) -> &RigDatabase {
        &self.database
    }

    /// Returns the attachments of its runs.
    #[must_use]
    pub fn blobs(&self) -> &MemoryBlobs {
        &self.blobs
    }

    /// Adds a file to the folder.
    #[must_use]
    pub fn with_file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.folder.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("a test can make a folder");
        }
        std::fs::write(path, content).expect("a test can write a file");
        self
    }

    /// Adds a user who gives these answers in order and is then absent.
    #[must_use]
    pub fn with_answers(mut self, answers: &[&str]) -> Self {
        self.answers = answers.iter().rev().map(|answer| (*answer).to_owned()).collect();
        self
    }

    /// Adds a channel that rejects every message.
    #[must_use]
    pub fn with_deaf_channel(mut self) -> Self {
        self.refuse_messages = true;
        self
    }

    /// Loads a config.
    ///
    /// # Errors
    /// All its problems.
    pub fn prepare(&self, config: &str) -> Result<Prepared, Problems> {
        block_on(async { self.prepare_now(config).await })
    }

    async fn prepare_now(&self, config: &str) -> Result<Prepared, Problems> {
        let folder = self.folder.to_string_lossy().into_owned();
        let config = Config::parse("conclave.toml", &folder, config)?;
        let host = host_with(HostOptions {
            kv: Arc::clone(&self.kv) as _,
            blobs: Arc::clone(&self.blobs) as _,
            ..HostOptions::default()
        });
        host.prepare(&config, &(Arc::new(|_| {}) as Follow)).await.map_err(Problems::from)
    }

    /// Runs a config on a message to its end.
    #[must_use]
    pub fn run(&self, config: &str, message: &str) -> Ran {
        self.run_with(config, message, |_| {})
    }

    /// Runs a config on a message. `follow` receives every event and may stop the run.
    #[must_use]
    pub fn run_with(
        &self,
        config: &str,
        message: &str,
        follow: impl Fn(&Seen<'_>) + Send + Sync + 'static,
    ) -> Ran {
        block_on(async {
            let prepared = self
                .prepare_now(config)
                .await
                .unwrap_or_else(|problems| panic!("the config does not load:\n{problems}"));
            self.run_prepared(&prepared, message, follow).await
        })
    }

    async fn run_prepared(
        &self,
        prepared: &Prepared,
        message: &str,
        follow: impl Fn(&Seen<'_>) + Send + Sync + 'static,
    ) -> Ran {
        let journals = RunJournals::new();
        let people = Arc::new(People {
            answers: Mutex::new(self.answers.clone()),
            deaf: self.refuse_messages,
            heard: Mutex::default(),
        });
        let recorder = Arc::new(Recorder {
            happenings: Mutex::default(),
            stop: Mutex::default(),
            follow: Box::new(follow),
        });
        let options = RunOptions {
            ids: Arc::new(RoomId::from(ROOM)),
            channels: Arc::clone(&people) as Arc<dyn Channels>,
            journals: journals.journals(),
            subscribers: Subscribers::new([Arc::clone(&recorder) as Arc<dyn Subscriber>]),
            ..RunOptions::default()
        };
        let run = prepared.start(Some(message.to_owned()), options).expect("a journal opens");
        *lock(&recorder.stop) = Some(run.handle());
        let outcome: Arc<Outcome> = run.outcome().await.expect("a journal does not fail");
        let happenings = std::mem::take(&mut *lock(&recorder.happenings));
        let heard = std::mem::take(&mut *lock(&people.heard));
        Ran::new(outcome, happenings, journals.records(), heard)
    }
}

/// The problems of a config that must not load.
#[must_use]
pub fn refused(rig: &Rig, config: &str) -> Problems {
    match rig.prepare(config) {
        Ok(_) => panic!("the config loads, and should not"),
        Err(problems) => problems,
    }
}

/// The input of a follower.
pub struct Seen<'a> {
    pub happening: &'a Published,
    pub stop: Option<&'a conclave_runtime::RoomHandle>,
}

struct Recorder {
    happenings: Mutex<Vec<Published>>,
    stop: Mutex<Option<conclave_runtime::RoomHandle>>,
    follow: Box<dyn Fn(&Seen<'_>) + Send + Sync>,
}

impl Subscriber for Recorder {
    fn on(&self, happening: &Published) {
        (self.follow)(&Seen { happening, stop: lock(&self.stop).as_ref() });
        lock(&self.happenings).push(happening.clone());
    }
}

struct People {
    answers: Mutex<Vec<String>>,
    deaf: bool,
    heard: Mutex<Vec<(ChannelId, String)>>,
}

impl Channels for People {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        let answer = lock(&self.answers).pop();
        Box::pin(std::future::ready(answer.map(HumanAnswer::from)))
    }

    fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        let OutgoingMessage { channel, text, .. } = message;
        if self.deaf {
            return Box::pin(std::future::ready(Err("nobody listens".to_owned())));
        }
        lock(&self.heard).push((channel, text));
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Returns a host with the stock plugins. All tests share its cache, so each component is compiled
/// once.
#[must_use]
pub fn host() -> Host {
    host_with(HostOptions::default())
}

fn host_with(options: HostOptions) -> Host {
    let mut stock = BTreeMap::new();
    for file in std::fs::read_dir(crate::stock()).into_iter().flatten().flatten() {
        let path = file.path();
        if let (Some(name), Ok(bytes)) =
            (path.file_stem().and_then(|name| name.to_str()), std::fs::read(&path))
        {
            stock.insert(name.to_owned(), bytes.into());
        }
    }
    let cache = Some(crate::cache());
    let secrets = Arc::new(Sources::new(|name| std::env::var(name).ok()));
    let launcher = Some(ProgramLauncher {
        program: crate::program(),
        args: vec!["run-program".into()],
        folder: std::env::temp_dir(),
    });
    Host::new(HostOptions { cache, stock, secrets, launcher, ..options })
        .expect("the engine starts")
}

/// Runs a future to its end.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    runtime.block_on(work)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

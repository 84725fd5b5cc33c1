//! A worker process of a soak: it takes runs from the shared store until its input ends, and prints
//! what it acknowledges and does.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conclave_runtime::RunOptions;
use conclave_runtime::approval::{ApprovalAnswer, ApprovalRequest};
use conclave_runtime::approve::Approver;
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::ids::{ChannelId, TaskName};
use conclave_runtime::store::{
    Durability, RunOrigin, Store, StoreAddress, StoreError, StoreOptions,
};
use conclave_runtime::subscribe::{Subscriber, Subscribers};
use conclave_runtime::worker::{Worker, WorkerEvent, WorkerPool};
use serde_json::json;

use super::work;
use crate::child::{Acknowledges, say};
use crate::kept::SNAPSHOT_EVERY;
use crate::talk;

/// The configuration of a worker process.
#[derive(Clone, Debug)]
pub struct ClusterWorker {
    /// The URL of the database, through the worker's own proxy.
    pub url: String,
    pub host: String,
    /// The port of the world.
    pub port: u16,
    /// The number of runs at once.
    pub capacity: usize,
    pub stock: PathBuf,
    pub cache: PathBuf,
}

impl ClusterWorker {
    /// Returns the arguments that [`of_words`](Self::of_words) parses.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { url, host, port, capacity, stock, cache } = self;
        json!([url, host, port, capacity, stock, cache]).to_string()
    }

    /// Parses the arguments. `None` if they are malformed.
    #[must_use]
    pub fn of_words(words: &str) -> Option<Self> {
        let (url, host, port, capacity, stock, cache) = serde_json::from_str(words).ok()?;
        Some(Self { url, host, port, capacity, stock, cache })
    }

    /// Works until the input ends or the process is killed.
    ///
    /// # Errors
    /// Describes why the worker could not start.
    pub fn live(self) -> Result<(), String> {
        // The test harness may have begun a line, so end it first.
        say("");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.map_err(|error| error.to_string())?.block_on(self.work())
    }

    async fn work(self) -> Result<(), String> {
        let store = open(&self.url, &self.host).map_err(|error| error.to_string())?;
        let (host, prepared) = work::load(&self.stock, &self.cache, self.port, &store).await?;
        let pool = WorkerPool { name: prepared.pool(), host, prepared };
        let about = RunOrigin {
            command: "soak".to_owned(),
            pool: Some(pool.name.clone()),
            ..RunOrigin::default()
        };
        let options = RunOptions {
            journals: store.journals(Durability::Group, about),
            subscribers: Subscribers::new([Arc::new(Acknowledges) as Arc<dyn Subscriber>]),
            approver: Arc::new(Absent),
            channels: Arc::new(Speaker(self.port)),
            ..RunOptions::default()
        };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            drop(stop);
        });
        let worker = Worker::new(&store, vec![pool], self.capacity).closes_store();
        let stopped = async { drop(stopped.await) };
        worker.work(|_, _| options.clone(), stopped, tell).await;
        Ok(())
    }
}

/// Opens the store as one of its hosts.
pub(super) fn open(url: &str, host: &str) -> Result<Store, StoreError> {
    let address: StoreAddress = url.parse().map_err(|error| StoreError::Other {
        store: StoreAddress::Folder(PathBuf::new()),
        what: format!("{error:?}"),
    })?;
    let options = StoreOptions {
        snapshot_every: Some(SNAPSHOT_EVERY),
        host: host.to_owned(),
        command: "soak".to_owned(),
        group_delay: Some(Duration::from_millis(2)),
        ..StoreOptions::default()
    };
    Store::open_with(address, &options)
}

/// Prints an event for the soak.
fn tell(event: WorkerEvent<'_>) {
    match event {
        WorkerEvent::Taken(run) => say(&format!("taken {run}")),
        WorkerEvent::Ended(run, outcome) => say(&format!("ended {run} {:?}", outcome.status)),
        WorkerEvent::Asleep(run) => say(&format!("asleep {run}")),
        WorkerEvent::Lost(run) => say(&format!("lost {run}")),
        WorkerEvent::Stopping => say("stopping"),
        WorkerEvent::GivenBack(run) => say(&format!("back {run}")),
        WorkerEvent::LeftToLease(run) => say(&format!("left {run}")),
        WorkerEvent::Failed(run, reason) => {
            say(&format!("failed {run} {}", reason.replace('\n', " ")));
        }
        WorkerEvent::Store(error) => {
            say(&format!("store {}", error.to_string().replace('\n', " ")))
        }
        WorkerEvent::Received(message) => say(&format!("received {}", message.room)),
    }
}

/// Nobody is at the worker: decisions come from elsewhere.
struct Absent;

impl Approver for Absent {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        Box::pin(std::future::pending())
    }
}

/// A channel that passes on to the world what it is to say, and hears nothing.
struct Speaker(u16);

impl Channels for Speaker {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        Box::pin(std::future::pending())
    }

    fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        let port = self.0;
        let text = json!([message.key, message.text]).to_string();
        Box::pin(async move {
            talk::post(port, "/speak/", &text).await.map(drop).map_err(|error| error.to_string())
        })
    }
}

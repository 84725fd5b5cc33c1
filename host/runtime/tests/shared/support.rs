//! A database with hosts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conclave_runtime::config::Config;
use conclave_runtime::ids::RoomId;
use conclave_runtime::native::{self, Plugin, Step};
use conclave_runtime::store::{
    ControlCommand, ControlMessage, Durability, RunFilter, RunOrigin, RunRow, RunState, Store,
    StoreAddress, StoreOptions, StoreReader,
};
use conclave_runtime::worker::{Worker, WorkerEvent, WorkerPool};
use conclave_runtime::{Host, HostOptions, Prepared, RunInput, RunOptions};
use conclave_test_servers::{FaultProxy, TestDatabase, TestPostgres, postgres_or_skip};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// The time after which a test gives up. Nothing waits for it otherwise.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Shared {
    database: TestDatabase,
}

/// A host with a store and a config.
pub(crate) struct TestHost {
    pub(crate) store: Store,
    pub(crate) prepared: Arc<Prepared>,
    host: Arc<Host>,
}

/// A worker that runs beside the test.
pub(crate) struct TestWorker {
    stop: oneshot::Sender<()>,
    work: JoinHandle<()>,
    /// What it reported.
    pub(crate) events: Arc<Mutex<Vec<String>>>,
}

impl Shared {
    pub(crate) fn new() -> Option<Self> {
        Some(Self { database: postgres_or_skip(TestPostgres::shared())? })
    }

    pub(crate) fn address(&self) -> StoreAddress {
        self.database.url().parse().unwrap()
    }

    pub(crate) fn query(&self, sql: &str) -> String {
        self.database.query(&[sql]).unwrap()
    }

    /// Ends the leases of all hosts, as the time does.
    pub(crate) fn end_leases(&self) {
        self.query("UPDATE conclave.hosts SET until = now() - interval '1 second'");
    }

    pub(crate) fn reader(&self) -> StoreReader {
        StoreReader::open(self.address()).unwrap()
    }

    /// A proxy before the server, and the address of the database through it.
    pub(crate) fn proxy(&self) -> (FaultProxy, StoreAddress) {
        let (proxy, url) = self.database.behind_proxy().unwrap();
        (proxy, url.parse().unwrap())
    }

    /// Sends a command to a run, as another process does.
    pub(crate) fn send(&self, run: &RoomId, command: ControlCommand) {
        let message = ControlMessage::new(run.clone(), command);
        self.reader().mail().send(&message).unwrap();
    }

    /// A host whose only agent is this plugin.
    pub(crate) async fn host(&self, agent: Plugin) -> TestHost {
        Self::host_at(self.address(), agent).await
    }

    /// The same at another address of the database.
    pub(crate) async fn host_at(address: StoreAddress, agent: Plugin) -> TestHost {
        let options = StoreOptions { host: "test".to_owned(), ..StoreOptions::default() };
        let store = Store::open_with(address, &options).unwrap();
        let host = Host::new(HostOptions {
            native: vec![agent],
            blobs: store.blobs(),
            ..HostOptions::default()
        });
        let host = Arc::new(host.unwrap());
        let config = "entry = 'a'\n[plugins.a]\nsource = 'native:agent'\n[tasks.a]\nagent = 'a'\n\
            [limits.run]\nwall = '1 h'\n";
        let config = Config::parse("a.toml", "", config).unwrap();
        let prepared = Arc::new(host.load(&config).await.unwrap());
        TestHost { store, prepared, host }
    }

    pub(crate) fn run(&self, run: &RoomId) -> RunRow {
        self.reader().run(run).unwrap().unwrap()
    }

    /// Waits until every run has ended.
    pub(crate) async fn all_end(&self) {
        self.until("every run has ended", |shared| {
            let runs = shared.reader().runs(&RunFilter::default()).unwrap();
            runs.iter().all(|run| matches!(run.state, RunState::Ended(_)))
        })
        .await;
    }

    /// Waits until something holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let until = tokio::time::Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(tokio::time::Instant::now() < until, "{what}: not within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl TestHost {
    pub(crate) fn options(&self) -> RunOptions {
        let origin = RunOrigin { pool: Some(self.prepared.pool()), ..RunOrigin::default() };
        let journals = self.store.journals(Durability::Group, origin);
        RunOptions { journals, ..RunOptions::default() }
    }

    pub(crate) async fn enqueue(&self, text: &str) -> RoomId {
        let input = RunInput::from(text);
        self.prepared.enqueue(input, self.options()).await.unwrap()
    }

    pub(crate) fn work(&self, capacity: usize) -> TestWorker {
        self.work_as(capacity, |worker| worker)
    }

    /// The same with other times.
    pub(crate) fn work_as(
        &self,
        capacity: usize,
        with_times: impl FnOnce(Worker) -> Worker,
    ) -> TestWorker {
        let pool = WorkerPool {
            name: self.prepared.pool(),
            host: Arc::clone(&self.host),
            prepared: Arc::clone(&self.prepared),
        };
        let (stop, stopped) = oneshot::channel();
        let (events, options) = (Arc::new(Mutex::new(Vec::new())), self.options());
        let reported = Arc::clone(&events);
        let worker = with_times(Worker::new(&self.store, vec![pool], capacity));
        let work = tokio::spawn(async move {
            let options = move |_: &WorkerPool, _: &RoomId| options.clone();
            let stopped = async { drop(stopped.await) };
            let notify = |event: WorkerEvent<'_>| reported.lock().unwrap().push(word(&event));
            worker.work(options, stopped, notify).await;
        });
        TestWorker { stop, work, events }
    }
}

impl TestWorker {
    /// Lets the worker stop, and returns what it reported.
    pub(crate) async fn stop(self) -> Vec<String> {
        self.stop.send(()).unwrap();
        self.work.await.unwrap();
        self.events.lock().unwrap().clone()
    }
}

fn word(event: &WorkerEvent<'_>) -> String {
    match event {
        WorkerEvent::Taken(_) => "taken".to_owned(),
        WorkerEvent::Ended(_, outcome) => format!("ended {}", outcome.status.as_str()),
        WorkerEvent::Asleep(_) => "asleep".to_owned(),
        WorkerEvent::Lost(_) => "lost".to_owned(),
        WorkerEvent::Failed(_, reason) => format!("failed {reason}"),
        WorkerEvent::Stopping => "stopping".to_owned(),
        WorkerEvent::GivenBack(_) => "given back".to_owned(),
        WorkerEvent::LeftToLease(_) => "left".to_owned(),
        WorkerEvent::Received(_) => "received".to_owned(),
        WorkerEvent::Store(error) => format!("store {error}"),
    }
}

/// An agent that answers with its message.
pub(crate) fn echo() -> Plugin {
    Plugin::agent("agent", |step: Step| async move { Ok(native::finish(step.text())) })
}

/// An agent whose step waits until it is let go; `began` counts its steps.
pub(crate) fn waiting_agent(gate: &Arc<Notify>, began: &Arc<Mutex<u32>>) -> Plugin {
    let (gate, began) = (Arc::clone(gate), Arc::clone(began));
    Plugin::agent("agent", move |step: Step| {
        let (gate, began) = (Arc::clone(&gate), Arc::clone(&began));
        async move {
            *began.lock().unwrap() += 1;
            gate.notified().await;
            Ok(native::finish(step.text()))
        }
    })
}

/// The same, with two steps: the first one calls a tool that nobody has, and the second one does not
/// wait.
pub(crate) fn agent_waiting_at_first(gate: &Arc<Notify>, began: &Arc<Mutex<u32>>) -> Plugin {
    let (gate, began) = (Arc::clone(gate), Arc::clone(began));
    Plugin::agent("agent", move |step: Step| {
        let (gate, began) = (Arc::clone(&gate), Arc::clone(&began));
        async move {
            let steps = {
                let mut began = began.lock().unwrap();
                *began += 1;
                *began
            };
            if steps > 1 {
                return Ok(native::finish(step.text()));
            }
            gate.notified().await;
            Ok(native::call("a.none", serde_json::json!({})))
        }
    })
}

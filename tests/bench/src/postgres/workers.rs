//! Workers in processes of their own: this program again.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use conclave_core::config::Config;
use conclave_runtime::native::{self, Plugin, Step};
use conclave_runtime::store::{Durability, RunOrigin, Store};
use conclave_runtime::worker::{Worker, WorkerEvent, WorkerPool};
use conclave_runtime::{Capability, Host, HostOptions, Prepared, RunOptions};
use conclave_test_servers::TestDatabase;
use tokio_postgres::Client;

use super::{failed, open_at};
use crate::BenchError;

/// What a worker of these rows is.
#[derive(Clone, Copy)]
pub(crate) struct WorkerKind {
    /// The time for which its model waits.
    pub(crate) model_ms: u64,
    /// The number of its tasks at once.
    pub(crate) at_once: usize,
}

/// The pool of runs that no worker may take yet.
const LATER: &str = "later";
/// The time for what a worker must report.
const PATIENCE: Duration = Duration::from_secs(120);

const CONFIG: &str = r#"
entry = "a"
[models.default]
kind = "native"
[plugins.a]
source = "native:asks"
grants.model = ["default"]
[tasks.a]
agent = "a"
"#;

/// A host whose agent asks its model once.
async fn load(store: &Store, model_ms: u64) -> Result<(Arc<Host>, Arc<Prepared>), BenchError> {
    let asks = Plugin::agent("asks", |step: Step| async move {
        Ok(native::finish(step.complete().await?.content.unwrap_or_default()))
    });
    let model = native::model(move |_| {
        report("asked");
        async move {
            tokio::time::sleep(Duration::from_millis(model_ms)).await;
            Ok(native::answer("Aye."))
        }
    });
    let options = HostOptions {
        native: vec![asks.may_use(Capability::Model, "Thinks.")],
        models: [("default".to_owned(), model)].into(),
        blobs: store.blobs(),
        ..HostOptions::default()
    };
    let host = Arc::new(Host::new(options).map_err(failed)?);
    let config = Config::parse("workers.toml", "", CONFIG).map_err(failed)?;
    let prepared = host.load(&config).await.map_err(failed)?;
    Ok((host, Arc::new(prepared)))
}

fn options(store: &Store, pool: String) -> RunOptions {
    let origin = RunOrigin { pool: Some(pool), ..RunOrigin::default() };
    RunOptions { journals: store.journals(Durability::Group, origin), ..RunOptions::default() }
}

/// Prints a line for the process that measures.
fn report(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
}

/// Works on the store at an address until the input ends.
pub(crate) async fn work(url: &str, kind: WorkerKind) -> Result<(), BenchError> {
    let store = open_at(url)?;
    let (host, prepared) = load(&store, kind.model_ms).await?;
    let pool = WorkerPool { name: prepared.pool(), host, prepared };
    let options = options(&store, pool.name.clone());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(stop);
    });
    let worker = Worker::new(&store, vec![pool], kind.at_once);
    report("ready");
    let stopped = async { drop(stopped.await) };
    let notify = |event: WorkerEvent<'_>| {
        if let WorkerEvent::Ended(..) = event {
            report("ended");
        }
    };
    worker.work(|_, _| options.clone(), stopped, notify).await;
    Ok(())
}

/// A store, and the workers that this process starts for it.
pub(super) struct Workers {
    url: String,
    client: Client,
    store: Store,
    prepared: Arc<Prepared>,
}

impl Workers {
    pub(super) async fn prepare(database: &TestDatabase) -> Result<Self, BenchError> {
        let store = super::open(database)?;
        let (_host, prepared) = load(&store, 0).await?;
        let client = super::connect(database).await?;
        Ok(Self { url: database.url(), client, store, prepared })
    }

    /// Enqueues runs that no worker takes yet.
    pub(super) async fn enqueue(&self, tasks: usize) -> Result<(), BenchError> {
        for _ in 0..tasks {
            let options = options(&self.store, LATER.to_owned());
            self.prepared.enqueue("go", options).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Gives all enqueued runs to the workers at once.
    pub(super) async fn give_out(&self) -> Result<(), BenchError> {
        let give = "UPDATE conclave.rooms SET pool = $1 WHERE pool = $2";
        self.client.execute(give, &[&self.prepared.pool(), &LATER]).await?;
        Ok(())
    }

    /// Starts a worker, and waits until it works.
    pub(super) fn start(&self, kind: WorkerKind) -> Result<WorkerProcess, BenchError> {
        WorkerProcess::start(&self.url, kind)
    }

    /// The time in which so many workers of a kind end so many tasks.
    pub(super) async fn end_tasks(
        &self,
        (workers, kind): (usize, WorkerKind),
        tasks: usize,
    ) -> Result<Duration, BenchError> {
        self.enqueue(tasks).await?;
        let workers: Result<Vec<_>, _> = (0..workers).map(|_| self.start(kind)).collect();
        let workers = workers?;
        let began = Instant::now();
        self.give_out().await?;
        let mut ended = 0;
        while ended < tasks {
            if began.elapsed() > PATIENCE {
                return Err(BenchError::Answer(format!("{ended} of {tasks} tasks ended")));
            }
            let lines = workers.iter().flat_map(WorkerProcess::lines_so_far);
            ended += lines.filter(|line| line == "ended").count();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(began.elapsed())
    }
}

/// A worker in a process of its own. It is killed when this is dropped.
pub(super) struct WorkerProcess {
    process: Child,
    lines: Receiver<String>,
}

impl WorkerProcess {
    fn start(url: &str, kind: WorkerKind) -> Result<Self, BenchError> {
        let program = env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        let (model_ms, at_once) = (kind.model_ms.to_string(), kind.at_once.to_string());
        command.args(["--work-on", url, "--model-ms", &model_ms, "--at-once", &at_once]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(failed)?;
        let (sender, lines) = mpsc::channel();
        if let Some(out) = process.stdout.take() {
            std::thread::spawn(move || pass_on(BufReader::new(out), &sender));
        }
        let worker = Self { process, lines };
        worker.wait_for("ready", 1)?;
        Ok(worker)
    }

    /// Waits until the worker has reported a line so many times.
    pub(super) fn wait_for(&self, expected: &str, times: usize) -> Result<(), BenchError> {
        let mut reported = 0;
        while reported < times {
            let line = self.lines.recv_timeout(PATIENCE).map_err(|_| {
                BenchError::Answer(format!("a worker reported {reported} of {times} {expected}"))
            })?;
            reported += usize::from(line == expected);
        }
        Ok(())
    }

    fn lines_so_far(&self) -> impl Iterator<Item = String> {
        self.lines.try_iter()
    }

    /// Kills the process, as a lack of memory does.
    pub(super) fn kill(mut self) {
        let _ = self.process.kill();
    }
}

fn pass_on(lines: impl BufRead, sender: &Sender<String>) {
    for line in lines.lines().map_while(Result::ok) {
        if sender.send(line).is_err() {
            return;
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! The runs that people start by the API. Each works in the server's process, leaves its approvals
//! and questions to whoever decides them later, and is resumed when the server starts again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conclave_core::protocol::event::{Event, Record};
use conclave_core::types::ids::{ChannelId, Principal, RoomId, TaskName};
use conclave_core::types::limits::RunLimits;
use conclave_core::types::outcome::Outcome;
use conclave_runtime::approval::{ApprovalAnswer, ApprovalRequest};
use conclave_runtime::approve::Approver;
use conclave_runtime::budget::LimitIncrease;
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::journal::Journals;
use conclave_runtime::store::{RunFilter, RunRow, RunState, StoreAddress, StoreReader};
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{Run, RunInput, RunOptions, SessionError};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::current_config::CurrentConfig;
use crate::error::ServerError;
use crate::operator::Operator;

/// The command under which the store has these runs.
pub const API_RUN: &str = "api";
/// Runs at once. Each holds its histories in memory, also while it waits.
const AT_ONCE: usize = 256;
/// The interval between two looks whether the host that had a run is lost.
const LOOK: Duration = Duration::from_secs(2);

/// The runs of a server that people started by the API.
pub(crate) struct Runs {
    current: Arc<CurrentConfig>,
    journals: Arc<dyn Journals>,
    subscribers: Vec<Arc<dyn Subscriber>>,
    operator: Arc<dyn Operator>,
    store: StoreAddress,
    active: Arc<Mutex<BTreeMap<RoomId, Arc<ActiveRun>>>>,
    /// The loops of the runs; `None` once they were stopped.
    loops: Mutex<Option<JoinSet<()>>>,
}

/// A run whose loop works in this process.
struct ActiveRun {
    run: RoomId,
    changed: watch::Sender<()>,
    stage: watch::Sender<RunStage>,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunStage {
    /// Nothing of it is durable yet.
    Opening,
    /// Its first record is durable.
    Stored,
    /// Its loop ended before its first record was durable.
    Failed,
}

/// Why a run was not started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StartRefusal {
    /// Too many runs are active.
    LimitReached,
    /// The config has no such task.
    UnknownTask(Vec<String>),
    /// The journal cannot be used; the operator knows why.
    Failed,
}

impl Runs {
    pub(crate) fn new(
        current: Arc<CurrentConfig>,
        journals: Arc<dyn Journals>,
        subscribers: Vec<Arc<dyn Subscriber>>,
        operator: Arc<dyn Operator>,
        store: StoreAddress,
    ) -> Self {
        let loops = Mutex::new(Some(JoinSet::new()));
        Self { current, journals, subscribers, operator, store, active: Arc::default(), loops }
    }

    /// Stops the loops of all runs without an end, and returns when none of them writes any more.
    pub(crate) async fn stop_loops(&self) {
        let loops = lock(&self.loops).take();
        if let Some(mut loops) = loops {
            loops.shutdown().await;
        }
        self.active().clear();
    }

    /// Runs a loop beside the requests. Once all were stopped it is dropped.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(loops) = lock(&self.loops).as_mut() {
            while loops.try_join_next().is_some() {}
            loops.spawn(work);
        }
    }

    /// The task that a run begins with, unless its request names another.
    pub(crate) fn entry(&self) -> TaskName {
        self.current.prepared().setup().entry.clone()
    }

    /// A receiver that is notified of changes of this run; `None` for a run of another process.
    pub(crate) fn changes(&self, run: &RoomId) -> Option<watch::Receiver<()>> {
        self.active().get(run).map(|active| active.changed.subscribe())
    }

    /// Starts a run of this person, and returns when it is durable, with whether this call started it.
    /// A run of this id that starts already, for the same request sent twice, is waited for.
    pub(crate) async fn start(
        &self,
        id: &RoomId,
        owner: Principal,
        (task, text, limits): (Option<TaskName>, String, Option<RunLimits>),
    ) -> Result<bool, StartRefusal> {
        let (mut stage, is_new) = {
            let mut active = self.active();
            match active.get(id) {
                Some(run) => (run.stage.subscribe(), false),
                None if active.len() >= AT_ONCE => return Err(StartRefusal::LimitReached),
                None => {
                    let run = ActiveRun::new(id.clone());
                    let input = RunInput {
                        entry: task,
                        content: Some(text),
                        limits,
                        ..RunInput::default()
                    };
                    let prepared = self.current.prepared();
                    let started = prepared.start(input, self.options(&run, owner));
                    let work = started.map_err(|error| self.refusal(id, error))?;
                    let stage = run.stage.subscribe();
                    active.insert(id.clone(), Arc::clone(&run));
                    self.follow(run, work);
                    (stage, true)
                }
            }
        };
        let decided = stage.wait_for(|stage| *stage != RunStage::Opening).await;
        match decided.as_deref() {
            Ok(RunStage::Stored) => Ok(is_new),
            _ => Err(StartRefusal::Failed),
        }
    }

    fn refusal(&self, run: &RoomId, error: SessionError) -> StartRefusal {
        match error {
            SessionError::UnknownTask { known, .. } => StartRefusal::UnknownTask(known),
            error => {
                self.operator.room_failed(run, &error);
                StartRefusal::Failed
            }
        }
    }

    /// Resumes the stored runs that have not ended. Those that another host may still have are
    /// resumed when it is lost.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn resume(
        self: &Arc<Self>,
        reader: &StoreReader,
        is_own: impl Fn(&RunRow) -> bool,
    ) -> Result<(), ServerError> {
        let is_shared = reader.folder().is_none();
        for row in reader.runs(&RunFilter::default())? {
            if row.command != API_RUN || !is_own(&row) {
                continue;
            }
            match row.state {
                RunState::Ended(_) => {}
                // In a folder it is this process that has them.
                RunState::Running if is_shared => {
                    let runs = Arc::clone(self);
                    self.spawn(async move { runs.resume_when_free(row).await });
                }
                _ => self.resume_run(&row).await,
            }
        }
        Ok(())
    }

    /// Resumes a run once its host has given it up or is lost, unless it has ended by then.
    async fn resume_when_free(&self, row: RunRow) {
        loop {
            tokio::time::sleep(LOOK).await;
            let (store, run) = (self.store.clone(), row.run.clone());
            let look = move || StoreReader::open(&store)?.run(&run);
            match conclave_runtime::blocking::spawn(look).await {
                Ok(Ok(Some(row))) if row.state == RunState::Interrupted => {
                    return self.resume_run(&row).await;
                }
                Ok(Ok(Some(row))) if row.state.goes_on() => {}
                Ok(Err(_)) => {}
                _ => return,
            }
        }
    }

    /// Resumes a run. A failure is the operator's: the run stays as it is.
    async fn resume_run(&self, row: &RunRow) {
        let run = ActiveRun::new(row.run.clone());
        let owner = Principal(row.principal.as_str().into());
        let prepared = self.current.prepared();
        match prepared.reopen(&row.run, self.options(&run, owner)).await {
            Ok(session) if session.is_cut_off() => {
                self.operator.components_changed(&row.run, session.changed_components());
                run.stage.send_replace(RunStage::Stored);
                self.active().insert(row.run.clone(), Arc::clone(&run));
                self.follow(run, session.into_run());
            }
            Ok(_) => {}
            Err(error) => self.operator.room_failed(&row.run, &error),
        }
    }

    /// Brings a run to its end, beside the requests.
    fn follow(&self, run: Arc<ActiveRun>, work: Run) {
        let (active, operator) = (Arc::clone(&self.active), Arc::clone(&self.operator));
        let store = self.store.clone();
        self.spawn(async move {
            let ended: Result<Arc<Outcome>, SessionError> = work.outcome().await;
            if let Err(error) = ended {
                let is_opening = *run.stage.borrow() == RunStage::Opening;
                // A start that another server of the store was faster with is no failure.
                if !(is_opening && is_stored(store, run.run.clone()).await) {
                    operator.room_failed(&run.run, &error);
                }
            }
            run.stage.send_if_modified(|stage| {
                let is_lost = *stage == RunStage::Opening;
                if is_lost {
                    *stage = RunStage::Failed;
                }
                is_lost
            });
            lock(&active).remove(&run.run);
            run.changed.send_replace(());
        });
    }

    fn options(&self, run: &Arc<ActiveRun>, owner: Principal) -> RunOptions {
        let own = std::iter::once(Arc::clone(run) as Arc<dyn Subscriber>);
        RunOptions {
            ids: Arc::new(run.run.clone()),
            principal: owner,
            channels: Arc::new(LaterAnswers),
            approver: Arc::new(Later),
            journals: Arc::clone(&self.journals),
            subscribers: Subscribers::new(own.chain(self.subscribers.iter().cloned())),
            // It is resumed when the server starts again.
            leaves_without_model: true,
            ..RunOptions::default()
        }
    }

    fn active(&self) -> MutexGuard<'_, BTreeMap<RoomId, Arc<ActiveRun>>> {
        lock(&self.active)
    }
}

async fn is_stored(store: StoreAddress, run: RoomId) -> bool {
    let look = move || StoreReader::open(&store)?.run(&run);
    matches!(conclave_runtime::blocking::spawn(look).await, Ok(Ok(Some(_))))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ActiveRun {
    fn new(run: RoomId) -> Arc<Self> {
        let (changed, stage) = (watch::Sender::new(()), watch::Sender::new(RunStage::Opening));
        Arc::new(Self { run, changed, stage })
    }
}

impl Subscriber for ActiveRun {
    fn on(&self, published: &Published) {
        if let RunEvent::Recorded { .. } = published.what {
            // A record is published after it is durable, and the first is that of the root room.
            self.stage.send_if_modified(|stage| {
                let is_first = *stage == RunStage::Opening;
                *stage = RunStage::Stored;
                is_first
            });
            self.changed.send_replace(());
        }
    }
}

/// Whether a stored run was started by this request.
pub(crate) fn is_started_by(records: &[Record], task: &TaskName, text: &str) -> bool {
    records.first().is_some_and(|record| match &record.event {
        Event::RoomOpened { opening, .. } => {
            opening.content.as_deref() == Some(text) && opening.entry == *task
        }
        _ => false,
    })
}

/// Leaves each call to a later decision: the person who starts a run may have no right to decide.
pub(crate) struct Later;

impl Approver for Later {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        Box::pin(std::future::pending())
    }

    fn top_up(&self, _: LimitIncrease) -> BoxFuture<'static, ApprovalAnswer> {
        Box::pin(std::future::pending())
    }
}

/// Leaves each question to those who answer it later.
struct LaterAnswers;

impl Channels for LaterAnswers {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        Box::pin(std::future::pending())
    }

    fn send(&self, _: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

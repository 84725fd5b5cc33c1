//! A worker: takes due runs of its pools from a shared store, brings them forward, and gives back
//! those that sleep. It depends on the store alone, and does not know other workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use conclave_core::types::ids::{Millis, RoomId};
use conclave_core::types::outcome::Outcome;
use tokio::task::JoinHandle;

use crate::driver::room_handle::RoomHandle;
use crate::host::Host;
use crate::host::control_inbox::ControlInbox;
use crate::host::prepared::{Prepared, RunOptions};
use crate::host::session::{ResumeError, SessionError};
use crate::storage::journal::AppendFailure;
use crate::storage::store::{ControlMessage, Store, StoreError};
use crate::support::clock::{Clock, SystemClock};

/// The interval between two looks into the store.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The time for which a run rests that could not be resumed, in milliseconds.
const REST_MS: u64 = 30_000;
/// The time in milliseconds within which a loop has fired a timer that is due.
const FIRED_WITHIN_MS: u64 = 10_000;
/// The time that calls in progress get to end when the worker stops.
const DRAIN: Duration = Duration::from_secs(30);
/// The interval between two looks at the calls in progress meanwhile.
const DRAIN_LOOK: Duration = Duration::from_millis(100);
/// The reason of a pause by which a worker stops; the next worker lifts it.
const STOPPING: &str = "its worker stops; the next one goes on";

/// The runs that a worker takes: those begun with this config.
#[derive(Clone)]
pub struct WorkerPool {
    /// The name of the pool, as the runs have it.
    pub name: String,
    /// The host of the config.
    pub host: Arc<Host>,
    /// The config's plugins.
    pub prepared: Arc<Prepared>,
}

/// An event of a worker.
#[derive(Debug)]
pub enum WorkerEvent<'a> {
    /// The worker has taken a run.
    Taken(&'a RoomId),
    /// The run has ended.
    Ended(&'a RoomId, &'a Outcome),
    /// The run waits for a time or a person, and was given back.
    Asleep(&'a RoomId),
    /// The run goes on at another host.
    Lost(&'a RoomId),
    /// The run could not go on here, and was given back; it is tried again later.
    Failed(&'a RoomId, String),
    /// The worker stops, and has given the run back.
    GivenBack(&'a RoomId),
    /// A control message reached one of the runs.
    Received(&'a ControlMessage),
    /// The store could not be asked; the worker tries again.
    Store(&'a StoreError),
}

/// A worker of a shared store.
pub struct Worker {
    store: Store,
    pools: Vec<WorkerPool>,
    inboxes: Vec<ControlInbox>,
    capacity: usize,
    active: BTreeMap<RoomId, ActiveRun>,
}

/// A run that this worker brings forward. Dropping it stops the run without an end.
struct ActiveRun {
    epoch: u64,
    began: Millis,
    handle: RoomHandle,
    work: JoinHandle<Result<Arc<Outcome>, SessionError>>,
}

impl ActiveRun {
    /// The time before which a timer of the run that was due is dropped: its loop would have fired
    /// it. A run that was just taken may not have looked at its timers yet.
    fn dropped_before(&self, now: Millis) -> Millis {
        let settled = Millis(now.0.saturating_sub(FIRED_WITHIN_MS));
        if settled > self.began { settled } else { Millis(0) }
    }

    /// Stops the run without an end. Until its journal is closed, nothing of it may be taken for
    /// its last state.
    async fn end(&mut self) {
        self.work.abort();
        let _ = (&mut self.work).await;
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        self.work.abort();
    }
}

impl Worker {
    /// A worker that takes up to `capacity` runs of these pools at once.
    #[must_use]
    pub fn new(store: &Store, pools: Vec<WorkerPool>, capacity: usize) -> Self {
        let inboxes = pools.iter().map(|pool| ControlInbox::new(store, &pool.host)).collect();
        Self { store: store.clone(), pools, inboxes, capacity, active: BTreeMap::new() }
    }

    /// Works until `stop` is over, then gives all runs back. `options` gives the options of a run.
    pub async fn work(
        mut self,
        options: impl Fn(&WorkerPool, &RoomId) -> RunOptions,
        stop: impl Future<Output = ()>,
        notify: impl Fn(WorkerEvent<'_>),
    ) {
        let mut stop = std::pin::pin!(stop);
        self.announce(&notify).await;
        loop {
            self.end_finished(&notify).await;
            self.put_to_sleep(&notify).await;
            self.fill(&options, &notify).await;
            for inbox in &self.inboxes {
                inbox.receive(|message| notify(WorkerEvent::Received(message))).await;
            }
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
        self.drain(&notify).await;
        while let Some((run, active)) = self.active.pop_first() {
            self.give_back(&run, active, &notify).await;
            notify(WorkerEvent::GivenBack(&run));
        }
    }

    /// Lets the calls in progress end, so that the next host repeats none of them and finds no side
    /// effect interrupted. No new ones begin meanwhile.
    async fn drain(&mut self, notify: &impl Fn(WorkerEvent<'_>)) {
        self.active.values().for_each(|active| active.handle.pause(STOPPING));
        let until = tokio::time::Instant::now() + DRAIN;
        loop {
            self.end_finished(notify).await;
            let (store, runs) = (self.store.clone(), self.active.keys().cloned().collect());
            let busy = off_the_loop(move || store.have_calls(runs)).await;
            let is_idle = matches!(&busy, Ok(busy) if !busy);
            if is_idle || tokio::time::Instant::now() >= until {
                return;
            }
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }

    async fn announce(&self, notify: &impl Fn(WorkerEvent<'_>)) {
        let (store, capacity) = (self.store.clone(), self.capacity);
        let pools: Vec<String> = self.pools.iter().map(|pool| pool.name.clone()).collect();
        let announced = off_the_loop(move || {
            let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
            store.announce_worker(&pools, capacity)
        });
        // Only the list of workers lacks it.
        if let Err(error) = announced.await {
            notify(WorkerEvent::Store(&error));
        }
    }

    /// Takes due runs while there is space.
    async fn fill(
        &mut self,
        options: &impl Fn(&WorkerPool, &RoomId) -> RunOptions,
        notify: &impl Fn(WorkerEvent<'_>),
    ) {
        let store = self.store.clone();
        if let Err(error) = off_the_loop(move || store.give_back_unopened()).await {
            return notify(WorkerEvent::Store(&error));
        }
        // A bound for each look, because each of many runs that cannot be resumed leaves its place.
        let mut attempts = self.capacity;
        for pool in self.pools.clone() {
            while self.active.len() < self.capacity && attempts > 0 {
                attempts -= 1;
                let (store, name) = (self.store.clone(), pool.name.clone());
                let run = match off_the_loop(move || store.claim(&name)).await {
                    Ok(Some(run)) => run,
                    Ok(None) => break,
                    Err(error) => return notify(WorkerEvent::Store(&error)),
                };
                self.begin(&pool, run, options, notify).await;
            }
        }
    }

    /// Brings a taken run forward.
    async fn begin(
        &mut self,
        pool: &WorkerPool,
        run: RoomId,
        options: &impl Fn(&WorkerPool, &RoomId) -> RunOptions,
        notify: &impl Fn(WorkerEvent<'_>),
    ) {
        notify(WorkerEvent::Taken(&run));
        let reopened = pool.prepared.reopen(&run, options(pool, &run)).await;
        let epoch = self.store.epoch(&run);
        match (reopened, epoch) {
            (Ok(session), Some(epoch)) => {
                let handle = session.handle();
                if session.paused() == Some(STOPPING) {
                    handle.unpause();
                }
                let work = tokio::spawn(async move { session.into_run().outcome().await });
                let began = SystemClock.now();
                self.active.insert(run, ActiveRun { epoch, began, handle, work });
            }
            (Err(ResumeError::Journal(failure)), _) if failure.answer == AppendFailure::Fenced => {
                notify(WorkerEvent::Lost(&run));
            }
            (reopened, epoch) => {
                let reason = reopened.err().map_or_else(String::new, |error| error.to_string());
                notify(WorkerEvent::Failed(&run, reason));
                self.rest(&run, epoch, notify).await;
            }
        }
    }

    /// Lets a run rest that could not go on.
    async fn rest(&self, run: &RoomId, epoch: Option<u64>, notify: &impl Fn(WorkerEvent<'_>)) {
        let (store, run, until) =
            (self.store.clone(), run.clone(), SystemClock.now().plus(REST_MS));
        // A run that was claimed and not taken has the epoch of before; it is found by its host.
        let rested = off_the_loop(move || store.give_back_due(&run, epoch, until)).await;
        if let Err(error) = rested {
            notify(WorkerEvent::Store(&error));
        }
    }

    async fn end_finished(&mut self, notify: &impl Fn(WorkerEvent<'_>)) {
        let finished = self.active.iter().filter(|(_, active)| active.work.is_finished());
        let finished: Vec<RoomId> = finished.map(|(run, _)| run.clone()).collect();
        for run in finished {
            let Some(mut active) = self.active.remove(&run) else { continue };
            match (&mut active.work).await {
                Ok(Ok(outcome)) => notify(WorkerEvent::Ended(&run, &outcome)),
                Ok(Err(SessionError::Journal(failure)))
                    if failure.answer == AppendFailure::Fenced =>
                {
                    notify(WorkerEvent::Lost(&run));
                }
                ended => {
                    let reason = match ended {
                        Ok(Err(error)) => error.to_string(),
                        _ => "its loop has failed".to_owned(),
                    };
                    notify(WorkerEvent::Failed(&run, reason));
                    self.rest(&run, Some(active.epoch), notify).await;
                }
            }
        }
    }

    async fn put_to_sleep(&mut self, notify: &impl Fn(WorkerEvent<'_>)) {
        if self.active.is_empty() {
            return;
        }
        let (store, now) = (self.store.clone(), SystemClock.now());
        let runs =
            self.active.iter().map(|(run, active)| (run.clone(), active.dropped_before(now)));
        let runs = runs.collect();
        let sleepers = match off_the_loop(move || store.sleepers(runs, now)).await {
            Ok(sleepers) => sleepers,
            Err(error) => return notify(WorkerEvent::Store(&error)),
        };
        for run in sleepers {
            let Some(mut active) = self.active.remove(&run) else { continue };
            active.end().await;
            let (store, asleep, epoch) = (self.store.clone(), run.clone(), active.epoch);
            let now = SystemClock.now();
            let times = (now, active.dropped_before(now));
            let slept =
                off_the_loop(move || store.give_back_without(&asleep, Some(epoch), times)).await;
            if let Err(error) = slept {
                notify(WorkerEvent::Store(&error));
            }
            notify(WorkerEvent::Asleep(&run));
        }
    }

    /// Stops a run without an end, and gives it back for the next worker.
    async fn give_back(
        &self,
        run: &RoomId,
        mut active: ActiveRun,
        notify: &impl Fn(WorkerEvent<'_>),
    ) {
        active.end().await;
        let (store, run, epoch) = (self.store.clone(), run.clone(), active.epoch);
        // What it waits for does not count: its pause keeps the next step from beginning.
        let given_back = move || store.give_back_due(&run, Some(epoch), SystemClock.now());
        if let Err(error) = off_the_loop(given_back).await {
            notify(WorkerEvent::Store(&error));
        }
    }
}

async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(broken) => std::panic::resume_unwind(broken.into_panic()),
    }
}

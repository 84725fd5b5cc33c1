//! A worker: takes due runs of its pools from a shared store, brings them forward, and gives back
//! those that sleep. It depends on the store alone, and does not know other workers.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use conclave_core::protocol::control::HANDOVER;
use conclave_core::types::ids::{Millis, RoomId};
use conclave_core::types::outcome::Outcome;
use tokio::task::{JoinError, JoinHandle};

use crate::driver::room_handle::RoomHandle;
use crate::host::Host;
use crate::host::control_inbox::ControlInbox;
use crate::host::prepared::{Prepared, RunOptions};
use crate::host::session::{ResumeError, SessionError};
use crate::storage::journal::AppendFailure;
use crate::storage::store::{ControlMessage, RunOutlook, Store, StoreError};
use crate::support::clock::{Clock, SystemClock};

/// The interval between two looks into the store.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The time for which a run rests that could not be resumed.
const REST: Duration = Duration::from_secs(30);
/// The time in milliseconds within which a loop has fired a timer that is due.
const FIRED_WITHIN_MS: u64 = 10_000;
/// The time that calls in progress get to end when the worker stops.
const DRAIN: Duration = Duration::from_secs(30);
/// The interval between two looks at the calls in progress meanwhile.
const DRAIN_LOOK: Duration = Duration::from_millis(100);

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
    /// The worker stops, and lets the calls in progress end. It takes no more runs.
    Stopping,
    /// The worker stops, and has given the run back.
    GivenBack(&'a RoomId),
    /// The worker stops, and could not give the run back in time, because its store cannot be
    /// reached. Others take it when the lease of this host is over.
    LeftToLease(&'a RoomId),
    /// A control message reached one of the runs.
    Received(&'a ControlMessage),
    /// The store could not be asked, or does not take attachments; the worker tries again.
    Store(&'a StoreError),
}

/// A worker of a shared store.
pub struct Worker {
    store: Store,
    pools: Vec<WorkerPool>,
    inboxes: Vec<ControlInbox>,
    capacity: usize,
    look_every: Duration,
    drain: Duration,
    closes_store: bool,
    active: BTreeMap<RoomId, ActiveRun>,
}

/// The end of a run's loop.
type LoopEnd = Result<Result<Arc<Outcome>, SessionError>, JoinError>;

/// A run that this worker brings forward. Dropping it stops the run without an end.
struct ActiveRun {
    epoch: u64,
    began: Millis,
    handle: RoomHandle,
    work: JoinHandle<Result<Arc<Outcome>, SessionError>>,
    /// The end of the work, once it was polled.
    ended: Option<LoopEnd>,
}

impl ActiveRun {
    /// What is known of the run beside its pending work. A timer that was due for a while is one
    /// that the room has dropped: the loop would have fired it, by this clock. A run that was just
    /// taken may not have looked at its timers yet.
    fn outlook(&self) -> RunOutlook {
        let settled = Millis(SystemClock.now().0.saturating_sub(FIRED_WITHIN_MS));
        let dropped_before = if settled > self.began { settled } else { Millis(0) };
        let pause = self.handle.pause_reason();
        RunOutlook { dropped_before, is_paused: pause.is_some_and(|reason| reason != HANDOVER) }
    }

    /// Whether the loop has ended; otherwise the task is woken when it does.
    fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.ended.is_none() {
            self.ended = Some(ready!(Pin::new(&mut self.work).poll(context)));
        }
        Poll::Ready(())
    }

    /// Stops the run without an end. Until its journal is closed, nothing of it may be taken for
    /// its last state.
    async fn end(&mut self) {
        self.work.abort();
        poll_fn(|context| self.poll_ended(context)).await;
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
        Self {
            store: store.clone(),
            pools,
            inboxes,
            capacity,
            look_every: LOOK_EVERY,
            drain: DRAIN,
            closes_store: false,
            active: BTreeMap::new(),
        }
    }

    /// The same worker, which looks into the store at this interval, instead of each 500 ms. It also
    /// looks when one of its runs has ended.
    #[must_use]
    pub fn looks_every(self, interval: Duration) -> Self {
        Self { look_every: interval, ..self }
    }

    /// The same worker, whose calls in progress get this time to end when it stops, instead of 30 s.
    #[must_use]
    pub fn drains_for(self, drain: Duration) -> Self {
        Self { drain, ..self }
    }

    /// The same worker, whose caller drops the store when the worker has stopped. Both end within
    /// one time if the database cannot be reached then.
    #[must_use]
    pub fn closes_store(self) -> Self {
        Self { closes_store: true, ..self }
    }

    /// Works until `stop` is over, then gives all runs back. `options` gives the options of a run.
    pub async fn work(
        mut self,
        options: impl Fn(&WorkerPool, &RoomId) -> RunOptions,
        stop: impl Future<Output = ()>,
        notify: impl Fn(WorkerEvent<'_>),
    ) {
        let mut stop = std::pin::pin!(stop);
        let works = async {
            self.announce(&notify).await;
            loop {
                self.look(&options, &notify).await;
                tokio::select! {
                    () = any_ended(&mut self.active) => {}
                    () = tokio::time::sleep(self.look_every) => {}
                }
            }
        };
        // Wherever the work is: in an outage a look takes long. A run between two states is claimed
        // and not open, or open and not active; closing the store releases it.
        tokio::select! {
            biased;
            () = &mut stop => {}
            () = works => {}
        }
        notify(WorkerEvent::Stopping);
        self.drain(&notify).await;
        self.give_all_back(&notify).await;
    }

    /// Looks once after the runs here and in the store.
    async fn look(
        &mut self,
        options: &impl Fn(&WorkerPool, &RoomId) -> RunOptions,
        notify: &impl Fn(WorkerEvent<'_>),
    ) {
        self.end_finished(notify).await;
        self.put_to_sleep(notify).await;
        self.fill(options, notify).await;
        self.receive(notify).await;
        if let Some(error) = self.store.report_rejection() {
            notify(WorkerEvent::Store(&error));
        }
    }

    async fn receive(&self, notify: &impl Fn(WorkerEvent<'_>)) {
        for inbox in &self.inboxes {
            inbox.receive(|message| notify(WorkerEvent::Received(message))).await;
        }
    }

    /// Lets the calls in progress end, so that the next host repeats none of them and finds no side
    /// effect interrupted. No new ones begin meanwhile. Messages are still received: a stop ends
    /// its run, and a person's pause takes the place of this one.
    async fn drain(&mut self, notify: &impl Fn(WorkerEvent<'_>)) {
        let until = tokio::time::Instant::now() + self.drain;
        let idle = async {
            let mut was_idle = false;
            loop {
                // Again for a run whose person's pause was lifted meanwhile.
                let goes_on = |active: &&ActiveRun| active.handle.pause_reason().is_none();
                let runs = self.active.values().filter(goes_on);
                runs.for_each(|active| active.handle.pause(HANDOVER));
                self.receive(notify).await;
                self.end_finished(notify).await;
                let (store, runs) = (self.store.clone(), self.active.keys().cloned().collect());
                let busy = off_the_loop(move || store.have_calls(runs)).await;
                let is_idle = matches!(&busy, Ok(busy) if !busy);
                // Twice, because a run whose call was stopped by a message is about to end.
                if is_idle && was_idle {
                    return;
                }
                was_idle = is_idle;
                tokio::time::sleep(DRAIN_LOOK).await;
            }
        };
        // In an outage nobody can say whether calls are in progress.
        let _ = tokio::time::timeout_at(until, idle).await;
    }

    /// Stops all runs without an end, and gives them back, within the time that closing the store
    /// may take.
    async fn give_all_back(&mut self, notify: &impl Fn(WorkerEvent<'_>)) {
        let closing = self.store.begin_close();
        let until = tokio::time::Instant::from_std(closing.until());
        let mut runs = std::mem::take(&mut self.active);
        // All at once, before any of them is waited for.
        runs.values().for_each(|active| active.work.abort());
        for (run, active) in &mut runs {
            let given_back = async {
                active.end().await;
                self.give_back(run, active).await
            };
            match tokio::time::timeout_at(until, given_back).await {
                Ok(Ok(())) => notify(WorkerEvent::GivenBack(run)),
                Ok(Err(error)) => {
                    notify(WorkerEvent::Store(&error));
                    notify(WorkerEvent::LeftToLease(run));
                }
                Err(_) => notify(WorkerEvent::LeftToLease(run)),
            }
        }
        if self.closes_store {
            closing.make_last();
        }
    }

    /// Gives a run back that has stopped without an end.
    async fn give_back(&self, run: &RoomId, active: &ActiveRun) -> Result<(), StoreError> {
        let (store, run, epoch) = (self.store.clone(), run.clone(), active.epoch);
        let outlook = active.outlook();
        off_the_loop(move || match outlook.is_paused {
            // It is due when a person lifts the pause.
            true => store.give_back_asleep(&run, Some(epoch), outlook),
            // What it waits for does not count: the pause of this worker keeps the next step from
            // beginning, and the next worker lifts it.
            false => store.give_back_due(&run, Some(epoch), Duration::ZERO),
        })
        .await
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
                let work = tokio::spawn(async move { session.into_run().outcome().await });
                let began = SystemClock.now();
                self.active.insert(run, ActiveRun { epoch, began, handle, work, ended: None });
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
        let (store, run) = (self.store.clone(), run.clone());
        // A run that was claimed and not taken has the epoch of before; it is found by its host.
        let rested = off_the_loop(move || store.give_back_due(&run, epoch, REST)).await;
        if let Err(error) = rested {
            notify(WorkerEvent::Store(&error));
        }
    }

    async fn end_finished(&mut self, notify: &impl Fn(WorkerEvent<'_>)) {
        let is_over = |active: &ActiveRun| active.ended.is_some() || active.work.is_finished();
        let finished = self.active.iter().filter(|(_, active)| is_over(active));
        let finished: Vec<RoomId> = finished.map(|(run, _)| run.clone()).collect();
        for run in finished {
            let Some(mut active) = self.active.remove(&run) else { continue };
            active.end().await;
            match active.ended.take() {
                Some(Ok(Ok(outcome))) => notify(WorkerEvent::Ended(&run, &outcome)),
                Some(Ok(Err(SessionError::Journal(failure))))
                    if failure.answer == AppendFailure::Fenced =>
                {
                    notify(WorkerEvent::Lost(&run));
                }
                ended => {
                    let reason = match ended {
                        Some(Ok(Err(error))) => error.to_string(),
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
        let store = self.store.clone();
        let runs = self.active.iter().map(|(run, active)| (run.clone(), active.outlook()));
        let runs = runs.collect();
        let sleepers = match off_the_loop(move || store.sleepers(runs)).await {
            Ok(sleepers) => sleepers,
            Err(error) => return notify(WorkerEvent::Store(&error)),
        };
        for run in sleepers {
            let Some(mut active) = self.active.remove(&run) else { continue };
            active.end().await;
            let (store, asleep, epoch) = (self.store.clone(), run.clone(), active.epoch);
            let outlook = active.outlook();
            let slept =
                off_the_loop(move || store.give_back_asleep(&asleep, Some(epoch), outlook)).await;
            if let Err(error) = slept {
                notify(WorkerEvent::Store(&error));
            }
            notify(WorkerEvent::Asleep(&run));
        }
    }
}

/// Waits until the loop of one of these runs has ended.
async fn any_ended(active: &mut BTreeMap<RoomId, ActiveRun>) {
    poll_fn(|context| {
        let mut runs = active.values_mut();
        match runs.any(|active| active.poll_ended(context).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(broken) => std::panic::resume_unwind(broken.into_panic()),
    }
}

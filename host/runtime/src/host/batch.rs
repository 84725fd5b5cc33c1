//! Batches: many runs of one config, a limited number at a time, with results in the order of the
//! inputs. Each run has its own room and budget (L-190…L-194). The source of the inputs and the
//! meaning of the answers belong to the caller.

use std::future::Future;
use std::sync::Arc;

use conclave_core::types::ids::RoomId;
use conclave_core::types::limits::RunLimits;
use conclave_core::types::outcome::{Outcome, Status};
use tokio::task::JoinSet;

use crate::host::prepared::{Prepared, RunOptions};
use crate::host::session::{RunInput, Session, SessionError};

/// The effect of one job's error on the others (L-191).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The first error ends the batch and cancels the other jobs.
    #[default]
    Stop,
    /// The job counts as one without a result.
    Null,
    /// The error takes the job's place among the results.
    Report,
}

/// The concurrency of a batch and its conditions for an early end. The default runs one job after
/// the other, until the first error.
///
/// ```
/// use conclave_runtime::batch::{Batch, OnError};
///
/// let batch = Batch { concurrency: 8, on_error: OnError::Report, ..Batch::default() };
/// assert!(!batch.stop_on_first);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The maximum number of concurrent jobs; the next begins when one ends (L-193). 0 counts as 1.
    pub concurrency: usize,
    /// The effect of one job's error on the other jobs.
    pub on_error: OnError,
    /// Whether the first result ends the batch and cancels the other jobs (L-192). With `Report` an
    /// error is a result.
    pub stop_on_first: bool,
    /// The number of steps of the entry task, for inputs that set none.
    pub turns: Option<u32>,
    /// The limits of each run, for inputs that set none.
    pub limits: Option<RunLimits>,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            concurrency: 1,
            on_error: OnError::default(),
            stop_on_first: false,
            turns: None,
            limits: None,
        }
    }
}

/// The end of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemEnd<T, E> {
    /// The job has a result.
    Value(T),
    /// The job ended without a result.
    Null,
    /// The job ended with this error, and `on_error` is not `Null`.
    Failed(E),
    /// The batch ended before this job ended or began.
    Cancelled,
}

impl<T, E> ItemEnd<T, E> {
    /// The result; `None` for every other end.
    #[must_use]
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Null | Self::Failed(_) | Self::Cancelled => None,
        }
    }
}

/// The ends of all jobs of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOutcome<T, E> {
    /// The ends in the order of the jobs.
    pub items: Vec<ItemEnd<T, E>>,
    /// The index of the job whose result or error ended the batch early.
    pub ended_by: Option<usize>,
}

/// The progress of a batch, reported each time a job has ended.
#[derive(Debug)]
pub struct BatchProgress<'a, T, E> {
    /// The index of the job that has ended, from 0.
    pub index: usize,
    /// The end of that job.
    pub end: &'a ItemEnd<T, E>,
    /// The number of jobs that have ended, this one included.
    pub completed: usize,
    /// The number of ended jobs that failed, however `on_error` counts them.
    pub failed: usize,
    /// The number of jobs in the batch.
    pub total: usize,
}

/// Runs jobs on the executor, at most `batch.concurrency` at a time. `on_progress` is called for
/// each job in the order in which they end. Dropping the future cancels all jobs. When the future
/// completes, no cancelled job is still running.
///
/// # Panics
/// Panics when a job panics; the others are cancelled.
///
/// ```
/// use conclave_runtime::batch::{Batch, ItemEnd, OnError, run_all};
///
/// # #[tokio::main]
/// # async fn main() {
/// let half = |number: u32| move || async move { if number % 2 == 0 { Ok(Some(number / 2)) } else { Err("it is odd") } };
/// let batch = Batch { concurrency: 2, on_error: OnError::Report, ..Batch::default() };
/// let halves = run_all(vec![half(4), half(5)], &batch, |_| ()).await;
/// assert_eq!(halves.items, [ItemEnd::Value(2), ItemEnd::Failed("it is odd")]);
/// # }
/// ```
pub async fn run_all<T, E, J, F>(
    jobs: Vec<J>,
    batch: &Batch,
    mut on_progress: impl FnMut(&BatchProgress<'_, T, E>),
) -> BatchOutcome<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
    J: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<Option<T>, E>> + Send,
{
    let total = jobs.len();
    // Jobs that never begin, or are aborted below, keep this end.
    let mut items: Vec<ItemEnd<T, E>> =
        std::iter::repeat_with(|| ItemEnd::Cancelled).take(total).collect();
    let (mut waiting, mut going) = (jobs.into_iter().enumerate(), JoinSet::new());
    let (mut completed, mut failed, mut ended_by) = (0, 0, None);
    loop {
        while going.len() < batch.concurrency.max(1)
            && let Some((index, job)) = waiting.next()
        {
            going.spawn(async move { (index, job().await) });
        }
        let Some(joined) = going.join_next().await else { break };
        let (index, result) = match joined.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(ended) => ended,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The executor is shutting down.
            Err(Err(_)) => break,
        };
        completed += 1;
        failed += usize::from(result.is_err());
        let (end, is_enough) = judge(result, batch);
        on_progress(&BatchProgress { index, end: &end, completed, failed, total });
        if let Some(place) = items.get_mut(index) {
            *place = end;
        }
        if is_enough {
            ended_by = Some(index);
            break;
        }
    }
    // Waits for the aborted jobs, so that none is still running when this returns.
    going.shutdown().await;
    BatchOutcome { items, ended_by }
}

/// The end that a result counts as, and whether it ends the batch (L-191, L-192).
fn judge<T, E>(result: Result<Option<T>, E>, batch: &Batch) -> (ItemEnd<T, E>, bool) {
    match (result, batch.on_error) {
        (Ok(Some(value)), _) => (ItemEnd::Value(value), batch.stop_on_first),
        (Ok(None), _) | (Err(_), OnError::Null) => (ItemEnd::Null, false),
        (Err(error), OnError::Stop) => (ItemEnd::Failed(error), true),
        (Err(error), OnError::Report) => (ItemEnd::Failed(error), batch.stop_on_first),
    }
}

/// The reason why one run of a batch has no result.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The run ended with this outcome.
    #[error("{}: {}", .0.status.as_str(), .0.reason)]
    Ended(Arc<Outcome>),
    /// The run did not begin, or its journal failed.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Returns the result that an outcome counts as in a batch.
///
/// `None` for the ends `STALLED`, `MAX_TURNS` (L-088), `REJECTED` and `NOT_ADDRESSED`, and for a
/// success without content. Every other unsuccessful end is an error.
///
/// # Errors
/// Returns the outcome if it counts as an error.
pub fn verdict(outcome: Arc<Outcome>) -> Result<Option<Arc<Outcome>>, BatchError> {
    match outcome.status {
        Status::Done | Status::FixedTurns | Status::UserQuit => {
            Ok(says_something(&outcome).then_some(outcome))
        }
        Status::Stalled | Status::MaxTurns | Status::Rejected | Status::NotAddressed => Ok(None),
        Status::Kill
        | Status::Timeout
        | Status::MaxCost
        | Status::MaxTokens
        | Status::MaxCalls
        | Status::MaxCpu
        | Status::MaxHistory
        | Status::InfLoop
        | Status::InternalError
        | Status::Error => Err(BatchError::Ended(outcome)),
    }
}

fn says_something(outcome: &Outcome) -> bool {
    outcome.content.is_some()
        || outcome.value.is_some()
        || outcome.typed.is_some()
        || !outcome.tools.is_empty()
}

/// The room of one run of a batch: `ROOM.INDEX`.
#[must_use]
pub fn room_of(room: &RoomId, index: usize) -> RoomId {
    RoomId::from(format!("{room}.{index}"))
}

impl Prepared {
    /// Runs the config once for each input, each in its own room; the runs share only the host. The
    /// rooms' names begin with the name from the options' `ids` (see [`room_of`]).
    ///
    /// ```
    /// use conclave_runtime::batch::Batch;
    /// use conclave_runtime::native::{self, Plugin, Step};
    /// use conclave_runtime::{Host, HostOptions, RunOptions, config::Config};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let shout = Plugin::agent("shout", |step: Step| async move { Ok(native::finish(step.text().to_uppercase())) });
    /// let host = Host::new(HostOptions { native: vec![shout], ..HostOptions::default() })?;
    /// let config = Config::parse("a.toml", "", "entry = 'a'\n[plugins.a]\nsource = 'native:shout'\n[tasks.a]\nagent = 'a'\n")?;
    /// let batch = Batch { concurrency: 4, ..Batch::default() };
    /// let ended = host.load(&config).await?.batch(["one", "two"], RunOptions::default(), &batch).await;
    /// let said: Vec<_> = ended.items.iter().map(|item| item.value().and_then(|outcome| outcome.content.as_deref())).collect();
    /// assert_eq!(said, [Some("ONE"), Some("TWO")]);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn batch(
        &self,
        asks: impl IntoIterator<Item = impl Into<RunInput>>,
        options: RunOptions,
        batch: &Batch,
    ) -> BatchOutcome<Arc<Outcome>, BatchError> {
        let (parts, room) = (self.parts(), options.ids.run());
        let jobs =
            asks.into_iter().map(Into::into).enumerate().map(|(index, ask): (usize, RunInput)| {
                let options =
                    RunOptions { ids: Arc::new(room_of(&room, index)), ..options.clone() };
                let (parts, ask) = (parts.clone(), batch.ask(ask));
                // The room opens when its job begins: a thousand journals need not be open at once.
                || async move {
                    verdict(
                        Session::open(parts, options).map_err(SessionError::from)?.run(ask).await?,
                    )
                }
            });
        run_all(jobs.collect(), batch, |_| ()).await
    }
}

impl Batch {
    /// Fills in the batch's steps and limits where an input sets none.
    #[must_use]
    pub fn ask(&self, ask: RunInput) -> RunInput {
        RunInput {
            turns: ask.turns.or(self.turns),
            limits: ask.limits.or_else(|| self.limits.clone()),
            ..ask
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::support::clock::BoxFuture;

    type Job = Box<dyn FnOnce() -> BoxFuture<'static, Result<Option<u32>, u32>> + Send>;

    /// A job that yields this result after `rounds` turns of the executor.
    fn job(result: Result<Option<u32>, u32>, rounds: usize) -> Job {
        Box::new(move || {
            Box::pin(async move {
                for _ in 0..rounds {
                    tokio::task::yield_now().await;
                }
                result
            })
        })
    }

    const NEVER: usize = usize::MAX;

    #[tokio::test]
    async fn policies_decide_what_an_error_is_and_when_it_is_enough() {
        use ItemEnd::{Cancelled, Failed, Null, Value};
        type Case = (
            OnError,
            bool,
            [(Result<Option<u32>, u32>, usize); 3],
            [ItemEnd<u32, u32>; 3],
            Option<usize>,
        );
        let cases: [Case; 6] = [
            (
                OnError::Stop,
                false,
                [(Ok(Some(1)), 9), (Ok(None), 1), (Ok(Some(3)), 5)],
                [Value(1), Null, Value(3)],
                None,
            ),
            (
                OnError::Stop,
                false,
                [(Ok(Some(1)), NEVER), (Err(2), 1), (Ok(Some(3)), NEVER)],
                [Cancelled, Failed(2), Cancelled],
                Some(1),
            ),
            (
                OnError::Null,
                true,
                [(Ok(Some(1)), NEVER), (Err(2), 1), (Ok(Some(3)), 5)],
                [Cancelled, Null, Value(3)],
                Some(2),
            ),
            (
                OnError::Report,
                false,
                [(Ok(Some(1)), 3), (Err(2), 1), (Ok(None), 5)],
                [Value(1), Failed(2), Null],
                None,
            ),
            (
                OnError::Report,
                true,
                [(Ok(None), 1), (Err(2), 3), (Ok(Some(3)), NEVER)],
                [Null, Failed(2), Cancelled],
                Some(1),
            ),
            (
                OnError::Stop,
                true,
                [(Ok(None), 1), (Ok(None), 2), (Ok(None), 3)],
                [Null, Null, Null],
                None,
            ),
        ];
        for (on_error, stop_on_first, jobs, items, ended_by) in cases {
            let batch = Batch { concurrency: 3, on_error, stop_on_first, ..Batch::default() };
            let jobs = jobs.map(|(result, rounds)| job(result, rounds)).into_iter().collect();
            let ended = run_all(jobs, &batch, |_| ()).await;
            assert_eq!(ended, BatchOutcome { items: items.into(), ended_by }, "{batch:?}");
        }
    }

    /// Counts the running jobs.
    struct Counted(Arc<AtomicUsize>);

    impl Counted {
        fn begin(count: &Arc<AtomicUsize>) -> (Self, usize) {
            (Self(Arc::clone(count)), count.fetch_add(1, Ordering::SeqCst) + 1)
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn a_window_is_kept_full_and_never_overfull() {
        for window in [0, 1, 4] {
            let (going, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let jobs = (0..50).map(|number: u32| {
                let (going, most) = (Arc::clone(&going), Arc::clone(&most));
                move || async move {
                    let (_counted, now) = Counted::begin(&going);
                    most.fetch_max(now, Ordering::SeqCst);
                    for _ in 0..number % 7 {
                        tokio::task::yield_now().await;
                    }
                    Ok::<_, u32>(Some(number))
                }
            });
            let mut reports = Vec::new();
            let batch = Batch { concurrency: window, ..Batch::default() };
            let ended = run_all(jobs.collect(), &batch, |progress| {
                reports.push((progress.completed, progress.failed, progress.total))
            })
            .await;
            assert_eq!(ended.items, (0..50).map(ItemEnd::Value).collect::<Vec<_>>());
            assert_eq!(reports, (1..=50).map(|completed| (completed, 0, 50)).collect::<Vec<_>>());
            assert_eq!(
                (most.load(Ordering::SeqCst), going.load(Ordering::SeqCst)),
                (window.max(1), 0)
            );
        }
    }

    #[tokio::test]
    async fn dropping_the_future_cancels_all() {
        let going = Arc::new(AtomicUsize::new(0));
        let jobs = (0..4).map(|_| {
            let going = Arc::clone(&going);
            move || async move {
                let _counted = Counted::begin(&going);
                std::future::pending::<Result<Option<u32>, u32>>().await
            }
        });
        let batch = Batch { concurrency: 3, ..Batch::default() };
        let mut running = Box::pin(run_all(jobs.collect(), &batch, |_| ()));
        while going.load(Ordering::SeqCst) < 3 {
            tokio::select! {
                biased;
                ended = &mut running => panic!("they wait for ever: {ended:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        drop(running);
        while going.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_is_cancelled_has_ended_when_the_batch_has() {
        let going = Arc::new(AtomicUsize::new(0));
        let jobs = (0..4).map(|number: u32| {
            let going = Arc::clone(&going);
            move || async move {
                let _counted = Counted::begin(&going);
                if number < 3 {
                    std::future::pending::<()>().await;
                }
                Err::<Option<u32>, _>(number)
            }
        });
        let ended =
            run_all(jobs.collect(), &Batch { concurrency: 4, ..Batch::default() }, |_| ()).await;
        assert_eq!((ended.ended_by, going.load(Ordering::SeqCst)), (Some(3), 0));
    }
}

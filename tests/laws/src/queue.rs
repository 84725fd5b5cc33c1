//! Laws of the work queue: which host gets a run that no host has.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use conclave_runtime::clock::{Clock, SystemClock};
use conclave_runtime::ids::{Millis, RoomId};
use conclave_runtime::store::{
    ControlCommand, ControlMessage, Durability, RunOrigin, Store, StoreError, StoreOptions,
};

use crate::ownership::take_over;
use crate::rooms::OpenRoom;
use crate::{
    LawFailure, LawResult, POOL, TestedHost, TestedStore, ensure, ensure_equal, open_as_many,
    reader_of, store_of,
};

const CLAIMERS: usize = 8;
const RUNS: usize = 40;
/// The rounds of the race between a message and a host that gives its run back.
const ROUNDS: usize = 300;
/// The sleep of a run in milliseconds.
const SLEEP_MS: u64 = 700;
/// The time within which a run that is due must be found.
const PATIENCE: Duration = Duration::from_secs(10);

/// Begins a run and releases it, so that it is due.
fn begin(host: &dyn TestedHost, run: &str, pool: Option<&str>) -> LawResult {
    let origin = RunOrigin { pool: pool.map(str::to_owned), ..RunOrigin::default() };
    let journals = store_of(host)?.journals(Durability::Group, origin);
    let mut room = OpenRoom::new_in(&*journals, run)?;
    room.append(1)?;
    drop(room);
    store_of(host)?.give_back(&RoomId::from(run), Some(1), Millis(0))?;
    Ok(())
}

/// Claims runs until there is none.
fn claim_all(store: &Store) -> Result<Vec<RoomId>, StoreError> {
    std::iter::from_fn(|| store.claim(POOL).transpose()).collect()
}

/// Claims a run that will be due at this time.
fn claim_from(store: &Store, due: Millis) -> LawResult<RoomId> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let run = store.claim(POOL)?;
        let now = SystemClock.now();
        if let Some(run) = run {
            // The clock is that of the database, which may differ a little.
            ensure(now.0 + 200 >= due.0, || {
                format!("{run} was claimed at {now:?}, before {due:?}")
            })?;
            return Ok(run);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(LawFailure::Broken(format!("no run was due after {PATIENCE:?}")))
}

/// Each due run goes to exactly one of several claimers.
pub fn each_due_run_goes_to_one_claimer(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, CLAIMERS)?;
    let mut runs = Vec::new();
    for number in 0..RUNS {
        let run = format!("r{number:02}");
        begin(&*hosts[0], &run, Some(POOL))?;
        runs.push(RoomId::from(run));
    }
    let barrier = Barrier::new(CLAIMERS);
    let claimed: LawResult<Vec<Vec<RoomId>>> = std::thread::scope(|scope| {
        let claim = |host| {
            let (host, barrier): (&dyn TestedHost, _) = (host, &barrier);
            scope.spawn(move || -> LawResult<Vec<RoomId>> {
                let store = store_of(host);
                barrier.wait();
                Ok(claim_all(store?)?)
            })
        };
        let claimers: Vec<_> = hosts.iter().map(|host| claim(&**host)).collect();
        let panicked = |_| Err(LawFailure::Broken("a claimer panicked".to_owned()));
        claimers.into_iter().map(|claimer| claimer.join().unwrap_or_else(panicked)).collect()
    });
    let mut claimed = claimed?.concat();
    claimed.sort();
    ensure_equal("the claimed runs", &claimed, &runs)
}

/// A claimer gets only runs of its pool, and none that has ended or that a live host has.
pub fn a_claimer_gets_runs_of_its_pool(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, 2)?;
    begin(&*hosts[0], "of-no-pool", None)?;
    begin(&*hosts[0], "of-other", Some("other"))?;
    let open = OpenRoom::with_records(&*hosts[0], "open", 1)?;
    let mut ended = OpenRoom::with_records(&*hosts[0], "ended", 1)?;
    ended.append_end()?;
    drop(ended);
    begin(&*hosts[0], "due", Some(POOL))?;
    let claimed = claim_all(store_of(&*hosts[1])?)?;
    ensure_equal("the claimed runs", &claimed, &vec![RoomId::from("due")])?;
    let of_other = store_of(&*hosts[1])?.claim("other")?;
    ensure_equal("the run of the other pool", &of_other, &Some(RoomId::from("of-other")))?;
    drop(open);
    Ok(())
}

/// A run that only waits for a time is not due before it, and one that rests not before its time.
pub fn a_sleeping_run_is_due_when_it_wakes(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, 1)?;
    let store = store_of(&*hosts[0])?;
    let mut timed = OpenRoom::with_records(&*hosts[0], "timed", 1)?;
    let due = SystemClock.now().plus(SLEEP_MS);
    timed.append_wait("timer", Some(due))?;
    drop(timed);
    store.give_back(&RoomId::from("timed"), Some(1), SystemClock.now())?;
    ensure_equal("the run", &claim_from(store, due)?, &RoomId::from("timed"))?;

    drop(OpenRoom::with_records(&*hosts[0], "resting", 1)?);
    let due = SystemClock.now().plus(SLEEP_MS);
    store.give_back(&RoomId::from("resting"), Some(1), due)?;
    ensure_equal("the run", &claim_from(store, due)?, &RoomId::from("resting"))
}

/// A message wakes a run that waits for a person, at whatever moment it is sent while the run's host
/// gives the run back.
pub fn a_message_wakes_a_run_even_while_it_is_given_back(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, 1)?;
    let (store, reader) = (store_of(&*hosts[0])?, reader_of(&*hosts[0])?);
    let run = RoomId::from("asleep");
    let mut room = OpenRoom::with_records(&*hosts[0], "asleep", 1)?;
    room.append_wait("approval", None)?;
    drop(room);
    store.give_back(&run, Some(1), Millis(0))?;
    ensure_equal("the run that sleeps", &store.claim(POOL)?, &None)?;
    let message = || {
        let reason = "enough".to_owned();
        ControlMessage::new(run.clone(), ControlCommand::Stop { reason })
    };
    let first = message();
    reader.mail().send(&first)?;
    ensure_equal("the run with a message", &store.claim(POOL)?, &Some(run.clone()))?;
    reader.mail().remove(&first)?;
    for round in 0..ROUNDS {
        let (barrier, message) = (Barrier::new(2), message());
        let sent = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let reader = reader_of(&*hosts[0]);
                barrier.wait();
                // The two meet at another moment in each round.
                std::thread::sleep(Duration::from_micros(20 * (round as u64 % 60)));
                reader.and_then(|reader| Ok(reader.mail().send(&message)?))
            });
            barrier.wait();
            let given_back = store.give_back(&run, None, SystemClock.now());
            let sent = sender.join();
            sent.unwrap_or_else(|_| Err(LawFailure::Broken("the sender panicked".to_owned())))
                .and_then(|()| Ok(given_back?))
        });
        sent?;
        let claimed = store.claim(POOL)?;
        ensure_equal(&format!("the run in round {round}"), &claimed, &Some(run.clone()))?;
        reader.mail().remove(&message)?;
    }
    Ok(())
}

/// A host that lost a run cannot give it back: the new host keeps it.
pub fn a_host_that_lost_a_run_does_not_give_it_back(store: &dyn TestedStore) -> LawResult {
    let hosts = open_as_many(store, 1)?;
    let room = OpenRoom::with_records(&*hosts[0], "a", 1)?;
    let epoch = room.journal.epoch();
    let (_host, mut taken) = take_over(store, "a")?;
    drop(room);
    store_of(&*hosts[0])?.give_back(&RoomId::from("a"), Some(epoch), Millis(0))?;
    let third = store.open(&StoreOptions::default())?;
    let claimed = store_of(&*third)?.claim(POOL)?;
    ensure_equal("the claimed run", &claimed, &None)?;
    let is_taken = OpenRoom::reopen(&*third, "a").is_ok();
    ensure(!is_taken, || "the run of the new host was taken".to_owned())?;
    taken.append(1)
}

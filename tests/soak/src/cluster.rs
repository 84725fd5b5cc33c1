//! Kill tests of a shared store. Workers in processes of their own bring runs forward; each reaches
//! the PostgreSQL server through a proxy that fails. Processes are killed and stopped, the server
//! crashes and gives way to its standby. People outside order runs and send messages meanwhile. At
//! the end the store, the outside world and what was promised are compared.

mod check;
mod faults;
mod fleet;
mod office;
mod report;
mod servers;
mod work;
mod worker;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use conclave_runtime::store::{StoreAddress, StoreReader};
use conclave_test_servers::{Ending, FaultProxy, PostgresFailure, TestDatabase};

use check::Evidence;
use faults::Fault;
use fleet::{Fleet, Orphaned, lock};
use office::{Book, Office};
pub use report::ClusterReport;
use servers::Servers;
pub use worker::ClusterWorker;

use crate::kept;
use crate::random::Random;
use crate::world::World;

/// The time after the last fault in which all runs must have ended. A lease, the rest of a run
/// that failed and the time of a slow machine fit into it.
const PATIENCE: Duration = Duration::from_secs(240);
const TICK: Duration = Duration::from_millis(20);
/// The time between two reports of progress while the runs end.
const FOLLOW_EVERY: Duration = Duration::from_secs(15);

/// The amount of work of a soak on a shared store.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    pub seed: u64,
    /// The number of faults, at least; each kind comes at least once.
    pub faults: u64,
    /// The time in which the faults come.
    pub time: Duration,
    /// The longest time for which a worker is stopped, or its bytes are held.
    pub longest: Duration,
    pub workers: usize,
    /// The number of runs, at least.
    pub runs: usize,
    /// The number of runs without an end at the same time.
    pub open: usize,
    /// The longest response time of the world and of people, in milliseconds.
    pub slowest_ms: u64,
    /// Whether Patroni promotes the standby. Hosts reach both servers without a proxy then.
    pub patroni: bool,
    pub stock: PathBuf,
    pub cache: PathBuf,
}

/// The reason why a soak could not run.
#[derive(Clone, Debug)]
pub enum ClusterFailure {
    /// This machine has no PostgreSQL, or no Patroni.
    Unavailable(String),
    Failed(String),
}

impl From<PostgresFailure> for ClusterFailure {
    fn from(failure: PostgresFailure) -> Self {
        match failure {
            PostgresFailure::Failed(reason) => Self::Failed(reason),
            missing => Self::Unavailable(missing.to_string()),
        }
    }
}

impl From<std::io::Error> for ClusterFailure {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<String> for ClusterFailure {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

/// A soak in progress.
struct Soak<'a> {
    plan: &'a ClusterPlan,
    servers: Servers,
    database: &'a TestDatabase,
    /// The way of the people to the server.
    office_proxy: FaultProxy,
    fleet: Fleet<'a>,
    book: Arc<Mutex<Book>>,
    report: ClusterReport,
}

/// Makes the planned faults. `start` starts a worker and passes [`ClusterWorker::words`] to it in
/// any way.
///
/// # Errors
/// If the soak could not run. Problems that it found are in the report.
pub fn soak_cluster(
    plan: &ClusterPlan,
    start: &dyn Fn(&ClusterWorker) -> Command,
    follow: &dyn Fn(&ClusterReport),
) -> Result<ClusterReport, ClusterFailure> {
    let began = Instant::now();
    let mut random = Random::new(plan.seed);
    let (servers, database) = Servers::start(plan.patroni)?;
    let (address, direct) = (servers.address()?, servers.url(&database));
    let world = World::open(random.next(), plan.slowest_ms)?;
    let office_proxy = FaultProxy::before(address)?;
    let template = ClusterWorker {
        url: String::new(),
        host: String::new(),
        port: world.port(),
        capacity: plan.open.div_ceil(plan.workers.max(1)).max(2) * 3 / 2,
        stock: plan.stock.clone(),
        cache: plan.cache.clone(),
    };
    let url_through =
        |proxy: SocketAddr| direct.clone().unwrap_or_else(|| database.url_through(proxy));
    let fleet = Fleet::new(plan, address, (start, template), &url_through)?;
    let book = Arc::new(Mutex::new(Book { orders: true, ..Book::default() }));
    let office = Office {
        url: url_through(office_proxy.address()),
        stock: plan.stock.clone(),
        cache: plan.cache.clone(),
        port: world.port(),
        seed: random.next(),
        open: plan.open,
        slowest_ms: plan.slowest_ms * 4,
        book: Arc::clone(&book),
    };
    let people = std::thread::spawn(move || office.work());
    let mut soak = Soak {
        plan,
        servers,
        database: &database,
        office_proxy,
        fleet,
        book,
        report: ClusterReport { seed: plan.seed, ..ClusterReport::default() },
    };
    soak.begin(&people)?;
    soak.make_faults(&mut random, follow)?;
    soak.settle(follow)?;
    lock(&soak.book).is_over = true;
    people.join().map_err(|_| "the office has failed".to_owned())??;
    soak.judge(&world)?;
    soak.report.took = began.elapsed();
    Ok(soak.report)
}

impl Soak<'_> {
    /// Waits until the store is there, and lets it announce each commit to the proxies.
    fn begin(&mut self, people: &JoinHandle<Result<(), String>>) -> Result<(), ClusterFailure> {
        while lock(&self.book).ordered.is_empty() {
            if people.is_finished() {
                return Err("the office could not begin".to_owned().into());
            }
            if let Some(reason) = lock(&self.book).failures.keys().next() {
                return Err(reason.clone().into());
            }
            std::thread::sleep(TICK);
        }
        let function = format!(
            "CREATE FUNCTION conclave.soak_notice() RETURNS TRIGGER LANGUAGE plpgsql AS $$
             BEGIN RAISE NOTICE '{}'; RETURN NULL; END $$",
            faults::COMMIT
        );
        let trigger = "CREATE TRIGGER soak AFTER UPDATE ON conclave.chains
             FOR EACH ROW WHEN (OLD.number <> NEW.number) EXECUTE FUNCTION conclave.soak_notice()";
        self.query(&[&function, trigger])?;
        Ok(())
    }

    fn query(&self, statements: &[&str]) -> Result<String, PostgresFailure> {
        self.database.query_through(self.servers.address()?, statements)
    }

    fn make_faults(
        &mut self,
        random: &mut Random,
        follow: &dyn Fn(&ClusterReport),
    ) -> Result<(), ClusterFailure> {
        let deck = faults::deck(self.plan, random);
        let pause_ms = self.plan.time.as_millis() as u64 / deck.len() as u64;
        let began = Instant::now();
        for (number, fault) in deck.into_iter().enumerate() {
            let pause = Duration::from_millis(pause_ms / 2 + random.below(pause_ms.max(1)));
            let due = Instant::now() + pause;
            while Instant::now() < due {
                self.fleet.tend()?;
                std::thread::sleep(TICK);
            }
            let name = fault.name();
            self.make(fault)?;
            *self.report.faults.entry(name).or_default() += 1;
            if (number + 1) % 10 == 0 {
                self.report.took = began.elapsed();
                self.count();
                follow(&self.report);
            }
        }
        Ok(())
    }

    fn make(&mut self, fault: Fault) -> Result<(), ClusterFailure> {
        let worker = match fault.worker() {
            Some(worker) => self.at_work(worker)?,
            None => 0,
        };
        match fault {
            Fault::Kill { starts_after, .. } => self.fleet.kill(worker, starts_after)?,
            Fault::Freeze { time, .. } => self.fleet.freeze(worker, time),
            Fault::Drain { .. } => self.fleet.drain(worker),
            Fault::Cut { ending, .. } => self.fleet.slots[worker].proxy.cut(ending),
            Fault::Delay { direction, delay, time, .. } => {
                self.fleet.disturb(worker, time, |proxy| proxy.delay(direction, delay));
            }
            Fault::Hold { direction, time, .. } => {
                self.fleet.disturb(worker, time, |proxy| proxy.hold(direction));
            }
            Fault::LoseAnswer { .. } => {
                self.fleet.slots[worker].proxy.lose_answer(faults::COMMIT.as_bytes());
            }
            Fault::Refuse { time, .. } => self.fleet.disturb(worker, time, |proxy| {
                proxy.refuse();
                proxy.cut(Ending::Reset);
            }),
            Fault::Restart => self.servers.crash()?,
            Fault::Failover => self.fail_over()?,
        }
        Ok(())
    }

    /// Returns this worker, or the next one that is at work; waits for one.
    fn at_work(&mut self, worker: usize) -> Result<usize, ClusterFailure> {
        loop {
            self.fleet.tend()?;
            let count = self.plan.workers;
            let next = (worker..worker + count).map(|number| number % count);
            if let Some(worker) = next.into_iter().find(|number| self.fleet.is_at_work(*number)) {
                return Ok(worker);
            }
            std::thread::sleep(TICK);
        }
    }

    fn fail_over(&mut self) -> Result<(), ClusterFailure> {
        let Self { servers, fleet, office_proxy, .. } = self;
        servers.fail_over(|address| {
            let slots = fleet.slots.iter().map(|slot| &slot.proxy);
            for proxy in slots.chain([&*office_proxy]) {
                proxy.lead_to(address);
                proxy.cut(Ending::Reset);
            }
            fleet.tend()
        })
    }

    /// Ends the faults, and waits until all runs have ended and all workers have gone.
    fn settle(&mut self, follow: &dyn Fn(&ClusterReport)) -> Result<(), ClusterFailure> {
        self.fleet.calm();
        let mut until = Instant::now() + PATIENCE;
        let mut follows = Instant::now() + FOLLOW_EVERY;
        loop {
            self.fleet.tend()?;
            {
                let mut book = lock(&self.book);
                if book.orders && book.ordered.len() >= self.plan.runs {
                    book.orders = false;
                    // The office may be in the middle of a look.
                    book.open = None;
                    until = Instant::now() + PATIENCE;
                }
                let is_empty = book.open.as_ref().is_some_and(Vec::is_empty);
                if Instant::now() > until || !book.orders && is_empty {
                    break;
                }
            }
            if Instant::now() > follows {
                follows += FOLLOW_EVERY;
                self.count();
                follow(&self.report);
            }
            std::thread::sleep(TICK);
        }
        let stuck = lock(&self.book).open.clone().unwrap_or_default();
        for run in &stuck {
            let rows = format!(
                "SELECT concat_ws(' ', room, host, epoch, wake_at, records) FROM conclave.rooms
                 WHERE run = '{run}' AND ended IS NULL"
            );
            let rows = self.query(&[&rows])?.replace('\n', "; ");
            self.report.problems.push(format!("{run}: it is stuck ({rows})"));
        }
        if !self.fleet.end()? {
            self.report.problems.push("a worker did not end when it was drained".to_owned());
        }
        Ok(())
    }

    /// Compares what is there with what was promised.
    fn judge(&mut self, world: &World) -> Result<(), ClusterFailure> {
        self.count();
        let text = |error: conclave_runtime::store::StoreError| error.to_string();
        let url = self.database.url_through(self.servers.address()?);
        let address: StoreAddress = url.parse().map_err(|error| format!("{error:?}"))?;
        let reader = StoreReader::open(address).map_err(text)?;
        let kept = kept::read_all(&reader)?;
        let waits = reader.waits(None).map_err(text)?;
        let evidence = {
            let (book, heard) = (lock(&self.book), self.fleet.heard());
            let acknowledged = heard.acknowledged.iter();
            Evidence {
                rooms: kept.rooms,
                store_problems: kept.problems,
                acknowledged: acknowledged
                    .map(|(key, (digest, _))| (key.clone(), *digest))
                    .collect(),
                counts: world.counts(),
                ordered: book.ordered.clone(),
                sent: book.sent.clone(),
                pending: reader.mail().pending().map_err(text)?,
                waits: waits.into_iter().map(|row| (row.room, row.wait.kind)).collect(),
            }
        };
        let counts = &mut self.report.counts;
        counts.insert("runs", evidence.ordered.len() as u64);
        counts.insert("rooms", evidence.rooms.len() as u64);
        counts.insert("records", evidence.rooms.values().map(|records| records.len() as u64).sum());
        counts.insert("records acknowledged", evidence.acknowledged.len() as u64);
        counts.insert("effects in the world", evidence.counts.effects.values().sum());
        counts.insert("results delivered", evidence.counts.spoken.len() as u64);
        let again = |counts: &BTreeMap<String, u64>| {
            counts.values().map(|count| count.saturating_sub(1)).sum::<u64>()
        };
        counts.insert("deliveries attempted again", again(&evidence.counts.spoken));
        counts.insert("replies of models lost on the way", again(&evidence.counts.bought));
        counts.insert("messages sent", evidence.sent.len() as u64);
        let interrupted = evidence.rooms.values().flatten();
        let interrupted =
            interrupted.filter(|record| crate::check::is_interrupted(&record.event)).count();
        counts.insert("effects reported as interrupted", interrupted as u64);
        self.report.problems.extend(self.fleet.heard().problems.clone());
        self.report.problems.extend(check::judge(&evidence));
        self.report.unnoticed = check::unnoticed(&evidence);
        Ok(())
    }

    /// Brings the report up to what workers and the office have said.
    fn count(&mut self) {
        let lost = self.fleet.answers_lost();
        let heard = lock(&self.fleet.heard);
        self.report.counts.extend(&heard.counts);
        self.report.counts.insert("acknowledgements of commits that were lost", lost);
        for (why, times) in &heard.taken_over {
            let why = match why {
                Orphaned::Killed => "of a killed worker",
                Orphaned::Stopped => "of a stopped worker",
            };
            self.report.taken_over.insert(why, times.clone());
        }
        self.report.reasons = heard.reasons.clone();
        let book = lock(&self.book);
        for (reason, count) in &book.failures {
            self.report.reasons.insert(format!("the office: {reason}"), *count);
        }
        self.report.counts.insert("runs", book.ordered.len() as u64);
        self.report.counts.insert("runs with an end", book.ended);
    }
}

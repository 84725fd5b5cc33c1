//! The worker processes of a soak, each behind a proxy of its own, and what they have said.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use conclave_runtime::ids::RoomId;
use conclave_test_servers::FaultProxy;
use rustix::process::{Pid, Signal, kill_process};

use super::ClusterPlan;
use super::worker::ClusterWorker;

/// What all workers have said so far.
#[derive(Default)]
pub(super) struct Heard {
    /// The digest of each acknowledged record, and the worker that acknowledged it.
    pub(super) acknowledged: BTreeMap<(RoomId, u64), (u64, String)>,
    pub(super) problems: Vec<String>,
    /// The runs of each worker by its host name.
    runs: BTreeMap<String, BTreeSet<String>>,
    /// The runs whose worker was killed or stopped, and when.
    orphans: BTreeMap<String, (Orphaned, Instant)>,
    pub(super) taken_over: BTreeMap<Orphaned, Vec<Duration>>,
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// The reasons of failures, with their counts.
    pub(super) reasons: BTreeMap<String, u64>,
}

/// Why a run has no host that can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Orphaned {
    Killed,
    Stopped,
}

impl Heard {
    fn take(&mut self, host: &str, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (run, reason) = rest.split_once(' ').unwrap_or((rest, ""));
        let name = match word {
            "ack" => return self.acknowledge(host, rest),
            "taken" => "runs taken",
            "asleep" => "runs put to sleep",
            "ended" => "runs ended by a worker",
            "lost" => "runs that a worker lost to another",
            "back" => "runs given back by a worker that stopped",
            "failed" => "runs that rested after a failure",
            "received" => "messages received",
            "store" => {
                *self.reasons.entry(shortened(rest)).or_default() += 1;
                "failed questions to the store"
            }
            _ => return,
        };
        *self.counts.entry(name).or_default() += 1;
        if word == "failed" {
            *self.reasons.entry(shortened(reason)).or_default() += 1;
        }
        let runs = self.runs.entry(host.to_owned()).or_default();
        match word {
            "taken" => {
                runs.insert(run.to_owned());
                if let Some((why, since)) = self.orphans.remove(run) {
                    self.taken_over.entry(why).or_default().push(since.elapsed());
                }
            }
            "asleep" | "ended" | "lost" | "back" | "failed" => drop(runs.remove(run)),
            _ => {}
        }
    }

    fn acknowledge(&mut self, host: &str, words: &str) {
        let words: Vec<&str> = words.split(' ').collect();
        let [room, seq, digest] = words.as_slice() else { return };
        let (Ok(seq), Ok(digest)) = (seq.parse(), digest.parse()) else { return };
        let key = (RoomId::from((*room).to_owned()), seq);
        let before = self.acknowledged.entry(key).or_insert_with(|| (digest, host.to_owned()));
        if before.0 != digest {
            self.problems.push(format!(
                "{room}:{seq} was acknowledged by {} and, with another content, by {host}",
                before.1
            ));
        }
    }

    /// Notes that a worker cannot go on with its runs.
    fn orphan(&mut self, host: &str, why: Orphaned) {
        for run in self.runs.get(host).into_iter().flatten() {
            self.orphans.entry(run.clone()).or_insert_with(|| (why, Instant::now()));
        }
    }

    /// Notes that a stopped worker goes on.
    fn adopt(&mut self, host: &str) {
        for run in self.runs.get(host).into_iter().flatten() {
            if self.orphans.get(run).is_some_and(|(why, _)| *why == Orphaned::Stopped) {
                self.orphans.remove(run);
            }
        }
    }
}

/// A reason without the names of runs, so that equal ones count as one.
pub(super) fn shortened(reason: &str) -> String {
    let words = reason.split(' ').filter(|word| !word.contains("postgres://"));
    let words = words.map(|word| if word.contains(char::is_numeric) { "…" } else { word });
    words.collect::<Vec<_>>().join(" ").chars().take(400).collect()
}

/// A worker process.
struct Process {
    host: String,
    child: Child,
    is_draining: bool,
}

/// A place for a worker: it is started again whenever it has ended.
pub(super) struct Slot {
    pub(super) proxy: FaultProxy,
    process: Option<Process>,
    generation: u64,
    /// When it is started again.
    starts: Instant,
    /// When it goes on after SIGSTOP.
    goes_on: Option<Instant>,
    /// When its network is whole again.
    passes: Option<Instant>,
}

/// Starts a worker process.
pub(super) type Starting<'a> = &'a dyn Fn(&ClusterWorker) -> Command;

/// All workers.
pub(super) struct Fleet<'a> {
    pub(super) slots: Vec<Slot>,
    pub(super) heard: Arc<Mutex<Heard>>,
    start: Starting<'a>,
    template: ClusterWorker,
    url_through: &'a dyn Fn(SocketAddr) -> String,
}

impl<'a> Fleet<'a> {
    pub(super) fn new(
        plan: &ClusterPlan,
        server: SocketAddr,
        (start, template): (Starting<'a>, ClusterWorker),
        url_through: &'a dyn Fn(SocketAddr) -> String,
    ) -> std::io::Result<Self> {
        let slot = || {
            Ok(Slot {
                proxy: FaultProxy::before(server)?,
                process: None,
                generation: 0,
                starts: Instant::now(),
                goes_on: None,
                passes: None,
            })
        };
        let slots = (0..plan.workers).map(|_| slot()).collect::<std::io::Result<_>>()?;
        Ok(Self { slots, heard: Arc::default(), start, template, url_through })
    }

    pub(super) fn heard(&self) -> MutexGuard<'_, Heard> {
        lock(&self.heard)
    }

    /// Does what is due: starts workers, lets stopped ones go on, mends networks.
    pub(super) fn tend(&mut self) -> std::io::Result<()> {
        let now = Instant::now();
        for number in 0..self.slots.len() {
            if self.slots[number].goes_on.is_some_and(|at| at <= now) {
                self.go_on(number);
            }
            let slot = &mut self.slots[number];
            if slot.passes.is_some_and(|at| at <= now) {
                slot.passes = None;
                slot.proxy.pass();
            }
            if let Some(process) = &mut slot.process
                && process.child.try_wait()?.is_some()
            {
                let (host, is_draining) = (process.host.clone(), process.is_draining);
                slot.process = None;
                slot.starts = now + Duration::from_millis(500);
                let mut heard = lock(&self.heard);
                heard.orphan(&host, Orphaned::Killed);
                if !is_draining {
                    *heard.counts.entry("workers that ended by themselves").or_default() += 1;
                }
            }
            if self.slots[number].process.is_none() && self.slots[number].starts <= now {
                self.start(number)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, number: usize) -> std::io::Result<()> {
        let slot = &mut self.slots[number];
        slot.generation += 1;
        let host = format!("w{number}-{}", slot.generation);
        let url = (self.url_through)(slot.proxy.address());
        let worker = ClusterWorker { url, host: host.clone(), ..self.template.clone() };
        let mut command = (self.start)(&worker);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(output) = child.stdout.take() {
            let (heard, host) = (Arc::clone(&self.heard), host.clone());
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    lock(&heard).take(&host, &line);
                }
            });
        }
        if let Some(mut errors) = child.stderr.take() {
            let heard = Arc::clone(&self.heard);
            std::thread::spawn(move || {
                let mut text = String::new();
                let _ = errors.read_to_string(&mut text);
                if !text.trim().is_empty() {
                    let reason = format!("stderr: {}", text.trim().replace('\n', " "));
                    *lock(&heard).reasons.entry(shortened(&reason)).or_default() += 1;
                }
            });
        }
        slot.process = Some(Process { host, child, is_draining: false });
        Ok(())
    }

    /// Whether a worker is there and not stopped.
    pub(super) fn is_at_work(&self, number: usize) -> bool {
        self.slots[number].process.is_some() && self.slots[number].goes_on.is_none()
    }

    /// Kills a worker, which is started again after a time.
    pub(super) fn kill(&mut self, number: usize, starts_after: Duration) -> std::io::Result<()> {
        let slot = &mut self.slots[number];
        slot.starts = Instant::now() + starts_after;
        slot.goes_on = None;
        let Some(mut process) = slot.process.take() else { return Ok(()) };
        process.child.kill()?;
        process.child.wait()?;
        self.heard().orphan(&process.host, Orphaned::Killed);
        Ok(())
    }

    /// Lets a worker give everything back and end.
    pub(super) fn drain(&mut self, number: usize) {
        if let Some(process) = &mut self.slots[number].process {
            process.child.stdin.take();
            process.is_draining = true;
        }
    }

    /// Stops a worker in the middle of whatever it does, for a time.
    pub(super) fn freeze(&mut self, number: usize, time: Duration) {
        if let Some(process) = &self.slots[number].process {
            signal(&process.child, Signal::STOP);
            self.heard().orphan(&process.host, Orphaned::Stopped);
            self.slots[number].goes_on = Some(Instant::now() + time);
        }
    }

    fn go_on(&mut self, number: usize) {
        self.slots[number].goes_on = None;
        if let Some(process) = &self.slots[number].process {
            self.heard().adopt(&process.host);
            signal(&process.child, Signal::CONT);
        }
    }

    /// Disturbs the network of a worker for a time.
    pub(super) fn disturb(
        &mut self,
        number: usize,
        time: Duration,
        with: impl FnOnce(&FaultProxy),
    ) {
        let slot = &mut self.slots[number];
        with(&slot.proxy);
        let until = Instant::now() + time;
        slot.passes = Some(slot.passes.map_or(until, |at| at.max(until)));
    }

    /// Ends all faults.
    pub(super) fn calm(&mut self) {
        for number in 0..self.slots.len() {
            self.go_on(number);
            self.slots[number].passes = None;
            self.slots[number].proxy.pass();
        }
    }

    /// Drains all workers. Returns whether each has ended.
    pub(super) fn end(&mut self) -> std::io::Result<bool> {
        for number in 0..self.slots.len() {
            self.drain(number);
        }
        let until = Instant::now() + Duration::from_secs(60);
        for slot in &mut self.slots {
            let Some(process) = &mut slot.process else { continue };
            while process.child.try_wait()?.is_none() {
                if Instant::now() > until {
                    return Ok(false);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(true)
    }

    /// Returns the number of commits whose acknowledgement was lost.
    pub(super) fn answers_lost(&self) -> u64 {
        self.slots.iter().map(|slot| slot.proxy.answers_lost()).sum()
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            if let Some(process) = &mut slot.process {
                let _ = process.child.kill();
                let _ = process.child.wait();
            }
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

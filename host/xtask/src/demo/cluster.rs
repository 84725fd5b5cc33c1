//! `cargo xtask demo --cluster`: two workers share a store in PostgreSQL. The one that has the task
//! is killed in the middle, and the other one goes on with it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::{build_conclave, phase};
use crate::components::{self, NamedComponents, Optimised};
use crate::failure::XtaskFailure;
use crate::phase::{Phases, spelled};
use crate::place::Checkout;
use crate::postgres::PostgresServer;

const CONFIG: &str = "docs/examples/cluster.toml";
const TASK: &str = "Describe Skerryvore.";
/// The time for which the first worker has the task: until the second of three stages, each of
/// which takes four seconds.
const UNTIL_KILL: Duration = Duration::from_secs(6);
/// Longer than a lease, a task and a busy machine's start together.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Two workers and their database. They end when it is dropped.
struct Cluster {
    place: Checkout,
    /// The address without the password.
    address: String,
    password: String,
    workers: Vec<Worker>,
    /// The lines of all workers, with the number of the worker.
    events: Receiver<(usize, String)>,
    _server: PostgresServer,
}

/// A worker, which is killed when it is dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn run(place: &Checkout, verbose: bool) -> Result<ExitCode, XtaskFailure> {
    let mut phases = Phases::new(place, 8, verbose);
    if !place.conclave().is_file() {
        phases.announce_first_build("cluster");
    }
    // First, because without PostgreSQL the rest is built for nothing.
    let servers = place.cargo(["build", "-p", "conclave-test-servers"]);
    phases.run("building the starter of PostgreSQL", "postgres", servers)?;
    let mut server = None;
    phases.check("starting PostgreSQL in a folder of its own", || {
        server = Some(PostgresServer::start_own(place)?);
        Ok(())
    })?;
    let names = NamedComponents::of(&place.read(CONFIG)?);
    components::build_named(place, &mut phases, &names, Optimised::Little)?;
    build_conclave(place, &mut phases, &["postgres"])?;
    let Some(server) = server else { return Ok(ExitCode::FAILURE) };
    Cluster::start(place, server, &mut phases)?.play(&mut phases)?;
    Ok(ExitCode::SUCCESS)
}

impl Cluster {
    /// One phase. Starts the workers, and waits until both take tasks.
    fn start(
        place: &Checkout,
        server: PostgresServer,
        phases: &mut Phases,
    ) -> Result<Self, XtaskFailure> {
        let (address, password) = without_password(server.url());
        let (sender, events) = channel();
        let place = place.clone();
        let mut cluster =
            Self { place, address, password, workers: Vec::new(), events, _server: server };
        phases.check("starting two workers", || {
            for number in 1..=2 {
                let worker = cluster.start_worker(number, &sender)?;
                cluster.workers.push(worker);
            }
            cluster.wait_for_workers()
        })?;
        eprintln!("\nconclave is {} here, and", cluster.place.relative(&cluster.place.conclave()));
        eprintln!("CONCLAVE_STORE={}", cluster.address);
        for (worker, number) in cluster.workers.iter().zip(1..) {
            eprintln!("$ conclave worker {CONFIG}   # worker {number}: {}", worker.0.id());
        }
        Ok(cluster)
    }

    /// Three phases: one worker has the task and is killed, the other one waits, takes it and ends
    /// it.
    fn play(mut self, phases: &mut Phases) -> Result<(), XtaskFailure> {
        let run = self.enqueue()?;
        let first = self.wait(|event| event.contains(r#""event":"taken""#))?;
        let second = 3 - first;
        eprintln!("worker {first} has taken it\n");
        phases.check(&format!("worker {first} works on it"), || {
            thread::sleep(UNTIL_KILL);
            Ok(())
        })?;
        let killed = &mut self.workers[first - 1];
        eprintln!("\n$ kill -9 {}   # worker {first}, in the middle", killed.0.id());
        let _ = killed.0.kill();
        let _ = killed.0.wait();
        self.show(&["workers"])?;
        let died = Instant::now();
        eprintln!(
            "\nWorker {first} counts as live until its lease ends, 15 s after its last sign of life."
        );
        phases.check(&format!("waiting until worker {second} may take the task over"), || {
            self.wait(|event| event.contains(r#""event":"taken""#)).map(drop)
        })?;
        eprintln!("worker {second} has taken it, {} after the kill", spelled(died.elapsed()));
        let mut end = String::new();
        phases.check(&format!("worker {second} goes on where worker {first} was"), || {
            self.wait(|event| {
                let is_end = event.contains(r#""event":"ended""#);
                if is_end {
                    end = event.to_owned();
                }
                is_end
            })
            .map(drop)
        })?;
        if !end.contains(r#""reason":"DONE""#) {
            return Err(XtaskFailure::new(format!("the task did not end well: {end}")));
        }
        self.show(&["wait", &run, "--quiet"])?;
        self.show(&["show", &run])?;
        self.show(&["workers"])?;
        eprintln!(
            "\nThe model was not asked again for `research`, whose reply was stored. It was for"
        );
        eprintln!("`draft`: that reply was on its way to worker {first}. The database ends now.");
        eprintln!("On machines of yours: docs/use/machines.md");
        Ok(())
    }

    fn start_worker(
        &self,
        number: usize,
        events: &Sender<(usize, String)>,
    ) -> Result<Worker, XtaskFailure> {
        let mut command = self.conclave(&["worker", CONFIG, "--json"]);
        let (_, errors) = phase::open_log(&self.log(number))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(|error| phase::not_started(&command, &error))?;
        if let Some(out) = child.stdout.take() {
            let events = events.clone();
            thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if events.send((number, line)).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Worker(child))
    }

    fn wait_for_workers(&mut self) -> Result<(), XtaskFailure> {
        let began = Instant::now();
        loop {
            let listed = phase::output(&mut self.conclave(&["workers", "--json"]))?;
            let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
            let is_ready = |line: &&str| !line.contains(r#""pool":null"#);
            if listed.lines().filter(is_ready).count() == self.workers.len() {
                return Ok(());
            }
            self.check_workers()?;
            if began.elapsed() > PATIENCE {
                return Err(self.failure("the workers did not start"));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Fails if a worker has ended.
    fn check_workers(&mut self) -> Result<(), XtaskFailure> {
        for number in 1..=self.workers.len() {
            if matches!(self.workers[number - 1].0.try_wait(), Ok(Some(_))) {
                return Err(self.failure(&format!("worker {number} has ended")));
            }
        }
        Ok(())
    }

    /// Waits for a line of a worker. Returns the number of the worker.
    fn wait(&self, mut is_meant: impl FnMut(&str) -> bool) -> Result<usize, XtaskFailure> {
        let until = Instant::now() + PATIENCE;
        loop {
            let remaining = until.saturating_duration_since(Instant::now());
            let Ok((number, event)) = self.events.recv_timeout(remaining) else {
                return Err(self.failure("the workers did not go on"));
            };
            if event.contains("failed") {
                return Err(self.failure(&format!("worker {number}: {event}")));
            }
            if is_meant(&event) {
                return Ok(number);
            }
        }
    }

    /// Begins the task without waiting for it. Returns the name of the run.
    fn enqueue(&self) -> Result<String, XtaskFailure> {
        let mut command = self.conclave(&["run", CONFIG, "--detach", TASK]);
        eprintln!("\n$ conclave {}", phase::arguments(&command));
        let output = phase::output(&mut command)?;
        let run = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || run.is_empty() {
            return Err(XtaskFailure::new(errors));
        }
        eprintln!("{run}");
        Ok(run)
    }

    /// Shows a command with its output.
    fn show(&self, words: &[&str]) -> Result<(), XtaskFailure> {
        let mut command = self.conclave(words);
        eprintln!("\n$ conclave {}", phase::arguments(&command));
        let status = phase::status(&mut command)?;
        if status.success() {
            return Ok(());
        }
        Err(XtaskFailure::new(format!("it ended with {status}")))
    }

    fn conclave(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.place.conclave());
        command.args(words).current_dir(&self.place.root).env_remove("CARGO_MANIFEST_DIR");
        command.env("CONCLAVE_STORE", &self.address).env("PGPASSWORD", &self.password);
        command
    }

    fn log(&self, number: usize) -> PathBuf {
        self.place.own().join(format!("worker-{number}.log"))
    }

    fn failure(&self, what: &str) -> XtaskFailure {
        let logs = [1, 2].map(|number| self.place.relative(&self.log(number)));
        XtaskFailure::new(format!("{what}; its words: {}", logs.join(", ")))
    }
}

/// Returns the address of a server, and the password in its URL.
fn without_password(url: &str) -> (String, String) {
    let parts = url.split_once("://").and_then(|(scheme, rest)| {
        let (user, server) = rest.split_once('@')?;
        let (user, password) = user.split_once(':')?;
        Some((format!("{scheme}://{user}@{server}"), password.to_owned()))
    });
    parts.unwrap_or_else(|| (url.to_owned(), String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_passed_beside_the_address() {
        let parts = |url| without_password(url);
        let (address, password) = parts("postgres://ada:secret@127.0.0.1:5433/runs");
        assert_eq!((&*address, &*password), ("postgres://ada@127.0.0.1:5433/runs", "secret"));
        assert_eq!(parts("postgres://ada@db/runs").0, "postgres://ada@db/runs");
    }
}

//! A soak of `conclave serve`: many readers of event streams, many runs at once, kills and drains of
//! the server meanwhile. At the end what each reader received is compared with the journal. Times
//! and memory are measured by the way and printed; only bounds of memory decide anything.

mod check;
mod client;
mod load;
mod measure;
mod pages;
mod process;
mod readers;
mod report;
mod stalled;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;

use check::{Journalled, differences, journalled};
use load::Load;
use process::ServerProcess;
use readers::{EventReaders, lock};
pub use report::ServerReport;

use crate::random::Random;

/// The time in which readers must have what the journal has, after all runs have ended.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(50);
/// Calls of an agent before each that waits for an approval.
const CALLS: usize = 5;
/// Problems of one kind that a report names one by one.
const NAMED: usize = 5;
/// MiB that an idle server may have allocated.
const IDLE_MIB: u64 = 60;

/// The amount of work of a soak of the server.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// Where the numbers begin.
    pub seed: u64,
    /// Readers of event streams.
    pub readers: usize,
    /// Runs at once.
    pub runs: usize,
    /// Approvals that each run waits for.
    pub approvals: usize,
    /// Ends of the server under load. The last one is a drain, the others are kills.
    pub ends: usize,
    /// Messages whose way is timed.
    pub messages: usize,
    /// Readers that never read.
    pub stalled: usize,
    /// Steps of the run whose page is timed.
    pub long_steps: usize,
    /// The program.
    pub conclave: PathBuf,
    /// The folder of guests.
    pub guests: PathBuf,
    /// The folder of compiled components.
    pub cache: PathBuf,
}

/// Plays a soak of the server.
///
/// # Errors
/// If it cannot be played at all. Violations are in the report.
pub fn soak_server(
    plan: &ServerPlan,
    follow: &(dyn Fn(&str) + Sync),
) -> Result<ServerReport, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(play(plan, follow))
}

async fn play(plan: &ServerPlan, follow: &(dyn Fn(&str) + Sync)) -> Result<ServerReport, String> {
    let began = Instant::now();
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    std::fs::write(folder.path().join("c.toml"), config(plan))
        .map_err(|error| error.to_string())?;
    let mut report = ServerReport { seed: plan.seed, ..ServerReport::default() };
    let mut random = Random::new(plan.seed);
    let mut server = ServerProcess::new(plan, folder.path()).map_err(|error| error.to_string())?;
    let (office, viewer) = (server.token("olga", "admin")?, server.token("vera", "viewer")?);
    server.start().await?;
    measure::idle(&server, &mut report).await;
    let mut load = Load::new(server.address(), &office, plan);
    load.begin().await?;
    follow(&format!("{} runs wait", load.runs.len()));
    let access = (server.address(), viewer.as_str());
    let mut readers = EventReaders::start(access, &load.runs, plan.readers, &mut random);
    until_all_read(&readers, &server).await?;
    follow(&format!("{} readers follow them", readers.all.len()));
    let timed = measure::messages(plan, &server, &office, &load.runs, &mut random).await?;
    follow("messages were timed");
    end_under_load(plan, (&mut server, &mut load), &mut random, &mut report, follow).await?;
    follow("all runs have ended");
    let journals = journals(&server, &load.runs)?;
    until_received(&readers, &journals).await;
    readers.end().await;
    timed.report(&readers, &journals, &mut report);
    compare(&readers, &journals, &mut report);
    load.check(&journals, &mut report);
    stalled::check(plan, &server, (&office, &viewer), &mut report).await?;
    follow("readers that never read were looked at");
    pages::measure(plan, &mut server, &office, &mut report).await?;
    follow("the page of a long run was timed");
    let ended = server.drain().map_err(|error| error.to_string())?;
    if ended.code() != Some(0) {
        report.problems.push(format!("the last drain ended with {ended}"));
    }
    if !report.is_well() {
        report.problems.push(format!("the end of the log: {}", server.log_end()));
    }
    report.took = began.elapsed();
    Ok(report)
}

/// An agent that calls a tool, with some of the calls approved by a person.
fn config(plan: &ServerPlan) -> String {
    let call = |tool: &str| json!({ "call": tool, "arguments": { "text": "it ran" } }).to_string();
    let round = [vec![call("echo.run"); CALLS], vec![call("asked.run")]].concat();
    let script = vec![round.join(", "); plan.approvals].join(", ");
    let guest = |name: &str| json!(plan.guests.join(name).with_extension("wasm")).to_string();
    let (actor, echo) = (guest("acting_agent"), guest("echo"));
    let script = script.replace("\":", "\" = ");
    let round = call("echo.run").replace("\":", "\" = ");
    let (long, steps) = (pages::TASK, plan.long_steps);
    format!(
        "entry = \"desk\"\n[tasks.desk]\nagent = \"actor\"\nstuck_detection = false\n\
         [tasks.{long}]\nagent = \"repeater\"\nstuck_detection = false\nloop_detection.cycle_len = 0\n\
         [limits.run]\nturns = {steps}\ntool_calls = {steps}\n\
         [plugins.repeater]\nsource = {actor}\ngrants.tools = [\"echo.*\"]\n\
         config = {{ report = false, repeat = true, script = [{round}] }}\n\
         [plugins.actor]\nsource = {actor}\ngrants.tools = [\"echo.*\", \"asked.*\"]\n\
         config = {{ report = false, script = [{script}] }}\n\
         [plugins.echo]\nsource = {echo}\n[plugins.asked]\nsource = {echo}\n\
         [[policy]]\ntool = \"asked.run\"\ndecide = \"ask\"\n[channels.web]\nkind = \"web\"\n"
    )
}

/// Waits until each reader has the beginning of its run.
async fn until_all_read(readers: &EventReaders, server: &ServerProcess) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let waiting = readers.all.iter().filter(|reader| reader.received().is_empty()).count();
        if waiting == 0 {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            let refused = lock(&readers.counts.refused).clone();
            let log = server.log_end();
            return Err(format!("{waiting} readers get nothing; refused: {refused:?}; {log}"));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Decides for the runs until all have ended, and ends the server now and then.
async fn end_under_load(
    plan: &ServerPlan,
    (server, load): (&mut ServerProcess, &mut Load),
    random: &mut Random,
    report: &mut ServerReport,
    follow: &(dyn Fn(&str) + Sync),
) -> Result<(), String> {
    let decisions = (plan.runs * plan.approvals) as u64;
    load.work();
    let (mut kills, mut drained) = (0_u64, None);
    for end in 0..plan.ends as u64 {
        let due = decisions * (end + 1) / (plan.ends as u64 + 1);
        load.until_decided(due, PATIENCE).await?;
        tokio::time::sleep(Duration::from_millis(random.below(200))).await;
        if end + 1 < plan.ends as u64 {
            server.kill().map_err(|error| error.to_string())?;
            kills += 1;
        } else {
            let began = Instant::now();
            let ended = tokio::task::block_in_place(|| server.drain());
            let ended = ended.map_err(|error| error.to_string())?;
            if ended.code() != Some(0) {
                report.problems.push(format!("a drain under load ended with {ended}"));
            }
            drained = Some(began.elapsed());
        }
        let began = Instant::now();
        server.start().await?;
        let took = began.elapsed().as_secs_f64();
        follow(&format!("end {} of {}; it answered again after {took:.1} s", end + 1, plan.ends));
    }
    load.until_ended(PATIENCE).await?;
    report.row("kills under load", kills);
    if let Some(time) = drained {
        report.row("drain under load", format!("{:.1} s", time.as_secs_f64()));
    }
    Ok(())
}

fn journals(server: &ServerProcess, runs: &[String]) -> Result<Vec<Vec<Journalled>>, String> {
    runs.iter().map(|run| journalled(server.store(), run)).collect()
}

/// The journal of a reader's run.
fn journal_of(index: usize, journals: &[Vec<Journalled>]) -> &[Journalled] {
    &journals[index % journals.len()]
}

/// Waits until each reader has the last record of its run. One that never gets it is a violation,
/// which is found later.
async fn until_received(readers: &EventReaders, journals: &[Vec<Journalled>]) {
    let began = Instant::now();
    let is_behind = || {
        readers.all.iter().enumerate().any(|(index, reader)| {
            let last = journal_of(index, journals).last().map(|record| record.id.clone());
            reader.last() != last
        })
    };
    while is_behind() && began.elapsed() < PATIENCE {
        tokio::time::sleep(LOOK).await;
    }
}

/// Compares each reader with the journal of its run.
fn compare(readers: &EventReaders, journals: &[Vec<Journalled>], report: &mut ServerReport) {
    let mut wrong = Vec::new();
    for (index, reader) in readers.all.iter().enumerate() {
        let found = differences(journal_of(index, journals), &reader.received());
        if found != check::Differences::default() {
            wrong.push(format!("reader {index} of {}: {found:?}", reader.run));
        }
        wrong.extend(lock(&reader.problems).iter().cloned());
    }
    let counts = &readers.counts;
    let count =
        |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    let events: usize = readers.all.iter().map(|reader| reader.received().len()).sum();
    let runs: BTreeSet<&str> = readers.all.iter().map(|reader| reader.run.as_str()).collect();
    report.row("readers", readers.all.len());
    report.row("runs that they followed", runs.len());
    report.row("records of those runs", journals.iter().map(Vec::len).sum::<usize>());
    report.row("events received", events);
    report.row("streams opened", count(&counts.connected));
    report.row("streams ended", count(&counts.ended));
    report.row("streams ended with a time to come back", count(&counts.ended_with_hint));
    for (status, count) in lock(&counts.refused).iter() {
        report.row(format!("streams refused with {status}"), count);
    }
    report.row("readers with lost, doubled, disordered or other events", wrong.len());
    let more = wrong.len().saturating_sub(NAMED);
    report.problems.extend(wrong.into_iter().take(NAMED));
    if more > 0 {
        report.problems.push(format!("and {more} readers more"));
    }
}

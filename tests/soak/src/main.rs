//! `cargo xtask soak` ends here.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
#[cfg(unix)]
use std::time::Duration;

use clap::{Parser, Subcommand};
use conclave_soak::{Child, Keep, Place, Plan, Totals, can_cut_power, soak};
#[cfg(unix)]
use conclave_soak::{
    ClusterFailure, ClusterPlan, ClusterReport, ClusterWorker, ServerPlan, soak_cluster,
    soak_server,
};

/// Kills a busy host again and again, and looks whether anything was lost or done twice.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask soak")]
struct Options {
    #[command(subcommand)]
    only: Option<Only>,
    /// Makes faults around workers that share a PostgreSQL server, instead of the kills below
    #[arg(long)]
    postgres: bool,
    /// With --postgres: two servers under Patroni, which promotes the standby
    #[arg(long, requires = "postgres")]
    patroni: bool,
    /// With --postgres: how many faults, at least
    #[arg(long, default_value_t = 300)]
    faults: u64,
    /// With --postgres: the minutes in which the faults come
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Ends `conclave serve` under many readers and runs, instead of the kills below
    #[arg(long, conflicts_with = "postgres")]
    server: bool,
    /// With --server: readers of event streams
    #[arg(long, default_value_t = 1_000, requires = "server")]
    readers: usize,
    /// With --server: kills of the server under load, and a drain behind them
    #[arg(long, default_value_t = 5, requires = "server")]
    ends: usize,
    /// With --server: readers that never read
    #[arg(long, default_value_t = 100, requires = "server")]
    stalled: usize,
    /// How often a host is killed, at least; 500 when --power-cuts is not given either
    #[arg(long)]
    kills: Option<u64>,
    /// How often the power of a host's machine is cut, at least; 200 when --kills is not given
    /// either
    #[arg(long)]
    power_cuts: Option<u64>,
    /// Where the numbers begin; a failure names its own
    #[arg(long)]
    seed: Option<u64>,
    /// Runs of one host at once; 6, or with --server 200
    #[arg(long)]
    runs: Option<u32>,
    /// Kills of one host before it may end its work
    #[arg(long, default_value_t = 12)]
    each: u64,
    /// Hosts at once
    #[arg(long, default_value_t = 2)]
    at_once: u32,
    /// When records survive a power cut: sync, group or exit
    #[arg(long, default_value = "group")]
    keep: String,
    /// Milliseconds that the world takes to answer, at most
    #[arg(long, default_value_t = 25)]
    slowest: u64,
    #[arg(long, default_value = "target/conclave/guests", hide = true)]
    guests: PathBuf,
    #[arg(long, default_value = "target/conclave/stock", hide = true)]
    stock: PathBuf,
    #[arg(long, default_value = "target/conclave/test-cache", hide = true)]
    cache: PathBuf,
    #[arg(long, default_value = "target/debug/conclave", hide = true)]
    conclave: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Only {
    /// The host that is killed
    #[command(hide = true)]
    Child { words: String },
    /// A worker of a shared store
    #[cfg(unix)]
    #[command(hide = true)]
    Worker { words: String },
}

/// The exit code where there is no PostgreSQL.
const UNAVAILABLE: u8 = 3;

/// The reason why a soak failed, with the exit code.
struct Failure(String, ExitCode);

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self(reason, ExitCode::FAILURE)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.only {
        Some(Only::Child { words }) => Child::of_words(words)
            .ok_or_else(|| "these words are no child's".to_owned())
            .and_then(Child::live)
            .map_err(Failure::from),
        #[cfg(unix)]
        Some(Only::Worker { words }) => ClusterWorker::of_words(words)
            .ok_or_else(|| "these words are no worker's".to_owned())
            .and_then(ClusterWorker::live)
            .map_err(Failure::from),
        None if options.postgres => postgres(&options),
        None if options.server => server(&options),
        None => run(&options).map_err(Failure::from),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(reason, code)) => {
            eprintln!("{reason}");
            code
        }
    }
}

#[cfg(not(unix))]
fn postgres(_: &Options) -> Result<(), Failure> {
    let reason = "faults around a shared store need signals, which this system does not have";
    Err(Failure(reason.to_owned(), ExitCode::from(UNAVAILABLE)))
}

#[cfg(unix)]
fn postgres(options: &Options) -> Result<(), Failure> {
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(|error| error.to_string());
    let seed = options.seed.unwrap_or_else(drawn_seed);
    let plan = ClusterPlan {
        seed,
        faults: options.faults,
        time: Duration::from_secs(options.minutes * 60),
        longest: Duration::from_secs(20),
        workers: 3,
        runs: usize::try_from(options.faults.min(200)).unwrap_or(200),
        open: 24,
        slowest_ms: 1_500,
        patroni: options.patroni,
        stock: absolute(&options.stock)?,
        cache: absolute(&options.cache)?,
    };
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let start = |worker: &ClusterWorker| {
        let mut command = Command::new(&program);
        command.args(["worker", &worker.words()]);
        command
    };
    let follow = |report: &ClusterReport| {
        let count = |what| report.counts.get(what).copied().unwrap_or_default();
        let (runs, ended) = (count("runs"), count("runs with an end"));
        let seconds = report.took.as_secs_f64();
        eprintln!(
            "{:>5} of {} faults, {ended} of {runs} runs ended, {seconds:.0} s",
            report.all_faults(),
            plan.faults
        );
    };
    eprintln!("seed {seed}");
    match soak_cluster(&plan, &start, &follow) {
        Ok(report) => {
            print!("{report}");
            if report.is_well() { Ok(()) } else { Err("not all is well".to_owned().into()) }
        }
        Err(ClusterFailure::Unavailable(reason)) => {
            Err(Failure(reason, ExitCode::from(UNAVAILABLE)))
        }
        Err(ClusterFailure::Failed(reason)) => Err(reason.into()),
    }
}

#[cfg(not(unix))]
fn server(_: &Options) -> Result<(), Failure> {
    let reason = "ends of a server need signals, which this system does not have";
    Err(Failure(reason.to_owned(), ExitCode::from(UNAVAILABLE)))
}

#[cfg(unix)]
fn server(options: &Options) -> Result<(), Failure> {
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(|error| error.to_string());
    let plan = ServerPlan {
        seed: options.seed.unwrap_or_else(drawn_seed),
        readers: options.readers,
        runs: options.runs.map_or(200, |runs| runs as usize),
        approvals: 4,
        ends: options.ends,
        messages: 200,
        stalled: options.stalled,
        long_steps: 5_000,
        conclave: absolute(&options.conclave)?,
        guests: absolute(&options.guests)?,
        cache: absolute(&options.cache)?,
    };
    eprintln!("seed {}", plan.seed);
    let report = soak_server(&plan, &|line| eprintln!("{line}"))?;
    print!("{report}");
    if report.is_well() { Ok(()) } else { Err("not all is well".to_owned().into()) }
}

/// A hasher's own seed is random enough. Shortened, because users type it again.
fn drawn_seed() -> u64 {
    RandomState::new().hash_one(0) >> 20
}

fn run(options: &Options) -> Result<(), String> {
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(|error| error.to_string());
    let place = Place {
        guests: absolute(&options.guests)?,
        stock: absolute(&options.stock)?,
        cache: absolute(&options.cache)?,
    };
    let seed = options.seed.unwrap_or_else(drawn_seed);
    let keep = Keep::of_word(&options.keep)
        .ok_or_else(|| format!("`{}` is none of sync, group, exit", options.keep))?;
    let Options { each, at_once, slowest, .. } = *options;
    let runs = options.runs.unwrap_or(6);
    let (kills, power_cuts) = match (options.kills, options.power_cuts) {
        (None, None) => (500, 200),
        (kills, power_cuts) => (kills.unwrap_or(0), power_cuts.unwrap_or(0)),
    };
    let plan = Plan { kills, seed, runs, each, keep, at_once, slowest_ms: slowest, power: false };
    let mut problems = 0;
    if kills > 0 {
        problems += phase(&place, &plan, &options.keep)?;
    }
    if power_cuts > 0 {
        match may_cut(keep) {
            Ok(()) => {
                problems +=
                    phase(&place, &Plan { kills: power_cuts, power: true, ..plan }, &options.keep)?
            }
            Err(why) if options.power_cuts.is_some() => return Err(why),
            Err(why) => eprintln!("no power was cut: {why}"),
        }
    }
    if problems == 0 { Ok(()) } else { Err(format!("{problems} problems")) }
}

fn may_cut(keep: Keep) -> Result<(), String> {
    if !keep.survives_power_cuts() {
        return Err(format!(
            "with --keep {} a power cut may lose what was told; use sync or group",
            keep.word()
        ));
    }
    can_cut_power()
}

/// Runs a phase of kills or power cuts. Returns the number of problems.
fn phase(place: &Place, plan: &Plan, keep: &str) -> Result<usize, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let command = |child: &Child| {
        let mut command = Command::new(&program);
        command.args(["child", &child.words()]);
        command
    };
    let what = if plan.power { "power cuts" } else { "kills" };
    let follow = |totals: &Totals| {
        let done = if plan.power { totals.power_cuts() } else { totals.killed() };
        eprintln!(
            "{done:>5} of {} {what}, {} problems, {:.0} s",
            plan.kills,
            totals.problems.len(),
            totals.took.as_secs_f64()
        );
    };
    let totals = soak(place, plan, &command, &follow)?;
    println!("{what}: seed {}, {keep} durability\n{totals}", plan.seed);
    Ok(totals.problems.len())
}

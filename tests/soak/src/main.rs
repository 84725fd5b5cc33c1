//! `cargo xtask soak` ends here.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};
use conclave_soak::{Child, Keep, Place, Plan, Totals, can_cut_power, soak};

/// Kills a busy host again and again, and looks whether anything was lost or done twice.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask soak")]
struct Options {
    #[command(subcommand)]
    only: Option<Only>,
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
    /// Runs of one host at once
    #[arg(long, default_value_t = 6)]
    runs: u32,
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
}

#[derive(Debug, Subcommand)]
enum Only {
    /// The host that is killed
    #[command(hide = true)]
    Child { words: String },
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.only {
        Some(Only::Child { words }) => Child::of_words(words)
            .ok_or_else(|| "these words are no child's".to_owned())
            .and_then(Child::live),
        None => run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(|error| error.to_string());
    let place = Place {
        guests: absolute(&options.guests)?,
        stock: absolute(&options.stock)?,
        cache: absolute(&options.cache)?,
    };
    // A hasher's own seed is random enough. Shortened, because users type it again.
    let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one(0) >> 20);
    let keep = Keep::of_word(&options.keep)
        .ok_or_else(|| format!("`{}` is none of sync, group, exit", options.keep))?;
    let Options { runs, each, at_once, slowest, .. } = *options;
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

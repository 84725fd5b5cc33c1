//! `cargo xtask soak` ends here.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};
use conclave_soak::{Child, Keep, Place, Plan, Totals, soak};

/// Kills a busy host again and again, and looks whether anything was lost or done twice.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask soak")]
struct Options {
    #[command(subcommand)]
    only: Option<Only>,
    /// How often a host is killed, at least
    #[arg(long, default_value_t = 500)]
    kills: u64,
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
    /// sync, group, exit, or lines for files of JSON lines
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
        Some(Only::Child { words }) => Child::of_words(words).ok_or_else(|| "these words are no child's".to_owned()).and_then(Child::live),
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
    let place = Place { guests: absolute(&options.guests)?, stock: absolute(&options.stock)?, cache: absolute(&options.cache)? };
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seed = options.seed.unwrap_or(since.as_secs() << 16);
    let keep = Keep::of_word(&options.keep).ok_or_else(|| format!("`{}` is none of sync, group, exit, lines", options.keep))?;
    let Options { kills, runs, each, at_once, slowest, .. } = *options;
    let plan = Plan { kills, seed, runs, each, keep, at_once, slowest_ms: slowest };
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let command = |child: &Child| {
        let mut command = Command::new(&program);
        command.args(["child", &child.words()]);
        command
    };
    let follow = |totals: &Totals| {
        eprintln!("{:>5} of {kills} kills, {} problems, {:.0} s", totals.killed(), totals.problems.len(), totals.took.as_secs_f64());
    };
    let totals = soak(&place, &plan, &command, &follow)?;
    println!("seed {seed}, {} durability\n{totals}", options.keep);
    if totals.problems.is_empty() { Ok(()) } else { Err(format!("{} problems", totals.problems.len())) }
}

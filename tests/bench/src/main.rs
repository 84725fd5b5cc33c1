//! Measures Conclave beside its baselines, both in this process and by turns, so that the machine's
//! noise meets both. Ratios are what counts; absolute times are for orientation. Nothing here
//! passes or fails: a target that is missed is shown as missed.

mod acting;
mod bare;
mod bare_agent;
mod conclave;
mod decision;
mod delivery;
mod durable;
mod measure;
mod neighbour;
mod report;
mod rows;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use measure::Effort;
use report::Report;

/// Measures Conclave beside its baselines.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench")]
struct Options {
    /// A tenth of the samples: a rough answer in seconds
    #[arg(long)]
    quick: bool,
    /// Only rows whose name contains this
    filter: Option<String>,
    /// Folder of the tests' components
    #[arg(long, default_value = "target/conclave/guests", hide = true)]
    guests: PathBuf,
    /// Folder of the stock plugins
    #[arg(long, default_value = "target/conclave/stock", hide = true)]
    stock: PathBuf,
    /// Where the figures go as JSON
    #[arg(long, default_value = "target/conclave/bench.json")]
    json: PathBuf,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let effort = if options.quick { Effort::Quick } else { Effort::Full };
    let outcome = measured(&options, effort).and_then(|report| {
        report.write_json(&options.json)?;
        print!("{report}");
        eprintln!("\n{}", options.json.display());
        Ok(())
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the measurement stopped: {error}");
            ExitCode::FAILURE
        }
    }
}

/// An error that prevents the measurement of a row.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(
        "{path} cannot be read: {cause}. `cargo xtask bench` builds it first; `cargo xtask guests` alone does too."
    )]
    Component { path: PathBuf, cause: std::io::Error },
    #[error("{path} cannot be written: {cause}")]
    Write { path: PathBuf, cause: std::io::Error },
    #[error("Conclave: {0}")]
    Conclave(String),
    #[error("wasmtime: {0:#}")]
    Wasmtime(#[from] wasmtime::Error),
    #[error("the async runtime does not start: {0}")]
    Executor(std::io::Error),
    #[error("the component gave a wrong answer, so its time means nothing: {0}")]
    Answer(String),
}

fn measured(options: &Options, effort: Effort) -> Result<Report, BenchError> {
    // A single thread, because the row measures the latency of one call and not the throughput.
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BenchError::Executor)?;
    let wanted =
        |name: &str| options.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
    executor.block_on(rows::all(&options.guests, effort, &wanted))
}

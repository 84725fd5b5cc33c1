//! Measures Conclave beside its baselines, both in this process and by turns, so that the machine's
//! noise meets both. Ratios are what counts; absolute times are for orientation. Nothing here
//! passes or fails: a target that is missed is shown as missed.

mod acting;
mod bare;
mod bare_agent;
mod conclave;
mod curves;
mod decision;
mod delivery;
mod doors;
mod durable;
mod executors;
mod languages;
mod measure;
mod neighbour;
mod postgres;
mod report;
mod rows;
mod sandbox_calls;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use curves::Curves;
use measure::Effort;
use postgres::WorkerKind;
use report::Report;
use rows::Folders;

/// The program's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Conclave beside its baselines.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench")]
struct Options {
    /// A tenth of the samples: a rough answer in seconds
    #[arg(long)]
    quick: bool,
    /// How cost grows with history, plugins, tools, rooms, tasks, records and subscribers, instead
    #[arg(long)]
    curves: bool,
    /// The same, and writes the picture of the documentation
    #[arg(long, conflicts_with_all = ["quick", "filter"])]
    write_curves: bool,
    /// A store on PostgreSQL, instead: durable steps, workers, runs that sleep
    #[arg(long, conflicts_with_all = ["curves", "write_curves"])]
    postgres: bool,
    /// Only rows or curves whose name contains this
    filter: Option<String>,
    /// Folder of the tests' components
    #[arg(long, default_value = "target/conclave/guests", hide = true)]
    guests: PathBuf,
    /// Folder of the stock plugins
    #[arg(long, default_value = "target/conclave/stock", hide = true)]
    stock: PathBuf,
    /// Folder of one tool in each language
    #[arg(long, default_value = "target/conclave/languages", hide = true)]
    languages: PathBuf,
    /// The program `conclave` of the rows about MCP
    #[arg(long, default_value = "conclave")]
    program: PathBuf,
    /// Where the figures go as JSON
    #[arg(long, default_value = "target/conclave/bench.json")]
    json: PathBuf,
    /// Draws the picture from figures that were measured before
    #[arg(long, hide = true)]
    draw: Option<PathBuf>,
    /// A worker of the rows on PostgreSQL: the database
    #[arg(long, hide = true)]
    work_on: Option<String>,
    /// The time for which its model waits
    #[arg(long, default_value_t = 20, hide = true)]
    model_ms: u64,
    /// The number of its tasks at once
    #[arg(long, default_value_t = 8, hide = true)]
    at_once: usize,
}

/// The picture of the documentation, from the root of the repository.
const PICTURE: &str = "docs/internals/growth.svg";

fn main() -> ExitCode {
    let options = Options::parse();
    let effort = if options.quick { Effort::Quick } else { Effort::Full };
    let kind = WorkerKind { model_ms: options.model_ms, at_once: options.at_once };
    let outcome = if let Some(url) = &options.work_on {
        executor().and_then(|executor| executor.block_on(postgres::work(url, kind)))
    } else if options.postgres {
        postgres(&options, effort)
    } else if options.curves || options.write_curves || options.draw.is_some() {
        curves(&options, effort)
    } else {
        rows(&options, effort)
    };
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
    #[error("PostgreSQL: {0}")]
    Postgres(String),
    #[error("the async runtime does not start: {0}")]
    Executor(std::io::Error),
    #[error("the component gave a wrong answer, so its time means nothing: {0}")]
    Answer(String),
}

impl From<tokio_postgres::Error> for BenchError {
    fn from(error: tokio_postgres::Error) -> Self {
        // The error itself does not repeat what the server answered.
        Self::Postgres(error.source().map_or_else(|| error.to_string(), ToString::to_string))
    }
}

fn rows(options: &Options, effort: Effort) -> Result<(), BenchError> {
    let report: Report =
        executor()?.block_on(rows::all(&options.folders(), effort, &options.wanted()))?;
    report.write_json(&options.json)?;
    print!("{report}");
    eprintln!("\n{}", options.json.display());
    Ok(())
}

/// Measures the rows of a store on PostgreSQL.
fn postgres(options: &Options, effort: Effort) -> Result<(), BenchError> {
    let json = options.json.with_file_name("bench-postgres.json");
    let report = executor()?.block_on(postgres::all(effort, &options.wanted()))?;
    report.write_json(&json)?;
    print!("{report}");
    eprintln!("\n{}", json.display());
    Ok(())
}

/// Measures curves, or reads those of an earlier measurement, and draws them.
fn curves(options: &Options, effort: Effort) -> Result<(), BenchError> {
    let json = options.json.with_file_name("curves.json");
    let curves = match &options.draw {
        Some(path) => Curves::read_json(path)?,
        None => executor()?.block_on(curves::all(&options.guests, effort, &options.wanted()))?,
    };
    let picture = if options.write_curves {
        PathBuf::from(PICTURE)
    } else {
        options.json.with_file_name("growth.svg")
    };
    curves.write_json(&json)?;
    curves.write_svg(&picture)?;
    print!("{curves}");
    eprintln!("\n{}\n{}", json.display(), picture.display());
    Ok(())
}

/// Returns an executor with a single thread, because the rows measure the latency of one call and
/// not the throughput.
fn executor() -> Result<tokio::runtime::Runtime, BenchError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(BenchError::Executor)
}

impl Options {
    fn folders(&self) -> Folders<'_> {
        Folders {
            guests: &self.guests,
            stock: &self.stock,
            languages: &self.languages,
            program: &self.program,
        }
    }

    /// Returns the filter by name.
    fn wanted(&self) -> impl Fn(&str) -> bool {
        |name| self.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()))
    }
}

//! `conclave-conformance`: plays the scenarios of files and prints one JSON line for each that
//! fails, then the counts. `cargo xtask conformance` builds what it needs and starts it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use conclave_conformance::bound;
use conclave_conformance::config::{self, Guests};
use conclave_conformance::counts::Counts;
use conclave_conformance::scenario::Scenario;
use conclave_conformance::workers::answer_all;
use conclave_conformance::{
    End, Runner, Verdict, is_conversation, lines, needs_guests, needs_strategies, problem,
};
use serde_json::json;

const USAGE: &str =
    "conclave-conformance --guests FOLDER [--cache FOLDER] [--only ID,…] [--jobs N] [--events N] [--verbose] [--config] FILE…
    --only     these ids; `C-1*` is every id that begins so
    --jobs     processes that play at the same time; 2 when it is not given
    --events   a scenario that records more does not end; 200000 when it is not given. Nothing is limited by time
    --verbose  tells on stderr what passed, and where what failed differs
    --config   prints the configs that scenarios become, and plays nothing";

#[derive(Default)]
struct Options {
    files: Vec<PathBuf>,
    guests: PathBuf,
    cache: Option<PathBuf>,
    only: Vec<String>,
    jobs: Option<usize>,
    events: Option<u64>,
    verbose: bool,
    config: bool,
    /// Answers each line of stdin with a verdict: how this program starts itself.
    worker: bool,
}

fn main() -> ExitCode {
    match read(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        let mut next =
            || words.next().ok_or_else(|| format!("{word} needs a word behind it\n{USAGE}"));
        match word.as_str() {
            "--guests" => options.guests = next()?.into(),
            "--cache" => options.cache = Some(next()?.into()),
            "--only" => options.only.extend(next()?.split(',').map(str::to_owned)),
            "--jobs" => {
                options.jobs =
                    Some(next()?.parse().map_err(|_| format!("--jobs needs a number\n{USAGE}"))?)
            }
            "--events" => {
                options.events =
                    Some(next()?.parse().map_err(|_| format!("--events needs a number\n{USAGE}"))?)
            }
            "--verbose" | "-v" => options.verbose = true,
            "--config" => options.config = true,
            "--worker" => options.worker = true,
            other if other.starts_with('-') => {
                return Err(format!("{other} is not known\n{USAGE}"));
            }
            file => options.files.push(file.into()),
        }
    }
    if options.files.is_empty() && !options.worker { Err(USAGE.to_owned()) } else { Ok(options) }
}

fn run(options: &Options) -> Result<ExitCode, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    if options.worker {
        return runtime.block_on(work(options));
    }
    let (mut wanted, mut unreadable) = (Vec::new(), 0);
    for file in &options.files {
        for (number, line) in lines(file)?.into_iter().filter(|(_, line)| is_wanted(options, line))
        {
            match problem(&line) {
                Some(problem) => {
                    unreadable += 1;
                    let told = format!("{}, line {number}: {problem}", file.display());
                    let Verdict { id, .. } = Verdict::failed(&line, &told);
                    println!("{}", json!({ "id": id, "expected": null, "got": told }));
                    eprintln!("{told}");
                }
                None => wanted.push(line),
            }
        }
    }
    if options.config {
        return print_configs(options, &wanted);
    }
    // Compile once here, so that the worker processes find everything in the cache.
    if wanted.iter().any(|line| needs_guests(line)) {
        runtime.block_on(Runner::new(&options.guests, options.cache.clone())?.warm_up())?;
    }
    if wanted.iter().any(|line| is_conversation(line)) {
        runtime.block_on(
            Runner::new(&options.guests, options.cache.clone())?.warm_up_conversations(),
        )?;
    }
    if wanted.iter().any(|line| needs_strategies(line)) {
        runtime.block_on(Runner::new(&options.guests, options.cache.clone())?.warm_up_rooms())?;
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let command = || {
        let mut command = Command::new(&program);
        command.arg("--events").arg(options.events.unwrap_or(bound::EVENTS).to_string());
        command.arg("--worker").arg("--guests").arg(&options.guests);
        command
            .args(options.cache.iter().flat_map(|cache| ["--cache".as_ref(), cache.as_os_str()]));
        command
    };
    let mut counts = Counts::with_unreadable(unreadable);
    let told = |line: &str, answer: Result<String, String>| {
        let read =
            |answer: String| serde_json::from_str(&answer).map_err(|error| error.to_string());
        let Verdict { id, end } =
            answer.and_then(read).unwrap_or_else(|reason| Verdict::failed(line, &reason));
        counts.add(line, &end);
        match end {
            End::Passed => {
                if options.verbose {
                    eprintln!("{id} passed");
                }
            }
            End::Skipped => {}
            End::NotPlayed { reason } => eprintln!("{id} is not played: {reason}"),
            End::Otherwise { differences } => {
                eprintln!("{id} differs, as documented in docs/migrate/differences.md");
                if options.verbose {
                    differences.iter().for_each(|difference| eprintln!("    {difference}"));
                }
            }
            End::Failed { expected, got, differences } => {
                println!("{}", json!({ "id": id, "expected": expected, "got": got }));
                if options.verbose {
                    eprintln!("{id} failed");
                    differences.iter().for_each(|difference| eprintln!("    {difference}"));
                }
            }
        }
    };
    answer_all(&wanted, options.jobs.unwrap_or(2).max(1), command, told)
        .map_err(|error| error.to_string())?;
    print!("{counts}");
    Ok(ExitCode::from(u8::from(counts.failed > 0)))
}

async fn work(options: &Options) -> Result<ExitCode, String> {
    let runner = Runner::new(&options.guests, options.cache.clone())?
        .with_events(options.events.unwrap_or(bound::EVENTS));
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let verdict = runner.judge(&line).await;
        let answer = serde_json::to_string(&verdict).map_err(|error| error.to_string())?;
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{answer}")
            .and_then(|()| stdout.flush())
            .map_err(|error| error.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn is_wanted(options: &Options, line: &str) -> bool {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(line) else { return true };
    let id = value.get("id").and_then(|id| id.as_str()).map(str::to_owned);
    let is_meant = |only: &String, id: &str| {
        only.strip_suffix('*').map_or_else(|| only == id, |start| id.starts_with(start))
    };
    options.only.is_empty()
        || id.is_some_and(|id| options.only.iter().any(|only| is_meant(only, &id)))
}

/// For whoever wants to see what a scenario becomes.
fn print_configs(options: &Options, lines: &[String]) -> Result<ExitCode, String> {
    let guests = Guests::of_folder(&options.guests);
    for line in lines {
        let scenario: Scenario = serde_json::from_str(line).map_err(|error| error.to_string())?;
        println!("# {}\n{}", scenario.id, config::text(&scenario, &guests)?);
    }
    Ok(ExitCode::SUCCESS)
}

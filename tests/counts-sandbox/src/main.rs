//! `conclave-counts-sandbox run GUESTS CODE TASKS` runs tasks of a step, a tool call and a step, each
//! call in a fresh sandbox. `cargo xtask counts` runs it under callgrind with two numbers of tasks:
//! the difference has no start of the program in it. `compile GUESTS CODE` makes the guests' machine
//! code before, because under callgrind the compiler takes minutes.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use conclave_runtime::clock::{BoxFuture, Clock};
use conclave_runtime::config::Config;
use conclave_runtime::engine::EngineSettings;
use conclave_runtime::ids::Millis;
use conclave_runtime::outcome::Status;
use conclave_runtime::plugin::{
    CodeTarget, PluginComponent, PrebuiltBytes, ProgramFile, inspect, precompile,
};
use conclave_runtime::{Host, HostOptions, RunOptions};

const GUESTS: [&str; 2] = ["agent_caller", "echo"];
const CONFIG: &str = r#"
entry = "main"
[plugins.caller]
source = "stock:agent_caller"
grants.tools = ["echo.*"]
config = { tool = "echo.run", arguments = { text = "When was Skerryvore lit?" } }
[plugins.echo]
source = "stock:echo"
[tasks.main]
agent = "caller"
"#;

/// The machine's clock is read through the kernel's vDSO, which callgrind does not map.
struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Millis {
        Millis(0)
    }

    fn sleep_until(&self, _: Millis) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["compile", guests, code] => compile(Path::new(guests), Path::new(code)),
        ["run", guests, code, tasks] => run(Path::new(guests), Path::new(code), tasks),
        _ => Err("compile GUESTS CODE, or run GUESTS CODE TASKS".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Compiles the guests for every machine of this family: callgrind knows fewer instructions than
/// the machine has.
fn compile(guests: &Path, code: &Path) -> Result<(), Failure> {
    fs::create_dir_all(code)?;
    for name in GUESTS {
        let compiled = precompile(&component(guests, name)?, CodeTarget::AnyMachine)?;
        fs::write(code.join(name), compiled.code)?;
    }
    Ok(())
}

fn component(guests: &Path, name: &str) -> Result<Vec<u8>, Failure> {
    Ok(fs::read(guests.join(name).with_extension("wasm"))?)
}

#[expect(unsafe_code, reason = "machine code cannot be checked; it was written by `compile`")]
fn run(guests: &Path, code: &Path, tasks: &str) -> Result<(), Failure> {
    let mut stock = BTreeMap::new();
    for name in GUESTS {
        let (bytes, file) = (component(guests, name)?, code.join(name));
        let inspection = inspect(&bytes)?;
        let digest = ProgramFile::digest_of(&fs::read(&file)?);
        let bytes = PrebuiltBytes::InProgram(bytes.into());
        // SAFETY: the folder is in this checkout's target folder, and `compile` wrote the file.
        let component =
            unsafe { PluginComponent::prebuilt(bytes, inspection, ProgramFile::new(file, digest)) };
        stock.insert(name.to_owned(), component);
    }
    let engine = EngineSettings { slots: 1, ..EngineSettings::default() };
    let host = Host::new(HostOptions { engine, stock, ..HostOptions::default() })?;
    let config =
        Config::parse("counts.toml", "", CONFIG).map_err(|problems| problems.to_string())?;
    let tasks: u32 = tasks.parse()?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let prepared = host.prepare(&config, &(Arc::new(|_| {}) as _)).await?;
        for _ in 0..tasks {
            let options = RunOptions { clock: Arc::new(StoppedClock), ..RunOptions::default() };
            let run = prepared.start(Some("go".to_owned()), options)?;
            let outcome = run.outcome().await?;
            if outcome.status != Status::Done {
                return Err(format!("{outcome:?}").into());
            }
        }
        Ok(())
    })
}

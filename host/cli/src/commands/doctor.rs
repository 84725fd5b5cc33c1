//! `conclave doctor`: what this machine can do, and whether the model servers of a config answer.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use conclave_core::config::Config;
use conclave_runtime::{Host, Probe, RunOptions};
use serde_json::json;

use crate::args::{Doctor, Output};
use crate::doctor::{self, Finding, State};
use crate::error::CliError;
use crate::show::{self, BAD, FAINT, GOOD, ODD, paint};
use crate::{exit, setup, stdout};

/// Calls that are timed, after some that are not.
const CALLS: usize = 100;
const WARM_UP: usize = 10;
/// Of the models that a server has.
const MODELS_SHOWN: usize = 8;
/// A tool that answers at once when there is nothing in its folder.
const PROBE: &str = r#"
entry = "probe"
[plugins.search]
source = "stock:search"
grants.files = [{ dir = "empty", at = "/empty", mode = "read" }]
[plugins.digest]
source = "stock:digest"
grants.tools = ["search.*"]
[tasks.probe]
agent = "digest"
"#;

/// Looks at everything, tells it, and ends with 0, 1 when something will not work, or 4 when only a model server does not answer.
pub(crate) async fn doctor(args: Doctor, output: Output) -> Result<u8, CliError> {
    let chosen = args.model.models()?;
    let config = args.file.as_deref().map(|file| setup::read_config(file, &chosen)).transpose()?;
    let mut findings = machine(args.file.as_deref()).await;
    let broken = findings.iter().any(|finding| finding.state == State::Bad);
    let mut unreachable = false;
    if let (Some(config), Some(file)) = (&config, &args.file) {
        let models = models(&setup::open_host_in(file)?, config).await;
        unreachable = models.iter().any(|finding| finding.state == State::Bad);
        findings.extend(models);
    }
    tell(&findings, output)?;
    Ok(match (broken, unreachable) {
        (true, _) => exit::FAILED,
        (false, true) => exit::UNREACHABLE,
        (false, false) => exit::OK,
    })
}

async fn machine(file: Option<&Path>) -> Vec<Finding> {
    let folder = file.and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut findings = vec![program()];
    findings.push(sandbox().await);
    findings.push(doctor::page_map_scan());
    findings.extend([doctor::maps(), doctor::address_space(), doctor::open_files()].into_iter().flatten());
    findings.push(doctor::cache(setup::cache_folder().as_deref()));
    findings.push(doctor::syncing(folder));
    findings.extend(doctor::authors_tools());
    findings
}

fn program() -> Finding {
    const WHAT: &str = "program";
    let (version, contract) = (env!("CARGO_PKG_VERSION"), conclave_core::manifest::CONTRACT);
    let found = format!("conclave {version}, contract {contract}, {}/{}", std::env::consts::OS, std::env::consts::ARCH);
    match conclave_stock::stock().len() {
        0 => Finding::fair(WHAT, format!("{found}, without stock plugins"), "build it with `cargo xtask install`"),
        plugins => Finding::good(WHAT, format!("{found}, {plugins} stock plugins")),
    }
}

/// What a call in a sandbox of its own costs here.
async fn sandbox() -> Finding {
    const WHAT: &str = "sandboxes";
    let host = match setup::open_host() {
        Ok(host) => host,
        Err(error) => return Finding::bad(WHAT, error.to_string(), "see the lines below about maps and address space"),
    };
    match time_calls(&host).await {
        Ok(took) => Finding::good(WHAT, format!("a search in an empty folder, in a fresh one, takes {}", show::time(took))),
        Err(reason) => {
            Finding::fair(WHAT, format!("the engine starts; no call was timed: {reason}"), "build it with `cargo xtask install`")
        }
    }
}

async fn time_calls(host: &Host) -> Result<Duration, String> {
    let folder = doctor::Scratch::new().map_err(|error| error.to_string())?;
    let config = Config::parse("doctor", &folder.shown(), PROBE).map_err(|problems| problems.to_string())?;
    let prepared = host.load(&config).await.map_err(|error| error.to_string())?;
    let mut times = Vec::new();
    for call in 0..WARM_UP + CALLS {
        let run = prepared.call_tool("search.find", json!({ "query": "light" }), RunOptions::default());
        let run = run.await.map_err(|error| error.to_string())?;
        if call >= WARM_UP {
            times.push(run.report.wall_us);
        }
    }
    times.sort_unstable();
    Ok(Duration::from_micros(times[times.len() / 2]))
}

/// Whether the server of each model answers, and knows the model.
async fn models(host: &Host, config: &Config) -> Vec<Finding> {
    const WHAT: &str = "model";
    let probed = host.probe(config).await;
    let finding = |probe: Probe| {
        let Probe { name, url, model, answer, took } = probe;
        let named = format!("{name}: {model} at {url}");
        match answer {
            Ok(known) if known.is_empty() || known.contains(&model) => {
                Finding::good(WHAT, format!("{named} answers in {}", show::time(took)))
            }
            Ok(known) => {
                let some: Vec<&str> = known.iter().take(MODELS_SHOWN).map(String::as_str).collect();
                Finding::bad(WHAT, format!("{named}: the server has no such model"), format!("it has: {}", some.join(", ")))
            }
            Err(trouble) => Finding::bad(WHAT, format!("{named} cannot be asked"), trouble.text),
        }
    };
    probed.into_iter().map(finding).collect()
}

fn tell(findings: &[Finding], output: Output) -> Result<(), CliError> {
    if output.json {
        return stdout::line(json!({ "type": "doctor", "findings": findings }));
    }
    for finding in findings {
        let mark = match finding.state {
            State::Good => paint(GOOD, "ok  "),
            State::Fair => paint(ODD, "note"),
            State::Bad => paint(BAD, "BAD "),
        };
        if output.quiet && finding.state == State::Good {
            continue;
        }
        stdout::line(format!("{mark} {:<22} {}", finding.what, finding.found))?;
        if let Some(advice) = &finding.advice {
            stdout::line(format!("{:>27} {}", "", paint(FAINT, format_args!("→ {advice}"))))?;
        }
    }
    let _ = std::io::stdout().flush();
    Ok(())
}

//! `conclave doctor`: the capabilities of this machine, and whether the model servers of a config
//! answer. With `--server` also what a server of that config needs.

#[cfg(feature = "serve")]
mod server;

use std::path::Path;
use std::time::Duration;

use conclave_core::config::Config;
#[cfg(feature = "http-models")]
use conclave_core::types::completion::ModelDiagnosticKind;
#[cfg(feature = "http-models")]
use conclave_runtime::Probe;
use conclave_runtime::{Host, RunOptions};
use serde_json::json;

use crate::args::{CheckedServer, Doctor, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::machine::{self, CheckResult, Finding};
use crate::state::{setup, stock};
use crate::ui::show::{BAD, FAINT, GOOD, ODD, paint, time};
use crate::ui::stdout;

/// Calls that are timed, after an untimed warm-up.
const CALLS: usize = 100;
const WARM_UP: usize = 10;
/// The column of the findings.
const FOUND: usize = 28;
/// Models of a server that are listed.
#[cfg(feature = "http-models")]
const MODELS_SHOWN: usize = 8;
/// The advice about a server that is loading its model.
#[cfg(feature = "http-models")]
const WHEN_LOADED: &str = "run this again when it has loaded; a run waits for it, up to the \
    model's `attempt_timeout`";
/// A tool that answers at once when its folder is empty.
const PROBE: &str = r#"
entry = "probe"
[plugins.search]
source = "stock:search"
grants.files = [{ dir = "empty", at = "/empty", mode = "read" }]
[plugins.faq]
source = "stock:faq"
grants.tools = ["search.*"]
[tasks.probe]
agent = "faq"
"#;

/// Runs all checks and prints them. Exits with 0, or with 1 if something will not work. If only
/// model servers fail, exits with 3 for a missing or rejected key, and with 4 otherwise.
pub(crate) async fn doctor(args: Doctor, output: OutputArgs) -> Result<u8, CliError> {
    let chosen = args.model.models()?;
    let config = args.file.as_deref().map(|file| setup::read_config(file, &chosen)).transpose()?;
    let mut findings = machine().await;
    let broken = findings.iter().any(|finding| finding.state == CheckResult::Fail);
    let mut code = if broken { exit::FAILED } else { exit::OK };
    if let (Some(config), Some(file)) = (&config, &args.file) {
        let (answer, checked) = model_servers(config, file).await?;
        if !broken {
            code = answer;
        }
        findings.extend(checked);
        if args.server.server {
            let checked = server_findings(&args.server, config, file)?;
            let fails = checked.iter().any(|finding| finding.state == CheckResult::Fail);
            code = if fails { exit::FAILED } else { code };
            findings.extend(checked);
        }
    }
    tell(&findings, output)?;
    Ok(code)
}

#[cfg(feature = "serve")]
fn server_findings(
    args: &CheckedServer,
    config: &Config,
    file: &Path,
) -> Result<Vec<Finding>, CliError> {
    server::findings(args, config, file)
}

#[cfg(not(feature = "serve"))]
fn server_findings(_: &CheckedServer, _: &Config, _: &Path) -> Result<Vec<Finding>, CliError> {
    Err(CliError::left_out("serve"))
}

/// Asks the model servers of a config. Returns the exit code, and a finding for each.
#[cfg(feature = "http-models")]
async fn model_servers(config: &Config, file: &Path) -> Result<(u8, Vec<Finding>), CliError> {
    let probes = setup::open_host_in(file)?.probe(config).await;
    Ok((code_of(&probes), models(probes)))
}

#[cfg(not(feature = "http-models"))]
async fn model_servers(_: &Config, _: &Path) -> Result<(u8, Vec<Finding>), CliError> {
    Err(CliError::left_out("http-models"))
}

/// The exit code.
#[cfg(feature = "http-models")]
fn code_of(probes: &[Probe]) -> u8 {
    let is_key = |probe: &Probe| {
        probe.answer.as_ref().is_err_and(|failure| failure.trouble.kind == ModelDiagnosticKind::Key)
    };
    // A key comes first, because the operator can fix it here.
    if probes.iter().any(is_key) {
        exit::KEY
    } else if probes.iter().all(|probe| has_model(probe) || serves_one(probe)) {
        exit::OK
    } else {
        exit::UNREACHABLE
    }
}

/// Whether the server answered, and lists the model or gives no list.
#[cfg(feature = "http-models")]
fn has_model(probe: &Probe) -> bool {
    probe.answer.as_ref().is_ok_and(|known| known.is_empty() || known.contains(&probe.model))
}

/// Whether the server lists one model alone: such servers, llama.cpp's among them, commonly answer
/// to any name.
#[cfg(feature = "http-models")]
fn serves_one(probe: &Probe) -> bool {
    probe.answer.as_ref().is_ok_and(|known| known.len() == 1)
}

async fn machine() -> Vec<Finding> {
    let mut findings = vec![program(), build()];
    findings.extend(machine::program_files());
    findings.push(sandbox().await);
    findings.push(machine::page_map_scan());
    findings.extend(
        [machine::maps(), machine::address_space(), machine::open_files()].into_iter().flatten(),
    );
    findings.push(machine::cache(setup::cache_folder().as_deref()));
    findings.extend(machine::stored_runs());
    findings.extend(machine::authors_tools());
    findings
}

fn program() -> Finding {
    const WHAT: &str = "program";
    let (version, contract) =
        (env!("CARGO_PKG_VERSION"), conclave_core::permissions::manifest::CONTRACT);
    let found = format!(
        "conclave {version}, contract {contract}, {}/{}",
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    let is_compiled = !conclave_stock::prebuilt().is_empty();
    match stock::stock().len() {
        0 => Finding::note(
            WHAT,
            format!("{found}, without stock plugins"),
            "build it with `cargo xtask install`",
        ),
        plugins if is_compiled => {
            Finding::ok(WHAT, format!("{found}, {plugins} stock plugins, compiled"))
        }
        plugins => Finding::ok(
            WHAT,
            format!("{found}, {plugins} stock plugins, each compiled when it is used first"),
        ),
    }
}

/// Returns how far the program itself is optimised, as `host/cli/build.rs` passes it on.
fn build() -> Finding {
    const WHAT: &str = "build";
    let advice = "for a faster one: `cargo xtask install`";
    match env!("CONCLAVE_OPT_LEVEL") {
        "0" => Finding::note(WHAT, "not optimised: made for tests of the program itself", advice),
        "1" => Finding::note(WHAT, "little optimised: a fast build, and a slower program", advice),
        _ => Finding::ok(WHAT, "optimised"),
    }
}

/// Measures a call in a sandbox of its own.
async fn sandbox() -> Finding {
    const WHAT: &str = "sandboxes";
    let host = match setup::open_host() {
        Ok(host) => host,
        Err(error) => {
            return Finding::fail(
                WHAT,
                error.to_string(),
                "see the findings about maps and address space below",
            );
        }
    };
    match time_calls(&host).await {
        Ok(took) => Finding::ok(WHAT, format!("a call in a fresh sandbox takes {}", time(took))),
        Err(reason) => Finding::note(
            WHAT,
            format!("the engine starts, but no call could be timed: {reason}"),
            "build it with `cargo xtask install`",
        ),
    }
}

async fn time_calls(host: &Host) -> Result<Duration, String> {
    let folder = machine::Scratch::new().map_err(|error| error.to_string())?;
    let config = Config::parse("doctor", &folder.config_path(), PROBE)
        .map_err(|problems| problems.to_string())?;
    let prepared = host.load(&config).await.map_err(|error| error.to_string())?;
    let mut times = Vec::new();
    for call in 0..WARM_UP + CALLS {
        let run =
            prepared.call_tool("search.find", json!({ "query": "light" }), RunOptions::default());
        let run = run.await.map_err(|error| error.to_string())?;
        if call >= WARM_UP {
            times.push(run.report.wall_us);
        }
    }
    times.sort_unstable();
    // The median, which a few slow calls do not move.
    Ok(Duration::from_micros(times[times.len() / 2]))
}

/// Checks whether the server of each model answers, and has the model.
#[cfg(feature = "http-models")]
fn models(probes: Vec<Probe>) -> Vec<Finding> {
    const WHAT: &str = "model";
    if probes.is_empty() {
        let advice = "to check one, add `[models.NAME]` to the config, or pass `--model URL#NAME`";
        return vec![Finding::note(WHAT, "no model server is configured", advice)];
    }
    let finding = |probe: Probe| {
        let (is_there, is_one) = (has_model(&probe), serves_one(&probe));
        let Probe { name, url, model, answer, took } = probe;
        let description = format!("{name}: {model} at {url}");
        match answer {
            Ok(_) if is_there => {
                Finding::ok(WHAT, format!("{description} answers in {}", time(took)))
            }
            Ok(known) if is_one => Finding::note(
                WHAT,
                format!(
                    "{description} answers in {}, and lists its one model as {}",
                    time(took),
                    known[0]
                ),
                "if it refuses the name, write that one in the config",
            ),
            Ok(known) => {
                let some: Vec<&str> = known.iter().take(MODELS_SHOWN).map(String::as_str).collect();
                Finding::fail(
                    WHAT,
                    format!("{description}: the server does not list this model"),
                    format!("its models are: {}", some.join(", ")),
                )
            }
            Err(failure) if failure.is_loading => Finding::fail(
                WHAT,
                format!("{description} is loading its model"),
                format!("{}: {WHEN_LOADED}", failure.trouble.text.trim_end_matches('.')),
            ),
            Err(failure) => Finding::fail(
                WHAT,
                format!("{description} cannot be reached or used"),
                failure.trouble.text,
            ),
        }
    };
    probes.into_iter().map(finding).collect()
}

fn tell(findings: &[Finding], output: OutputArgs) -> Result<(), CliError> {
    if output.json {
        return stdout::json(json!({ "type": "doctor", "findings": findings }));
    }
    for finding in
        findings.iter().filter(|finding| !output.quiet || finding.state != CheckResult::Ok)
    {
        let mark = match finding.state {
            CheckResult::Ok => paint(GOOD, "ok  "),
            CheckResult::Note => paint(ODD, "note"),
            CheckResult::Fail => paint(BAD, "FAIL"),
        };
        stdout::hanging(FOUND, format_args!("{mark} {:<22} {}", finding.check, finding.message))?;
        if let Some(advice) = &finding.hint {
            let advice = paint(FAINT, format_args!("→ {advice}"));
            stdout::hanging(FOUND + 2, format_args!("{:FOUND$}{advice}", ""))?;
        }
    }
    Ok(())
}

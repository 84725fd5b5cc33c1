//! `conclave plugin test [FOLDER]`: plays the cases of a plugin to its component, in sandboxes of the
//! real host, and compares what came of each with what the case expects.

mod consent;
mod expectation;
mod script;

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anstyle::Style;
use conclave_core::config::edit::Fragment;
use conclave_core::types::capability::Capability;
use conclave_harness::{Guarantee, Script};
use conclave_runtime::kv::MemoryKv;
use conclave_runtime::subscribe::{Subscriber, Subscribers};
use conclave_runtime::{RunInput, RunOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::args::{CallArgs, OutputArgs, TestPlugin};
use crate::commands::call;
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::session::ending;
use crate::state::project::Project;
use crate::state::setup;
use crate::state::source::{self, LocatedComponent};
use crate::ui::show::entry::EntryText;
use crate::ui::show::{
    BAD, FAINT, GOOD, one_line, paint, plural, printable, show_path, table, time, unread,
};
use crate::ui::stdout;
use consent::CaseConfigs;

use expectation::{Expectation, Seen};

/// Columns of a case's name.
const NAME: usize = 60;
/// Problems of a failed case that are shown: a wrong strategy repeats its mistakes in every wake.
const PROBLEMS: usize = 20;
/// Log lines of a failed case that are shown.
const LOG_LINES: usize = 20;
/// The wait for the observers of a run. One that needs longer fails the case.
const OBSERVERS: Duration = Duration::from_secs(60);

/// One case: a call of a tool, a run of a config, or a script for a delivery strategy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// The tool to call.
    #[serde(default)]
    tool: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
    /// The events in a room whose results the strategy delivers, and the expected deliveries.
    #[serde(default)]
    script: Option<Script>,
    /// The guarantees that the strategy breaks on purpose.
    #[serde(default)]
    but: Vec<Guarantee>,
    /// The grants of the call, as `conclave plugin call --grant` takes them.
    #[serde(default)]
    grants: Vec<String>,
    /// The plugin's settings.
    #[serde(default)]
    settings: Option<Value>,
    /// The message of a run.
    #[serde(default)]
    run: Option<String>,
    /// The config of the run, beside the cases.
    #[serde(default)]
    config: Option<PathBuf>,
    /// What must come of a call or a run.
    #[serde(default)]
    expect: Option<Expectation>,
}

pub(crate) async fn test(args: &TestPlugin, output: OutputArgs) -> Result<u8, CliError> {
    let file = args.cases.clone().unwrap_or_else(|| args.folder.join("cases.json"));
    let cases = read(&file)?;
    let component = Project::open(&args.folder)?.component()?;
    let found = source::find(&component.display().to_string(), |source| {
        format!("conclave plugin test {}", shell(source))
    })
    .await
    // The error about a missing file would not name the command that builds it.
    .map_err(|error| match component.is_file() {
        true => error,
        false => CliError::usage(format!("{} does not exist", show_path(&component)))
            .hint(format!("conclave plugin build {}", shell(&args.folder.display().to_string()))),
    })?;
    let is_chosen =
        |case: &&Case| args.only.as_ref().is_none_or(|text| case.name.contains(text.as_str()));
    let chosen: Vec<&Case> = cases.iter().filter(is_chosen).collect();
    if chosen.is_empty() {
        return Err(CliError::usage(format!("{} holds no such case", show_path(&file))));
    }
    let beside = file.parent().map_or_else(PathBuf::new, Path::to_owned);
    let configs = consent::require(&chosen, &args.folder, &beside, args.yes)?;
    // Compiled before the cases, whose times it would distort. Each case reports its own failure.
    let follow = setup::follow(output.result_only());
    let _ = setup::tools_of(&setup::open_host()?, &found, &follow).await;
    let mut failed = 0;
    for case in &chosen {
        let began = Instant::now();
        let seen = play(case, &found, (&beside, &configs), output).await;
        let problems = case.problems(&seen);
        failed += u64::from(!problems.is_empty());
        if output.json {
            stdout::json(json!({
                "type": "case",
                "name": case.name,
                "passed": problems.is_empty(),
                "problems": problems,
                "seen": seen,
            }))?;
            continue;
        }
        let took = paint(FAINT, time(began.elapsed()));
        let name = one_line(&case.name, NAME);
        let denied = if seen.denied.is_empty() {
            String::new()
        } else {
            paint(FAINT, format_args!(" · denied: {}", seen.denied.join(", ")))
        };
        if problems.is_empty() {
            if !output.quiet {
                stdout::styled(format_args!("{}  {name}  {took}{denied}", paint(GOOD, "ok    ")))?;
            }
        } else {
            stdout::styled(format_args!("{}  {name}  {took}{denied}", paint(BAD, "FAILED")))?;
            problem_lines(&problems)?;
            log_lines(&seen.log)?;
        }
    }
    if !output.result_only() {
        let count = plural(chosen.len() as u64, "case", "cases");
        stdout::styled(format_args!("{count}: {failed} failed"))?;
    }
    Ok(if failed == 0 { exit::OK } else { exit::FAILED })
}

/// Prints the first problems.
fn problem_lines(problems: &[String]) -> Result<(), CliError> {
    for row in problems.iter().take(PROBLEMS).flat_map(|problem| problem.lines()) {
        stdout::styled(format_args!("        {}", printable(row)))?;
    }
    if let Some(more @ 1..) = problems.len().checked_sub(PROBLEMS) {
        let what = format!("        … and {more} more; `--json` has them all");
        stdout::styled(paint(FAINT, what))?;
    }
    Ok(())
}

/// Prints the last lines of the plugin's log, behind marks.
fn log_lines(log: &[String]) -> Result<(), CliError> {
    let earlier_lines = log.len().saturating_sub(LOG_LINES);
    if earlier_lines > 0 {
        let what =
            format_args!("        … {earlier_lines} earlier log lines; `--json` has them all");
        stdout::styled(paint(FAINT, what))?;
    }
    for line in &log[earlier_lines..] {
        let entry = EntryText::new(FAINT, "log").cut(Style::new(), line);
        for row in entry.rows(table::total().saturating_sub(8)) {
            stdout::styled(format_args!("        {row}"))?;
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<Vec<Case>, CliError> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        unread(file, error).hint("`conclave plugin new` writes one; another file: --cases FILE")
    })?;
    let cases: Vec<Case> = serde_json::from_str(&text).map_err(|error| {
        CliError::usage(format!("{} must be a list of cases: {error}", show_path(file)))
    })?;
    match cases.iter().find_map(|case| Some((case, case.problem()?))) {
        None => Ok(cases),
        Some((case, problem)) => Err(CliError::usage(format!(
            "the case {:?} in {} {problem}",
            one_line(&case.name, NAME),
            show_path(file)
        ))),
    }
}

impl Case {
    /// Returns the config of a run, which is beside the cases.
    fn config_beside(&self, beside: &Path) -> PathBuf {
        beside.join(self.config.as_deref().unwrap_or(Path::new(crate::args::CONFIG)))
    }

    /// The problem of a case with a wrong combination of keys; `None` if it is valid.
    fn problem(&self) -> Option<&'static str> {
        let is_call =
            self.arguments.is_some() || !self.grants.is_empty() || self.settings.is_some();
        let leaves = |path: &PathBuf| {
            path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir))
        };
        let is_script = self.script.is_some();
        match (self.tool.is_some(), self.run.is_some(), is_script) {
            (true, false, false) | (false, true, false) | (false, false, true) => {}
            _ => return Some("needs one of `tool`, `run` and `script`"),
        }
        match &self.run {
            None if self.config.is_some() => Some("has a `config`, which only `run` takes"),
            Some(_) if is_call => {
                Some("has `arguments`, `grants` or `settings`, which only `tool` takes")
            }
            _ if is_script && self.arguments.is_some() => {
                Some("has `arguments`, which only `tool` takes")
            }
            _ if is_script && self.grants.iter().any(|grant| grants_channels(grant)) => {
                Some("has `channels` among its `grants`; the script has the channels")
            }
            _ if is_script && self.expect.is_some() => {
                Some("has an `expect` beside its `script`, which has its own")
            }
            _ if !is_script && self.expect.is_none() => Some("needs an `expect`"),
            _ if !is_script && !self.but.is_empty() => {
                Some("has a `but`, which only `script` takes")
            }
            _ if self.config.as_ref().is_some_and(leaves) => {
                Some("names a `config` outside of the folder of the cases")
            }
            _ => None,
        }
    }

    /// The expectations that were not met, and the guarantees that were broken.
    fn problems(&self, seen: &Seen) -> Vec<String> {
        self.expect.as_ref().map_or_else(|| seen.broken(), |expect| expect.problems(seen))
    }

    /// The grants and settings of a call of the component at `source`.
    fn call_of(&self, source: &LocatedComponent) -> CallArgs {
        CallArgs {
            source: source.place.label(),
            tool: self.tool.clone(),
            grants: self.grants.clone(),
            config: self.settings.as_ref().map(Value::to_string),
            ..CallArgs::default()
        }
    }
}

fn grants_channels(grant: &str) -> bool {
    let fragment = Fragment::parse(grant);
    fragment.is_ok_and(|fragment| {
        fragment.grants.iter().any(|grant| grant.key == Capability::Channels.as_str())
    })
}

async fn play(
    case: &Case,
    found: &LocatedComponent,
    (beside, configs): (&Path, &CaseConfigs),
    output: OutputArgs,
) -> Seen {
    let seen = Arc::new(expectation::Recorder::default());
    let played = match (&case.script, &case.run) {
        (Some(script), _) => script::play(script, case, (found, beside), &seen, output).await,
        (None, None) => play_call(case, (found, beside), &seen, output).await,
        (None, message) => {
            let config = case.config_beside(beside);
            play_run((config, configs), message.as_deref(), &seen, output).await
        }
    };
    seen.end(played.map_err(|error| error.to_string()))
}

async fn play_call(
    case: &Case,
    (found, beside): (&LocatedComponent, &Path),
    seen: &Arc<expectation::Recorder>,
    output: OutputArgs,
) -> Result<Value, CliError> {
    let args = case.call_of(found);
    let arguments = case.arguments.clone().unwrap_or_else(|| json!({}));
    let subscribers = Subscribers::new([Arc::clone(seen) as Arc<dyn Subscriber>]);
    // Each case begins with an empty store of keys.
    let host = call::host(Some(Arc::new(MemoryKv::default())))?;
    let follow = setup::follow(output.result_only());
    let call = (&args, beside);
    let (tool, run) = call::once(&host, found, call, arguments, &follow, subscribers).await?;
    Ok(match run.answer {
        Ok(outcome) => json!({
            "content": outcome.content.clone().or_else(|| outcome.value.as_ref().map(ToString::to_string)),
            "value": outcome.value,
            "called": outcome.follow_up_calls.iter().map(|call| &call.name).collect::<Vec<_>>(),
        }),
        Err(error) => json!({ "error": error.to_text(&tool) }),
    })
}

async fn play_run(
    (file, configs): (PathBuf, &CaseConfigs),
    message: Option<&str>,
    seen: &Arc<expectation::Recorder>,
    output: OutputArgs,
) -> Result<Value, CliError> {
    let config = configs
        .get(&file)
        .ok_or_else(|| CliError::internal(format!("{} was not read", show_path(&file))))?;
    let host = setup::open_host_apart(&file)?;
    // Warnings about the config would repeat with each case.
    let (prepared, _) = setup::load(&host, (&file, config), false, output).await?;
    let subscribers = Subscribers::new([Arc::clone(seen) as Arc<dyn Subscriber>]);
    let options = RunOptions { subscribers, ..RunOptions::default() };
    let input = RunInput::from(message.map(str::to_owned));
    let failed = |error: &dyn std::fmt::Display| CliError::internal(error.to_string());
    let run = prepared.start(input, options).map_err(|error| failed(&error))?;
    let outcome = run.outcome().await.map_err(|error| failed(&error))?;
    host.drain_observers(OBSERVERS).await;
    Ok(json!({
        "status": outcome.status.as_str(),
        "is_success": outcome.status.is_success(),
        "reason": outcome.reason,
        "content": ending::result(&outcome),
        "value": outcome.value,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_takes_no_grant_of_channels() {
        let problem = |grant: &str| {
            let case: Case = serde_json::from_value(json!({
                "name": "c", "script": { "channels": [], "script": [] }, "grants": [grant],
            }))
            .unwrap();
            case.problem()
        };
        assert_eq!(problem("kv = true"), None);
        let found = problem("channels = [\"phone\"]").unwrap();
        assert!(found.contains("the script has the channels"), "{found}");
    }
}

//! `conclave plugin call SOURCE TOOL [JSON]`: calls one tool once, with only the grants on the
//! command line. The result goes to stdout; logs, refusals and usage go to stderr.

pub(crate) mod config;
mod follower;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use conclave_core::config::edit::example_of;
use conclave_core::config::{Config, TERMINAL};
use conclave_core::permissions::manifest::Manifest;
use conclave_core::types::capability::Capability;
use conclave_core::types::ids::PluginName;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::tool::{ToolError, ToolOutcome, ToolSpec};
use conclave_runtime::subscribe::{Subscriber, Subscribers};
use conclave_runtime::{CallToolError, Follow, Host, PrepareError, Prepared, RunOptions, ToolRun};
use serde_json::{Value, json};

use crate::args::{CallArgs, OutputArgs};
use crate::commands::add::{check_asked, fragments};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::json_object::json_object;
use crate::program::shell::shell;
use crate::session::ending;
use crate::state::setup;
use crate::state::source::{self, LocatedComponent};
use crate::ui::show::entry::EntryText;
use crate::ui::show::trace::cost;
use crate::ui::show::{BAD, FAINT, bytes, one_line, paint, plural};
use crate::ui::stdout;

use config::{config as config_of, name};
pub(crate) use config::{granted, host, host_with, of_source};
use follower::CallFollower;

/// The option that grants something for the call.
const GRANT: &str = "--grant";

pub(crate) async fn call(args: &CallArgs, output: OutputArgs) -> Result<u8, CliError> {
    let arguments = arguments(args.arguments.as_deref())?;
    let found = source::find(&args.source, |source| command_for(args, source)).await?;
    let follower = Arc::new(CallFollower::new(args.verbose, output));
    let subscribers = Subscribers::new([Arc::clone(&follower) as Arc<dyn Subscriber>]);
    let follow = setup::follow(output.result_only());
    let host = host(None)?;
    let here = Path::new("");
    let (tool, run) = once(&host, &found, (args, here), arguments, &follow, subscribers).await?;
    follower.end();
    finish(&tool, &run, &follower, output)
}

/// Calls a tool of a component once, with the grants, settings and limits of `args` only. Relative
/// folders of the grants are in `folder`. Returns the tool's name, without its plugin's.
///
/// # Errors
/// If these do not fit the component, or it has no such tool.
pub(crate) async fn once(
    host: &Host,
    found: &LocatedComponent,
    (args, folder): (&CallArgs, &Path),
    arguments: Value,
    follow: &Follow,
    subscribers: Subscribers,
) -> Result<(String, ToolRun), CliError> {
    let grants = fragments(&args.grants)?;
    let name = name(found);
    let manifest = &found.inspection.manifest;
    grants.iter().try_for_each(|fragment| check_asked(&manifest.name, manifest, fragment))?;
    let config = config_of(&found.place, &name, &grants, args.into(), folder)?;
    if !found.inspection.kinds.contains(&PluginKind::Tools) {
        return Err(no_tools(found));
    }
    let unfit = require_asked(&config, &name, manifest, GRANT);
    if args.tool.is_none() || unfit.is_err() {
        let tools = setup::tools_of(host, found, follow).await;
        let tools = tools.map_err(|error| {
            CliError::plugin(format!("{} was rejected: {error}", manifest.name))
        })?;
        // The tool is checked before the grants, so that a typing error is reported first.
        tool_name(args.tool.as_deref(), &name, manifest, &tools.tools, found)?;
    }
    unfit?;
    let prepared = host.prepare(&config, follow).await.map_err(|error| not_prepared(&error))?;
    let tools = prepared
        .setup()
        .plugins
        .get(name.as_str())
        .map(|plugin| plugin.facts.tools.clone())
        .unwrap_or_default();
    let tool = tool_name(args.tool.as_deref(), &name, manifest, &tools, found)?;
    let options = RunOptions { subscribers, ..RunOptions::default() };
    let run = prepared.call_tool(&format!("{name}.{tool}"), arguments, options).await.map_err(
        |error| match error {
            CallToolError::Unknown { .. } => CliError::usage(error.to_string()),
            CallToolError::TooLarge { bytes: length, limit } => CliError::usage(format!(
                "the arguments have {}, more than the limit of {} (limits.arguments of the plugin)",
                bytes(length),
                bytes(limit)
            ))
            .hint(
                "write less, pass a file of a granted folder, or raise it: --limit arguments='2 MiB'",
            ),
            other => CliError::internal(other.to_string()),
        },
    )?;
    Ok((tool, run))
}

/// Prepares a delivery strategy with the grants and settings of `args` only, for calls without a
/// room. Returns its name in the config.
///
/// # Errors
/// If these do not fit the component, or it is no strategy.
pub(crate) async fn strategy(
    host: &Host,
    found: &LocatedComponent,
    (args, folder): (&CallArgs, &Path),
    follow: &Follow,
) -> Result<(PluginName, Prepared), CliError> {
    let manifest = &found.inspection.manifest;
    if !found.inspection.kinds.contains(&PluginKind::DeliveryStrategy) {
        return Err(CliError::plugin(format!(
            "{} is no delivery strategy; it serves as {}",
            manifest.name,
            kinds(found)
        )));
    }
    let mut grants = fragments(&args.grants)?;
    grants.iter().try_for_each(|fragment| check_asked(&manifest.name, manifest, fragment))?;
    if manifest.ask(Capability::Channels).is_some() {
        // It only decides here: the channels are those of the room that asks it.
        grants.extend(fragments(&[format!("channels = [\"{TERMINAL}\"]")])?);
    }
    let name = name(found);
    let config = config_of(&found.place, &name, &grants, args.into(), folder)?;
    require_asked(&config, &name, manifest, GRANT)?;
    let prepared = host.prepare(&config, follow).await.map_err(|error| not_prepared(&error))?;
    Ok((PluginName::from(name), prepared))
}

/// The same command with another source.
fn command_for(args: &CallArgs, source: &str) -> String {
    let tool = args.tool.as_ref().map(|tool| format!(" {}", shell(tool))).unwrap_or_default();
    let arguments = args
        .arguments
        .as_ref()
        .map(|arguments| format!(" {}", shell(arguments)))
        .unwrap_or_default();
    let grants: String =
        args.grants.iter().map(|grant| format!(" --grant {}", shell(grant))).collect();
    format!("conclave plugin call {}{tool}{arguments}{grants}", shell(source))
}

/// Returns the arguments: a JSON object from the command line, stdin (`-`) or a file (`@FILE`).
fn arguments(argument: Option<&str>) -> Result<Value, CliError> {
    let unread = |what: &str, error: std::io::Error| {
        CliError::usage(format!("the arguments could not be read from {what}: {error}"))
    };
    let text = match argument {
        None => "{}".to_owned(),
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| unread("stdin", error))?;
            text
        }
        Some(argument) => match argument.strip_prefix('@') {
            Some(file) => std::fs::read_to_string(file).map_err(|error| unread(file, error))?,
            None => argument.to_owned(),
        },
    };
    json_object(&text).map_err(|why| {
        CliError::usage(format!("the arguments are {why}"))
            .hint("write them as JSON, such as '{\"query\": \"light\"}', in quotes for the shell")
    })
}

/// Checks that the plugin's required capabilities are granted, which `option` does.
///
/// # Errors
/// Returns an error that names the missing grants and the option that gives them.
pub(crate) fn require_asked(
    config: &Config,
    name: &str,
    manifest: &Manifest,
    option: &str,
) -> Result<(), CliError> {
    let Some(plugin) = config.plugins.get(name) else { return Ok(()) };
    // The host would refuse missing ones too; this error names the argument that grants each.
    let required = manifest.asks.iter().filter(|(_, ask)| !ask.optional);
    let offered = required.filter_map(|(key, ask)| Some((Capability::from_name(key)?, ask)));
    let missing: Vec<_> =
        offered.filter(|(capability, _)| !plugin.grants.has(*capability)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let whats: Vec<String> = missing
        .iter()
        .map(|(capability, ask)| match ask.why.trim() {
            "" => format!("`{capability}`"),
            why => format!("`{capability}` ({})", one_line(why, 120)),
        })
        .collect();
    // The tools of other plugins need their plugins, and a call by hand has this one alone.
    if missing.iter().any(|(capability, _)| *capability == Capability::Tools) {
        let what = format!("{} requires {}", manifest.name, whats.join(" and "));
        return Err(CliError::usage(what).hint(
            "it calls tools of other plugins, which only a config has: play a case with `run` (docs/write-plugins/toolbox.md), or `conclave run` a config with them",
        ));
    }
    let examples = missing.iter().filter_map(|(capability, _)| example_of(*capability));
    let hows: Vec<String> =
        examples.map(|example| format!("{option} {}", shell(example))).collect();
    Err(CliError::usage(format!("{} requires {}", manifest.name, whats.join(" and ")))
        .hint(format!("grant it for the call, such as {}", hows.join(" "))))
}

pub(crate) fn not_prepared(error: &PrepareError) -> CliError {
    // Without lines of the generated config, which the user never sees.
    let say = |problems: &conclave_core::config::Problems| {
        problems.0.iter().map(|problem| problem.what.clone()).collect::<Vec<_>>().join("\n")
    };
    match error {
        PrepareError::Config(problems) | PrepareError::Keys(problems) => {
            CliError::usage(say(problems)).with_problems(problems)
        }
        PrepareError::Plugins(problems) => CliError::plugin(say(problems)).with_problems(problems),
    }
}

/// Returns the tool's name, given with or without the plugin's name before it.
fn tool_name(
    typed_name: Option<&str>,
    name: &str,
    manifest: &Manifest,
    tools: &[ToolSpec],
    found: &LocatedComponent,
) -> Result<String, CliError> {
    let plain = typed_name.map(|typed_name| match typed_name.split_once('.') {
        Some((plugin, tool)) if plugin == name || plugin == manifest.name => tool,
        _ => typed_name,
    });
    if let Some(tool) = tools.iter().find(|tool| Some(tool.name.as_str()) == plain) {
        return Ok(tool.name.clone());
    }
    if tools.is_empty() {
        return Err(no_tools(found));
    }
    let what = match plain {
        Some(plain) => {
            format!("{} has no tool `{}`; its tools are", manifest.name, one_line(plain, 64))
        }
        None => format!("name a tool of {}; its tools are", manifest.name),
    };
    let lines: Vec<String> = tools.iter().map(usage).collect();
    Err(CliError::usage(format!("{what}\n{}", lines.join("\n"))))
}

pub(crate) fn no_tools(found: &LocatedComponent) -> CliError {
    CliError::usage(format!(
        "{} has no tools; it serves as {}",
        found.inspection.manifest.name,
        kinds(found)
    ))
}

fn kinds(found: &LocatedComponent) -> String {
    let kinds: Vec<&str> = found.inspection.kinds.iter().map(|kind| kind.as_str()).collect();
    kinds.join(", ")
}

/// A line of help for a tool: its name, its required arguments and its description.
fn usage(tool: &ToolSpec) -> String {
    let required =
        tool.input_schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let fields: Vec<String> =
        required.map(|field| format!("\"{}\": …", one_line(field, 40))).collect();
    let fields =
        if fields.is_empty() { "'{}'".to_owned() } else { format!("'{{{}}}'", fields.join(", ")) };
    format!("  {} {fields}  {}", one_line(&tool.name, 64), one_line(&tool.description, 100))
}

fn finish(
    tool: &str,
    run: &ToolRun,
    follower: &CallFollower,
    output: OutputArgs,
) -> Result<u8, CliError> {
    let code = code(&run.answer);
    if output.json {
        stdout::json(as_json(tool, run, follower, code))?;
        return Ok(code);
    }
    match &run.answer {
        Ok(outcome) => {
            // An outcome may consist of follow-up calls only.
            if outcome.follow_up_calls.is_empty()
                || outcome.content.is_some()
                || outcome.value.is_some()
            {
                stdout::line(stdout::safe(&text(outcome)))?;
            }
            for call in &outcome.follow_up_calls {
                let words = format!("follow-up call {}, not run here", one_line(&call.name, 64));
                follower.put(&EntryText::plain(words).in_full(FAINT, &call.arguments.to_string()));
            }
        }
        Err(error) => {
            follower.put(&EntryText::new(BAD, "failed").in_full(BAD, &error.to_text(tool)));
            if let Some(limit) = limit(error).filter(|_| !output.quiet) {
                follower.line(&paint(FAINT, format_args!("to raise the limit: --limit {limit}=…")));
            }
        }
    }
    let report = &run.report;
    // A call that did not start used nothing.
    if !output.quiet && report.wall_us > 0 {
        let refused = if report.denials.is_empty() {
            String::new()
        } else {
            format!(" · {}", plural(report.denials.len() as u64, "denial", "denials"))
        };
        follower.line(&paint(FAINT, format_args!("{}{refused}", cost(report))));
    }
    Ok(code)
}

/// The config key of the limit that stopped the call, as its message names it:
/// `plugins.NAME.limits.cpu`.
fn limit(error: &ToolError) -> Option<&str> {
    let ToolError::Fault { fault } = error else { return None };
    let (_, key) = fault.message.split_once(".limits.")?;
    key.split(|c: char| !c.is_ascii_lowercase() && c != '_').next().filter(|key| !key.is_empty())
}

/// The exit code: 0 if the tool answered, 1 if it reported a failure, 5 if it was stopped.
fn code(answer: &Result<ToolOutcome, ToolError>) -> u8 {
    match answer {
        Ok(_) => exit::OK,
        Err(ToolError::Fault { .. }) => exit::PLUGIN,
        Err(_) => exit::FAILED,
    }
}

/// The text, or the value if there is no text.
fn text(outcome: &ToolOutcome) -> String {
    match (&outcome.content, &outcome.value) {
        (Some(content), _) => content.clone(),
        (None, Some(value)) => format!("{value:#}"),
        (None, None) => String::new(),
    }
}

fn as_json(tool: &str, run: &ToolRun, follower: &CallFollower, code: u8) -> Value {
    let (content, value, error) = match &run.answer {
        Ok(outcome) => (json!(outcome.content), json!(outcome.value), Value::Null),
        Err(error) => {
            (Value::Null, Value::Null, json!({ "error": error, "message": error.to_text(tool) }))
        }
    };
    let follow_up_calls: Vec<Value> = run
        .answer
        .iter()
        .flat_map(|outcome| &outcome.follow_up_calls)
        .map(ending::as_json)
        .collect();
    let denials = run.report.denials.iter().map(|record| {
        let mut denial = json!(record);
        denial["allow"] = json!(follower::argument(record));
        denial
    });
    let denials: Vec<Value> = denials.collect();
    json!({
        "type": "call",
        "tool": tool,
        "result": content,
        "value": value,
        "follow_up_calls": follow_up_calls,
        "error": error,
        "log": follower.log(),
        "denials": denials,
        "wall_us": run.report.wall_us,
        "memory": run.report.memory,
        "exit_code": code,
    })
}

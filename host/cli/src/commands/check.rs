//! `conclave check FILE`: whether the config is valid and fits its plugins, and the permissions of
//! each plugin. Runs nothing but each plugin's list of tools.

use std::io::IsTerminal;
use std::path::Path;

use conclave_core::config::Problems;
use conclave_core::inspect::permission_summary::data_can_leave;
use conclave_core::permissions::task_scope::TaskScope;
use conclave_core::types::ids::TaskName;
use conclave_core::types::limits::PluginLimits;
use conclave_core::types::text::{show_duration, show_size};
use conclave_runtime::Prepared;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::file_option;
use crate::state::setup;
use crate::ui::screen::columns;
use crate::ui::show::{FAINT, GOOD, NAME, head, paint, plural, printable, show_path};
use crate::ui::stdout;

pub(crate) async fn check(args: args::CheckArgs, output: OutputArgs) -> Result<u8, CliError> {
    let models = args.model.models()?;
    let config = setup::read_config(&args.file, &models)?;
    let prepared = setup::prepare_with_warnings((&args.file, &config), args.locked.locked, output);
    let (prepared, warnings) = prepared.await?;
    if output.json {
        stdout::json(as_json(&prepared, &warnings))?;
    } else {
        show(&prepared, &args.file, args.all)?;
    }
    Ok(exit::OK)
}

fn as_json(prepared: &Prepared, warnings: &Problems) -> serde_json::Value {
    serde_json::json!({
        "type": "check",
        "ok": true,
        "warnings": warnings,
        "data_can_leave": data_can_leave(prepared.setup()),
        "permissions": head::rows(prepared),
        "setup": &**prepared.setup(),
    })
}

/// Prints the result of the check; `all` adds the limits of each plugin.
fn show(prepared: &Prepared, file: &Path, all: bool) -> Result<(), CliError> {
    let setup = prepared.setup();
    let plugins = plural(setup.plugins.len() as u64, "plugin", "plugins");
    let tasks = plural(setup.tasks.len() as u64, "task", "tasks");
    stdout::styled(format_args!("{} {}: {plugins}, {tasks}", paint(GOOD, "ok"), show_path(file)))?;
    stdout::styled(format_args!("\nPermissions (data can leave to: {})", data_can_leave(setup)))?;
    let rows = head::rows(prepared);
    let widths = head::Widths::of(&rows);
    let most = if std::io::stdout().is_terminal() { columns() } else { usize::MAX };
    for row in rows {
        head::lines(&row, widths, most).iter().try_for_each(stdout::styled)?;
        for key in row.unknown_signers.iter().filter(|_| row.signed_by.is_empty()) {
            let command = format!("conclave trust add NAME {key}{}", file_option(file));
            let what = format!("    signed by {key}, a key that [trust] does not name: {command}");
            stdout::unbroken(paint(FAINT, what))?;
        }
        if all && let Some(plugin) = setup.plugins.get(row.plugin.as_str()) {
            for line in limits(&plugin.limits) {
                stdout::styled(format_args!("    {}", paint(FAINT, line)))?;
            }
        }
    }
    stdout::styled("\nTasks")?;
    let wide = head::name_width(setup.tasks.keys().map(TaskName::as_str));
    for (name, task) in &setup.tasks {
        let tools: Vec<&str> =
            task.toolbox.offered().iter().map(|tool| tool.name.as_str()).collect();
        let subtasks: Vec<&str> = task.subtasks.iter().map(TaskName::as_str).collect();
        let mut parts = Vec::new();
        parts.extend((*name == setup.entry).then(|| "entry".to_owned()));
        parts.push(format!("agent {}", task.agent));
        parts.extend((!tools.is_empty()).then(|| format!("tools {}", tools.join(", "))));
        parts.extend(narrows(&task.scope));
        parts.extend((!subtasks.is_empty()).then(|| format!("subtasks {}", subtasks.join(", "))));
        parts.extend(
            task.delivery_strategy.as_ref().map(|strategy| format!("delivered by {strategy}")),
        );
        let name = paint(NAME, format_args!("{name:<wide$}"));
        stdout::hanging(wide + 3, format_args!("  {name} {}", parts.join(" · ")))?;
    }
    stdout::styled("\nLimits of a run (limits.run)")?;
    for line in conclave_core::policy::budget::describe(&setup.limits) {
        stdout::styled(format_args!("  {line}"))?;
    }
    if !setup.policy.is_empty() {
        stdout::styled("\nRules for tool calls (the first match decides)")?;
    }
    let wide = head::name_width(setup.policy.iter().map(|rule| rule.tool.0.as_str()));
    for rule in &setup.policy {
        let caller =
            rule.caller.as_ref().map(|caller| format!(" called by {caller}")).unwrap_or_default();
        let within =
            rule.expires_ms.map(|ms| format!(" within {}", show_duration(ms))).unwrap_or_default();
        let arguments = rule.shown_arguments();
        let when = if arguments.is_empty() {
            String::new()
        } else {
            format!(" when {}", printable(&arguments))
        };
        let decision = format!("{}{within}{caller}{when}", rule.decide.as_str());
        let (tool, source) =
            (paint(NAME, format_args!("{:<wide$}", rule.tool.0)), paint(FAINT, &rule.source));
        stdout::hanging(wide + 3, format_args!("  {tool} {decision} {source}"))?;
    }
    Ok(())
}

/// Returns what a task keeps of its agent's grants, or `None` if it keeps all.
fn narrows(narrow: &TaskScope) -> Option<String> {
    fn list<T: std::fmt::Display>(key: &str, names: Option<&Vec<T>>) -> Option<String> {
        let names: Vec<String> = names?.iter().map(ToString::to_string).collect();
        Some(if names.is_empty() {
            format!("no {key}")
        } else {
            format!("{key} {}", names.join(", "))
        })
    }
    let TaskScope { model, delegate, route, files, read_only, fetch, secrets, kv } = narrow;
    let lists = [
        list("model", model.as_ref()),
        list("delegate", delegate.as_ref()),
        list("route", route.as_ref()),
        list("files", files.as_ref()),
        read_only.then(|| "read only".to_owned()),
        list("fetch", fetch.as_ref()),
        list("secrets", secrets.as_ref()),
        (*kv == Some(false)).then(|| "no kv".to_owned()),
    ];
    let limits: Vec<String> = lists.into_iter().flatten().collect();
    (!limits.is_empty()).then(|| format!("narrows the agent to {}", limits.join("; ")))
}

fn limits(limits: &PluginLimits) -> [String; 5] {
    let PluginLimits {
        memory,
        cpu_ms,
        wall_ms,
        output,
        log,
        host_calls,
        handles,
        read,
        scratch,
        blobs,
        at_once,
        ..
    } = limits;
    let PluginLimits {
        table_elements,
        instances,
        arguments,
        list,
        component,
        compile_ms,
        compile_memory,
        ..
    } = limits;
    [
        format!(
            "memory {} · cpu {} · wall {} · output {}",
            show_size(*memory),
            show_duration(*cpu_ms),
            show_duration(*wall_ms),
            show_size(*output)
        ),
        format!(
            "log {} · read {} · scratch {} · blobs {}",
            show_size(*log),
            show_size(*read),
            show_size(*scratch),
            show_size(*blobs)
        ),
        format!("host calls {host_calls} · handles {handles} · at once {at_once}"),
        format!(
            "table elements {table_elements} · instances {instances} · arguments {} · list {list}",
            show_size(*arguments)
        ),
        format!(
            "component {} · compile time {} · compile memory {}",
            show_size(*component),
            show_duration(*compile_ms),
            show_size(*compile_memory)
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::{TaskScope, narrows};

    #[test]
    fn a_narrowed_task_is_described() {
        assert_eq!(narrows(&TaskScope::default()), None);
        let narrow = TaskScope {
            files: Some(vec!["/notes".into()]),
            read_only: true,
            route: Some(Vec::new()),
            ..TaskScope::default()
        };
        assert_eq!(
            narrows(&narrow).as_deref(),
            Some("narrows the agent to no route; files /notes; read only")
        );
    }
}

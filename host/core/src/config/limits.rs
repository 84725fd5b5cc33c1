//! `limits` of a plugin and `[limits.run]`. Every limit that is accepted here is enforced.

use toml::de::DeTable;

use super::Problems;
use super::keys::{LIMITS, LIMITS_TABLE, RUN};
use super::problem::SourceText;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use crate::types::limits::{PluginLimits, RunLimits};
use crate::types::wording::string;

/// Returns the limits of a plugin, with defaults for missing keys.
pub(crate) fn read_plugin(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> PluginLimits {
    let mut limits = PluginLimits::DEFAULT;
    let Some(table) = item.table(reader, LIMITS) else { return limits };
    table.set(reader, "memory", &mut limits.memory);
    table.set(reader, "cpu", &mut limits.cpu_ms);
    table.set(reader, "wall", &mut limits.wall_ms);
    table.set(reader, "output", &mut limits.output);
    table.set(reader, "log", &mut limits.log);
    table.set(reader, "scratch", &mut limits.scratch);
    table.set(reader, "blobs", &mut limits.blobs);
    table.set(reader, "read", &mut limits.read);
    table.set(reader, "host_calls", &mut limits.host_calls);
    table.set(reader, "handles", &mut limits.handles);
    table.set(reader, "at_once", &mut limits.at_once);
    table.set(reader, "table_elements", &mut limits.table_elements);
    table.set(reader, "instances", &mut limits.instances);
    table.set(reader, "arguments", &mut limits.arguments);
    table.set(reader, "list", &mut limits.list);
    table.set(reader, "component", &mut limits.component);
    table.set(reader, "compile_time", &mut limits.compile_ms);
    table.set(reader, "compile_memory", &mut limits.compile_memory);
    limits
}

/// A value of a command line as TOML. Valid TOML stays unchanged; any other value becomes a string,
/// so that `30 s` needs no quotes.
#[must_use]
pub fn config_value(value: &str) -> String {
    let is_toml = !value.contains('\n') && DeTable::parse(&format!("key = {value}")).is_ok();
    if is_toml { value.to_owned() } else { string(value) }
}

/// Returns the limits of a run with some replaced. Each pair is a key of `[limits.run]` and a value
/// as in a config; a text such as `30 s` needs no quotes here.
///
/// # Errors
/// All unknown keys and wrong values; the lines are the pairs, from line 2.
pub fn replace_run_limits(
    limits: &RunLimits,
    pairs: &[(String, String)],
) -> Result<RunLimits, Problems> {
    let mut text = format!("[{RUN}]\n");
    for (index, (key, value)) in pairs.iter().enumerate() {
        // Of several values for one key, the last counts.
        if pairs[index + 1..].iter().any(|(later, _)| later == key) {
            continue;
        }
        text.push_str(&format!("{key} = {}\n", config_value(value)));
    }
    let source = SourceText::new("--limit", &text);
    let root = DeTable::parse(&text).map_err(|error| {
        let what = format!("not valid TOML: {}", error.message());
        Problems(vec![source.problem(ProblemCode::Syntax, &error.span().unwrap_or(0..0), what)])
    })?;
    let mut reader = ConfigReader::new(source);
    let root = Table::root(&mut reader, root.get_ref());
    let limits = read_run(&mut reader, &root, limits.clone());
    if reader.problems.is_empty() { Ok(limits) } else { Err(Problems(reader.problems)) }
}

/// Returns the limits of the whole run; a missing key leaves its limit as it is.
pub(crate) fn read_run(
    reader: &mut ConfigReader,
    root: &Table<'_>,
    mut limits: RunLimits,
) -> RunLimits {
    let section = root.get("limits").and_then(|item| item.table(reader, LIMITS_TABLE));
    let table = section.and_then(|section| section.get("run")?.table(reader, RUN));
    let Some(table) = table else { return limits };
    table.set(reader, "wall", &mut limits.wall_ms);
    table.set(reader, "turns", &mut limits.turns);
    table.set(reader, "task_turns", &mut limits.task_turns);
    table.set(reader, "tokens", &mut limits.tokens);
    table.set(reader, "cost_usd", &mut limits.cost_micro_usd);
    table.set(reader, "model_calls", &mut limits.model_calls);
    table.set(reader, "tool_calls", &mut limits.tool_calls);
    table.set(reader, "history", &mut limits.history);
    table.set(reader, "cpu", &mut limits.cpu_ms);
    table.set(reader, "tasks", &mut limits.tasks);
    table.set(reader, "tasks_at_once", &mut limits.tasks_at_once);
    table.set(reader, "when_used_up", &mut limits.when_used_up);
    table.set(reader, "depth", &mut limits.depth);
    limits
}

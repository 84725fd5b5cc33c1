//! The head of a run: who may do what, and where data can leave.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use conclave_core::ids::RoomId;
use conclave_core::rights::{RightsRow, data_can_leave, rights_table};
use conclave_runtime::Prepared;

use crate::screen::columns;

use super::columns::wrap;
use super::{FAINT, GOOD, NAME, ODD, paint, plural, time};

/// Columns of a plugin's name.
const PLUGIN: usize = 13;
/// Columns of what it may, however narrow the terminal is.
const LEAST: usize = 20;
/// Columns of a source at least.
const SOURCE: usize = 12;
/// What `data_can_leave` says where there is no way out.
const NOWHERE: &str = "nowhere";
/// A longer path would push what a plugin may do out of sight.
const MOST_OF_A_PATH: usize = 24;

/// Prints it to stderr.
pub(crate) fn print(prepared: &Prepared, room: Option<&RoomId>, took: Duration) {
    print_leaving(prepared, &room.map(|room| format!("run {room} · ")).unwrap_or_default(), &data_can_leave(prepared.setup()), took);
}

/// The same of what serves a client: what tools give leaves to it, whatever else they may do.
pub(crate) fn print_served(prepared: &Prepared, took: Duration) {
    let leaves = data_can_leave(prepared.setup());
    let leaves = if leaves == NOWHERE { "the MCP client".to_owned() } else { format!("the MCP client, {leaves}") };
    print_leaving(prepared, "", &leaves, took);
}

fn print_leaving(prepared: &Prepared, id: &str, leaves: &str, took: Duration) {
    let mut err = crate::output::stderr();
    let plugins = prepared.plugins();
    let cached = plugins.iter().filter(|plugin| plugin.from_cache).count();
    let from = match cached {
        all if all == plugins.len() => format!("{} from cache", count(all)),
        0 => format!("{} compiled", count(plugins.len())),
        some => format!("{}, {some} from cache", count(plugins.len())),
    };
    let style = if leaves == NOWHERE { GOOD } else { ODD };
    let _ = writeln!(err, "{id}{from} in {} · data can leave to: {}", time(took), paint(style, leaves));
    let _ = writeln!(err, "{}\n", table(prepared));
}

/// Who may do what, a line for each plugin.
pub(crate) fn table(prepared: &Prepared) -> String {
    let rows = rows(prepared);
    let width = width(&rows);
    // A pipe has no columns.
    let most = if std::io::stderr().is_terminal() { columns() } else { usize::MAX };
    rows.iter().flat_map(|row| lines(row, width, most)).collect::<Vec<_>>().join("\n")
}

fn count(plugins: usize) -> String {
    plural(plugins as u64, "plugin", "plugins")
}

/// The rights table of a prepared config.
pub(crate) fn rows(prepared: &Prepared) -> Vec<RightsRow> {
    let mut rows = rights_table(prepared.setup(), prepared.sources());
    rows.iter_mut().for_each(|row| row.dev = prepared.is_dev(&row.plugin));
    rows
}

/// Columns of the widest source.
pub(crate) fn width(rows: &[RightsRow]) -> usize {
    rows.iter().map(|row| source(row).chars().count()).fold(SOURCE, usize::max)
}

/// Returns a row in lines of at most `most` columns: the plugin, its source in `width` columns, and below each other what it may.
pub(crate) fn lines(row: &RightsRow, width: usize, most: usize) -> Vec<String> {
    let source = source(row);
    let first = format!("  {} {} ", paint(NAME, format_args!("{:<PLUGIN$}", row.plugin)), paint(FAINT, format_args!("{source:<width$}")));
    let indent = 2 + PLUGIN + 1 + width + 1;
    if indent + LEAST > most {
        let may = if row.may.is_empty() { "nothing but compute".to_owned() } else { row.may.join(", ") };
        let below = wrap(&may, most.saturating_sub(4)).into_iter().map(|may| format!("    {may}"));
        return std::iter::once(first.trim_end().to_owned()).chain(below).collect();
    }
    let may = match row.may.join(", ") {
        may if may.is_empty() => vec![paint(FAINT, "nothing but compute")],
        may if most == usize::MAX => vec![may],
        may => wrap(&may, most.saturating_sub(indent).max(LEAST)),
    };
    let margins = std::iter::once(first).chain(std::iter::repeat(" ".repeat(indent)));
    may.into_iter().zip(margins).map(|(may, margin)| format!("{margin}{may}")).collect()
}

fn source(row: &RightsRow) -> String {
    match row.source.as_str() {
        "stock" => row.source.clone(),
        path if row.dev => format!("{} DEV", short(path)),
        path => format!("{} UNSIGNED", short(path)),
    }
}

/// The end of a long path: the file's name says most.
fn short(path: &str) -> String {
    match path.rsplit_once('/') {
        Some((folder, file)) if path.chars().count() > MOST_OF_A_PATH && !folder.is_empty() => format!("…/{file}"),
        _ => path.to_owned(),
    }
}

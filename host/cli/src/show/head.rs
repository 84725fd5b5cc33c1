//! The head of a run: who may do what, and where data can leave.

use std::io::Write;
use std::time::Duration;

use conclave_core::ids::RoomId;
use conclave_core::rights::{RightsRow, data_can_leave, rights_table};
use conclave_runtime::Prepared;

use super::{FAINT, GOOD, NAME, ODD, paint, plural, time};

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
    let lines: Vec<String> = rows.iter().map(|row| format!("  {}", line(row, width))).collect();
    lines.join("\n")
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

/// One row, in columns; the source's is so wide.
pub(crate) fn line(row: &RightsRow, width: usize) -> String {
    let may = if row.may.is_empty() { paint(FAINT, "nothing but compute") } else { row.may.join(", ") };
    let source = source(row);
    format!("{} {} {may}", paint(NAME, format_args!("{:<13}", row.plugin)), paint(FAINT, format_args!("{source:<width$}")))
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

//! The head of a run: the permissions of each plugin, and the ways on which data can leave.

use std::io::IsTerminal;
use std::time::Duration;

use conclave_core::inspect::permission_summary::{RightsRow, data_can_leave, rights_table};
use conclave_core::setup::Setup;
use conclave_core::types::ids::RoomId;
use conclave_runtime::Prepared;

use crate::ui::screen::columns;
use crate::ui::stderr;

use super::columns::{width, wrap};
use super::{FAINT, GOOD, NAME, ODD, one_line, paint, plural, time};

/// Columns of a name, at least and at most. A longer name shifts only its own row, so that it
/// cannot push the permissions of all rows out of view.
const NAMES: (usize, usize) = (13, 24);
/// Columns of the permissions, however narrow the terminal is.
const LEAST: usize = 20;
/// Columns of a source, at least.
const SOURCE: usize = 12;
/// The value of `data_can_leave` without any way out.
const NOWHERE: &str = "nowhere";
/// Characters of a digest that are shown.
const DIGEST: usize = 12;
/// Columns of a path. A longer one would push the permissions out of view.
const MOST_OF_A_PATH: usize = 24;

/// Prints the head of a run to stderr.
pub(crate) fn print(prepared: &Prepared, room: Option<&RoomId>, took: Duration) {
    print_effective((prepared, prepared.setup()), room, took);
}

/// Does the same with the permissions of this setup: the effective ones of a run that is resumed.
pub(crate) fn print_effective(rights: (&Prepared, &Setup), room: Option<&RoomId>, took: Duration) {
    let id = room.map(|room| format!("run {room} · ")).unwrap_or_default();
    print_leaving(rights, &id, &data_can_leave(rights.1), took);
}

/// Prints the head of a server: its tools' results leave to the client, in addition to all other
/// ways.
#[cfg(feature = "mcp")]
pub(crate) fn print_served(prepared: &Prepared, took: Duration) {
    let leaves = data_can_leave(prepared.setup());
    let leaves = if leaves == NOWHERE {
        "the MCP client".to_owned()
    } else {
        format!("the MCP client, {leaves}")
    };
    print_leaving((prepared, prepared.setup()), "", &leaves, took);
}

fn print_leaving((prepared, setup): (&Prepared, &Setup), id: &str, leaves: &str, took: Duration) {
    let plugins = prepared.plugins();
    let cached = plugins.iter().filter(|plugin| plugin.from_cache).count();
    let from = match cached {
        all if all == plugins.len() => format!("{} from cache", count(all)),
        0 => format!("{} compiled", count(plugins.len())),
        some => format!("{}, {some} from cache", count(plugins.len())),
    };
    let style = if leaves == NOWHERE { GOOD } else { ODD };
    stderr::line(format_args!(
        "{id}{from} in {} · data can leave to: {}",
        time(took),
        paint(style, leaves)
    ));
    stderr::line(format_args!("{}\n", table_of(&rows_of(prepared, setup))));
}

/// The permissions, a line for each plugin.
pub(crate) fn table(prepared: &Prepared) -> String {
    table_of(&rows(prepared))
}

fn table_of(rows: &[RightsRow]) -> String {
    let widths = Widths::of(rows);
    // A pipe has no width.
    let most = if std::io::stderr().is_terminal() { columns() } else { usize::MAX };
    rows.iter().flat_map(|row| lines(row, widths, most)).collect::<Vec<_>>().join("\n")
}

fn count(plugins: usize) -> String {
    plural(plugins as u64, "plugin", "plugins")
}

/// The permission summary of a prepared config.
pub(crate) fn rows(prepared: &Prepared) -> Vec<RightsRow> {
    rows_of(prepared, prepared.setup())
}

fn rows_of(prepared: &Prepared, setup: &Setup) -> Vec<RightsRow> {
    let mut rows = rights_table(setup, prepared.sources());
    rows.iter_mut().for_each(|row| row.dev = prepared.is_dev(&row.plugin));
    rows
}

/// Columns of the names and of the sources in a permission summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Widths {
    name: usize,
    source: usize,
}

impl Widths {
    /// The columns of the widest name, within bounds, and of the widest source.
    pub(crate) fn of(rows: &[RightsRow]) -> Self {
        let source = rows.iter().map(|row| source(row).chars().count()).fold(SOURCE, usize::max);
        Self { name: name_width(rows.iter().map(|row| row.plugin.as_str())), source }
    }
}

/// The columns of the widest name, within bounds.
pub(crate) fn name_width<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(width).max().unwrap_or_default().clamp(NAMES.0, NAMES.1)
}

/// A row in lines of at most `most` columns: the plugin, its source, and its permissions one below
/// the other.
pub(crate) fn lines(row: &RightsRow, widths: Widths, most: usize) -> Vec<String> {
    let (source, Widths { name, source: wide }) = (source(row), widths);
    let plugin = paint(NAME, format_args!("{:<name$}", row.plugin));
    let first = format!("  {plugin} {} ", paint(FAINT, format_args!("{source:<wide$}")));
    let indent = 2 + name.max(width(row.plugin.as_str())) + 1 + wide + 1;
    if indent + LEAST > most {
        let may =
            if row.may.is_empty() { "nothing but compute".to_owned() } else { row.may.join(", ") };
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
        path if row.dev => format!("{} DEV", one_line(&short(path), usize::MAX)),
        path if !row.signed_by.is_empty() => {
            format!("{} SIGNED", one_line(&short(path), usize::MAX))
        }
        path if !row.unknown_signers.is_empty() => {
            format!("{} SIGNED (unknown key)", one_line(&short(path), usize::MAX))
        }
        path => format!("{} UNSIGNED", one_line(&short(path), usize::MAX)),
    }
}

/// The end of a long path, since the file's name is its most useful part.
fn short(path: &str) -> String {
    let digest =
        path.split_once("@sha256:").and_then(|(name, hex)| Some((name, hex.get(..DIGEST)?)));
    let path =
        digest.map_or_else(|| path.to_owned(), |(name, hex)| format!("{name}@sha256:{hex}…"));
    match path.rsplit_once('/') {
        Some((folder, file)) if path.chars().count() > MOST_OF_A_PATH && !folder.is_empty() => {
            format!("…/{file}")
        }
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_leaves_room_for_the_rights() {
        let reference = format!("oci://registry.test/plugins/tides@sha256:{}", "ab".repeat(32));
        assert_eq!(short(&reference), "…/tides@sha256:abababababab…");
        assert_eq!(short("a@sha256:é"), "a@sha256:é");
    }

    fn row(plugin: &str, source: &str, may: &[&str]) -> RightsRow {
        let may = may.iter().map(ToString::to_string).collect();
        RightsRow {
            plugin: plugin.into(),
            source: source.to_owned(),
            may,
            dev: false,
            signed_by: [].into(),
            unknown_signers: [].into(),
        }
    }

    fn table_lines(rows: &[RightsRow], most: usize) -> Vec<String> {
        let all = rows.iter().flat_map(|row| lines(row, Widths::of(rows), most));
        all.map(|line| anstream::adapter::strip_str(&line).to_string()).collect()
    }

    #[test]
    fn the_widest_name_makes_the_column() {
        let rows = [
            row("coordinator-of-desks", "stock", &["route to answer"]),
            row("chat", "./plugins/of/others/far-away.wasm", &["call search.find", "read docs/"]),
        ];
        assert_eq!(
            table_lines(&rows, 80),
            [
                "  coordinator-of-desks stock                    route to answer",
                "  chat                 …/far-away.wasm UNSIGNED call search.find, read docs/",
            ]
        );
        let short = [row("a", "stock", &["read docs/"])];
        assert_eq!(table_lines(&short, 80), ["  a             stock        read docs/"]);
        for most in [60, 80, 120] {
            let fits = |line: &String| width(line) <= most;
            assert!(
                table_lines(&rows, most).iter().all(fits),
                "{most}: {:?}",
                table_lines(&rows, most)
            );
        }
    }

    #[test]
    fn a_component_signed_by_an_unknown_key_is_not_called_unsigned() {
        let strange = RightsRow {
            unknown_signers: ["ed25519:0a".to_owned()].into(),
            ..row("a", "./a.wasm", &["read docs/"])
        };
        assert_eq!(source(&strange), "./a.wasm SIGNED (unknown key)");
        let signed = RightsRow { signed_by: ["alice".to_owned()].into(), ..strange };
        assert_eq!(source(&signed), "./a.wasm SIGNED");
    }

    #[test]
    fn the_source_of_a_component_cannot_steer_a_terminal() {
        let rows = [row("a", "./s\u{1b}[2J\u{202e}.wasm", &["read docs/"])];
        let raw = lines(&rows[0], Widths::of(&rows), 120).concat();
        assert!(!raw.contains("\u{1b}[2J") && !raw.contains('\u{202e}'), "{raw:?}");
        assert!(raw.contains("\\u{1b}[2J\\u{202e}.wasm UNSIGNED"), "{raw:?}");
    }

    #[test]
    fn a_name_without_measure_moves_its_own_row_alone() {
        let rows =
            [row(&"n".repeat(60), "stock", &["read docs/"]), row("chat", "stock", &["read docs/"])];
        assert_eq!(table_lines(&rows, 120)[1].find("stock"), Some(2 + NAMES.1 + 1));
    }
}

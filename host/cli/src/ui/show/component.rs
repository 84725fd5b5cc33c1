//! A component's description and capabilities, for `plugin inspect` and `add`. The text is
//! untrusted, so it stands behind marks.

use std::collections::{BTreeMap, BTreeSet};

use anstyle::Style;
use conclave_core::permissions::manifest::{CapabilityRequest, Manifest};
use conclave_core::setup::ChangedComponent;
use conclave_core::types::capability::Capability;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_runtime::plugin::UnaskedImport;
use serde_json::Value;

use super::columns::wrap_hanging;
use super::entry::EntryText;
use super::{BAD, FAINT, GOOD, NAME, ODD, one_line, paint};

/// Capabilities that are shown; a component may have any number.
const ASKS: usize = 40;
/// Stand for what the manifest does not say. Nothing is derived in their place.
const NO_REASON: &str = "(the author gave no reason)";
const NO_LICENSE: &str = "no licence";
const NO_DESCRIPTION: &str = "(the author gave no description)";
/// Columns of a name, a version or a licence.
const WORD: usize = 64;
/// Columns of a capability and its requirement, with the blanks around them.
const BEFORE_REASON: usize = 24;
/// Columns of a reason beside its capability, at least.
const REASON_MIN: usize = 24;
/// Columns in front of a reason below its capability.
const BELOW: usize = 4;

/// The line that names a component, and its description, in rows of at most `columns` columns.
pub(crate) fn head(
    manifest: &Manifest,
    kinds: &BTreeSet<PluginKind>,
    columns: usize,
) -> Vec<String> {
    let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    let license = match manifest.license.trim() {
        "" => paint(FAINT, NO_LICENSE),
        license => one_line(license, WORD),
    };
    let (name, version) =
        (paint(NAME, one_line(&manifest.name, WORD)), one_line(&manifest.version, WORD));
    let contract = one_line(&manifest.contract, WORD);
    let line = format!("{name} {version} · {} · contract {contract} · {license}", kinds.join(", "));
    let mut rows = wrap_hanging(&line, 2, columns);
    match manifest.description.trim() {
        "" => rows.push(paint(FAINT, NO_DESCRIPTION)),
        text => rows.extend(EntryText::default().in_full(Style::new(), text).rows(columns)),
    }
    rows
}

/// The capabilities that it asks for, with its reasons, in rows of at most `columns` columns.
pub(crate) fn asks(manifest: &Manifest, columns: usize) -> Vec<String> {
    let mut rows: Vec<String> = manifest
        .asks
        .iter()
        .take(ASKS)
        .flat_map(|(capability, ask)| self::ask(capability, ask, columns))
        .collect();
    if let Some(more) = manifest.asks.len().checked_sub(ASKS).filter(|more| *more > 0) {
        rows.push(paint(FAINT, format_args!("  … {more} more; `--json` has them all")));
    }
    rows
}

fn ask(capability: &str, ask: &CapabilityRequest, columns: usize) -> Vec<String> {
    let (style, need) = if ask.optional { (FAINT, "optional") } else { (ODD, "required") };
    let note = match Capability::from_name(capability) {
        None => Some((BAD, "this host does not know it")),
        Some(capability) if capability.is_own() => Some((GOOD, "every plugin has it")),
        Some(_) => None,
    };
    let entry = match (ask.why.trim(), note) {
        ("", None) => EntryText::new(FAINT, NO_REASON),
        ("", Some((style, note))) => EntryText::new(style, note),
        (why, None) => EntryText::default().in_full(Style::new(), why),
        (why, Some((style, note))) => EntryText::new(style, note).in_full(Style::new(), why),
    };
    let first = format!(
        "  {} {}  ",
        paint(NAME, format_args!("{:<10}", one_line(capability, 11))),
        paint(style, need)
    );
    // On a narrow terminal the reason stands below. A row wider than the terminal would wrap into a
    // row without a mark.
    let is_beside = columns >= BEFORE_REASON + REASON_MIN;
    let indent = if is_beside { BEFORE_REASON } else { BELOW };
    let mut reasons = entry.rows(columns.saturating_sub(indent));
    // Without words of the program's own, the first row of a long reason is empty.
    let beside = if is_beside || reasons.first().is_some_and(String::is_empty) {
        reasons.remove(0)
    } else {
        String::new()
    };
    let mut rows = vec![format!("{first}{beside}").trim_end().to_owned()];
    rows.extend(reasons.iter().map(|row| format!("{:indent$}{row}", "")));
    rows
}

/// The settings that the manifest declares, in rows of at most `columns` columns.
pub(crate) fn settings(manifest: &Manifest, columns: usize) -> Vec<String> {
    let setting = |(name, declared): (&String, &Value)| {
        let kind = declared["type"].as_str().unwrap_or("any");
        let default = declared.get("default").map(|value| format!(" = {value}"));
        let description = declared["description"].as_str().map(|text| format!(" · {text}"));
        let text = format!(
            "{name}: {kind}{}{}",
            default.unwrap_or_default(),
            description.unwrap_or_default()
        );
        let rows =
            EntryText::default().in_full(Style::new(), &text).rows(columns.saturating_sub(2));
        rows.into_iter().filter(|row| !row.is_empty()).map(|row| format!("  {row}"))
    };
    let mut rows: Vec<String> = manifest.config.iter().take(ASKS).flat_map(setting).collect();
    if let Some(more) = manifest.config.len().checked_sub(ASKS).filter(|more| *more > 0) {
        rows.push(paint(FAINT, format_args!("  … {more} more; `--json` has them all")));
    }
    rows
}

/// The imports of authority that the manifest does not ask for, and what follows, in rows of at
/// most `columns` columns.
pub(crate) fn unasked(found: &[UnaskedImport], columns: usize) -> Vec<String> {
    let mut by_capability: BTreeMap<(bool, &str), Vec<&str>> = BTreeMap::new();
    for import in found {
        let capability = import.capability.map_or(SOCKETS, Capability::as_str);
        by_capability.entry((import.is_wasi, capability)).or_default().push(&import.import);
    }
    let mut rows = Vec::new();
    for ((is_wasi, capability), imports) in by_capability {
        let (style, what) = match (is_wasi, capability) {
            (true, SOCKETS) => {
                (FAINT, { "its language's library imports them; each use is refused".to_owned() })
            }
            (true, "files") => {
                (FAINT, "its language's library imports it; it sees no folder".to_owned())
            }
            (true, _) => (FAINT, {
                format!(
                    "its language's library imports it; each use is refused, unless the plugin asks for `{capability}`"
                )
            }),
            (false, _) => {
                let table = if capability == "secrets" { "secrets.NAME" } else { capability };
                let what = format!(
                    "each call is refused: its author must write [asks.{table}] with a `why`"
                );
                (ODD, what)
            }
        };
        let line = format!("  {capability:<10} {what}");
        rows.extend(wrap_hanging(&line, 4, columns).into_iter().map(|row| paint(style, row)));
        for import in imports {
            rows.push(paint(
                FAINT,
                format_args!("    {}", one_line(import, columns.saturating_sub(4))),
            ));
        }
    }
    rows
}

/// Stands for the sockets of WASI, which are no capability.
const SOCKETS: &str = "sockets";

/// A line for each plugin whose component is not the one that the run began with.
pub(crate) fn changed_lines(changed: &[ChangedComponent]) -> impl Iterator<Item = String> {
    let short = |sha256: &str| sha256.chars().take(12).collect::<String>();
    changed.iter().map(move |ChangedComponent { plugin, before, now, .. }| {
        let what = match now {
            None => format!("the plugin {plugin} is not in the config any more"),
            Some(now) => format!(
                "the component of {plugin} is another one than when the run was cut off: {} now, {} before; \
                 approvals of its calls are asked for again",
                short(now),
                short(before)
            ),
        };
        paint(ODD, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unasked_import_says_what_its_author_must_write() {
        let import = |import: &str, capability, is_wasi| UnaskedImport {
            import: import.to_owned(),
            capability,
            is_wasi,
        };
        let found = [
            import("conclave:plugin/kv@0.1.0-draft", Some(Capability::Kv), false),
            import("wasi:filesystem/types@0.2.6", Some(Capability::Files), true),
            import("wasi:sockets/tcp@0.2.6", None, true),
        ];
        for columns in [40, 80] {
            let rows: Vec<String> = unasked(&found, columns)
                .iter()
                .map(|row| anstream::adapter::strip_str(row).to_string())
                .collect();
            assert!(rows.iter().all(|row| row.chars().count() <= columns), "{rows:#?}");
            let all = rows.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(all.contains("write [asks.kv] with a `why`"), "{all}");
            assert!(all.contains("it sees no folder") && all.contains("sockets"), "{all}");
        }
    }

    #[test]
    fn what_an_author_did_not_write_is_shown_as_missing() {
        let manifest =
            Manifest { name: "x".into(), version: "1.0.0".into(), ..Manifest::default() };
        let rows = head(&manifest, &BTreeSet::from([PluginKind::Tools]), 80).join("\n");
        assert!(rows.contains(NO_LICENSE) && rows.contains(NO_DESCRIPTION), "{rows}");
    }

    #[test]
    fn what_a_stranger_wrote_stands_behind_marks_and_is_bounded() {
        let forged =
            "fine\n\nAsks for\n  nothing at all, and so it can be let in without a look at it";
        let ask = CapabilityRequest { why: forged.to_owned(), ..CapabilityRequest::default() };
        let asks = (0..100).map(|number| (format!("cap-{number}"), ask.clone())).collect();
        let manifest = Manifest {
            name: "spoof\nx".into(),
            version: "1".into(),
            description: forged.into(),
            asks,
            ..Manifest::default()
        };
        for columns in [40, 80, 120] {
            let rows: Vec<String> = head(&manifest, &BTreeSet::from([PluginKind::Tools]), columns)
                .into_iter()
                .chain(super::asks(&manifest, columns))
                .collect();
            let rows: Vec<String> =
                rows.iter().map(|row| anstream::adapter::strip_str(row).to_string()).collect();
            for row in &rows {
                assert!(
                    unicode_width::UnicodeWidthStr::width(row.as_str()) <= columns,
                    "{columns}: {row}"
                );
            }
            for row in rows.iter().filter(|row| {
                ["fine", "nothing", "Asks", "look"].iter().any(|word| row.contains(word))
            }) {
                let mark = row.find('│').unwrap_or_else(|| panic!("{row}"));
                assert!(
                    ["fine", "nothing", "Asks", "look"]
                        .iter()
                        .all(|word| row.find(word).is_none_or(|at| at > mark)),
                    "{row}"
                );
            }
            assert!(rows.last().is_some_and(|row| row.contains("60 more")), "{rows:#?}");
        }
    }
}

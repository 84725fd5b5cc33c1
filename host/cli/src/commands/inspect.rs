//! `conclave plugin inspect SOURCE`: a component's description, capabilities, tools and imports.
//! Runs nothing of the component but its list of tools, with nothing granted.

use conclave_core::types::plugin_kind::PluginKind;
use conclave_runtime::ComponentTools;
use conclave_runtime::plugin::Inspection;
use serde_json::json;

use crate::args::{InspectPlugin, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::state::registry;
use crate::state::setup;
use crate::state::source::{self, LocatedComponent};
use crate::ui::show::columns::{width, wrap_hanging};
use crate::ui::show::entry::EntryText;
use crate::ui::show::{BAD, FAINT, bytes, component, one_line, paint, table, tool};
use crate::ui::stdout;

/// The list of tools, or why the component did not return it. `None` if it was not asked.
type Tools = Option<Result<ComponentTools, String>>;

pub(crate) async fn inspect(args: &InspectPlugin, output: OutputArgs) -> Result<u8, CliError> {
    let command_for = |source: &str| format!("conclave plugin inspect {}", shell(source));
    let found = source::find(&args.source, command_for).await?;
    let signers = registry::signers_of(&found).await?;
    let signers: Vec<String> = signers.iter().map(ToString::to_string).collect();
    let tools = if args.no_tools { None } else { tools_of(&found, output).await? };
    // No host loads a component that cannot list its tools.
    let code = if matches!(tools, Some(Err(_))) { exit::PLUGIN } else { exit::OK };
    if output.json {
        let mut value = json!(found.inspection);
        value["type"] = "inspection".into();
        value["signed_by"] = json!(signers);
        match tools {
            Some(Ok(listed)) => {
                value["tools"] = json!(listed.tools);
                value["unserved"] = json!(listed.unserved);
            }
            Some(Err(error)) => value["tools_error"] = error.into(),
            None => {}
        }
        stdout::json(value)?;
    } else {
        show(&one_line(&found.place.label(), TEXT), &found.inspection, (&signers, &tools))?;
    }
    Ok(code)
}

/// Asks the component for its tools, if it has any.
async fn tools_of(found: &LocatedComponent, output: OutputArgs) -> Result<Tools, CliError> {
    if !found.inspection.kinds.contains(&PluginKind::Tools) {
        return Ok(None);
    }
    let follow = setup::follow(output.result_only());
    let tools = setup::tools_of(&setup::open_host()?, found, &follow).await;
    Ok(Some(tools.map_err(|error| error.to_string())))
}

/// Columns of a path or an import.
const TEXT: usize = 200;
/// Imports that are shown; a component may have any number.
const IMPORTS: usize = 100;
/// Columns of a package's name and version in front of its interfaces.
const PACKAGE: usize = 30;

fn show(
    place: &str,
    found: &Inspection,
    (signers, tools): (&[String], &Tools),
) -> Result<(), CliError> {
    let columns = table::total();
    stdout::styled(format_args!("{place}  {}  sha256 {}", bytes(found.size), found.sha256))?;
    for key in signers {
        stdout::styled(format_args!("signed by {key}"))?;
    }
    let mut rows = component::head(&found.manifest, &found.kinds, columns);
    rows.push(String::new());
    if found.manifest.asks.is_empty() {
        rows.push("Asks for nothing".to_owned());
    } else {
        rows.push("Asks for".to_owned());
        rows.extend(component::asks(&found.manifest, columns));
    }
    if !found.manifest.config.is_empty() {
        rows.extend([String::new(), "Settings".to_owned()]);
        rows.extend(component::settings(&found.manifest, columns));
    }
    match tools {
        Some(Ok(listed)) => {
            rows.extend([String::new(), "Tools".to_owned()]);
            rows.extend(tool::tools(&listed.tools, columns));
            if !listed.unserved.is_empty() {
                rows.extend([String::new(), "Functions that cannot be tools".to_owned()]);
                rows.extend(listed.unserved.iter().take(IMPORTS).flat_map(|function| {
                    EntryText::plain(" ").in_full(FAINT, function).rows(columns)
                }));
            }
        }
        Some(Err(error)) => {
            rows.push(String::new());
            rows.extend(
                EntryText::plain("Tools could not be listed, so no host loads it:")
                    .in_full(BAD, error)
                    .rows(columns),
            );
        }
        None => {}
    }
    let unasked = component::unasked(&found.unasked, columns);
    if !unasked.is_empty() {
        rows.extend([String::new(), "Imports without asking for it".to_owned()]);
        rows.extend(unasked);
    }
    rows.extend([String::new(), "Imports".to_owned()]);
    let imports: Vec<String> =
        found.imports.iter().take(IMPORTS).map(|import| one_line(import, TEXT)).collect();
    rows.extend(import_rows(&by_package(&imports), columns));
    if let Some(more) = found.imports.len().checked_sub(IMPORTS).filter(|more| *more > 0) {
        rows.push(paint(FAINT, format_args!("  … {more} more; `--json` has them all")));
    }
    rows.iter().try_for_each(stdout::styled)
}

/// Returns the imports by package and version. A language's runtime imports most interfaces of
/// WASI, whatever the code on top of it uses.
fn by_package(imports: &[String]) -> Vec<(String, Vec<&str>)> {
    let mut packages: Vec<(String, Vec<&str>)> = Vec::new();
    for import in imports {
        let (name, version) = import.split_at(import.find('@').unwrap_or(import.len()));
        let (package, interface) = name.split_once('/').unwrap_or((name, ""));
        let package = format!("{package}{version}");
        match packages.iter_mut().find(|(known, _)| *known == package) {
            Some((_, interfaces)) => interfaces.push(interface),
            None => packages.push((package, vec![interface])),
        }
    }
    packages
}

/// Returns a row for each package, with further rows below its interfaces.
fn import_rows(packages: &[(String, Vec<&str>)], columns: usize) -> Vec<String> {
    let names = packages.iter().map(|(package, _)| width(package)).max().unwrap_or_default();
    let names = names.min(PACKAGE);
    let rows = packages.iter().flat_map(|(package, interfaces)| {
        let line = format!("  {package:names$}  {}", interfaces.join(", "));
        wrap_hanging(line.trim_end(), names + 4, columns)
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interfaces_of_a_package_are_one_row() {
        let imports = [
            "wasi:io/poll@0.2.0",
            "env",
            "wasi:io/poll@0.2.6",
            "wasi:io/error@0.2.6",
            "a:b/files@0.1.0-draft",
            "wasi:io/streams@0.2.6",
        ];
        let imports = imports.map(str::to_owned);
        let packages = by_package(&imports);
        assert_eq!(
            import_rows(&packages, 40),
            [
                "  wasi:io@0.2.0    poll",
                "  env",
                "  wasi:io@0.2.6    poll, error, streams",
                "  a:b@0.1.0-draft  files",
            ]
        );
        assert_eq!(
            import_rows(&packages, 38)[2..4],
            ["  wasi:io@0.2.6    poll, error,", "                   streams"]
        );
    }
}

//! `conclave plugin inspect SOURCE`: a component's description, capabilities, tools and imports.
//! Runs nothing of the component but its list of tools, with nothing granted.

use conclave_core::setup::PluginKind;
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
use crate::ui::show::entry::EntryText;
use crate::ui::show::{BAD, FAINT, bytes, component, one_line, paint, table, tool};
use crate::ui::stdout;

/// The list of tools, or why the component did not return it. `None` if it was not asked.
type Tools = Option<Result<ComponentTools, String>>;

pub(crate) async fn inspect(args: &InspectPlugin, output: OutputArgs) -> Result<u8, CliError> {
    let again = |source: &str| format!("conclave plugin inspect {}", shell(source));
    let found = source::find(&args.source, again).await?;
    let signers = registry::signers_of(&found).await?;
    let signers: Vec<String> = signers.iter().map(ToString::to_string).collect();
    let tools = if args.no_tools { None } else { tools_of(&found, output).await? };
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
        show(&one_line(&found.place.shown(), TEXT), &found.inspection, (&signers, &tools))?;
    }
    Ok(code)
}

/// Asks the component for its tools, if it has any.
async fn tools_of(found: &LocatedComponent, output: OutputArgs) -> Result<Tools, CliError> {
    if !found.inspection.kinds.contains(&PluginKind::Tools) {
        return Ok(None);
    }
    let follow = setup::follow(output.quiet || output.json);
    let tools = setup::tools_of(&setup::open_host()?, found, &follow).await;
    Ok(Some(tools.map_err(|error| error.to_string())))
}

/// Columns of a path or an import.
const TEXT: usize = 200;
/// Imports that are shown; a component may have any number.
const IMPORTS: usize = 100;

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
                    EntryText::plain(" ").whole(FAINT, function).rows(columns)
                }));
            }
        }
        Some(Err(error)) => {
            rows.push(String::new());
            rows.extend(
                EntryText::plain("Tools could not be listed, so no host loads it:")
                    .whole(BAD, error)
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
    let imports = by_interface(&found.imports);
    rows.extend(imports.iter().take(IMPORTS).map(|import| format!("  {}", one_line(import, TEXT))));
    if let Some(more) = imports.len().checked_sub(IMPORTS).filter(|more| *more > 0) {
        rows.push(paint(FAINT, format_args!("  … {more} more; `--json` has them all")));
    }
    rows.iter().try_for_each(stdout::styled)
}

/// The imports with the versions of one interface in one row: a language's runtime and the code on
/// top of it often import two.
fn by_interface(imports: &[String]) -> Vec<String> {
    let mut rows: Vec<(&str, Vec<&str>)> = Vec::new();
    for import in imports {
        let (interface, version) = import.split_once('@').unwrap_or((import, ""));
        match rows.iter_mut().find(|(known, _)| *known == interface) {
            Some((_, versions)) => versions.push(version),
            None => rows.push((interface, vec![version])),
        }
    }
    let row = |(interface, versions): (&str, Vec<&str>)| match versions.as_slice() {
        [""] => interface.to_owned(),
        versions => format!("{interface}@{}", versions.join(", ")),
    };
    rows.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::by_interface;

    #[test]
    fn two_versions_of_an_interface_are_one_row() {
        let imports = ["wasi:io/poll@0.2.0", "a:b/c", "wasi:io/poll@0.2.6", "wasi:io/error@0.2.6"];
        let rows = by_interface(&imports.map(str::to_owned));
        assert_eq!(rows, ["wasi:io/poll@0.2.0, 0.2.6", "a:b/c", "wasi:io/error@0.2.6"]);
    }
}

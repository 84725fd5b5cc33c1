//! `conclave plugin inspect SOURCE`: a component's description and capabilities, without compiling
//! or running it.

use conclave_runtime::plugin::Inspection;
use serde_json::json;

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::state::source;
use crate::ui::show::{FAINT, bytes, component, one_line, paint, table};
use crate::ui::stdout;

pub(crate) async fn inspect(source: &str, output: OutputArgs) -> Result<u8, CliError> {
    let found =
        source::find(source, |source| format!("conclave plugin inspect {}", shell(source))).await?;
    if output.json {
        let mut value = json!(found.inspection);
        value["type"] = "inspection".into();
        stdout::json(value)?;
    } else {
        show(&one_line(&found.place.shown(), TEXT), &found.inspection)?;
    }
    Ok(exit::OK)
}

/// Columns of a path or an import.
const TEXT: usize = 200;
/// Imports that are shown; a component may have any number.
const IMPORTS: usize = 100;

fn show(place: &str, found: &Inspection) -> Result<(), CliError> {
    let columns = table::total();
    stdout::styled(format_args!("{place}  {}  sha256 {}", bytes(found.size), found.sha256))?;
    let mut rows = component::head(&found.manifest, &found.kinds, columns);
    rows.push(String::new());
    if found.manifest.asks.is_empty() {
        rows.push("Asks for nothing".to_owned());
    } else {
        rows.push("Asks for".to_owned());
        rows.extend(component::asks(&found.manifest, columns));
    }
    rows.extend([String::new(), "Imports".to_owned()]);
    rows.extend(
        found.imports.iter().take(IMPORTS).map(|import| format!("  {}", one_line(import, TEXT))),
    );
    if let Some(more) = found.imports.len().checked_sub(IMPORTS).filter(|more| *more > 0) {
        rows.push(paint(FAINT, format_args!("  … {more} more; `--json` has them all")));
    }
    rows.iter().try_for_each(stdout::styled)
}

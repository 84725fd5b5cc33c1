//! `conclave plugin inspect SOURCE`: what a component is and asks for, without compiling or running it.

use std::io::Write;

use conclave_runtime::plugin::Inspection;

use crate::args::Output;
use crate::commands::add::shell;
use crate::error::CliError;
use crate::exit;
use crate::show::{FAINT, NAME, ODD, bytes, one_line, paint};
use crate::{source, stdout};

pub(crate) async fn inspect(source: &str, output: Output) -> Result<u8, CliError> {
    let found = source::find(source, |source| format!("conclave plugin inspect {}", shell(source))).await?;
    if output.json {
        stdout::line(serde_json::to_string(&found.inspection).map_err(|error| CliError::internal(error.to_string()))?)?;
    } else {
        stdout::check(show(&one_line(&found.place.shown(), TEXT), &found.inspection))?;
    }
    Ok(exit::OK)
}

/// What a stranger wrote stays on its line, so that it cannot forge the lines below.
const TEXT: usize = 200;

fn show(place: &str, found: &Inspection) -> std::io::Result<()> {
    let mut out = anstream::stdout();
    writeln!(out, "{place}  {}  sha256 {}", bytes(found.size), found.sha256)?;
    let manifest = &found.manifest;
    let license = if manifest.license.is_empty() { String::new() } else { format!("  {}", one_line(&manifest.license, 80)) };
    writeln!(out, "{} {}  contract {}{license}", paint(NAME, &manifest.name), manifest.version, manifest.contract)?;
    if !manifest.description.is_empty() {
        writeln!(out, "{}", one_line(&manifest.description, TEXT))?;
    }
    writeln!(out, "\nAsks for")?;
    if manifest.asks.is_empty() {
        writeln!(out, "  nothing")?;
    }
    for (capability, ask) in &manifest.asks {
        let need = if ask.optional { paint(FAINT, "optional") } else { paint(ODD, "required") };
        writeln!(out, "  {} {need}  {}", paint(NAME, format_args!("{:<10}", one_line(capability, 20))), one_line(&ask.why, TEXT))?;
    }
    let kinds: Vec<&str> = found.kinds.iter().map(|kind| kind.as_str()).collect();
    writeln!(out, "\nServes as  {}", kinds.join(", "))?;
    writeln!(out, "\nImports")?;
    for import in &found.imports {
        writeln!(out, "  {}", one_line(import, TEXT))?;
    }
    Ok(())
}

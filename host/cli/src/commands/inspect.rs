//! `conclave plugin inspect FILE.wasm`: what a component is and asks for, without compiling or running it.

use std::io::Write;
use std::path::Path;

use conclave_runtime::plugin::{Inspection, inspect as look};

use crate::args::Output;
use crate::error::CliError;
use crate::exit;
use crate::show::{FAINT, NAME, ODD, bytes, paint, printable};

pub(crate) fn inspect(file: &Path, output: Output) -> Result<u8, CliError> {
    let component = std::fs::read(file).map_err(|error| CliError::usage(format!("{} could not be read: {error}", file.display())))?;
    let found = look(&component).map_err(|error| CliError::plugin(format!("{} is no plugin: {error}", file.display())))?;
    if output.json {
        println!("{}", serde_json::to_string_pretty(&found).map_err(|error| CliError::internal(error.to_string()))?);
    } else {
        // A closed pipe is the reader's choice, not an error.
        let _ = show(file, &found);
    }
    Ok(exit::OK)
}

fn show(file: &Path, found: &Inspection) -> std::io::Result<()> {
    let mut out = anstream::stdout();
    writeln!(out, "{}  {}  sha256 {}", file.display(), bytes(found.size), found.sha256)?;
    let manifest = &found.manifest;
    let license = if manifest.license.is_empty() { String::new() } else { format!("  {}", printable(&manifest.license)) };
    writeln!(out, "{} {}  contract {}{license}", paint(NAME, &manifest.name), manifest.version, manifest.contract)?;
    if !manifest.description.is_empty() {
        writeln!(out, "{}", printable(&manifest.description))?;
    }
    writeln!(out, "\nAsks for")?;
    if manifest.asks.is_empty() {
        writeln!(out, "  nothing")?;
    }
    for (capability, ask) in &manifest.asks {
        let need = if ask.optional { paint(FAINT, "optional") } else { paint(ODD, "required") };
        writeln!(out, "  {} {need}  {}", paint(NAME, format_args!("{:<10}", printable(capability))), printable(&ask.why))?;
    }
    let kinds: Vec<&str> = found.kinds.iter().map(|kind| kind.as_str()).collect();
    writeln!(out, "\nServes as  {}", kinds.join(", "))?;
    writeln!(out, "\nImports")?;
    for import in &found.imports {
        writeln!(out, "  {}", printable(import))?;
    }
    Ok(())
}

//! Reads one file through the `files` import.

use conclave_sdk::{Result, files, tool};

/// Reads a file; a refusal is passed on.
#[tool]
fn run(path: String) -> Result<String> {
    files::read_to_string(&path)
}

/// Lists the granted folders and everything in them.
#[tool]
fn list() -> Result<String> {
    let mut lines = Vec::new();
    for root in files::roots() {
        lines.push(format!("{} writable={}", root.path, root.writable));
        for found in files::walk(&root.path) {
            let found = found?;
            lines.push(format!("{} {:?} {}", found.path, found.entry.kind, found.entry.length));
        }
    }
    Ok(lines.join("\n"))
}

conclave_sdk::export!(tools: [run, list], asks: [files?]);

//! Reads and writes files past the contract, through `std`.

use std::fs;

use conclave_sdk::{Json, tool};

/// Tries the disk; each entry is what was tried and what came of it.
#[tool]
fn run() -> Json<Vec<(String, String)>> {
    let read = |path: &str| {
        (
            format!("read {path}"),
            fs::read(path).map_or_else(
                |error| error.to_string(),
                |bytes| format!("READ {} bytes", bytes.len()),
            ),
        )
    };
    let mut tried: Vec<_> =
        ["/etc/passwd", "../etc/passwd", "../../../../etc/passwd", "Cargo.toml", "/folder/a.txt"]
            .map(read)
            .into();
    tried.push((
        "write x".into(),
        fs::write("x", "x").map_or_else(|error| error.to_string(), |()| "WROTE".into()),
    ));
    tried.push((
        "list /".into(),
        fs::read_dir("/").map_or_else(
            |error| error.to_string(),
            |entries| format!("LISTED {}", entries.count()),
        ),
    ));
    Json(tried)
}

conclave_sdk::export!(tools: [run], asks: []);

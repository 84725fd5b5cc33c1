//! Reads the same file repeatedly, past any quota of bytes.

use conclave_sdk::{files, tool};

/// Reads until it is refused, and says after how many bytes.
#[tool]
fn run(path: String) -> String {
    let mut total = 0;
    for _ in 0..10_000_000 {
        match files::read_at(&path, 0, u32::MAX) {
            Ok(bytes) => total += bytes.len(),
            Err(error) => return format!("{total} bytes, then {error:?}"),
        }
    }
    format!("READ {total} bytes")
}

conclave_sdk::export!(tools: [run], asks: [files]);

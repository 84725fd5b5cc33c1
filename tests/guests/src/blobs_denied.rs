//! Stores a blob, and reads one that it was never given.

use conclave_sdk::{Json, blobs, tool};

/// The hash of an empty text, which is publicly known.
const KNOWN: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Keeps and reads; each entry is what came of it.
#[tool]
fn run() -> Json<[String; 2]> {
    Json([
        format!("{:?}", blobs::put(b"bytes", "text/plain", None)),
        format!("{:?}", blobs::read(KNOWN, 0, 16)),
    ])
}

conclave_sdk::export!(tools: [run], asks: [blobs?]);

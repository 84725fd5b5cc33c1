//! Tries to leave its folders through the `files` import, in many spellings.

use conclave_sdk::{Json, files, tool};

const PATHS: [&str; 20] = [
    "/etc/passwd",
    "/folder/../secret",
    "/folder/../../../../etc/passwd",
    "/folder/./../..",
    "/folder/a/../../secret",
    "/folder/link",
    "/folder/link/passwd",
    "/folder/absolute-link",
    "folder/a.txt",
    "//folder/a.txt",
    "//etc/passwd",
    "/",
    "",
    ".",
    "..",
    "/folder2/a.txt",
    "/folder/a.txt\0.md",
    "\\folder\\..\\secret",
    "/folder/%2e%2e/secret",
    "C:\\secret",
];

fn attempt(path: &str) -> (String, String) {
    let read = files::read_at(path, 0, 64).map_or_else(
        |error| format!("{error:?}"),
        |bytes| format!("READ {:?}", String::from_utf8_lossy(&bytes)),
    );
    let listed = files::list(path)
        .map_or_else(|error| format!("{error:?}"), |entries| format!("LISTED {}", entries.len()));
    // The whole longest path would exceed the answer.
    (path.chars().take(64).collect(), format!("{read}; {listed}"))
}

/// Tries each path; each entry is the path and what came of it. `READ` or `LISTED` is a success.
#[tool]
fn run() -> Json<Vec<(String, String)>> {
    let long = format!("/folder/{}", "a/".repeat(32 * 1024));
    Json(PATHS.into_iter().chain([long.as_str()]).map(attempt).collect())
}

conclave_sdk::export!(tools: [run], asks: [files]);

//! Writes and removes a file, whether or not the folder is granted for it.

use conclave_sdk::{Json, files, tool};

/// Writes, appends, and removes; each entry is what was tried and what came of it.
#[tool]
fn run(path: String, bytes: usize) -> Json<Vec<(&'static str, String)>> {
    let content = vec![b'x'; bytes];
    Json(vec![
        ("write", format!("{:?}", files::write(&path, &content))),
        ("append", format!("{:?}", files::write_at(&path, bytes as u64, &content, false))),
        ("far", format!("{:?}", files::write_at(&path, u64::MAX, b"x", false))),
        ("remove", format!("{:?}", files::remove(&path))),
    ])
}

/// Makes files until it is stopped, and says after how many.
#[tool]
fn many(folder: String, count: u32) -> String {
    for index in 0..count {
        if let Err(error) = files::write(&format!("{folder}/{index}"), "x") {
            return format!("{index}: {error:?}");
        }
    }
    format!("WROTE {count}")
}

conclave_sdk::export!(tools: [run, many], asks: [files]);

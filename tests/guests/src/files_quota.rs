//! Fills a folder past its quota in every way: bytes, one large file, holes, many small files, many
//! directories.

use conclave_sdk::{files, tool};

fn until_refused(mut step: impl FnMut(u32) -> Result<(), files::FileError>) -> String {
    for index in 0..1_000 {
        if let Err(error) = step(index) {
            return format!("{index}: {error:?}");
        }
    }
    "NEVER REFUSED".to_owned()
}

/// Fills the folder, and says after how many steps it was refused, and how.
#[tool]
fn run(way: String) -> String {
    let bytes = vec![b'x'; 1_000];
    match way.as_str() {
        "bytes" => until_refused(|index| files::write(&format!("/folder/{index}"), &bytes)),
        "append" => until_refused(|index| {
            files::write_at("/folder/one", u64::from(index) * 1_000, &bytes, false).map(drop)
        }),
        "sparse" => until_refused(|index| {
            files::write_at("/folder/hole", 5_000 << index.min(40), b"x", false).map(drop)
        }),
        "cut" => until_refused(|index| {
            files::write_at("/folder/cut", 5_000 << index.min(40), b"", true).map(drop)
        }),
        "files" => until_refused(|index| files::write(&format!("/folder/{index}"), "")),
        "directories" => until_refused(|index| files::write(&format!("/folder/{index}/a/b/c"), "")),
        "again" => until_refused(|index| {
            files::write("/folder/again", &bytes)?;
            if index % 2 == 0 { files::remove("/folder/again") } else { Ok(()) }
        }),
        _ => "there is no such way".to_owned(),
    }
}

conclave_sdk::export!(tools: [run], asks: [files]);

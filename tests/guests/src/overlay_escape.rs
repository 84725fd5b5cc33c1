//! Attacks an overlay: files that it removed, names that the host might use itself, paths to the
//! host's own files and to other processes, and records without end.

use conclave_sdk::{Json, files, tool};

/// Paths that lead to the host's files if an overlay kept them inside the folder, or beside it.
const OUTSIDE: [&str; 12] = [
    "/folder/../files",
    "/folder/../changes.jsonl",
    "/folder/../../lock",
    "/folder/../../../log.db",
    "/changes.jsonl",
    "/files/a.txt",
    "/overlays",
    "/proc/self/environ",
    "/proc/self/cwd/secret",
    "/proc/1/root/etc/passwd",
    "/folder/link-up",
    "/folder/link-dir/secret",
];
/// Names that other overlays give their own records, and that this host gives its own.
const FORGED: [&str; 7] = [
    "/folder/.wh.a.txt",
    "/folder/sub/.wh..wh..opq",
    "/folder/changes.jsonl",
    "/folder/folder.json",
    "/folder/lock",
    "/folder/files/a.txt",
    "/folder/sub/work",
];

fn said<T: AsRef<[u8]>>(done: Result<T, files::FileError>) -> String {
    match done {
        Ok(bytes) => format!("READ {}", String::from_utf8_lossy(bytes.as_ref())),
        Err(error) => format!("{error:?}"),
    }
}

/// Reads and writes outside the folder; each entry is the path and what came of it.
#[tool]
fn run() -> Json<Vec<(String, String)>> {
    let attempt = |path: &str| {
        let written = said(files::write(path, "forged").map(|()| "WROTE"));
        let removed = said(files::remove(path).map(|()| ""));
        (path.to_owned(), format!("{}; {written}; {removed}", said(files::read(path))))
    };
    Json(OUTSIDE.into_iter().map(attempt).collect())
}

/// Writes forged records, which must be plain files. Returns their contents, and the contents of the
/// files that the records name.
#[tool]
fn forge() -> Json<Vec<(String, String)>> {
    let reverted = "{\"change\":\"reverted\",\"path\":\"a.txt\"}\n";
    let mut results = Vec::new();
    for path in FORGED {
        let written = files::write(path, reverted);
        let held = files::read(path).is_ok_and(|bytes| bytes == reverted.as_bytes());
        results.push((path.to_owned(), format!("{written:?} {held}")));
    }
    for path in ["/folder/a.txt", "/folder/sub/b.txt"] {
        results.push((path.to_owned(), said(files::read(path))));
    }
    Json(results)
}

/// Removes a file and looks for it under every name and in every way.
#[tool]
fn resurrect() -> Json<Vec<(String, String)>> {
    let removed = files::remove("/folder/a.txt");
    let mut results = vec![("remove".to_owned(), format!("{removed:?}"))];
    for path in ["/folder/a.txt", "/folder/link-inside"] {
        results.push((path.to_owned(), said(files::read(path))));
    }
    let names = files::list("/folder")
        .map(|entries| entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>().join(" "));
    results.push(("list".to_owned(), said(names)));
    // A write in the middle begins with what is there.
    let patched = files::write_at("/folder/a.txt", 3, b"x", false);
    results.push(("patch".to_owned(), format!("{patched:?}")));
    results.push(("patched".to_owned(), said(files::read("/folder/a.txt"))));
    let again = files::remove("/folder/a.txt");
    results
        .push(("remove".to_owned(), format!("{again:?} {}", said(files::read("/folder/a.txt")))));
    Json(results)
}

/// Creates and removes a file many times, so that a record for each would fill the disk.
#[tool]
fn churn(times: u32) -> String {
    for _ in 0..times {
        let done = files::write("/folder/again", "x").and_then(|()| files::remove("/folder/again"));
        if let Err(error) = done {
            return format!("{error:?}");
        }
    }
    "done".to_owned()
}

conclave_sdk::export!(tools: [run, forge, resurrect, churn], asks: [files]);

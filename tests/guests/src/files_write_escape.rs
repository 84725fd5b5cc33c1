//! Tries to change files outside its folder and objects that are no files, through the `files`
//! import: spellings, links, devices, pipes, deceptive names.

use conclave_sdk::{Json, files, tool};

/// The test creates the traps: links that lead up, out, in a circle and to no target, a hard link
/// to an outside file, a pipe, a socket.
const PATHS: [&str; 44] = [
    "/etc/conclave-test",
    "/tmp/conclave-test",
    "/folder/../secret",
    "/folder/../new",
    "/folder/../../../../tmp/conclave-test",
    "/folder/./../secret",
    "/folder/a/../../secret",
    "/folder/..",
    "/folder/.",
    "/folder",
    "/folder/",
    "/folder/a.txt/",
    "/folder/a.txt/.",
    "/folder/a.txt/..",
    "/folder/a.txt/b",
    "/folder//a.txt",
    "//folder/a.txt",
    "/",
    "",
    ".",
    "..",
    "folder/a.txt",
    "./folder/a.txt",
    "/Folder/a.txt",
    "/folder2/a.txt",
    "/folder/a.txt\0.md",
    "\\folder\\..\\secret",
    "/folder/..\\secret",
    "C:\\secret",
    "/folder/link-up",
    "/folder/link-to-new",
    "/folder/link-absolute",
    "/folder/link-inside",
    "/folder/link-dir/secret",
    "/folder/link-dir/new",
    "/folder/link-dir/deep/new",
    "/folder/link-loop",
    "/folder/hard",
    "/folder/pipe",
    "/folder/socket",
    "/folder/device",
    "/folder/sub",
    "/folder/a\u{1b}[2J.txt",
    "/folder/.conclave-unfinished-0000000000000000",
];
const DECEIVING: [&str; 6] = [
    "/folder/exe.\u{202e}txt",
    "/folder/a\u{200b}",
    "/folder/a\n",
    "/folder/NUL",
    "/folder/a ",
    "/folder/a.",
];

fn attempt(path: &str) -> (String, String) {
    let said = |what: &str, done: Result<(), files::FileError>| {
        done.map_or_else(|error| format!("{error:?}"), |()| what.to_owned())
    };
    let replaced = said("WROTE", files::write(path, "overwritten"));
    let patched = said("PATCHED", files::write_at(path, 0, b"overwritten", false).map(drop));
    let made = said("MADE", files::write_at(path, 3, b"", true).map(drop));
    // A hard link may be removed, and an absent file counts as removed.
    let removed =
        if path.ends_with("/hard") { String::new() } else { said("REMOVED", files::remove(path)) };
    (path.chars().take(64).collect(), format!("{replaced}; {patched}; {made}; {removed}"))
}

/// Tries each path; each entry is the path and what came of it. A word in capitals is a success.
#[tool]
fn run() -> Json<Vec<(String, String)>> {
    let long = format!("/folder/{}", "a".repeat(300));
    let deep = format!("/folder{}", "/a".repeat(40));
    let huge = format!("/folder/{}", "a/".repeat(32 * 1024));
    let more = [long.as_str(), deep.as_str(), huge.as_str()];
    Json(PATHS.into_iter().chain(DECEIVING).chain(more).map(attempt).collect())
}

conclave_sdk::export!(tools: [run], asks: [files]);

//! Uses its folders through `std`, as a program would: reads, writes, lists, removes. Also tries
//! the operations that the host never allows.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};

use conclave_sdk::{Json, tool};

fn told<T: std::fmt::Debug>(what: &str, done: std::io::Result<T>) -> (String, String) {
    (
        what.to_owned(),
        done.map_or_else(|error| format!("refused: {error}"), |done| format!("DONE {done:?}")),
    )
}

/// An honest program's use of `/folder`; each entry is what was tried and what came of it.
#[tool]
fn run() -> Json<Vec<(String, String)>> {
    let patched = || {
        let mut file = fs::OpenOptions::new().read(true).write(true).open("/folder/sub/new.txt")?;
        file.seek(SeekFrom::Start(2))?;
        file.write_all(b"XY")?;
        file.seek(SeekFrom::Start(0))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text)
    };
    let appended = || {
        fs::OpenOptions::new().append(true).open("/folder/sub/new.txt")?.write_all(b"!")?;
        fs::read_to_string("/folder/sub/new.txt")
    };
    let listed = || {
        let mut names: Vec<String> = fs::read_dir("/folder")?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<std::io::Result<_>>()?;
        names.sort();
        Ok(names)
    };
    Json(vec![
        told("read", fs::read_to_string("/folder/a.txt")),
        told("length", fs::metadata("/folder/a.txt").map(|metadata| metadata.len())),
        told("write", fs::write("/folder/sub/new.txt", "0123456789")),
        told("patch", patched()),
        told("append", appended()),
        told("list", listed()),
        told("remove", fs::remove_file("/folder/sub/new.txt")),
        told("gone", fs::read("/folder/sub/new.txt")),
    ])
}

/// What must be refused; `DONE` is a success.
#[tool]
fn escape() -> Json<Vec<(String, String)>> {
    let mut tried = Vec::new();
    for path in [
        "/folder/../secret",
        "/folder/link-up",
        "/folder/link-dir/secret",
        "/etc/passwd",
        "/folder/sub/../../secret",
        "/folder/pipe",
    ] {
        tried.push(told(&format!("read {path}"), fs::read(path)));
        tried.push(told(&format!("write {path}"), fs::write(path, "overwritten")));
        tried.push(told(
            &format!("append {path}"),
            fs::OpenOptions::new()
                .append(true)
                .open(path)
                .and_then(|mut file| file.write_all(b"x")),
        ));
        tried.push(told(&format!("remove {path}"), fs::remove_file(path)));
    }
    tried.push(told("hard", fs::write("/folder/hard", "overwritten")));
    tried.push(told("link", fs::hard_link("/folder/a.txt", "/folder/b.txt")));
    tried.push(told("rename", fs::rename("/folder/a.txt", "/folder/b.txt")));
    tried.push(told("rename over", fs::rename("/folder/a.txt", "/folder/../secret")));
    tried.push(told(
        "times",
        fs::File::open("/folder/a.txt")
            .and_then(|file| file.set_modified(std::time::SystemTime::UNIX_EPOCH)),
    ));
    tried.push(told(
        "grow",
        fs::OpenOptions::new()
            .write(true)
            .open("/folder/a.txt")
            .and_then(|file| file.set_len(1 << 40)),
    ));
    tried.push(told("remove directory", fs::remove_dir("/folder/sub")));
    tried.push(told("read-only write", fs::write("/reading/a.txt", "overwritten")));
    tried.push(told(
        "read-only truncate",
        fs::OpenOptions::new().write(true).truncate(true).open("/reading/a.txt").map(drop),
    ));
    tried.push(told("read-only create", fs::File::create_new("/reading/new.txt").map(drop)));
    tried.push(told("read-only remove", fs::remove_file("/reading/a.txt")));
    tried.push(told("read-only directory", fs::create_dir("/reading/new")));
    Json(tried)
}

conclave_sdk::export!(tools: [run, escape], asks: [files]);

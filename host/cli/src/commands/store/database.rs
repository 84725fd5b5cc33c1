//! `conclave store backup` of a database: a dump by the operator's `pg_dump`, and the files of the
//! shared folder beside it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use conclave_runtime::durable_file;
use conclave_runtime::store::{CopiedFiles, DatabaseCopy, PostgresAddress};
use serde_json::json;

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::state::stores::when_reached;
use crate::ui::show::amounts::thousands;
use crate::ui::show::table::note;
use crate::ui::show::{GOOD, bytes, one_line, paint, plural, show_path};
use crate::ui::stdout;

/// The file of a complete copy. It gets this name last.
const DUMP: &str = "conclave.dump";
/// The copied files of the shared folder.
const BLOBS: &str = "blobs";
/// The folders that have a folder for each version of PostgreSQL, and how the names of these begin.
const INSTALLED: [(&str, &str); 4] = [
    ("/usr/lib/postgresql", ""),
    ("/usr", "pgsql-"),
    ("/opt/homebrew/opt", "postgresql"),
    ("/usr/local/opt", "postgresql"),
];

/// Copies a database into a new folder.
pub(super) fn backup(
    address: &PostgresAddress,
    to: &Path,
    output: OutputArgs,
) -> Result<u8, CliError> {
    let copy = when_reached(|| DatabaseCopy::begin(address))?;
    let server = copy.server_version()?;
    let programs = candidates();
    let program = newest(&programs, server).ok_or_else(|| missing(&programs, server))?;
    crate::state::state_folder::make_private(to).map_err(|error| failed(to, &error))?;
    let copied = write(&copy, &program, to);
    if copied.is_err() {
        // Nothing of an incomplete copy stays.
        let _ = fs::remove_dir_all(to);
    }
    let (dump, files) = copied?;
    report(&copy, address, to, (dump, files), output)?;
    Ok(exit::OK)
}

/// Writes the dump and the files. Returns the size of the dump, and the files if there is a folder.
fn write(
    copy: &DatabaseCopy,
    program: &DumpProgram,
    to: &Path,
) -> Result<(u64, Option<CopiedFiles>), CliError> {
    let files = copy.copy_files(&to.join(BLOBS))?;
    let draft = to.join(format!("{DUMP}.new"));
    let mut dump = Command::new(&program.path);
    dump.args(["--format=custom", "--schema=conclave", "--no-password"]);
    dump.arg(format!("--snapshot={}", copy.snapshot())).arg("--file").arg(&draft);
    dump.envs(copy.libpq_variables(program.version)).stdin(Stdio::null());
    let ran = dump.output().map_err(|error| failed(&program.path, &error))?;
    if !ran.status.success() {
        let words = String::from_utf8_lossy(&ran.stderr);
        let path = show_path(&program.path);
        return Err(CliError::internal(format!("{path} failed: {}", one_line(words.trim(), 400))));
    }
    let synced = File::open(&draft).and_then(|file| file.sync_all().map(|()| file));
    let size = synced.and_then(|file| file.metadata()).map_err(|error| failed(&draft, &error))?;
    fs::rename(&draft, to.join(DUMP))
        .and_then(|()| durable_file::sync_folder(to))
        .and_then(|()| durable_file::sync_folder(durable_file::folder_of(to)))
        .map_err(|error| failed(to, &error))?;
    Ok((size.len(), files))
}

fn report(
    copy: &DatabaseCopy,
    address: &PostgresAddress,
    to: &Path,
    (dump, files): (u64, Option<CopiedFiles>),
    output: OutputArgs,
) -> Result<(), CliError> {
    let rooms = u64::try_from(copy.rooms()?).unwrap_or_default();
    let of_folder = files.unwrap_or_default();
    let size = dump + of_folder.bytes;
    let beside = match files {
        Some(files) => format!(", {}", plural(files.files, "file", "files")),
        None => String::new(),
    };
    let printed = |text: &str| one_line(text, 200);
    stdout::report(
        output,
        json!({
            "type": "backup", "store": address.to_string(), "folder": to, "bytes": size,
            "rooms": rooms, "files": of_folder.files,
        }),
        format_args!(
            "{} {} to {}: {} {}{beside}, {}",
            paint(GOOD, "copied"),
            printed(&address.to_string()),
            printed(&to.display().to_string()),
            thousands(rooms),
            if rooms == 1 { "room" } else { "rooms" },
            bytes(size),
        ),
    )?;
    if output.result_only() {
        return Ok(());
    }
    // The address of a store takes no relative path.
    let to = std::path::absolute(to).unwrap_or_else(|_| to.to_owned());
    let path = |name: &str| shell(&to.join(name).display().to_string());
    stdout::unbroken(note(format_args!(
        "restore it with: createdb NEW && pg_restore --no-owner --dbname=NEW {}",
        path(DUMP)
    )))?;
    match files {
        Some(_) => stdout::unbroken(note(format_args!(
            "its large blobs are in {0}: name a copy of it in the address, `?blobs={0}`",
            path(BLOBS)
        ))),
        None => Ok(()),
    }
}

/// A `pg_dump` of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DumpProgram {
    path: PathBuf,
    /// Its major version.
    version: i64,
}

/// Returns every `pg_dump` of `PATH` and of the usual folders.
fn candidates() -> Vec<DumpProgram> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = INSTALLED.iter().flat_map(|(folder, start)| {
        let versions = fs::read_dir(folder).into_iter().flatten().flatten();
        let is_one = move |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(start);
        versions.filter(move |version| is_one(&version.file_name()))
    });
    let installed = installed.map(|version| version.path().join("bin"));
    let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(installed).collect();
    folders.iter().filter_map(|folder| program(&folder.join("pg_dump"))).collect()
}

fn program(path: &Path) -> Option<DumpProgram> {
    // A relative entry of `PATH` would be a program of the current folder.
    if !path.is_absolute() || !path.is_file() {
        return None;
    }
    let ran = Command::new(path).arg("--version").stdin(Stdio::null()).output().ok()?;
    let version = version(&String::from_utf8_lossy(&ran.stdout))?;
    Some(DumpProgram { path: path.to_owned(), version })
}

/// The major version in `pg_dump (PostgreSQL) 15.8 (Debian 15.8-1)`.
fn version(text: &str) -> Option<i64> {
    let number = text.split_once(") ")?.1;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Returns the newest program that knows the server.
fn newest(programs: &[DumpProgram], server: i64) -> Option<DumpProgram> {
    let new_enough = programs.iter().filter(|program| program.version >= server);
    // The first of equal ones, as in `PATH`.
    new_enough.rev().max_by_key(|program| program.version).cloned()
}

fn missing(programs: &[DumpProgram], server: i64) -> CliError {
    let what = match programs.iter().rev().max_by_key(|program| program.version) {
        Some(newest) => format!(
            "the server is PostgreSQL {server}, and {} is of version {}, which cannot copy it",
            show_path(&newest.path),
            newest.version
        ),
        None => "`pg_dump` makes the copy of a database, and it is not on this machine".to_owned(),
    };
    CliError::internal(what).hint(format!("apt install postgresql-client-{server}"))
}

fn failed(path: &Path, error: &io::Error) -> CliError {
    CliError::internal(format!("{}: {error}", show_path(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_program_that_knows_the_server_makes_the_copy() {
        let program = |path: &str, version| DumpProgram { path: path.into(), version };
        let programs = [program("/a", 15), program("/b", 17), program("/c", 17), program("/d", 14)];
        assert_eq!(newest(&programs, 15).unwrap().path, Path::new("/b"));
        assert_eq!(newest(&programs, 18), None);
        let why = missing(&programs, 18).to_json();
        assert!(
            why.contains("/b is of version 17") && why.contains("postgresql-client-18"),
            "{why}"
        );
        assert!(missing(&[], 16).to_json().contains("not on this machine"));
    }

    #[test]
    fn the_version_is_that_of_the_program() {
        assert_eq!(version("pg_dump (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)\n"), Some(15));
        assert_eq!(version("pg_dump (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(version("something else"), None);
    }
}

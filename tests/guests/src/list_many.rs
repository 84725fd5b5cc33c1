//! Lists a large folder: as a program does, and in ways that keep the host busy.

use conclave_sdk::bindings::imports::conclave::plugin::files::list_entries;
use conclave_sdk::{files, tool};

/// Returns the number of names and the bytes of all names.
fn summed(names: impl Iterator<Item = String>) -> String {
    let (count, bytes) = names.fold((0, 0), |(count, bytes), name| (count + 1, bytes + name.len()));
    format!("{count} entries, {bytes} bytes")
}

/// Through the standard library.
#[tool]
fn by_std(path: String) -> String {
    match std::fs::read_dir(&path).and_then(Iterator::collect::<std::io::Result<Vec<_>>>) {
        Ok(entries) => summed(
            entries.into_iter().map(|entry| entry.file_name().to_string_lossy().into_owned()),
        ),
        Err(error) => format!("refused: {error}"),
    }
}

/// Through the contract.
#[tool]
fn by_files(path: String) -> String {
    files::list(&path).map_or_else(
        |error| format!("refused: {error:?}"),
        |entries| summed(entries.into_iter().map(|entry| entry.name)),
    )
}

/// Asks for one entry again and again: the first, or the one after a name that it goes back to.
/// Says how often it got one.
#[tool]
fn flood(path: String, after: Option<String>) -> String {
    for times in 0..10_000 {
        if let Err(error) = list_entries(&path, after.as_deref(), 1) {
            return format!("{times} times, then {error:?}");
        }
    }
    "NEVER REFUSED".to_owned()
}

/// Opens the folder through the standard library again and again, and reads one entry each time.
#[tool]
fn reopen(path: String) -> String {
    for times in 0..10_000 {
        match std::fs::read_dir(&path).map(|mut entries| entries.next()) {
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) | Err(error) => {
                return format!("{times} times, then {:?}", error.kind());
            }
            Ok(None) => return "EMPTY".to_owned(),
        }
    }
    "NEVER REFUSED".to_owned()
}

conclave_sdk::export!(tools: [by_std, by_files, flood, reopen], asks: [files]);

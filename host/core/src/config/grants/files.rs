//! `grants.files`: folders, where the plugin sees them, and their quotas.

use super::FILES;
use super::lists::{Name, grants_nothing};
use crate::config::problem_code::ProblemCode;
use crate::config::reader::{ConfigReader, SpannedValue};
use crate::config::{names, plugin};
use crate::permissions::grants::{FOLDER_BYTES, FOLDER_FILES, FileGrant, FileMode};
use crate::types::wording::{code, string};

pub(super) fn read(
    reader: &mut ConfigReader,
    folder: &str,
    item: &SpannedValue<'_>,
) -> Vec<FileGrant> {
    let entries = item.list(reader).unwrap_or_default();
    if entries.is_empty() && item.value.is_array() {
        grants_nothing(reader, item);
    }
    let mut grants: Vec<FileGrant> = Vec::new();
    for entry in &entries {
        let grant = if entry.value.is_str() {
            short_file(reader, folder, entry)
        } else {
            long_file(reader, folder, entry)
        };
        let Some(grant) = grant else { continue };
        if grants.iter().any(|other| other.at == grant.at) {
            let help = "give each directory a place of its own: `at = \"/other\"`".to_owned();
            entry.reject(
                reader,
                ProblemCode::Duplicate,
                &format!("puts a second directory at {}", code(&grant.at)),
                help,
            );
        }
        grants.push(grant);
    }
    grants
}

/// Reads `"docs"`: the directory under its own name, read-only.
fn short_file(
    reader: &mut ConfigReader,
    folder: &str,
    item: &SpannedValue<'_>,
) -> Option<FileGrant> {
    let dir = plugin::path(reader, item, folder)?;
    let Some(at) = names::default_place(&dir.display_path) else {
        let line =
            format!("{{ dir = {}, at = \"/folder\", mode = \"read\" }}", string(&dir.display_path));
        item.wrong(
            reader,
            &format!("does not say at which path the plugin sees {}", code(&dir.display_path)),
            format!("write {}", code(&line)),
        );
        return None;
    };
    Some(FileGrant {
        dir: dir.path,
        display_path: dir.display_path,
        at,
        mode: FileMode::Read,
        bytes: FOLDER_BYTES,
        files: FOLDER_FILES,
    })
}

fn long_file(
    reader: &mut ConfigReader,
    folder: &str,
    item: &SpannedValue<'_>,
) -> Option<FileGrant> {
    if !item.value.is_table() {
        item.expected(reader, "a directory's name or a table");
        return None;
    }
    let table = item.table(reader, FILES)?;
    let mode = table.read(reader, "mode").unwrap_or(FileMode::Read);
    let quotas = ["bytes", "files"].into_iter().filter_map(|name| table.get(name));
    for item in quotas.filter(|_| mode == FileMode::Read) {
        item.reject(
            reader,
            ProblemCode::Conflict,
            "is for a folder that may be written",
            "write `mode = \"read-write\"` or `\"overlay\"`, or leave it out".to_owned(),
        );
    }
    let bytes = table.read(reader, "bytes").unwrap_or(FOLDER_BYTES);
    let files = table.read(reader, "files").unwrap_or(FOLDER_FILES);
    let dir = table.require(reader, "dir").and_then(|item| plugin::path(reader, &item, folder));
    let at = table.require(reader, "at").and_then(|item| place(reader, &item));
    let (dir, at) = (dir?, at?);
    Some(FileGrant { dir: dir.path, display_path: dir.display_path, at, mode, bytes, files })
}

fn place(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<String> {
    let at = item.string(reader)?;
    match names::check_place(at) {
        Ok(()) => Some(at.to_owned()),
        Err(error) => {
            let proposed = names::default_place(at).unwrap_or_else(|| "/folder".to_owned());
            item.wrong(
                reader,
                &format!("must be `/` and one name: {} {error}", code(at)),
                format!("write `at = {}`", string(&proposed)),
            );
            None
        }
    }
}

/// Returns the folder of a task's scope, by the plugin's name of it.
pub(super) fn in_scope(reader: &mut ConfigReader, (item, at): &Name<'_>) -> Option<String> {
    let error = match names::check_place(at) {
        Ok(()) => return Some((*at).to_owned()),
        Err(error) => error,
    };
    let help = names::default_place(at).map(|place| format!("write {}", string(&place)));
    let what = format!("must be the place of a folder, `/` and one name: {} {error}", code(at));
    item.wrong(reader, &what, help);
    None
}

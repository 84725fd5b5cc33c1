//! The smallest grant that would have let a plugin do what it tried with a file, as a line of config for its operator.

use conclave_core::grant::{FOLDER_BYTES, FOLDER_FILES, FileGrant, FileMode};
use conclave_core::text::show_size;

use crate::capability::path::{GuestPath, suggested_folder};
use crate::sandbox::Grantee;

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Read,
    Write,
}

/// The line with what was granted before; none where no ready-made line should be offered.
pub(super) fn suggestion(grantee: &Grantee, path: &str, wish: Wish) -> Option<String> {
    let name = suggested_folder(path)?;
    let folder = GuestPath::parse(path).ok()?.folder;
    let mode = if wish == Wish::Write { "read-write" } else { "read" };
    let files = &grantee.setup.grants.files;
    let mut grants: Vec<String> =
        files.iter().map(|grant| if grant.at == folder { line(grant, Some(mode)) } else { line(grant, None) }).collect();
    if !files.iter().any(|grant| grant.at == folder) {
        grants.push(format!("{{ dir = {name:?}, at = \"/{name}\", mode = {mode:?} }}"));
    }
    Some(format!("[plugins.{}] grants.files = [{}]", grantee.name, grants.join(", ")))
}

/// A grant as the config has it.
fn line(grant: &FileGrant, mode: Option<&str>) -> String {
    let granted = if grant.mode == FileMode::ReadWrite { "read-write" } else { "read" };
    let writes = grant.mode == FileMode::ReadWrite;
    let bytes = (writes && grant.bytes != FOLDER_BYTES).then(|| format!(", bytes = {:?}", show_size(grant.bytes)));
    let files = (writes && grant.files != FOLDER_FILES).then(|| format!(", files = {}", grant.files));
    let quotas: String = bytes.into_iter().chain(files).collect();
    format!("{{ dir = {:?}, at = {:?}, mode = {:?}{quotas} }}", grant.shown, grant.at, mode.unwrap_or(granted))
}

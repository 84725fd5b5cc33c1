//! The digest of all that decides about a component: the prepared sources, the command that builds
//! it, and the folder of its tools, whose name is that of their versions.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::{Prepared, hex};

/// Returns the digest of the files in `sources`, except the component, and of the command.
pub(super) fn digest(prepared: &Prepared, sources: &Path) -> io::Result<String> {
    // The command may name the component by another path to the same file.
    let component = std::path::absolute(&prepared.component)?;
    let mut files = Vec::new();
    walk(&std::path::absolute(sources)?, &mut files)?;
    files.sort();
    let mut digest = Sha256::new();
    let mut add = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    };
    prepared.command.iter().for_each(|word| add(word.as_bytes()));
    for (name, value) in &prepared.env {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    for file in files.iter().filter(|file| **file != component) {
        add(file.as_os_str().as_encoded_bytes());
        add(&std::fs::read(file)?);
    }
    Ok(hex(&digest.finalize()))
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => walk(&entry.path(), files)?,
            false => files.push(entry.path()),
        }
    }
    Ok(())
}

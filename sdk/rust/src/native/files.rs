//! Files in memory, below granted folders.

use super::{denied, fake};
use crate::files::{Entry, EntryKind, FileErrorKind, Root};

/// The size limit of a file, so that a wrong offset does not use up the memory of the test.
const LARGEST: usize = 256 << 20;

/// Checks that the path is in a granted folder, for this access.
fn check(path: &str, writes: bool) -> Result<(), FileErrorKind> {
    let is_below = |root: &str| {
        path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
    };
    let is_plain = !path.split('/').any(|part| part == ".." || part == ".");
    let is_granted = fake(|fake| {
        fake.roots.iter().any(|(root, writable)| is_below(root) && (*writable || !writes))
    });
    if is_plain && is_granted { Ok(()) } else { Err(FileErrorKind::Denied(denied("files", path))) }
}

/// The granted folders in the order in which they were added; empty if there are none.
pub fn roots() -> Vec<Root> {
    let root = |(path, writable): &(String, bool)| Root { path: path.clone(), writable: *writable };
    fake(|fake| fake.roots.iter().map(root).collect())
}

pub(crate) fn list_entries(
    path: &str,
    after: Option<&str>,
    count: u32,
) -> Result<Vec<Entry>, FileErrorKind> {
    check(path, false)?;
    let folder = format!("{}/", path.trim_end_matches('/'));
    let mut entries: Vec<Entry> = Vec::new();
    fake(|fake| {
        if fake.files.contains_key(path) {
            return Err(FileErrorKind::NotADirectory);
        }
        for (file, bytes) in &fake.files {
            let Some(rest) = file.strip_prefix(&folder) else { continue };
            let (name, kind, length) = match rest.split_once('/') {
                Some((name, _)) => (name, EntryKind::Directory, 0),
                None => (rest, EntryKind::File, bytes.len() as u64),
            };
            if entries.iter().all(|entry| entry.name != name) {
                entries.push(Entry { name: name.to_owned(), kind, length });
            }
        }
        let is_root = fake.roots.iter().any(|(root, _)| root == path);
        if entries.is_empty() && !is_root { Err(FileErrorKind::NotFound) } else { Ok(()) }
    })?;
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    entries.retain(|entry| after.is_none_or(|after| entry.name.as_str() > after));
    entries.truncate(count as usize);
    Ok(entries)
}

pub(crate) fn read(path: &str, offset: u64, length: u32) -> Result<Vec<u8>, FileErrorKind> {
    check(path, false)?;
    fake(|fake| {
        let Some(bytes) = fake.files.get(path) else { return Err(absent(fake, path)) };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = start.saturating_add(length as usize).min(bytes.len());
        Ok(bytes[start..end].to_vec())
    })
}

pub(crate) fn write(
    path: &str,
    offset: u64,
    bytes: &[u8],
    truncate: bool,
) -> Result<u64, FileErrorKind> {
    check(path, true)?;
    fake(|fake| {
        if !fake.files.contains_key(path) && matches!(absent(fake, path), FileErrorKind::NotAFile) {
            return Err(FileErrorKind::NotAFile);
        }
        let file = fake.files.entry(path.to_owned()).or_default();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(bytes.len());
        if end > LARGEST {
            return Err(FileErrorKind::QuotaExceeded(LARGEST as u64));
        }
        if file.len() < end {
            file.resize(end, 0);
        }
        file[start..end].copy_from_slice(bytes);
        if truncate {
            file.truncate(end);
        }
        Ok(file.len() as u64)
    })
}

/// Removes a file; succeeds if it is absent.
pub(crate) fn remove(path: &str) -> Result<(), FileErrorKind> {
    check(path, true)?;
    fake(|fake| match fake.files.remove(path) {
        None if matches!(absent(fake, path), FileErrorKind::NotAFile) => {
            Err(FileErrorKind::NotAFile)
        }
        _ => Ok(()),
    })
}

/// The error for a path that is no file: it is a folder, or nothing.
fn absent(fake: &super::Fake, path: &str) -> FileErrorKind {
    let folder = format!("{}/", path.trim_end_matches('/'));
    let is_folder = fake.roots.iter().any(|(root, _)| root == path)
        || fake.files.keys().any(|file| file.starts_with(&folder));
    if is_folder { FileErrorKind::NotAFile } else { FileErrorKind::NotFound }
}

//! Files and folders, with failures that name the path.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::XtaskFailure;

pub(crate) fn read(file: &Path) -> Result<String, XtaskFailure> {
    fs::read_to_string(file).map_err(|error| XtaskFailure::io("read", file, &error))
}

pub(crate) fn write(file: &Path, bytes: impl AsRef<[u8]>) -> Result<(), XtaskFailure> {
    fs::write(file, bytes).map_err(|error| XtaskFailure::io("write", file, &error))
}

/// Copies a file over another one.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), XtaskFailure> {
    fs::copy(from, to).map(drop).map_err(|error| XtaskFailure::io("write", to, &error))
}

/// Moves a file over another one.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), XtaskFailure> {
    fs::rename(from, to).map_err(|error| XtaskFailure::io("write", to, &error))
}

/// Makes a folder with those above it, unless it is there.
pub(crate) fn make_folder(folder: &Path) -> Result<(), XtaskFailure> {
    fs::create_dir_all(folder).map_err(|error| XtaskFailure::io("make", folder, &error))
}

pub(crate) fn remove(file: &Path) -> Result<(), XtaskFailure> {
    fs::remove_file(file).map_err(|error| XtaskFailure::io("remove", file, &error))
}

/// Removes a folder with its content, if it is there.
pub(crate) fn remove_folder(folder: &Path) -> Result<(), XtaskFailure> {
    if !folder.exists() {
        return Ok(());
    }
    fs::remove_dir_all(folder).map_err(|error| XtaskFailure::io("remove", folder, &error))
}

/// The path from the root of the file system.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, XtaskFailure> {
    std::path::absolute(path).map_err(|error| XtaskFailure::io("find", path, &error))
}

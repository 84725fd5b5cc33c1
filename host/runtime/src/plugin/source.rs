//! Reads a component from a file. The named file may be something else, so the read never blocks on
//! a pipe and has a size limit.

use std::fs::Metadata;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

use cap_fs_ext::OpenOptionsSyncExt;
use cap_std::ambient_authority;
use cap_std::fs::{File, OpenOptions};
use conclave_core::types::limits::COMPONENT_BYTES;

use conclave_core::types::text::show_size as size;

/// Reads the file of a component, following links.
///
/// # Errors
/// `InvalidInput` if it is not a regular file, `FileTooLarge` if it exceeds the maximum size,
/// otherwise the operating system's error.
pub fn read_component(path: &Path) -> Result<Vec<u8>> {
    // Checks the type first, because opening a device can have side effects.
    let length = require(&std::fs::metadata(path)?)?;
    let mut options = OpenOptions::new();
    // Never blocks on a pipe that replaced the file meanwhile.
    options.read(true).nonblock(true);
    let file = File::open_ambient_with(path, &options, ambient_authority())?.into_std();
    require(&file.metadata()?)?;
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    // It may grow while it is read.
    file.take(COMPONENT_BYTES + 1).read_to_end(&mut bytes)?;
    require_size(bytes.len() as u64)?;
    Ok(bytes)
}

fn require(metadata: &Metadata) -> Result<u64> {
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    require_size(metadata.len())
}

fn require_size(length: u64) -> Result<u64> {
    if length > COMPONENT_BYTES {
        let refused = format!("it has {}; up to {} are taken", size(length), size(COMPONENT_BYTES));
        return Err(Error::new(ErrorKind::FileTooLarge, refused));
    }
    Ok(length)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_is_read() {
        let temp = tempfile::tempdir().unwrap();
        let (plain, link, pipe) =
            (temp.path().join("plain"), temp.path().join("link"), temp.path().join("pipe"));
        std::fs::write(&plain, b"wasm").unwrap();
        std::os::unix::fs::symlink(&plain, &link).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(read_component(&plain).unwrap(), b"wasm");
        assert_eq!(read_component(&link).unwrap(), b"wasm");
        for other in [&pipe, temp.path(), Path::new("/dev/zero")] {
            assert_eq!(
                read_component(other).unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{}",
                other.display()
            );
        }
        assert_eq!(
            read_component(&temp.path().join("missing")).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("large");
        // A sparse file.
        std::fs::File::create(&path).unwrap().set_len(COMPONENT_BYTES + 1).unwrap();
        assert_eq!(read_component(&path).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert!(require_size(COMPONENT_BYTES).is_ok());
    }
}

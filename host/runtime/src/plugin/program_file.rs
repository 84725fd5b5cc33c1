//! Files that belong to a program and are not part of its executable: the machine code of the stock
//! plugins, and large components. The program holds their digests, so a file is used only if it is
//! the one that the program was built with.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::checked_code::{CheckedCode, read_chunks};

/// A file of the program, with the digest of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFile {
    path: PathBuf,
    /// BLAKE3, in lower-case hexadecimal.
    digest: String,
}

/// Why a file of the program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProgramFileError {
    /// It is missing, or the system refuses to read it.
    #[error("{} could not be read: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// It has other bytes than when the program was built.
    #[error("{} is not the file that this program was built with", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
}

impl ProgramFileError {
    /// Whether there is no such file.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Unreadable { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }
}

impl ProgramFile {
    /// The file at `path` whose bytes have this [`digest`](Self::digest_of).
    pub fn new(path: impl Into<PathBuf>, digest: impl Into<String>) -> Self {
        Self { path: path.into(), digest: digest.into() }
    }

    /// The digest of a file with these bytes: BLAKE3, in lower-case hexadecimal.
    #[must_use]
    pub fn digest_of(bytes: &[u8]) -> String {
        blake3::hash(bytes).to_hex().to_string()
    }

    /// Returns where the file is expected.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the whole file once to compare it with its digest.
    ///
    /// # Errors
    /// If the file cannot be read, or has other bytes.
    pub fn check(&self) -> Result<(), ProgramFileError> {
        let mut hasher = blake3::Hasher::new();
        let read = File::open(&self.path).and_then(|file| {
            read_chunks(&file, |bytes| {
                hasher.update(bytes);
                Ok(())
            })
        });
        read.map_err(|cause| self.unreadable(cause))?;
        self.require(&hasher)
    }

    /// Returns the bytes.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub(super) fn read(&self) -> Result<Vec<u8>, ProgramFileError> {
        let mut bytes = Vec::new();
        let read = File::open(&self.path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(|cause| self.unreadable(cause))?;
        self.require(blake3::Hasher::new().update(&bytes))?;
        Ok(bytes)
    }

    /// Returns the bytes as code that can be loaded.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub(super) fn code(&self) -> Result<CheckedCode, ProgramFileError> {
        let mut hasher = blake3::Hasher::new();
        let code = File::open(&self.path).and_then(|file| {
            CheckedCode::of_program(file, |bytes| {
                hasher.update(bytes);
            })
        });
        let code = code.map_err(|cause| self.unreadable(cause))?;
        self.require(&hasher)?;
        Ok(code)
    }

    fn require(&self, hasher: &blake3::Hasher) -> Result<(), ProgramFileError> {
        if hasher.finalize().to_hex().as_str() == self.digest {
            Ok(())
        } else {
            Err(ProgramFileError::Changed { path: self.path.clone() })
        }
    }

    fn unreadable(&self, cause: io::Error) -> ProgramFileError {
        ProgramFileError::Unreadable { path: self.path.clone(), cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_file_that_the_digest_means_is_used() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("code");
        let file = ProgramFile::new(&path, ProgramFile::digest_of(b"code"));
        assert!(file.check().unwrap_err().is_missing());
        assert!(file.code().unwrap_err().is_missing());
        std::fs::write(&path, b"code").unwrap();
        assert_eq!(file.read().unwrap(), b"code");
        file.check().unwrap();
        file.code().unwrap();
        for other in [&b"Code"[..], b"cod", b"code "] {
            std::fs::write(&path, other).unwrap();
            let is_changed = |error| matches!(error, ProgramFileError::Changed { .. });
            assert!(is_changed(file.check().unwrap_err()));
            assert!(is_changed(file.read().unwrap_err()));
            assert!(is_changed(file.code().unwrap_err()));
        }
    }
}

//! Compiled code between its check and its loading. It is a copy in memory that nothing can change,
//! so the engine loads the bytes that were checked.

use std::fs::File;
use std::io::{self, Read, Write};

use sealed::SealedFile;

/// A copy of compiled code.
#[derive(Debug)]
pub(crate) enum CachedCode {
    /// A file in memory with a seal against writes. The engine maps it, and so does every sandbox
    /// with the memory image in it: neither copies it again.
    Sealed(SealedFile),
    /// Where the system has no such files. The engine copies it.
    Bytes(Vec<u8>),
}

/// Bytes that are copied at once: few system calls, and the buffer stays in the processor's cache.
const CHUNK: usize = 256 << 10;

impl CachedCode {
    /// Copies the rest of a file, and passes it to `check`. Returns the number of bytes, too.
    ///
    /// # Errors
    /// If the file cannot be read, or there is no memory for the copy.
    pub(super) fn copy(mut from: &File, mut check: impl FnMut(&[u8])) -> io::Result<(Self, u64)> {
        let mut copy = SealedFile::create().map_or_else(|| Self::Bytes(Vec::new()), Self::Sealed);
        let (mut chunk, mut length) = (vec![0; CHUNK], 0);
        loop {
            let count = match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let read = &chunk[..count];
            check(read);
            match &mut copy {
                Self::Sealed(file) => file.write_all(read)?,
                Self::Bytes(bytes) => bytes.extend_from_slice(read),
            }
            length += count as u64;
        }
        if let Self::Sealed(file) = &copy {
            file.seal()?;
        }
        Ok((copy, length))
    }
}

#[cfg(target_os = "linux")]
mod sealed {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd as _;
    use std::path::PathBuf;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    /// A file in memory.
    #[derive(Debug)]
    pub(crate) struct SealedFile(File);

    impl SealedFile {
        /// Returns an empty file that can be written until it is sealed; `None` if the system
        /// refuses it or has no path for it.
        pub(super) fn create() -> Option<Self> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = Self(memfd_create("conclave-code", flags).ok()?.into());
            file.path().is_file().then_some(file)
        }

        pub(super) fn seal(&self) -> io::Result<()> {
            let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
            Ok(fcntl_add_seals(&self.0, seals)?)
        }

        /// Returns a path of the file that is valid in this process.
        pub(crate) fn path(&self) -> PathBuf {
            format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
        }
    }

    impl io::Write for SealedFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }
}

/// Other systems have no such files.
#[cfg(not(target_os = "linux"))]
mod sealed {
    use std::io;
    use std::path::PathBuf;

    #[derive(Debug)]
    pub(crate) enum SealedFile {}

    impl SealedFile {
        pub(super) fn create() -> Option<Self> {
            None
        }

        pub(super) fn seal(&self) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn path(&self) -> PathBuf {
            match *self {}
        }
    }

    impl io::Write for SealedFile {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            match *self {}
        }

        fn flush(&mut self) -> io::Result<()> {
            match *self {}
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::io::Seek as _;

    use super::*;

    #[test]
    fn a_copy_has_all_bytes_and_nobody_can_change_it() {
        let mut source = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..3 * CHUNK + 5).map(|at| (at % 251) as u8).collect();
        source.write_all(&bytes).unwrap();
        source.rewind().unwrap();
        let mut checked = Vec::new();
        let (copy, length) =
            CachedCode::copy(&source, |read| checked.extend_from_slice(read)).unwrap();
        assert_eq!((length, &checked), (bytes.len() as u64, &bytes));
        let CachedCode::Sealed(file) = copy else { panic!("Linux has files in memory") };
        assert_eq!(std::fs::read(file.path()).unwrap(), bytes);
        let again = File::options().write(true).open(file.path()).unwrap();
        for change in [(&again).write_all(b"x"), again.set_len(1), again.set_len(1 << 30)] {
            assert_eq!(change.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }
}

//! Compiled code between its check and its loading. Nothing can change it in between, so the engine
//! loads the bytes that were checked.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use sealed::SealedFile;

/// Compiled code, as it was checked.
#[derive(Debug)]
pub(crate) enum CheckedCode {
    /// A file of the program that only this user or the system's administrator can change, who can
    /// change the program as well. The engine maps it.
    Program(File),
    /// A file in memory with a seal against writes. The engine maps it, and so does every sandbox
    /// with the memory image in it: neither copies it again.
    Sealed(SealedFile),
    /// Where the system has no such files. The engine copies it.
    Bytes(Vec<u8>),
}

/// Bytes that are copied at once: few system calls, and the buffer stays in the processor's cache.
const CHUNK: usize = 256 << 10;

impl CheckedCode {
    /// Copies the rest of a file, and passes it to `check`. Returns the number of bytes, too.
    ///
    /// # Errors
    /// If the file cannot be read, or there is no memory for the copy.
    pub(super) fn copy(from: &File, mut check: impl FnMut(&[u8])) -> io::Result<(Self, u64)> {
        if let Some(mut copy) = SealedFile::create() {
            let length = read_chunks(from, |bytes| {
                check(bytes);
                copy.write_all(bytes)
            })?;
            copy.seal()?;
            return Ok((Self::Sealed(copy), length));
        }
        let mut copy = Vec::new();
        let length = read_chunks(from, |bytes| {
            check(bytes);
            copy.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok((Self::Bytes(copy), length))
    }

    /// Passes a file of the program to `check`, and copies it only if others could change it
    /// afterwards.
    ///
    /// # Errors
    /// As for [`copy`](Self::copy).
    pub(super) fn of_program(file: File, mut check: impl FnMut(&[u8])) -> io::Result<Self> {
        if !mapped::is_protected(&file.metadata()?) {
            return Self::copy(&file, check).map(|(copy, _)| copy);
        }
        read_chunks(&file, |bytes| {
            check(bytes);
            Ok(())
        })?;
        Ok(Self::Program(file))
    }

    /// A path under which the engine can map the code; `None` for bytes.
    pub(super) fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Program(file) => Some(mapped::path_of(file)),
            Self::Sealed(file) => Some(file.path()),
            Self::Bytes(_) => None,
        }
    }
}

/// Reads the rest of a file in pieces. Returns the number of bytes.
///
/// # Errors
/// If it cannot be read, or `take` fails.
pub(super) fn read_chunks(
    mut from: &File,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let (mut chunk, mut length) = (vec![0; CHUNK], 0);
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok(length),
            Ok(count) => {
                take(&chunk[..count])?;
                length += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Files that are mapped where they are.
#[cfg(target_os = "linux")]
mod mapped {
    use std::fs::{File, Metadata};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::PathBuf;

    /// Whether only this user and the system's administrator can write to the file.
    pub(super) fn is_protected(file: &Metadata) -> bool {
        let is_own = file.uid() == 0 || file.uid() == rustix::process::geteuid().as_raw();
        file.is_file() && is_own && file.mode() & 0o022 == 0
    }

    /// A path of this open file, also if its name is another file's by now.
    pub(super) fn path_of(file: &File) -> PathBuf {
        format!("/proc/self/fd/{}", file.as_raw_fd()).into()
    }
}

/// Other systems have no path of an open file, so its code is copied.
#[cfg(not(target_os = "linux"))]
mod mapped {
    use std::fs::{File, Metadata};
    use std::path::PathBuf;

    pub(super) fn is_protected(_: &Metadata) -> bool {
        false
    }

    pub(super) fn path_of(_: &File) -> PathBuf {
        PathBuf::new()
    }
}

#[cfg(target_os = "linux")]
mod sealed {
    use std::fs::File;
    use std::io;
    use std::path::PathBuf;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    /// A file in memory.
    #[derive(Debug)]
    pub(crate) struct SealedFile(File);

    impl SealedFile {
        /// An empty file that can be written until it is sealed; `None` if the system refuses it or
        /// has no path for it.
        pub(super) fn create() -> Option<Self> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = Self(memfd_create("conclave-code", flags).ok()?.into());
            file.path().is_file().then_some(file)
        }

        pub(super) fn seal(&self) -> io::Result<()> {
            let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
            Ok(fcntl_add_seals(&self.0, seals)?)
        }

        /// A path of the file that is valid in this process.
        pub(crate) fn path(&self) -> PathBuf {
            super::mapped::path_of(&self.0)
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
            CheckedCode::copy(&source, |read| checked.extend_from_slice(read)).unwrap();
        assert_eq!((length, &checked), (bytes.len() as u64, &bytes));
        let CheckedCode::Sealed(file) = copy else { panic!("Linux has files in memory") };
        assert_eq!(std::fs::read(file.path()).unwrap(), bytes);
        let reopened = File::options().write(true).open(file.path()).unwrap();
        for change in [(&reopened).write_all(b"x"), reopened.set_len(1), reopened.set_len(1 << 30)]
        {
            assert_eq!(change.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }
    #[test]
    fn a_file_of_the_program_is_copied_if_others_can_change_it() {
        use std::os::unix::fs::PermissionsExt as _;

        let source = tempfile::NamedTempFile::new().unwrap();
        source.as_file().write_all(b"code").unwrap();
        for (mode, is_mapped) in [(0o644, true), (0o600, true), (0o664, false), (0o646, false)] {
            std::fs::set_permissions(source.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let mut checked = Vec::new();
            let file = File::open(source.path()).unwrap();
            let code = CheckedCode::of_program(file, |read| checked.extend_from_slice(read));
            let code = code.unwrap();
            assert_eq!(matches!(code, CheckedCode::Program(_)), is_mapped, "{mode:o}");
            assert_eq!(checked, b"code");
            assert_eq!(std::fs::read(code.path().unwrap()).unwrap(), b"code");
        }
    }
}

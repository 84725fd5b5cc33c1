//! Descriptors of `wasi:filesystem`: paths of `files` that are resolved at every use, and their
//! errors.

use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, DescriptorStat, DescriptorType, ErrorCode, OpenFlags,
};
use wasmtime_wasi::p2::{FsError, FsResult};

use super::WasiFilesImport;
use super::stream::At;
use crate::imports::interfaces::files::FileError;

/// A descriptor of the guest.
pub(super) type Fd = Resource<Descriptor>;

/// An inspected path.
#[derive(Clone, Debug)]
pub(super) struct StatedPath {
    /// The path for `files`: `/folder/notes/a.txt`.
    pub(super) path: String,
    pub(super) is_directory: bool,
    pub(super) writes: bool,
}

/// A path below a directory. Empty parts and `.` are left out, except at the end, where `/` stands
/// for them.
fn joined(directory: &str, path: &str) -> String {
    let (mut joined, mut ends_in_name) = (directory.to_owned(), true);
    for part in path.split('/') {
        ends_in_name = !["", "."].contains(&part);
        if ends_in_name {
            joined.push('/');
            joined.push_str(part);
        }
    }
    if !ends_in_name && joined.len() > directory.len() {
        joined.push('/');
    }
    joined
}

pub(super) fn refused() -> FsError {
    ErrorCode::NotPermitted.into()
}

impl From<FileError> for FsError {
    fn from(error: FileError) -> Self {
        let code = match error {
            FileError::NotFound => ErrorCode::NoEntry,
            FileError::NotAFile => ErrorCode::IsDirectory,
            FileError::NotADirectory => ErrorCode::NotDirectory,
            FileError::Denied(_) => ErrorCode::NotPermitted,
            FileError::QuotaExceeded(_) => ErrorCode::InsufficientSpace,
            FileError::Other(_) => ErrorCode::Io,
        };
        code.into()
    }
}

impl WasiFilesImport<'_> {
    /// Counts a host call.
    pub(super) fn enter(&mut self) -> FsResult<()> {
        self.files.core.enter().map_err(FsError::trap)
    }

    /// Counts a host call, and returns the state behind its descriptor.
    pub(super) fn enter_at(&mut self, fd: &Fd) -> FsResult<StatedPath> {
        self.enter()?;
        self.seen(fd)
    }

    /// Refuses an operation that `files` lacks.
    pub(super) fn unsupported<T>(&mut self) -> FsResult<T> {
        self.enter()?;
        Err(refused())
    }

    /// Returns the state behind a descriptor. Guests see WASI's own descriptor type, which the
    /// table does not contain.
    pub(super) fn seen(&self, fd: &Fd) -> FsResult<StatedPath> {
        Ok(self.files.core.table.get(&Resource::<StatedPath>::new_borrow(fd.rep()))?.clone())
    }

    pub(super) fn hold(&mut self, seen: StatedPath) -> wasmtime::Result<Fd> {
        Ok(Resource::new_own(self.files.core.table.push(seen)?.rep()))
    }

    /// Returns the path for `files`, without the parts that mean nothing in POSIX. A path with `..`
    /// or an invalid name stays as it is, and `files` refuses it.
    pub(super) fn below(&mut self, fd: &Fd, path: &str) -> FsResult<String> {
        let seen = self.seen(fd)?;
        if !seen.is_directory {
            return Err(ErrorCode::NotDirectory.into());
        }
        if path.is_empty() || path.starts_with('/') {
            return Ok(format!("{}/{path}", seen.path));
        }
        let path = joined(&seen.path, path);
        // `a/` names a directory that is there.
        let Some(directory) = path.strip_suffix('/') else { return Ok(path) };
        let entry = self.files.look_at(directory)?;
        if entry.is_directory {
            Ok(directory.to_owned())
        } else {
            Err(ErrorCode::NotDirectory.into())
        }
    }

    pub(super) async fn status(&mut self, path: &str) -> FsResult<DescriptorStat> {
        let entry = self.files.look_at(path)?;
        let type_ = if entry.is_directory {
            DescriptorType::Directory
        } else {
            DescriptorType::RegularFile
        };
        Ok(DescriptorStat {
            type_,
            link_count: 1,
            size: entry.length,
            data_access_timestamp: None,
            data_modification_timestamp: None::<Datetime>,
            status_change_timestamp: None,
        })
    }

    pub(super) async fn open(
        &mut self,
        path: String,
        create: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<StatedPath> {
        let writes = flags.contains(DescriptorFlags::WRITE);
        let seen = |is_directory| StatedPath { path: path.clone(), is_directory, writes };
        match self.files.look_at(&path) {
            Ok(_) if create.contains(OpenFlags::EXCLUSIVE) => Err(ErrorCode::Exist.into()),
            Ok(entry) if entry.is_directory && (writes || create.contains(OpenFlags::TRUNCATE)) => {
                Err(ErrorCode::IsDirectory.into())
            }
            Ok(entry) if entry.is_directory => Ok(seen(true)),
            Ok(_) if create.contains(OpenFlags::DIRECTORY) => Err(ErrorCode::NotDirectory.into()),
            Ok(_) if create.contains(OpenFlags::TRUNCATE) => {
                self.files.write_file(&path, 0, Vec::new(), true).await?;
                Ok(seen(false))
            }
            Ok(_) => {
                if writes {
                    self.files.may_write(&path)?;
                }
                Ok(seen(false))
            }
            Err(FileError::NotFound) if create.contains(OpenFlags::CREATE) => {
                self.files.write_file(&path, 0, Vec::new(), true).await?;
                Ok(seen(false))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn at(&mut self, fd: &Fd, offset: Option<u64>, writes: bool) -> FsResult<At> {
        let seen = self.seen(fd)?;
        if seen.is_directory {
            return Err(ErrorCode::IsDirectory.into());
        }
        if writes && !seen.writes {
            return Err(refused());
        }
        let files = &mut self.files;
        let place =
            if writes { files.may_write(&seen.path)? } else { files.may_read(&seen.path)? };
        let folder = files.folder(place.folder);
        Ok(At::new(files.core, folder, self.streams, place.rest, seen.path, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn parts_that_mean_nothing_are_left_out_and_others_stay() {
        for (path, expected) in [
            ("a", "/f/a"),
            (".", "/f"),
            ("./", "/f"),
            ("./a/./b", "/f/a/b"),
            ("a//b", "/f/a/b"),
            ("a/", "/f/a/"),
            ("a//.", "/f/a/"),
            // `files` refuses these.
            ("../a", "/f/../a"),
            ("a/..", "/f/a/.."),
        ] {
            assert_eq!(joined("/f", path), expected, "{path:?}");
        }
    }
}

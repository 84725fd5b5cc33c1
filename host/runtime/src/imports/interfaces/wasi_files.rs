//! `wasi:filesystem` as a second interface to `files`. Standard libraries find the granted folders
//! under their names. Every operation uses `files`, with the same checks, limits and journal. A
//! descriptor is an inspected path; no file stays open. Operations that `files` lacks (links,
//! renames, times) are refused.

mod descriptor;
mod stream;

use sha2::{Digest, Sha256};
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::preopens;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    self, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, DirectoryEntryStream,
    ErrorCode, MetadataHashValue, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult};

use crate::imports::call::CallState;
use crate::imports::interfaces::folder::FolderEntry;
use descriptor::{StatedPath, error_code, refused};
pub(crate) use stream::FileStreams;
use stream::{FileReader, FileWriter};

/// Entries per page.
const PAGE: u32 = 1_000;

/// A page of a directory that the guest reads entry by entry.
struct DirectoryPage {
    path: String,
    /// The remaining entries, the next one last.
    entries: Vec<DirectoryEntry>,
    /// The name of the last entry of the page.
    last: Option<String>,
}

impl DirectoryPage {
    fn new(path: String, entries: Vec<FolderEntry>) -> Self {
        let last = entries.last().map(|entry| entry.name.clone());
        let type_of = |is_directory| {
            if is_directory { DescriptorType::Directory } else { DescriptorType::RegularFile }
        };
        let entry = |entry: FolderEntry| DirectoryEntry {
            type_: type_of(entry.is_directory),
            name: entry.name,
        };
        Self { path, entries: entries.into_iter().rev().map(entry).collect(), last }
    }
}

impl preopens::Host for CallState {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        self.enter()?;
        let roots = self.roots_left();
        roots
            .into_iter()
            .map(|(path, _)| {
                Ok((
                    self.hold(StatedPath {
                        path: path.clone(),
                        is_directory: true,
                        writes: false,
                    })?,
                    path,
                ))
            })
            .collect()
    }
}

impl types::Host for CallState {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn filesystem_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        self.enter()?;
        Ok(self.table.get(&error)?.downcast_ref::<ErrorCode>().copied())
    }
}

impl types::HostDescriptor for CallState {
    async fn advise(
        &mut self,
        _: Resource<Descriptor>,
        _: u64,
        _: u64,
        _: types::Advice,
    ) -> FsResult<()> {
        self.enter().map_err(FsError::trap)
    }

    async fn sync_data(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        self.sync(fd).await
    }

    async fn sync(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        self.enter().map_err(FsError::trap)?;
        let path = self.seen(&fd)?.path;
        self.sync_file(&path).await.map_err(|error| error_code(&error).into())
    }

    async fn get_flags(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorFlags> {
        self.enter().map_err(FsError::trap)?;
        let seen = self.seen(&fd)?;
        let mut flags = DescriptorFlags::READ;
        if seen.writes {
            flags |= DescriptorFlags::WRITE;
        }
        let within = |at: &str| {
            seen.path.strip_prefix(at).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if seen.is_directory
            && self.plugin.folders.iter().any(|folder| folder.is_writable() && within(&folder.at))
        {
            flags |= DescriptorFlags::MUTATE_DIRECTORY;
        }
        Ok(flags)
    }

    async fn get_type(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorType> {
        self.enter().map_err(FsError::trap)?;
        Ok(if self.seen(&fd)?.is_directory {
            DescriptorType::Directory
        } else {
            DescriptorType::RegularFile
        })
    }

    /// Truncates or extends a file through an empty write.
    async fn set_size(&mut self, fd: Resource<Descriptor>, size: u64) -> FsResult<()> {
        self.enter().map_err(FsError::trap)?;
        let seen = self.seen(&fd)?;
        if !seen.writes {
            return Err(refused());
        }
        self.write_now(&seen.path, size, Vec::new(), true).await.map(drop)
    }

    async fn set_times(
        &mut self,
        _: Resource<Descriptor>,
        _: NewTimestamp,
        _: NewTimestamp,
    ) -> FsResult<()> {
        self.enter().map_err(FsError::trap)?;
        Err(refused())
    }

    async fn read(
        &mut self,
        fd: Resource<Descriptor>,
        length: u64,
        offset: u64,
    ) -> FsResult<(Vec<u8>, bool)> {
        self.enter().map_err(FsError::trap)?;
        let seen = self.seen(&fd)?;
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let bytes = self
            .read_piece(&seen.path, offset, length)
            .await
            .map_err(|error| error_code(&error))?;
        let ended = bytes.is_empty() && length > 0;
        Ok((bytes, ended))
    }

    async fn write(
        &mut self,
        fd: Resource<Descriptor>,
        bytes: Vec<u8>,
        offset: u64,
    ) -> FsResult<u64> {
        self.enter().map_err(FsError::trap)?;
        let seen = self.seen(&fd)?;
        if !seen.writes {
            return Err(refused());
        }
        let length = bytes.len() as u64;
        self.write_now(&seen.path, offset, bytes, false).await.map(|_| length)
    }

    async fn read_directory(
        &mut self,
        fd: Resource<Descriptor>,
    ) -> FsResult<Resource<DirectoryEntryStream>> {
        self.enter().map_err(FsError::trap)?;
        let seen = self.seen(&fd)?;
        let entries =
            self.list_piece(&seen.path, None, PAGE).await.map_err(|error| error_code(&error))?;
        let page = DirectoryPage::new(seen.path, entries);
        Ok(Resource::new_own(self.table.push(page)?.rep()))
    }

    /// Always refused: directories are created by writing a file in them.
    async fn create_directory_at(
        &mut self,
        fd: Resource<Descriptor>,
        path: String,
    ) -> FsResult<()> {
        self.enter().map_err(FsError::trap)?;
        let path = self.below(&fd, path.trim_end_matches('/'))?;
        match self.look_at(&path) {
            Ok(_) => Err(ErrorCode::Exist.into()),
            Err(_) => Err(refused()),
        }
    }

    async fn stat(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorStat> {
        self.enter().map_err(FsError::trap)?;
        let seen = self.seen(&fd)?;
        self.status(&seen.path).await
    }

    async fn stat_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: PathFlags,
        path: String,
    ) -> FsResult<DescriptorStat> {
        self.enter().map_err(FsError::trap)?;
        let path = self.below(&fd, &path)?;
        self.status(&path).await
    }

    async fn set_times_at(
        &mut self,
        _: Resource<Descriptor>,
        _: PathFlags,
        _: String,
        _: NewTimestamp,
        _: NewTimestamp,
    ) -> FsResult<()> {
        self.enter().map_err(FsError::trap)?;
        Err(refused())
    }

    async fn link_at(
        &mut self,
        _: Resource<Descriptor>,
        _: PathFlags,
        _: String,
        _: Resource<Descriptor>,
        _: String,
    ) -> FsResult<()> {
        self.enter().map_err(FsError::trap)?;
        Err(refused())
    }

    async fn open_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: PathFlags,
        path: String,
        create: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Resource<Descriptor>> {
        self.enter().map_err(FsError::trap)?;
        let path = self.below(&fd, &path)?;
        let seen = self.open(path, create, flags).await?;
        self.hold(seen).map_err(FsError::trap)
    }

    async fn readlink_at(&mut self, _: Resource<Descriptor>, _: String) -> FsResult<String> {
        self.enter().map_err(FsError::trap)?;
        Err(ErrorCode::Invalid.into())
    }

    async fn remove_directory_at(&mut self, _: Resource<Descriptor>, _: String) -> FsResult<()> {
        self.enter().map_err(FsError::trap)?;
        Err(refused())
    }

    async fn rename_at(
        &mut self,
        _: Resource<Descriptor>,
        _: String,
        _: Resource<Descriptor>,
        _: String,
    ) -> FsResult<()> {
        self.enter().map_err(FsError::trap)?;
        Err(refused())
    }

    async fn symlink_at(&mut self, _: Resource<Descriptor>, _: String, _: String) -> FsResult<()> {
        self.enter().map_err(FsError::trap)?;
        Err(refused())
    }

    async fn unlink_file_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        self.enter().map_err(FsError::trap)?;
        let path = self.below(&fd, &path)?;
        self.may_write(&path).map_err(|error| error_code(&error))?;
        self.look_at(&path).map_err(|error| error_code(&error))?;
        self.remove_file(&path).await.map_err(|error| error_code(&error).into())
    }

    fn read_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: u64,
    ) -> FsResult<Resource<DynInputStream>> {
        self.enter().map_err(FsError::trap)?;
        let reader = FileReader(self.at(&fd, Some(offset), false)?);
        Ok(self.table.push(Box::new(reader) as DynInputStream)?)
    }

    fn write_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: u64,
    ) -> FsResult<Resource<DynOutputStream>> {
        self.enter().map_err(FsError::trap)?;
        let writer = FileWriter::new(self.at(&fd, Some(offset), true)?);
        Ok(self.table.push(Box::new(writer) as DynOutputStream)?)
    }

    fn append_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
    ) -> FsResult<Resource<DynOutputStream>> {
        self.enter().map_err(FsError::trap)?;
        let writer = FileWriter::new(self.at(&fd, None, true)?);
        Ok(self.table.push(Box::new(writer) as DynOutputStream)?)
    }

    async fn is_same_object(
        &mut self,
        one: Resource<Descriptor>,
        other: Resource<Descriptor>,
    ) -> wasmtime::Result<bool> {
        self.enter()?;
        let path = |fd: Resource<Descriptor>| {
            Ok::<_, wasmtime::Error>(
                self.table.get(&Resource::<StatedPath>::new_borrow(fd.rep()))?.path.clone(),
            )
        };
        Ok(path(one)? == path(other)?)
    }

    async fn metadata_hash(&mut self, fd: Resource<Descriptor>) -> FsResult<MetadataHashValue> {
        self.enter().map_err(FsError::trap)?;
        Ok(hash(&self.seen(&fd)?.path))
    }

    /// Standard libraries call this for each entry of a directory. The hash depends on the path
    /// alone and needs no disk access. It is therefore not counted as a host call, and its CPU time
    /// is charged like the guest's own.
    async fn metadata_hash_at(
        &mut self,
        fd: Resource<Descriptor>,
        _: PathFlags,
        path: String,
    ) -> FsResult<MetadataHashValue> {
        self.replay.check().map_err(FsError::trap)?;
        let path = self.below(&fd, &path)?;
        self.may_read(&path).map_err(|error| error_code(&error))?;
        Ok(hash(&path))
    }

    fn drop(&mut self, fd: Resource<Descriptor>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<StatedPath>::new_own(fd.rep()))?;
        Ok(())
    }
}

/// A hash of the path, which reveals nothing about the disk.
fn hash(path: &str) -> MetadataHashValue {
    let digest = Sha256::digest(path.as_bytes());
    let half = |from: usize| {
        digest[from..from + 8].iter().fold(0, |number, byte| (number << 8) | u64::from(*byte))
    };
    MetadataHashValue { lower: half(0), upper: half(8) }
}

impl types::HostDirectoryEntryStream for CallState {
    /// Counts a page as a host call, but not each entry: entries are charged when the listing
    /// begins.
    async fn read_directory_entry(
        &mut self,
        stream: Resource<DirectoryEntryStream>,
    ) -> FsResult<Option<DirectoryEntry>> {
        self.replay.check().map_err(FsError::trap)?;
        let stream = Resource::<DirectoryPage>::new_borrow(stream.rep());
        let page = self.table.get_mut(&stream)?;
        if let Some(entry) = page.entries.pop() {
            return Ok(Some(entry));
        }
        let (path, last) = (page.path.clone(), page.last.clone());
        self.enter().map_err(FsError::trap)?;
        // The last page was empty.
        let Some(last) = last else { return Ok(None) };
        let entries =
            self.list_piece(&path, Some(last), PAGE).await.map_err(|error| error_code(&error))?;
        let page = self.table.get_mut(&stream)?;
        *page = DirectoryPage::new(path, entries);
        Ok(page.entries.pop())
    }

    fn drop(&mut self, stream: Resource<DirectoryEntryStream>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<DirectoryPage>::new_own(stream.rep()))?;
        Ok(())
    }
}

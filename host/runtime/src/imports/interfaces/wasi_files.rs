//! `wasi:filesystem` as a second interface to `files`. Standard libraries find the granted folders
//! under their names. Every operation uses `files`, with the same checks, limits and journal. A
//! descriptor is an inspected path; no file stays open. Operations that `files` lacks (links,
//! renames, times) are refused.

mod descriptor;
mod stream;

use sha2::{Digest, Sha256};
use wasmtime::component::{HasData, Resource};
use wasmtime_wasi::p2::bindings::filesystem::preopens;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    self, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, DirectoryEntryStream,
    ErrorCode, MetadataHashValue, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult};

use crate::imports::folder::FolderEntry;
use crate::imports::interfaces::files::FilesImport;
use descriptor::{Fd, StatedPath, refused};
pub(crate) use stream::FileStreams;
use stream::{FileReader, FileWriter};

/// The `wasi:filesystem` import of a call.
pub(crate) struct WasiFilesImport<'a> {
    pub(crate) files: FilesImport<'a>,
    pub(crate) streams: &'a FileStreams,
}

impl HasData for WasiFilesImport<'static> {
    type Data<'a> = WasiFilesImport<'a>;
}

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

impl preopens::Host for WasiFilesImport<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Fd, String)>> {
        self.files.core.enter()?;
        let roots = self.files.granted_roots();
        let opened = roots.into_iter().map(|root| {
            let (path, is_directory, writes) = (root.path.clone(), true, false);
            Ok((self.hold(StatedPath { path, is_directory, writes })?, root.path))
        });
        opened.collect()
    }
}

impl types::Host for WasiFilesImport<'_> {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn filesystem_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        self.files.core.enter()?;
        Ok(self.files.core.table.get(&error)?.downcast_ref::<ErrorCode>().copied())
    }
}

impl types::HostDescriptor for WasiFilesImport<'_> {
    async fn advise(&mut self, _: Fd, _: u64, _: u64, _: types::Advice) -> FsResult<()> {
        self.enter()
    }

    async fn sync_data(&mut self, fd: Fd) -> FsResult<()> {
        self.sync(fd).await
    }

    async fn sync(&mut self, fd: Fd) -> FsResult<()> {
        let path = self.enter_at(&fd)?.path;
        Ok(self.files.sync_file(&path).await?)
    }

    async fn get_flags(&mut self, fd: Fd) -> FsResult<DescriptorFlags> {
        let seen = self.enter_at(&fd)?;
        let mut flags = DescriptorFlags::READ;
        if seen.writes {
            flags |= DescriptorFlags::WRITE;
        }
        let within = |at: &str| {
            seen.path.strip_prefix(at).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if seen.is_directory
            && self
                .files
                .core
                .plugin
                .folders
                .iter()
                .any(|folder| folder.is_writable() && within(&folder.at))
        {
            flags |= DescriptorFlags::MUTATE_DIRECTORY;
        }
        Ok(flags)
    }

    async fn get_type(&mut self, fd: Fd) -> FsResult<DescriptorType> {
        Ok(if self.enter_at(&fd)?.is_directory {
            DescriptorType::Directory
        } else {
            DescriptorType::RegularFile
        })
    }

    /// Truncates or extends a file through an empty write.
    async fn set_size(&mut self, fd: Fd, size: u64) -> FsResult<()> {
        let seen = self.enter_at(&fd)?;
        if !seen.writes {
            return Err(refused());
        }
        self.files.write_file(&seen.path, size, Vec::new(), true).await?;
        Ok(())
    }

    async fn set_times(&mut self, _: Fd, _: NewTimestamp, _: NewTimestamp) -> FsResult<()> {
        self.unsupported()
    }

    async fn read(&mut self, fd: Fd, length: u64, offset: u64) -> FsResult<(Vec<u8>, bool)> {
        let seen = self.enter_at(&fd)?;
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let bytes = self.files.read_piece(&seen.path, offset, length).await?;
        let ended = bytes.is_empty() && length > 0;
        Ok((bytes, ended))
    }

    async fn write(&mut self, fd: Fd, bytes: Vec<u8>, offset: u64) -> FsResult<u64> {
        let seen = self.enter_at(&fd)?;
        if !seen.writes {
            return Err(refused());
        }
        let length = bytes.len() as u64;
        self.files.write_file(&seen.path, offset, bytes, false).await?;
        Ok(length)
    }

    async fn read_directory(&mut self, fd: Fd) -> FsResult<Resource<DirectoryEntryStream>> {
        let seen = self.enter_at(&fd)?;
        let entries = self.files.list_piece(&seen.path, None, PAGE).await?;
        let page = DirectoryPage::new(seen.path, entries);
        Ok(Resource::new_own(self.files.core.table.push(page)?.rep()))
    }

    /// Always refused: directories are created by writing a file in them.
    async fn create_directory_at(&mut self, fd: Fd, path: String) -> FsResult<()> {
        self.enter()?;
        let path = self.below(&fd, path.trim_end_matches('/'))?;
        match self.files.look_at(&path) {
            Ok(_) => Err(ErrorCode::Exist.into()),
            Err(_) => Err(refused()),
        }
    }

    async fn stat(&mut self, fd: Fd) -> FsResult<DescriptorStat> {
        let seen = self.enter_at(&fd)?;
        self.status(&seen.path).await
    }

    async fn stat_at(&mut self, fd: Fd, _: PathFlags, path: String) -> FsResult<DescriptorStat> {
        self.enter()?;
        let path = self.below(&fd, &path)?;
        self.status(&path).await
    }

    async fn set_times_at(
        &mut self,
        _: Fd,
        _: PathFlags,
        _: String,
        _: NewTimestamp,
        _: NewTimestamp,
    ) -> FsResult<()> {
        self.unsupported()
    }

    async fn link_at(&mut self, _: Fd, _: PathFlags, _: String, _: Fd, _: String) -> FsResult<()> {
        self.unsupported()
    }

    async fn open_at(
        &mut self,
        fd: Fd,
        _: PathFlags,
        path: String,
        create: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Fd> {
        self.enter()?;
        let path = self.below(&fd, &path)?;
        let seen = self.open(path, create, flags).await?;
        self.hold(seen).map_err(FsError::trap)
    }

    async fn readlink_at(&mut self, _: Fd, _: String) -> FsResult<String> {
        self.enter()?;
        Err(ErrorCode::Invalid.into())
    }

    async fn remove_directory_at(&mut self, _: Fd, _: String) -> FsResult<()> {
        self.unsupported()
    }

    async fn rename_at(&mut self, _: Fd, _: String, _: Fd, _: String) -> FsResult<()> {
        self.unsupported()
    }

    async fn symlink_at(&mut self, _: Fd, _: String, _: String) -> FsResult<()> {
        self.unsupported()
    }

    async fn unlink_file_at(&mut self, fd: Fd, path: String) -> FsResult<()> {
        self.enter()?;
        let path = self.below(&fd, &path)?;
        self.files.may_write(&path)?;
        self.files.look_at(&path)?;
        Ok(self.files.remove_file(&path).await?)
    }

    fn read_via_stream(&mut self, fd: Fd, offset: u64) -> FsResult<Resource<DynInputStream>> {
        self.enter()?;
        let reader = FileReader(self.at(&fd, Some(offset), false)?);
        Ok(self.files.core.table.push(Box::new(reader) as DynInputStream)?)
    }

    fn write_via_stream(&mut self, fd: Fd, offset: u64) -> FsResult<Resource<DynOutputStream>> {
        self.enter()?;
        let writer = FileWriter::new(self.at(&fd, Some(offset), true)?);
        Ok(self.files.core.table.push(Box::new(writer) as DynOutputStream)?)
    }

    fn append_via_stream(&mut self, fd: Fd) -> FsResult<Resource<DynOutputStream>> {
        self.enter()?;
        let writer = FileWriter::new(self.at(&fd, None, true)?);
        Ok(self.files.core.table.push(Box::new(writer) as DynOutputStream)?)
    }

    async fn is_same_object(&mut self, one: Fd, other: Fd) -> wasmtime::Result<bool> {
        self.files.core.enter()?;
        let path = |fd: Fd| {
            Ok::<_, wasmtime::Error>(
                self.files
                    .core
                    .table
                    .get(&Resource::<StatedPath>::new_borrow(fd.rep()))?
                    .path
                    .clone(),
            )
        };
        Ok(path(one)? == path(other)?)
    }

    async fn metadata_hash(&mut self, fd: Fd) -> FsResult<MetadataHashValue> {
        Ok(hash(&self.enter_at(&fd)?.path))
    }

    /// Standard libraries call this for each entry of a directory. The hash depends on the path
    /// alone and needs no disk access. It is therefore not counted as a host call, and its CPU time
    /// is charged like the guest's own.
    async fn metadata_hash_at(
        &mut self,
        fd: Fd,
        _: PathFlags,
        path: String,
    ) -> FsResult<MetadataHashValue> {
        self.files.core.replay.check().map_err(FsError::trap)?;
        let path = self.below(&fd, &path)?;
        self.files.may_read(&path)?;
        Ok(hash(&path))
    }

    fn drop(&mut self, fd: Fd) -> wasmtime::Result<()> {
        self.files.core.table.delete(Resource::<StatedPath>::new_own(fd.rep()))?;
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

impl types::HostDirectoryEntryStream for WasiFilesImport<'_> {
    /// Counts a page as a host call, but not each entry: entries are charged when the listing
    /// begins.
    async fn read_directory_entry(
        &mut self,
        stream: Resource<DirectoryEntryStream>,
    ) -> FsResult<Option<DirectoryEntry>> {
        self.files.core.replay.check().map_err(FsError::trap)?;
        let stream = Resource::<DirectoryPage>::new_borrow(stream.rep());
        let page = self.files.core.table.get_mut(&stream)?;
        if let Some(entry) = page.entries.pop() {
            return Ok(Some(entry));
        }
        let (path, last) = (page.path.clone(), page.last.clone());
        self.enter()?;
        // The last page was empty.
        let Some(last) = last else { return Ok(None) };
        let entries = self.files.list_piece(&path, Some(last), PAGE).await?;
        let page = self.files.core.table.get_mut(&stream)?;
        *page = DirectoryPage::new(path, entries);
        Ok(page.entries.pop())
    }

    fn drop(&mut self, stream: Resource<DirectoryEntryStream>) -> wasmtime::Result<()> {
        self.files.core.table.delete(Resource::<DirectoryPage>::new_own(stream.rep()))?;
        Ok(())
    }
}

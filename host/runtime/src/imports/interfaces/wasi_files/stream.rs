//! Streams over a file of a granted folder. Each read and write resolves the path again, counts,
//! and is journalled like a call of `files`; the stream only keeps its offset. Refusals are queued
//! until the call takes them, see `wasi_streams`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use conclave_core::types::side_effect::SideEffect;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use crate::imports::call::{
    CallCore, CallReplay, EffectDecision, LateRefusals, MOST_EFFECTS, PluginContext, SharedCounter,
    WorksOn, digest,
};
use crate::imports::folder::{
    CallFolder, FileChange, FileModes, FolderEntry, FolderFailure, read_at,
};
use crate::imports::interfaces::files::FileFailure;
use crate::imports::interfaces::files::replay::{
    LOOK, change_ended, changed_before, keep_bytes, recall_bytes, recorded,
};
use crate::support::clock::BoxFuture;

/// Maximum bytes of one read or write.
const PIECE: usize = 64 << 10;
/// The first ordinal of stream writes, above those of imports, which count from 0.
const FIRST: u64 = 1 << 31;

/// State shared by all file streams of a call, and by its clones.
#[derive(Clone, Default)]
pub(crate) struct FileStreams {
    /// Number of writes so far, which gives their ordinals.
    writes: SharedCounter,
    /// Whether a write has begun since the last check.
    has_begun: Arc<AtomicBool>,
}

impl FileStreams {
    /// Whether a write has begun since the last call.
    pub(crate) fn take_begun(&self) -> bool {
        self.has_begun.swap(false, Ordering::Relaxed)
    }
}

/// A file, with the parts of the call's state that its streams need.
struct StreamedFile {
    plugin: Arc<PluginContext>,
    folder: CallFolder,
    task: WorksOn,
    replay: Arc<CallReplay>,
    read: SharedCounter,
    streams: FileStreams,
    late: LateRefusals,
    /// The path below the folder.
    rest: String,
    path: String,
}

/// A position in a file.
pub(super) struct At {
    file: Arc<StreamedFile>,
    /// `None` for the end of the file.
    offset: Option<u64>,
}

impl At {
    pub(super) fn new(
        core: &CallCore,
        folder: CallFolder,
        streams: &FileStreams,
        rest: String,
        path: String,
        offset: Option<u64>,
    ) -> Self {
        let file = StreamedFile {
            plugin: Arc::clone(&core.plugin),
            task: core.start.task.clone(),
            replay: Arc::clone(&core.replay),
            read: core.read.clone(),
            streams: streams.clone(),
            late: core.refusals.late.clone(),
            folder,
            rest,
            path,
        };
        Self { file: Arc::new(file), offset }
    }

    fn read(&mut self, size: usize) -> Result<Vec<u8>, ErrorCode> {
        let offset = self.offset.unwrap_or(0);
        let bytes = self.file.read(offset, size)?;
        self.offset = Some(offset + bytes.len() as u64);
        Ok(bytes)
    }

    /// Begins a write. Its ordinal and offset are fixed here, in the order of the guest's writes.
    fn begin(&self, bytes: Bytes) -> Result<BoxFuture<'static, Result<(), ErrorCode>>, ErrorCode> {
        let file = Arc::clone(&self.file);
        let offset = match self.offset {
            Some(offset) => offset,
            None => file.end()?,
        };
        let writes = file.streams.writes.get();
        if writes >= u64::from(MOST_EFFECTS) {
            return Err(ErrorCode::InsufficientSpace);
        }
        let ordinal = u32::try_from(FIRST + writes).map_err(|_| ErrorCode::Overflow)?;
        file.streams.writes.add(1);
        file.streams.has_begun.store(true, Ordering::Relaxed);
        Ok(Box::pin(async move { file.write(ordinal, offset, bytes).await }))
    }
}

impl StreamedFile {
    fn failure_of(&self, trouble: &FolderFailure) -> FileFailure {
        FileFailure::of(trouble, &self.path, &self.plugin, &self.task)
    }

    /// Returns the guest's error code, and queues a refusal.
    fn code(&self, failure: FileFailure) -> ErrorCode {
        match failure {
            FileFailure::NotFound => ErrorCode::NoEntry,
            FileFailure::NotAFile => ErrorCode::IsDirectory,
            FileFailure::NotADirectory => ErrorCode::NotDirectory,
            FileFailure::Quota(_) => ErrorCode::InsufficientSpace,
            FileFailure::Other(_) => ErrorCode::Io,
            FileFailure::Denied(record) => {
                self.late.extend([*record]);
                ErrorCode::NotPermitted
            }
        }
    }

    fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, ErrorCode> {
        let remaining = self.plugin.limits().read.saturating_sub(self.read.get());
        let size = size.min(PIECE).min(usize::try_from(remaining).unwrap_or(usize::MAX));
        if size == 0 {
            return Err(ErrorCode::InsufficientSpace);
        }
        let target = format!("{} {offset} {size}", self.path);
        let bytes = recall_bytes(&self.replay, &target).unwrap_or_else(|| {
            let file = self.folder.open_file(&self.rest);
            let bytes = file.and_then(|file| read_at(&file, offset, size));
            let bytes = bytes.map_err(|trouble| self.failure_of(&trouble));
            keep_bytes(&self.replay, &target, &bytes);
            bytes
        });
        let bytes = bytes.map_err(|failure| self.code(failure))?;
        self.read.add(bytes.len() as u64);
        Ok(bytes)
    }

    /// Returns the length of the file.
    fn end(&self) -> Result<u64, ErrorCode> {
        let looked = recorded(&self.replay, LOOK, &self.path, || {
            self.folder.look(&self.rest).map_err(|trouble| self.failure_of(&trouble))
        });
        looked.map(|entry: FolderEntry| entry.length).map_err(|failure| self.code(failure))
    }

    async fn write(
        self: Arc<Self>,
        ordinal: u32,
        offset: u64,
        bytes: Bytes,
    ) -> Result<(), ErrorCode> {
        let side_effect = SideEffect::WriteFile {
            path: self.path.clone(),
            offset,
            truncate: false,
            bytes: digest(&bytes),
        };
        let _busy = match self.replay.ask_effect(ordinal, side_effect).await {
            EffectDecision::Go(busy) => busy,
            // The room has recorded it.
            EffectDecision::Refused(_) => return Err(ErrorCode::NotPermitted),
            EffectDecision::Lost => return Err(ErrorCode::Io),
            EffectDecision::Told(answer) => {
                return self.written(changed_before(&self.replay, ordinal, answer));
            }
        };
        let (host, durable) = (Arc::clone(&self), self.replay.survives_power_cuts());
        let work = move || {
            let change = FileChange {
                rest: &host.rest,
                offset,
                bytes: &bytes,
                truncate: false,
                durable,
                modes: FileModes::Plugin,
            };
            host.folder.write(change)
        };
        let result = tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|_| Err(FolderFailure::Other(std::io::ErrorKind::Other.into())));
        let failure_of = |trouble: &FolderFailure| self.failure_of(trouble);
        let (answer, outcome) = change_ended(&self.replay, ordinal, result, failure_of);
        self.replay.effect_ended(ordinal, answer).await;
        self.written(outcome)
    }

    fn written(&self, outcome: Result<u64, FileFailure>) -> Result<(), ErrorCode> {
        outcome.map(drop).map_err(|failure| self.code(failure))
    }
}

fn failed(code: ErrorCode) -> StreamError {
    StreamError::LastOperationFailed(wasmtime::Error::new(code))
}

/// Reads from its position.
pub(super) struct FileReader(pub(super) At);

#[async_trait]
impl Pollable for FileReader {
    async fn ready(&mut self) {}
}

#[async_trait]
impl InputStream for FileReader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        if size == 0 {
            return Ok(Bytes::new());
        }
        match self.0.read(size) {
            Ok(bytes) if bytes.is_empty() => Err(StreamError::Closed),
            Ok(bytes) => Ok(bytes.into()),
            Err(code) => Err(failed(code)),
        }
    }
}

/// Writes at its position, or at the end of the file.
pub(super) struct FileWriter {
    at: At,
    state: WriteState,
}

/// The state of a [`FileWriter`].
enum WriteState {
    Idle,
    /// A write of so many bytes is in progress. A waiter borrows the future, because a wait can be
    /// cancelled and the write cannot.
    UnderWay(u64, BoxFuture<'static, Result<(), ErrorCode>>),
    /// The last write failed, and the error was not returned yet.
    Failed(ErrorCode),
    Closed,
}

impl FileWriter {
    pub(super) fn new(at: At) -> Self {
        Self { at, state: WriteState::Idle }
    }

    /// Returns an error once; the stream is closed afterwards.
    fn check(&mut self) -> StreamResult<()> {
        match self.state {
            WriteState::Idle | WriteState::UnderWay(..) => Ok(()),
            WriteState::Closed => Err(StreamError::Closed),
            WriteState::Failed(code) => {
                self.state = WriteState::Closed;
                Err(failed(code))
            }
        }
    }
}

#[async_trait]
impl Pollable for FileWriter {
    /// Cancel-safe: a write in progress stays in its field.
    async fn ready(&mut self) {
        let WriteState::UnderWay(length, work) = &mut self.state else { return };
        let length = *length;
        self.state = match work.await {
            Ok(()) => {
                self.at.offset = self.at.offset.map(|offset| offset + length);
                WriteState::Idle
            }
            Err(code) => WriteState::Failed(code),
        };
    }
}

#[async_trait]
impl OutputStream for FileWriter {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.check()?;
        if matches!(self.state, WriteState::UnderWay(..)) || bytes.len() > PIECE {
            return Err(StreamError::trap("it writes more than it was permitted"));
        }
        if !bytes.is_empty() {
            let length = bytes.len() as u64;
            self.state = self
                .at
                .begin(bytes)
                .map_or_else(WriteState::Failed, |work| WriteState::UnderWay(length, work));
        }
        Ok(())
    }

    /// Reports nothing about a write in progress. `check_write` gives no permit until it ends, and
    /// then returns its result.
    fn flush(&mut self) -> StreamResult<()> {
        self.check()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.check()?;
        Ok(if matches!(self.state, WriteState::UnderWay(..)) { 0 } else { PIECE })
    }

    /// Finishes the write in progress when the guest drops the stream.
    async fn cancel(&mut self) {
        self.ready().await;
    }
}

#[cfg(test)]
mod tests;

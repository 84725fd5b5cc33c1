//! Streams over a file of a granted folder. Each read and each write looks the path up anew, counts, and is journalled like a call of
//! `files`; the stream remembers only where it is.

use std::sync::Arc;

use bytes::Bytes;
use conclave_core::grant::Layer;
use conclave_core::ids::CallId;
use conclave_core::manifest::Capability;
use conclave_core::side_effect::{SideEffect, SideEffectAnswer};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use crate::calls::Observer;
use crate::capability::files::{LOOK, Place, READ, Told};
use crate::capability::folder::{Change, Entry, Folder, Trouble, read_at};
use crate::capability::journalled::{MOST, digest};
use crate::sandbox::{CallState, Grantee, Leave, Packed, Past, Recalled, Tally};

/// Bytes of one read or write.
const PIECE: usize = 64 << 10;
/// Where the numbers of what streams do begin: those of imports count from 0.
const FIRST: u64 = 1 << 31;

/// A place in a file, and what it takes to work there without the state of the call.
pub(super) struct At {
    grantee: Arc<Grantee>,
    past: Arc<Past>,
    observer: Arc<dyn Observer>,
    call: CallId,
    read: Tally,
    done: Tally,
    place: Place,
    path: String,
    /// None: at the end, wherever that is.
    offset: Option<u64>,
}

impl At {
    pub(super) fn new(state: &CallState, place: Place, path: String, offset: Option<u64>) -> Self {
        Self {
            grantee: Arc::clone(&state.grantee),
            past: Arc::clone(&state.past),
            observer: Arc::clone(&state.start.observer),
            call: state.start.call,
            read: state.read.clone(),
            done: state.streamed.clone(),
            place,
            path,
            offset,
        }
    }

    fn read(&mut self, size: usize) -> Result<Vec<u8>, ErrorCode> {
        let offset = self.offset.unwrap_or(0);
        let left = self.grantee.limits().read.saturating_sub(self.read.get());
        let size = size.min(PIECE).min(usize::try_from(left).unwrap_or(usize::MAX));
        if size == 0 {
            return Err(ErrorCode::InsufficientSpace);
        }
        let target = format!("{} {offset} {size}", self.path);
        let bytes = match self.past.recall::<Result<Packed, Told>>(READ, &target) {
            Recalled::Before(Ok(packed)) => self.past.unpack(packed).ok_or(ErrorCode::Io)?,
            Recalled::Before(Err(told)) => return Err(code(&told)),
            Recalled::Lost => return Err(ErrorCode::Io),
            Recalled::Now => {
                let file = self.grantee.folders[self.place.folder].open_file(&self.place.rest);
                let bytes = file.and_then(|file| read_at(&file, offset, size)).map_err(|trouble| self.told(&trouble));
                let packed = bytes.as_ref().map(|bytes| self.past.pack(bytes)).map_err(Told::clone);
                let size = packed.as_ref().map_or(0, |(_, size)| *size);
                self.past.keep(READ, &target, &packed.map(|(packed, _)| packed), size);
                bytes.map_err(|told| code(&told))?
            }
        };
        self.read.add(bytes.len() as u64);
        self.offset = Some(offset + bytes.len() as u64);
        Ok(bytes)
    }

    async fn write(&mut self, bytes: Bytes) -> Result<(), ErrorCode> {
        if self.done.get() >= u64::from(MOST) {
            return Err(ErrorCode::InsufficientSpace);
        }
        let (grantee, place) = (Arc::clone(&self.grantee), self.place.clone());
        let folder = &grantee.folders[place.folder];
        let offset = match self.offset {
            Some(offset) => offset,
            None => self.end(folder)?,
        };
        let ordinal = u32::try_from(FIRST + self.done.get()).map_err(|_| ErrorCode::Overflow)?;
        self.done.add(1);
        let side_effect = SideEffect::WriteFile { path: self.path.clone(), offset, truncate: false, bytes: digest(&bytes) };
        let _busy = match self.past.ask_effect(ordinal, side_effect).await {
            Leave::Go(busy) => busy,
            Leave::Refused(_) => return Err(ErrorCode::NotPermitted),
            Leave::Lost => return Err(ErrorCode::Io),
            Leave::Told(answer) => {
                written_before(answer, self.grantee.limits().read)?;
                self.offset = self.offset.map(|_| offset + bytes.len() as u64);
                return Ok(());
            }
        };
        let (length, host, durable) = (bytes.len() as u64, Arc::clone(&grantee), self.past.survives_power_cuts());
        let work = move || {
            let change = Change { rest: &place.rest, offset, bytes: &bytes, truncate: false, durable };
            host.folders[place.folder].write(change)
        };
        let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Trouble::Other(std::io::ErrorKind::Other.into())));
        let answer = match &done {
            Ok(length) => SideEffectAnswer::Done { length: *length },
            Err(trouble) => SideEffectAnswer::Failed { message: trouble.to_string() },
        };
        self.past.effect_ended(ordinal, answer).await;
        done.map_err(|trouble| code(&self.told(&trouble)))?;
        self.offset = self.offset.map(|_| offset + length);
        Ok(())
    }

    /// Where the file ends.
    fn end(&self, folder: &Folder) -> Result<u64, ErrorCode> {
        let length = match self.past.recall::<Result<Entry, Told>>(LOOK, &self.path) {
            Recalled::Before(looked) => looked,
            Recalled::Lost => return Err(ErrorCode::Io),
            Recalled::Now => {
                let looked = folder.look(&self.place.rest).map_err(|trouble| self.told(&trouble));
                self.past.keep(LOOK, &self.path, &looked, 64);
                looked
            }
        };
        length.map(|entry| entry.length).map_err(|told| code(&told))
    }

    /// What there is to tell of a trouble; a refusal is recorded.
    fn told(&self, trouble: &Trouble) -> Told {
        match trouble {
            Trouble::NotFound | Trouble::NotAFile | Trouble::NotADirectory | Trouble::Quota(_) | Trouble::TooMany | Trouble::Other(_) => {
                Told::plain(trouble, self.grantee.limits().read)
            }
            refusal => {
                let rights = self.grantee.rights();
                let record = rights.refuse(Capability::Files, &self.path, Layer::Runtime, &refusal.to_string(), None);
                self.observer.denied(self.call, &record);
                Told::Denied(record)
            }
        }
    }
}

/// What a guest learns.
fn code(told: &Told) -> ErrorCode {
    match told {
        Told::NotFound => ErrorCode::NoEntry,
        Told::NotAFile => ErrorCode::IsDirectory,
        Told::NotADirectory => ErrorCode::NotDirectory,
        Told::Quota(_) => ErrorCode::InsufficientSpace,
        Told::Denied(_) => ErrorCode::NotPermitted,
        Told::Other(_) => ErrorCode::Io,
    }
}

/// The same of a write before the call was run again.
fn written_before(answer: SideEffectAnswer, read: u64) -> Result<(), ErrorCode> {
    match answer {
        SideEffectAnswer::Done { .. } => Ok(()),
        SideEffectAnswer::Failed { message } => Err(code(&Told::of_words(&message, read))),
        SideEffectAnswer::Denied { .. } => Err(ErrorCode::NotPermitted),
        SideEffectAnswer::Fetched { .. } => Err(ErrorCode::Io),
    }
}

fn failed(code: ErrorCode) -> StreamError {
    StreamError::LastOperationFailed(wasmtime::Error::new(code))
}

/// Reads on from where it is.
pub(super) struct Reader(pub(super) At);

#[async_trait]
impl Pollable for Reader {
    async fn ready(&mut self) {}
}

#[async_trait]
impl InputStream for Reader {
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

/// Writes on from where it is, or at the end.
pub(super) struct Writer {
    at: At,
    waiting: Option<Bytes>,
    failed: Option<ErrorCode>,
}

impl Writer {
    pub(super) fn new(at: At) -> Self {
        Self { at, waiting: None, failed: None }
    }
}

#[async_trait]
impl Pollable for Writer {
    async fn ready(&mut self) {
        if let Some(bytes) = self.waiting.take() {
            self.failed = self.at.write(bytes).await.err();
        }
    }
}

#[async_trait]
impl OutputStream for Writer {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if self.waiting.is_some() || bytes.len() > PIECE {
            return Err(StreamError::trap("it writes more than it was permitted"));
        }
        self.waiting = (!bytes.is_empty()).then_some(bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.failed.take().map_or(Ok(()), |code| Err(failed(code)))
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        match self.failed.take() {
            Some(code) => Err(failed(code)),
            None if self.waiting.is_some() => Ok(0),
            None => Ok(PIECE),
        }
    }
}

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

use crate::calls::{EffectPort, Observer};
use crate::capability::files::Place;
use crate::capability::folder::{Change, Trouble, read_at};
use crate::capability::journalled::{MOST, digest};
use crate::sandbox::{CallState, Grantee, Tally};

/// Bytes of one read or write.
const PIECE: usize = 64 << 10;
/// Where the numbers of what streams do begin: those of imports count from 0.
const FIRST: u64 = 1 << 31;

/// A place in a file, and what it takes to work there without the state of the call.
pub(super) struct At {
    grantee: Arc<Grantee>,
    effects: Arc<dyn EffectPort>,
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
            effects: Arc::clone(&state.start.effects),
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
        let file = self.grantee.folders[self.place.folder].open_file(&self.place.rest);
        let bytes = file.and_then(|file| read_at(&file, offset, size)).map_err(|trouble| self.told(&trouble))?;
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
            None => folder.look(&place.rest).map_err(|trouble| self.told(&trouble))?.length,
        };
        let ordinal = u32::try_from(FIRST + self.done.get()).map_err(|_| ErrorCode::Overflow)?;
        self.done.add(1);
        let side_effect = SideEffect::WriteFile { path: self.path.clone(), offset, truncate: false, bytes: digest(&bytes) };
        self.effects.ask(self.call, ordinal, side_effect).await.map_err(|_| ErrorCode::NotPermitted)?;
        let (length, host) = (bytes.len() as u64, Arc::clone(&grantee));
        let work = move || {
            let change = Change { rest: &place.rest, offset, bytes: &bytes, truncate: false };
            host.folders[place.folder].write(change)
        };
        let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Trouble::Other(std::io::ErrorKind::Other.into())));
        let answer = match &done {
            Ok(length) => SideEffectAnswer::Done { length: *length },
            Err(trouble) => SideEffectAnswer::Failed { message: trouble.to_string() },
        };
        self.effects.ended(self.call, ordinal, answer).await;
        done.map_err(|trouble| self.told(&trouble))?;
        self.offset = self.offset.map(|_| offset + length);
        Ok(())
    }

    /// What a guest learns of a trouble; a refusal is recorded.
    fn told(&self, trouble: &Trouble) -> ErrorCode {
        match trouble {
            Trouble::NotFound => ErrorCode::NoEntry,
            Trouble::NotAFile => ErrorCode::IsDirectory,
            Trouble::NotADirectory => ErrorCode::NotDirectory,
            Trouble::Quota(_) | Trouble::TooMany => ErrorCode::InsufficientSpace,
            Trouble::Other(_) => ErrorCode::Io,
            refusal => {
                let rights = self.grantee.rights();
                let record = rights.refuse(Capability::Files, &self.path, Layer::Runtime, &refusal.to_string(), None);
                self.observer.denied(self.call, &record);
                ErrorCode::NotPermitted
            }
        }
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

//! Replacements for parts of `wasi:io/streams`: a write to a file has ended when the call returns.
//! The readiness of streams thus does not depend on the disk, and a replayed guest polls the same
//! results. Other streams, such as a request's body, use the engine's code.

use std::time::Instant;

use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, Pollable, StreamResult};
use wasmtime_wasi_io::bindings::wasi::io::streams::{Host, HostOutputStream, StreamError};

use crate::imports::call::CallState;

/// The latest 0.2 version; the linker accepts every compatible one.
const STREAMS: &str = "wasi:io/streams@0.2.12";

type Output = Resource<DynOutputStream>;
type Input = Resource<DynInputStream>;
type Store<'a> = StoreContextMut<'a, CallState>;
type Answer<T> = Result<(std::result::Result<T, StreamError>,)>;

/// Replaces the engine's functions with these.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    linker.allow_shadowing(true);
    let mut streams = linker.instance(STREAMS)?;
    streams.func_wrap_async(
        "[method]output-stream.write",
        |mut store: Store<'_>, (to, bytes): (Output, Vec<u8>)| {
            Box::new(async move {
                let (state, to) = begin(&mut store, &to)?;
                let result = HostOutputStream::write(&mut state.table, reborrow(&to), bytes);
                state.finish_write(&to, result).await
            })
        },
    )?;
    streams.func_wrap_async(
        "[method]output-stream.write-zeroes",
        |mut store: Store<'_>, (to, length): (Output, u64)| {
            Box::new(async move {
                let (state, to) = begin(&mut store, &to)?;
                let result =
                    HostOutputStream::write_zeroes(&mut state.table, reborrow(&to), length);
                state.finish_write(&to, result).await
            })
        },
    )?;
    streams.func_wrap_async(
        "[method]output-stream.splice",
        |mut store: Store<'_>, (to, from, length): (Output, Input, u64)| {
            Box::new(async move {
                let (state, to) = begin(&mut store, &to)?;
                let result =
                    HostOutputStream::splice(&mut state.table, reborrow(&to), from, length);
                state.finish_write(&to, result).await
            })
        },
    )?;
    streams.func_wrap_async(
        "[method]output-stream.blocking-write-and-flush",
        |mut store: Store<'_>, (to, bytes): (Output, Vec<u8>)| {
            Box::new(async move {
                let (state, to) = begin(&mut store, &to)?;
                let began = Instant::now();
                let result = HostOutputStream::blocking_write_and_flush(
                    &mut state.table,
                    reborrow(&to),
                    bytes,
                )
                .await;
                state.note_wait_since(began);
                state.finish_write(&to, result).await
            })
        },
    )?;
    streams.func_wrap_async(
        "[method]output-stream.blocking-write-zeroes-and-flush",
        |mut store: Store<'_>, (to, length): (Output, u64)| {
            Box::new(async move {
                let (state, to) = begin(&mut store, &to)?;
                let began = Instant::now();
                let result = HostOutputStream::blocking_write_zeroes_and_flush(
                    &mut state.table,
                    reborrow(&to),
                    length,
                )
                .await;
                state.note_wait_since(began);
                state.finish_write(&to, result).await
            })
        },
    )?;
    streams.func_wrap_async(
        "[method]output-stream.blocking-splice",
        |mut store: Store<'_>, (to, from, length): (Output, Input, u64)| {
            Box::new(async move {
                let (state, to) = begin(&mut store, &to)?;
                let began = Instant::now();
                let result = HostOutputStream::blocking_splice(
                    &mut state.table,
                    reborrow(&to),
                    from,
                    length,
                )
                .await;
                state.note_wait_since(began);
                state.finish_write(&to, result).await
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Returns the call's state, and a handle of the stream that can be borrowed again.
fn begin<'a>(store: &'a mut Store<'_>, stream: &Output) -> Result<(&'a mut CallState, Output)> {
    let state = store.data_mut();
    state.enter()?;
    Ok((state, reborrow(stream)))
}

fn reborrow(stream: &Output) -> Output {
    Resource::new_borrow(stream.rep())
}

impl CallState {
    /// Waits for a file write that began in this host call, and returns the result.
    async fn finish_write<T>(&mut self, stream: &Output, result: StreamResult<T>) -> Answer<T> {
        if self.streams.take_begun() {
            let began = Instant::now();
            // Ready immediately after a blocking call, which has already waited.
            self.table.get_mut(stream)?.ready().await;
            self.note_wait_since(began);
        }
        self.refuse_streamed();
        Ok((match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.table.convert_stream_error(error)?),
        },))
    }

    /// Records the refusals of file streams.
    pub(crate) fn refuse_streamed(&mut self) {
        for record in self.streams.take_refused() {
            self.refuse(record);
        }
    }
}

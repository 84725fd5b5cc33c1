//! Replacements for parts of `wasi:io/streams`: a write to a file has ended when the call returns.
//! The readiness of streams thus does not depend on the disk, and a replayed guest polls the same
//! results. Other streams, such as a request's body, use the engine's code.

use std::time::Instant;

use wasmtime::component::{Linker, Resource};
use wasmtime::{Result, StoreContextMut};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, Pollable, StreamResult};
use wasmtime_wasi_io::bindings::wasi::io::streams::{Host, HostOutputStream, StreamError};

use crate::imports::interfaces::wasi_files::FileStreams;

/// The latest 0.2 version; the linker accepts every compatible one.
const STREAMS: &str = "wasi:io/streams@0.2.12";

type Output = Resource<DynOutputStream>;
type Input = Resource<DynInputStream>;
type Answer<T> = Result<(std::result::Result<T, StreamError>,)>;

import_view! {
    /// The output streams of a call.
    StreamsImport { streams: FileStreams }
}

/// Replaces a function of the engine by one after which a file write has ended. `await` stands for
/// a function that waits, which is excluded from the guest's time.
macro_rules! replace {
    ($streams:ident, $view:ident: $name:literal $function:ident($($argument:ident: $type:ty),*) $($wait:tt)?) => {
        $streams.func_wrap_async(
            concat!("[method]output-stream.", $name),
            move |mut store: StoreContextMut<'_, T>, (to, $($argument),*): (Output, $($type),*)| {
                Box::new(async move {
                    let mut view = $view(store.data_mut());
                    view.core.enter()?;
                    let table = &mut view.core.table;
                    let result = HostOutputStream::$function(table, reborrow(&to), $($argument),*);
                    $(
                        let began = Instant::now();
                        let result = result.$wait;
                        view.core.note_wait_since(began);
                    )?
                    view.finish_write(&to, result).await
                })
            },
        )?;
    };
}

/// Replaces the engine's functions with these.
pub(crate) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> StreamsImport<'_>,
) -> Result<()> {
    linker.allow_shadowing(true);
    let mut streams = linker.instance(STREAMS)?;
    replace!(streams, view: "write" write(bytes: Vec<u8>));
    replace!(streams, view: "write-zeroes" write_zeroes(length: u64));
    replace!(streams, view: "splice" splice(from: Input, length: u64));
    replace!(streams, view: "blocking-write-and-flush" blocking_write_and_flush(bytes: Vec<u8>) await);
    replace!(streams, view: "blocking-write-zeroes-and-flush" blocking_write_zeroes_and_flush(length: u64) await);
    replace!(streams, view: "blocking-splice" blocking_splice(from: Input, length: u64) await);
    linker.allow_shadowing(false);
    Ok(())
}

fn reborrow(stream: &Output) -> Output {
    Resource::new_borrow(stream.rep())
}

impl StreamsImport<'_> {
    /// Waits for a file write that began in this host call, and returns the result.
    async fn finish_write<T>(&mut self, stream: &Output, result: StreamResult<T>) -> Answer<T> {
        if self.streams.take_begun() {
            let began = Instant::now();
            // Ready immediately after a blocking call, which has already waited.
            self.core.table.get_mut(stream)?.ready().await;
            self.core.note_wait_since(began);
        }
        self.core.refuse_late();
        Ok((match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.core.table.convert_stream_error(error)?),
        },))
    }
}

//! The host's implementation of each import of the contract, one file per interface, and the inert
//! part of WASI. An import counts itself, then checks its permission; refusals are returned as
//! typed errors and recorded.

pub(crate) mod blobs;
pub(crate) mod call;
pub(crate) mod config;
pub(crate) mod delivery;
mod exec;
pub(crate) mod fetch;
pub(crate) mod files;
pub(crate) mod folder;
mod history;
pub(crate) mod journalled;
pub(crate) mod judge_feedback;
mod kv;
mod log;
pub(crate) mod model;
mod path;
mod progress;
mod scratch;
mod secrets;
mod toolbox;
pub(crate) mod view;
pub(crate) mod wasi_files;
mod wasi_streams;

use wasmtime::component::{HasSelf, Linker};
use wasmtime_wasi::WasiView;
use wasmtime_wasi::cli::{WasiCli, WasiCliView};
use wasmtime_wasi::p2::bindings as wasi;
use wasmtime_wasi::random::WasiRandom;

use crate::imports::bindings::All;
use crate::imports::call::CallState;

/// Links every import that a plugin may have, except sockets and HTTP: see `call::network`.
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    All::add_to_linker::<_, HasSelf<_>>(linker, |state| state)?;
    config::add_to_linker(linker)?;
    wasmtime_wasi::p2::add_to_linker_proxy_interfaces_async(linker)?;
    wasi_streams::add_to_linker(linker)?;
    wasi::filesystem::types::add_to_linker::<CallState, HasSelf<_>>(linker, |state| state)?;
    wasi::filesystem::preopens::add_to_linker::<CallState, HasSelf<_>>(linker, |state| state)?;
    wasi::random::insecure::add_to_linker::<CallState, WasiRandom>(linker, |state| {
        state.ctx().ctx.random()
    })?;
    wasi::random::insecure_seed::add_to_linker::<CallState, WasiRandom>(linker, |state| {
        state.ctx().ctx.random()
    })?;
    wasi::cli::exit::add_to_linker::<CallState, WasiCli>(linker, CallState::cli)?;
    wasi::cli::environment::add_to_linker::<CallState, WasiCli>(linker, CallState::cli)?;
    wasi::cli::terminal_input::add_to_linker::<CallState, WasiCli>(linker, CallState::cli)?;
    wasi::cli::terminal_output::add_to_linker::<CallState, WasiCli>(linker, CallState::cli)?;
    wasi::cli::terminal_stdin::add_to_linker::<CallState, WasiCli>(linker, CallState::cli)?;
    wasi::cli::terminal_stdout::add_to_linker::<CallState, WasiCli>(linker, CallState::cli)?;
    wasi::cli::terminal_stderr::add_to_linker::<CallState, WasiCli>(linker, CallState::cli)
}

//! Links the imports of a plugin. Each gets a view of the call with its own state and the shared
//! core.

use wasmtime::component::{Component, Linker};
use wasmtime_wasi::WasiView;
use wasmtime_wasi::cli::{WasiCli, WasiCliView};
use wasmtime_wasi::p2::bindings as wasi;
use wasmtime_wasi::random::WasiRandom;

use super::bindings::plugin;
use super::interfaces;
use super::interfaces::config::ConfigImport;
use super::interfaces::files::FilesImport;
use super::interfaces::network::NetworkImport;
use super::interfaces::wasi_files::WasiFilesImport;
use super::interfaces::wasi_streams::StreamsImport;
use super::state::CallState;

/// Links interfaces of the contract, each with its view: the shared core, and this part of the
/// call's state.
macro_rules! link {
    ($linker:ident: $($module:ident::$view:ident $(($field:ident))? for $interface:ident;)*) => {
        $(plugin::$interface::add_to_linker::<_, interfaces::$module::$view<'static>>(
            $linker,
            |state| interfaces::$module::$view {
                core: &mut state.core,
                $($field: &mut state.$field)?
            },
        )?;)*
    };
}

/// Links interfaces of WASI, each with its view.
macro_rules! link_wasi {
    ($linker:ident: $($package:ident { $($interface:ident),* }($view:ty, $of:expr);)*) => {
        $($(wasi::$package::$interface::add_to_linker::<CallState, $view>($linker, $of)?;)*)*
    };
}

/// Links every import that a plugin may have, except sockets and HTTP: see [`link_network`].
pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    link! { linker:
        blobs::BlobsImport(blobs) for blobs;
        call::CallImport for call;
        channel_secret::ChannelSecretImport for channel_secret;
        config::ConfigImport for config;
        delivery::DeliveryImport for delivery_context;
        exec::ExecImport for exec;
        files::FilesImport(files) for files;
        history::HistoryImport for history;
        judge_feedback::JudgeFeedbackImport(feedback) for judge_feedback;
        kv::KvImport for kv;
        log::LogImport for log;
        log::LogImport for types;
        model::ModelImport for model;
        progress::ProgressImport for progress;
        scratch::ScratchImport(scratch) for scratch;
        secrets::SecretsImport for secrets;
        toolbox::ToolboxImport for toolbox;
        view::TaskImport for actions;
        view::TaskImport for state;
    }
    #[cfg(feature = "fetch")]
    link! { linker: fetch::FetchImport(holding) for fetch; }
    #[cfg(not(feature = "fetch"))]
    link! { linker: fetch::FetchImport for fetch; }
    interfaces::config::add_to_linker(linker, |state| ConfigImport { core: &mut state.core })?;
    add_wasi_to_linker(linker)
}

/// Links the inert part of WASI, and the files.
fn add_wasi_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_proxy_interfaces_async(linker)?;
    interfaces::wasi_streams::add_to_linker(linker, |state: &mut CallState| StreamsImport {
        core: &mut state.core,
        streams: &mut state.streams,
    })?;
    link_wasi! { linker:
        cli {
            environment, exit, terminal_input, terminal_output, terminal_stderr, terminal_stdin,
            terminal_stdout
        }(WasiCli, CallState::cli);
        filesystem { preopens, types }(WasiFilesImport<'static>, wasi_files);
        random { insecure, insecure_seed }(WasiRandom, |state| state.ctx().ctx.random());
    }
    Ok(())
}

fn wasi_files(state: &mut CallState) -> WasiFilesImport<'_> {
    let CallState { core, files, streams, .. } = state;
    WasiFilesImport { files: FilesImport { core, files }, streams }
}

/// Links a component's network interfaces: `wasi:http` if it needs it, and stubs of the others.
pub(crate) fn link_network(
    linker: &mut Linker<CallState>,
    component: &Component,
) -> wasmtime::Result<()> {
    #[cfg(feature = "fetch")]
    if interfaces::network::needs_served(component) {
        interfaces::wasi_http::add_to_linker(linker, http, |state| http(state).engine_view())?;
    }
    interfaces::network::add_to_linker(linker, component, |state| NetworkImport {
        core: &mut state.core,
        authority: &mut state.authority,
    })
}

#[cfg(feature = "fetch")]
fn http(state: &mut CallState) -> interfaces::wasi_http::HttpImport<'_> {
    let CallState { core, holding, engine_http: engine, .. } = state;
    interfaces::wasi_http::HttpImport { core, holding, engine }
}

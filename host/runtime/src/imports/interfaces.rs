//! The host's implementation of each import of the contract, one file per interface, and the inert
//! part of WASI. An import counts itself, then checks its permission; refusals are returned as
//! typed errors and recorded. Each file owns the state of its import, if it has one, and knows
//! that of another only where it is a second interface to it.

/// Declares the view that an import has of a call: the shared core, and the import's own state. The
/// generated trait of the import is implemented for it.
macro_rules! import_view {
    ($(#[$doc:meta])* $view:ident $({ $($(#[$cfg:meta])* $field:ident: $state:ty),* $(,)? })?) => {
        $(#[$doc])*
        pub(crate) struct $view<'a> {
            pub(crate) core: &'a mut $crate::imports::call::CallCore,
            $($($(#[$cfg])* pub(crate) $field: &'a mut $state,)*)?
        }

        impl wasmtime::component::HasData for $view<'static> {
            type Data<'a> = $view<'a>;
        }
    };
}

pub(crate) mod blobs;
pub(crate) mod call;
pub(crate) mod channel_secret;
pub(crate) mod config;
pub(crate) mod delivery;
pub(crate) mod exec;
pub(crate) mod fetch;
pub(crate) mod files;
pub(crate) mod history;
pub(crate) mod judge_feedback;
pub(crate) mod kv;
pub(crate) mod log;
pub(crate) mod model;
pub(crate) mod network;
pub(crate) mod progress;
pub(crate) mod scratch;
pub(crate) mod secrets;
pub(crate) mod toolbox;
pub(crate) mod view;
pub(crate) mod wasi_files;
#[cfg(feature = "fetch")]
pub(crate) mod wasi_http;
pub(crate) mod wasi_streams;

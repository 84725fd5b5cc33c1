//! The runtime of Conclave: loads plugins, calls them in fresh sandboxes, performs the core's
//! effects and writes the journal.
//!
//! A library: it prints nothing, reads no environment variables and installs no handlers. The
//! command line is one of its users. Start with [`Host`] and with `docs/embed/library.md`, whose
//! examples are tests of this crate.
//!
//! ```
//! use conclave_runtime::{Host, HostOptions, RunOptions, config::Config, native};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let desk = native::Plugin::agent("desk", |step: native::Step| async move {
//!         Ok(native::finish(format!("You said: {}", step.text())))
//!     });
//!     let host = Host::new(HostOptions { native: vec![desk], ..HostOptions::default() })?;
//!     let config = Config::parse("desk.toml", "", r#"
//!         entry = "desk"
//!         [plugins.desk]
//!         source = "native:desk"
//!         [tasks.desk]
//!         agent = "desk"
//!     "#)?;
//!     let run = host.load(&config).await?.start(Some("Good morning".to_owned()), RunOptions::default())?;
//!     let outcome = run.outcome().await?;
//!     assert_eq!(outcome.content.as_deref(), Some("You said: Good morning"));
//!     Ok(())
//! }
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr, clippy::exit)]
#![warn(missing_docs)]

// The folders are listed from the lowest to the highest. A folder imports only from those above it
// in this list, which `cargo xtask test` checks.
/// Clocks, ids, digests, crash-safe files, and permits for calls.
mod support {
    pub(crate) mod abandonment;
    pub(crate) mod admission;
    pub mod blobs;
    pub mod blocking;
    pub mod clock;
    pub(crate) mod digest;
    pub mod durable_file;
    pub(crate) mod escape;
    pub mod fail_points;
    pub mod ids;
    pub(crate) mod overlay_files;
    pub(crate) mod suspension;
    pub mod webhook;
}
/// The events that a run publishes, and their subscribers.
mod observe {
    pub mod subscribe;
    #[cfg(feature = "tracing")]
    pub mod telemetry;
}
pub mod calls;
/// The implementation of a plugin's imports, and the state of its call. These modules are listed
/// from the lowest to the highest too.
mod imports {
    pub mod exec;
    pub(crate) mod folder;
    pub mod kv;
    #[cfg(feature = "fetch")]
    pub(crate) mod outgoing;
    pub mod secrets;

    pub(crate) mod resources;

    pub(crate) mod bindings;
    pub(crate) mod convert;

    pub(crate) mod call;
    #[cfg(feature = "fetch")]
    pub(crate) mod fetch;

    pub(crate) mod interfaces;
    pub(crate) mod state;

    pub(crate) mod linker;
    #[cfg(test)]
    pub(crate) mod testing;
}
/// Calls into components, each in a fresh store and instance.
mod sandbox {
    pub mod engine;
    pub(crate) mod fault;
    pub(crate) mod plain;
    pub(crate) mod run;
}
pub mod plugin;

pub mod native;
/// Journals, and their stores.
mod storage {
    pub mod history_file;
    pub mod journal;
    pub mod overlay;
    #[cfg(feature = "sqlite")]
    pub mod store;
}
mod driver;

mod host;

pub use driver::{approve, channel, outgoing as endpoints, runner};
#[cfg(feature = "sqlite")]
pub use host::steering;
#[cfg(feature = "postgres")]
pub use host::worker;
pub use host::{batch, reload, servers, simulated_channel as voice};
pub use imports::{exec, kv, secrets};
pub use observe::subscribe;
#[cfg(feature = "tracing")]
pub use observe::telemetry;
pub use sandbox::engine;
#[cfg(feature = "sqlite")]
pub use storage::store;
pub use storage::{history_file, journal, overlay};
pub use support::{blobs, blocking, clock, durable_file, fail_points, ids, webhook};

pub use conclave_core::config::{self, lockfile};
pub use conclave_core::permissions::{manifest, policy_rules};
pub use conclave_core::policy::{budget, decision};
pub use conclave_core::protocol::{control, event, notice};
pub use conclave_core::setup::{self, plugin_query};
pub use conclave_core::types::capability::Capability;
pub use conclave_core::types::plugin_kind::PluginKind;
pub use conclave_core::types::{
    action, approval, channel as binding, completion, delegation, delivery, denial, durability,
    fault, history, limits, message, observed, outcome, request, risk, room_secret, side_effect,
    stuck_rules, task_options, tool, usage,
};
/// Model clients. A client of the embedding program, for `[models.NAME]` with `kind = "native"`:
/// ```
/// use std::sync::Arc;
///
/// use conclave_runtime::completion::{Completion, Prompt, StopReason, TokenUsage};
/// use conclave_runtime::models::{BoxFuture, ModelClient, ModelFailure, TextSink};
/// use conclave_runtime::{Host, HostOptions};
///
/// /// Says what it heard, word by word.
/// struct Echo;
///
/// impl ModelClient for Echo {
///     fn complete(&self, prompt: Prompt, sink: Arc<dyn TextSink>) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
///         Box::pin(async move {
///             let text = prompt.last_text().to_owned();
///             if prompt.stream {
///                 text.split_inclusive(' ').for_each(|word| sink.text(word));
///             }
///             let usage = TokenUsage { input_tokens: text.len() as u64 / 4, output_tokens: text.len() as u64 / 4, ..TokenUsage::default() };
///             let (id, model) = ("1".to_owned(), "echo".to_owned());
///             Ok(Completion { id, content: Some(text), reasoning: None, tool_calls: Vec::new(), stop: StopReason::End, usage, model })
///         })
///     }
/// }
///
/// let host = Host::new(HostOptions { models: [("default".to_owned(), Arc::new(Echo) as Arc<dyn ModelClient>)].into(), ..HostOptions::default() })?;
/// # drop(host);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use conclave_models as models;
pub use driver::observing::ObserverBacklog;
pub use driver::room_handle::{Accepted, Announced, RoomHandle, TaskHandle, WaitError};
#[cfg(feature = "sqlite")]
pub use host::ControlInbox;
#[cfg(feature = "http-models")]
pub use host::Probe;
pub use host::observers::ObserverReport;
pub use host::prepared::{
    CallToolError, Caller, PluginInfo, Prepared, Run, RunOptions, ToolCalling, ToolRun,
};
pub use host::session::{LoopStop, ResumeError, RoomGuard, RunInput, Session, SessionError};
pub use host::{
    ComponentTools, Follow, GuardedPath, Host, HostOptions, LoadStep, MissingStock, Pins,
    PrepareError, lock_of,
};

/// The pages whose examples are tests.
#[cfg(all(
    doctest,
    feature = "http-models",
    feature = "schemars",
    feature = "sqlite",
    feature = "tracing"
))]
mod pages {
    #[doc = include_str!("../../../docs/embed/library.md")]
    struct Embed;
    #[doc = include_str!("../../../docs/embed/events.md")]
    struct Events;
}

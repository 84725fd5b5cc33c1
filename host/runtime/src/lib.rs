//! Conclave's shell: loads plugins, calls them in fresh sandboxes, performs the core's effects, keeps the journal.
//!
//! A library: it prints nothing, reads no environment, installs no handler. The command line is one of its users. Start with [`Host`], and
//! with `docs/embed.md`, whose examples are tests of this crate.
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

pub mod approve;
pub mod batch;
mod bindings;
pub mod blobs;
pub mod calls;
mod capability;
pub mod channel;
pub mod clock;
mod convert;
mod digest;
mod driver;
pub mod durable_file;
pub mod engine;
mod everything;
#[cfg(feature = "fetch")]
mod fetch;
pub mod history_file;
mod host;
pub mod ids;
pub mod journal;
pub mod kill_points;
pub mod kv;
pub mod native;
pub mod plugin;
mod prepared;
pub mod reload;
mod room_handle;
pub mod runner;
pub mod sandbox;
pub mod secrets;
pub mod servers;
mod session;
#[cfg(feature = "sqlite")]
pub mod store;
pub mod subscribe;
#[cfg(feature = "tracing")]
pub mod telemetry;
pub mod voice;

pub use conclave_core::config::{self, lockfile};
pub use conclave_core::permissions::{manifest, policy_rules};
pub use conclave_core::policy::{budget, decision};
pub use conclave_core::protocol::{event, notice};
pub use conclave_core::setup::{self, plugin_query};
pub use conclave_core::types::capability::Capability;
pub use conclave_core::types::{
    action, approval, channel as binding, completion, delegation, delivery, denial, durability, fault, history, limits, message, outcome,
    request, risk, room_secret, side_effect, stuck_rules, task_options, tool, usage,
};
/// What speaks to models. A client of the program's own, for `[models.NAME]` with `kind = "native"`:
/// ```
/// use std::sync::Arc;
///
/// use conclave_runtime::completion::{Completion, Prompt, Stop, Usage};
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
///             let usage = Usage { input_tokens: text.len() as u64 / 4, output_tokens: text.len() as u64 / 4, ..Usage::default() };
///             let (id, model) = ("1".to_owned(), "echo".to_owned());
///             Ok(Completion { id, content: Some(text), reasoning: None, tool_calls: Vec::new(), stop: Stop::End, usage, model })
///         })
///     }
/// }
///
/// let host = Host::new(HostOptions { models: [("default".to_owned(), Arc::new(Echo) as Arc<dyn ModelClient>)].into(), ..HostOptions::default() })?;
/// # drop(host);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use conclave_models as models;
#[cfg(feature = "openai")]
pub use host::Probe;
pub use host::{Follow, Guard, Host, HostOptions, LoadStep, Pins, PrepareError, lock_of};
pub use prepared::{CallToolError, Caller, PluginInfo, Prepared, Run, RunOptions, Stopper, ToolCalling, ToolRun};
pub use room_handle::{Accepted, Announced, RoomHandle, TaskHandle, WaitError};
pub use session::{Ask, Hosted, ResumeError, Session, SessionError};

/// The pages whose examples are tests.
#[cfg(all(doctest, feature = "openai", feature = "schemars", feature = "sqlite", feature = "tracing"))]
mod pages {
    #[doc = include_str!("../../../docs/embed.md")]
    struct Embed;
    #[doc = include_str!("../../../docs/events.md")]
    struct Events;
}

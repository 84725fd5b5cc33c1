//! Conclave's shell: loads plugins, calls them in fresh sandboxes, performs the core's effects, keeps the journal.
//!
//! A library: it prints nothing, reads no environment, installs no handler. The command line is one of its users. Start with [`Host`].

mod bindings;
pub mod calls;
mod capability;
pub mod channel;
pub mod clock;
mod convert;
mod driver;
pub mod engine;
mod host;
pub mod journal;
pub mod models;
pub mod plugin;
mod prepared;
pub mod sandbox;
pub mod subscribe;

pub use host::{Follow, Host, HostOptions, LoadStep, PrepareError};
pub use prepared::{PluginInfo, Prepared, Run, RunOptions, Stopper};

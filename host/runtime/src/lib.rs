//! Conclave's shell: loads plugins, calls them in fresh sandboxes, performs the core's effects, keeps the journal.
//!
//! A library: it prints nothing, reads no environment, installs no handler. The command line is one of its users.

pub mod calls;
pub mod channel;
pub mod clock;
mod driver;
pub mod journal;
pub mod models;
pub mod subscribe;

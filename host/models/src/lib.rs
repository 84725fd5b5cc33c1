//! How a prompt reaches a model. Which plugin may ask which model, what it may read and what it may
//! cost was decided in the core; what is here gets a
//! [`Prompt`](conclave_core::types::completion::Prompt) and gives a completion or a failure. It
//! prints nothing and reads no environment: keys come from a [`KeySource`], attachments from a
//! [`BlobSource`].

mod blobs;
mod client;
#[cfg(feature = "openai")]
mod event_stream;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod key;
#[cfg(feature = "openai")]
pub mod openai;
mod scripted;
#[cfg(feature = "test-server")]
pub mod test_server;

pub use blobs::{BlobSource, NoBlobs};
pub use client::{BoxFuture, ModelClient, ModelFailure, NoText, TextSink};
pub use key::{ApiKey, KeySource};
pub use scripted::{ScriptError, Scripted};

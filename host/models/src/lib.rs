//! Model clients: they turn a [`Prompt`](conclave_core::types::completion::Prompt) into a
//! completion or a failure. The core has already decided on permissions, contents and costs. This
//! crate prints nothing and reads no environment: keys come from a [`KeySource`], attachments from
//! a [`BlobSource`].

#![warn(missing_docs)]

mod blobs;
mod client;
#[cfg(feature = "http")]
mod event_stream;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(feature = "http")]
pub mod http;
mod key;
mod scripted;
#[cfg(feature = "test-server")]
pub mod test_server;

pub use blobs::{BlobSource, BlobsUnavailable, NoBlobs, PROMPT_TEXT_MAX};
pub use client::{BoxFuture, ModelClient, ModelFailure, NoText, TextSink};
pub use key::{ApiKey, KeySource};
pub use scripted::{ScriptError, Scripted};

//! The Model Context Protocol, both ways: the tools of a config for clients that people run already
//! ([`serve`]), and servers of others as a source of tools ([`source`]). Only over the runtime's
//! public surface; it decides about nothing, and reads no environment itself.

#![deny(clippy::print_stdout, clippy::print_stderr, clippy::exit)]

pub mod serve;
pub mod source;
mod text;

//! The Model Context Protocol in both directions. [`serve`] offers the tools of a config to MCP
//! clients, and [`source`] makes MCP servers available as plugins. The crate only uses the
//! runtime's public API, makes no policy decisions, and reads no environment.

#![warn(missing_docs)]
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::exit)]

pub mod serve;
pub mod source;
mod text;

//! The problems of an invalid conclave.toml, and the meaning of a valid one. Cases are data; the
//! texts are snapshots.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "config/acting.rs"]
mod acting;
#[path = "config/any_manifest.rs"]
mod any_manifest;
#[path = "config/any_text.rs"]
mod any_text;
#[path = "config/assemble.rs"]
mod assemble;
#[path = "config/background.rs"]
mod background;
#[path = "config/channels.rs"]
mod channels;
#[path = "config/diagnostics.rs"]
mod diagnostics;
#[path = "config/gates.rs"]
mod gates;
#[path = "config/meaning.rs"]
mod meaning;
#[path = "config/prices.rs"]
mod prices;
#[path = "config/rights.rs"]
mod rights;
#[path = "config/schema.rs"]
mod schema;
#[path = "config/servers.rs"]
mod servers;
#[path = "config/support.rs"]
mod support;
#[path = "config/tasks.rs"]
mod tasks;
#[path = "config/toolbox.rs"]
mod toolbox;

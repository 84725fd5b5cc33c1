//! The stock plugins, which a config names as `stock:NAME`. This crate knows their bytes and
//! nothing about them: a host reads and admits them like any other component.
//!
//! They are put in when this crate is built: `cargo xtask build` in the repository compiles the
//! plugins first. A plain `cargo build` without that gives a crate with none, and a warning that
//! says so. The variable `CONCLAVE_STOCK` names another folder of components, for programs that are
//! built elsewhere.
//!
//! In a program of `cargo xtask install` or `dist` their machine code is here too.

use std::borrow::Cow;
use std::collections::BTreeMap;

include!(concat!(env!("OUT_DIR"), "/stock.rs"));

/// Name and component of each stock plugin, as `HostOptions::stock` of `conclave-runtime` takes
/// them; empty when the crate was built without the plugins. Nothing is copied.
///
/// ```
/// let stock = conclave_stock::stock();
/// if let Some(search) = stock.get("search") {
///     assert!(search.starts_with(b"\0asm"));
/// }
/// ```
#[must_use]
pub fn stock() -> BTreeMap<String, Cow<'static, [u8]>> {
    STOCK.iter().map(|(name, bytes)| ((*name).to_owned(), Cow::Borrowed(*bytes))).collect()
}

/// Returns the machine code that was made of the components when the program was built, with the
/// digest of each; empty when it was built without.
pub fn code() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    CODE.iter().copied()
}

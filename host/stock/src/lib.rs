//! The stock plugins, which a config names as `stock:NAME`. This crate knows their bytes and
//! nothing about them: a host reads and admits them like any other component.
//!
//! They are put in when this crate is built: `cargo xtask build` in the repository compiles the
//! plugins first. A plain `cargo build` without that gives a crate with none, and a warning that
//! says so. The variable `CONCLAVE_STOCK` names another folder of components, for programs that are
//! built elsewhere.
//!
//! A program of `cargo xtask install` or `dist` has files beside it: the plugins' machine code, and
//! the large components. It knows them by their digests, which are here.

use std::borrow::Cow;
use std::collections::BTreeMap;

include!(concat!(env!("OUT_DIR"), "/stock.rs"));

/// A stock plugin that was inspected and compiled before the program was built.
#[derive(Clone, Copy, Debug)]
pub struct Prebuilt {
    /// The name behind `stock:`.
    pub name: &'static str,
    /// The facts of the component as JSON, which `conclave_runtime::plugin::Inspection` reads.
    pub facts: &'static str,
    /// The digest of the file `DIGEST.cwasm` with the machine code: BLAKE3, in lower-case
    /// hexadecimal.
    pub code: &'static str,
    /// The digest of the file `DIGEST.wasm` with the component; `None` if [`stock`] has it.
    pub component: Option<&'static str>,
}

/// Name and component of each stock plugin that is in this crate; empty when it was built without
/// the plugins. Nothing is copied.
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

/// Returns what was made of the stock plugins before the program was built; empty if nothing was.
#[must_use]
pub fn prebuilt() -> &'static [Prebuilt] {
    PREBUILT
}

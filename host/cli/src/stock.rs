//! The stock plugins inside the program, which a config names as `stock:NAME`. It knows their bytes and nothing about them: they are
//! read and admitted like any other component.

include!(concat!(env!("OUT_DIR"), "/stock.rs"));

/// Name and component of each stock plugin, by name; none when the program was built without `cargo xtask build`.
pub(crate) fn stock() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    STOCK.iter().copied()
}

//! Long-term memory, which answers an agent's recall action. Storage is up to the component,
//! usually [`kv`](crate::kv) and a tool that writes there.

use crate::Result;

/// The trait of a memory; `export!(memory: X)` exports it.
///
/// ```
/// use conclave_sdk::memory::Memory;
/// use conclave_sdk::{Result, kv};
///
/// /// Remembers by exact key.
/// struct Notebook;
///
/// impl Memory for Notebook {
///     fn search(query: &str, limit: u32) -> Result<Vec<String>> {
///         let found = kv::get(query)?.map(|note| String::from_utf8_lossy(&note).into_owned());
///         Ok(found.into_iter().take(limit as usize).collect())
///     }
/// }
/// # conclave_sdk::export!(memory: Notebook, asks: [kv]);
/// # assert!(true);
/// ```
pub trait Memory {
    /// Returns at most `limit` memories, best first. Empty if none fits.
    fn search(query: &str, limit: u32) -> Result<Vec<String>>;
}

//! Long-term memory: what the recall action of an agent asks. How memories are kept is the
//! component's own business, mostly [`kv`](crate::kv) and a tool that writes there.

use crate::Result;

/// What makes a component a memory; `export!(memory: X)` exports it.
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
    /// At most `limit` memories, best first; empty when nothing fits.
    fn search(query: &str, limit: u32) -> Result<Vec<String>>;
}

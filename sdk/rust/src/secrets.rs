//! Secrets that the operator bound to hosts. A plugin never sees a value: it writes a placeholder
//! into a header, the query or the body of a request, and the host puts the value in when the
//! request leaves.

use crate::Denial;
use crate::bindings::imports::conclave::plugin::secrets as import;

/// The text to write where the value belongs. It is worth nothing outside of this call, and towards
/// any other host.
pub fn placeholder(name: &str) -> Result<String, Denial> {
    import::placeholder(name)
}

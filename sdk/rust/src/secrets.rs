//! Secrets that the operator bound to hosts. A plugin never sees a value: it writes a placeholder
//! into a header, the query or the body of a request, and the host inserts the value when it sends
//! the request.

use crate::Denial;
#[cfg(target_family = "wasm")]
use crate::bindings::imports::conclave::plugin::secrets as host;
#[cfg(not(target_family = "wasm"))]
use crate::native::secrets as host;

/// Returns the placeholder of a secret. It is worthless outside of this call, and for any other
/// host.
pub fn placeholder(name: &str) -> Result<String, Denial> {
    host::placeholder(name)
}

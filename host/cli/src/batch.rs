//! What `conclave batch` is made of: what it reads, what it writes, and how far it is.

pub(crate) mod input;
pub(crate) mod progress;
pub(crate) mod results;

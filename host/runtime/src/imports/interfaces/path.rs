//! Paths as plugins write them. The core parses them, so that its explanations agree with the
//! checks here.

pub(crate) use conclave_core::permissions::paths::{GuestPath, UNFINISHED};

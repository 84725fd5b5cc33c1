//! Paths as plugins write them. The decisions about their text are the core's, so that whoever
//! explains them says the same.

pub(crate) use conclave_core::permissions::paths::{GuestPath, UNFINISHED};

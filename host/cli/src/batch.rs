//! The parts of `conclave batch`: its inputs, its results and its progress.

pub(crate) mod input;
pub(crate) mod progress;
pub(crate) mod results;

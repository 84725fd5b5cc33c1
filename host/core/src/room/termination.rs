//! The end of tasks and runs: the checks after each step, the result for the caller, and the hard
//! stops (L-080…L-090).

mod done;
mod ending;
mod result;
mod stopping;

pub(super) use done::calls_in;
pub(super) use result::{failed_instead, has_answer};

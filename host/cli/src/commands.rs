//! One command, one file.

pub(crate) mod check;
pub(crate) mod inspect;
pub(crate) mod run;

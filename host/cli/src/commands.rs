//! One command, one file.

pub(crate) mod check;
pub(crate) mod embed;
pub(crate) mod inspect;
pub(crate) mod run;

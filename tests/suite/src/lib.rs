//! Nothing but tests: see `tests/suite.rs`.

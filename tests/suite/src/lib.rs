//! Empty: see `tests/suite.rs` for the tests.

//! The event log on disk: records are read back after group commits and every kind of end, and
//! changed files are detected.
#![cfg(feature = "sqlite")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests start themselves again, and make fixtures anew when they are told to"
)]

mod chain;
mod children;
#[cfg(feature = "kill-points")]
mod controls;
#[cfg(feature = "postgres")]
mod damaged_rows;
mod derived;
mod disk;
mod ends;
#[cfg(feature = "postgres")]
mod engines;
mod fixtures;
mod going_on;
mod groups;
mod lists;
mod mailbox;
#[cfg(feature = "postgres")]
mod pooler;
mod records;
mod retention;
mod snapshots;
mod support;
#[cfg(feature = "postgres")]
mod tls;

//! Hosts that share a store in PostgreSQL: workers take runs, sleep, lose runs and give them back.
//! Each host here has a store of its own in this process, as several processes would have.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod owning;
mod support;
mod working;

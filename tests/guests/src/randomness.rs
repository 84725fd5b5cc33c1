//! Returns numbers from the randomness of `std`, or bytes that must be unpredictable.

use std::hash::{BuildHasher, RandomState};

use conclave_sdk::{Json, tool};

/// Rolls the dice: a `RandomState` is keyed by the host's randomness.
#[tool]
fn run() -> Json<Vec<u64>> {
    Json((0..3_u8).map(|index| RandomState::new().hash_one(index)).collect())
}

/// Bytes of the host's secure randomness, as hexadecimal digits.
#[tool]
fn secure() -> String {
    wasip2::random::random::get_random_bytes(32).iter().map(|byte| format!("{byte:02x}")).collect()
}

conclave_sdk::export!(tools: [run, secure], asks: []);

//! Returns a few numbers that come from the randomness of `std`.

use std::hash::{BuildHasher, RandomState};

use conclave_sdk::{Json, tool};

/// Rolls the dice: a `RandomState` is keyed by the host's randomness.
#[tool]
fn run() -> Json<Vec<u64>> {
    Json((0..3_u8).map(|index| RandomState::new().hash_one(index)).collect())
}

conclave_sdk::export!(tools: [run], asks: []);

//! Allocates until something stops it.

use conclave_sdk::tool;

/// Hoards memory, one MiB after the other.
#[tool]
fn run() -> String {
    let mut hoard: Vec<Vec<u8>> = Vec::new();
    loop {
        // Not zero: zeroed pages could stay untouched.
        hoard.push(std::hint::black_box(vec![1; 1024 * 1024]));
    }
}

conclave_sdk::export!(tools: [run], asks: []);

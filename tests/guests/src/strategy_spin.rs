//! A delivery strategy that never decides.

use conclave_sdk::Result;
use conclave_sdk::delivery::{Context, Decision, DeliveryStrategy, Wake};

struct Spin;

impl DeliveryStrategy for Spin {
    fn decide(_wake: Wake, _context: &Context) -> Result<Vec<Decision>> {
        loop {
            std::hint::black_box(0);
        }
    }
}

conclave_sdk::export!(delivery: Spin, asks: [channels?]);

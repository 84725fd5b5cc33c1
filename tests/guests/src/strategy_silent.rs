//! A delivery strategy that delivers nothing.

use conclave_sdk::Result;
use conclave_sdk::delivery::{Context, Decision, DeliveryStrategy, Wake};

struct Silent;

impl DeliveryStrategy for Silent {
    fn decide(_wake: Wake, _context: &Context) -> Result<Vec<Decision>> {
        Ok(Vec::new())
    }
}

conclave_sdk::export!(delivery: Silent, asks: [channels?]);

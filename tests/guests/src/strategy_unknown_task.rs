//! A delivery strategy that speaks about a task that does not wait.

use conclave_sdk::Result;
use conclave_sdk::delivery::{Context, Decision, DeliveryStrategy, Wake, deliver};

struct UnknownTask;

impl DeliveryStrategy for UnknownTask {
    fn decide(_wake: Wake, _context: &Context) -> Result<Vec<Decision>> {
        Ok(vec![deliver(["no-such-task"])])
    }
}

conclave_sdk::export!(delivery: UnknownTask, asks: [channels?]);

//! Delivers everything at once.
use conclave_sdk::Result;
use conclave_sdk::delivery::{Context, Decision, DeliveryStrategy, Wake, deliver};

pub struct Polite;

impl DeliveryStrategy for Polite {
    fn decide(_wake: Wake, context: &Context) -> Result<Vec<Decision>> {
        Ok(vec![deliver(context.pending_results().into_iter().map(|ended| ended.task_id))])
    }
}

conclave_sdk::export!(delivery: Polite, asks: [channels]);

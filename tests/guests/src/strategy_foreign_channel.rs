//! A delivery strategy that speaks on a channel that it was not granted.

use conclave_sdk::Result;
use conclave_sdk::delivery::{Context, Decision, DeliveryMessage, DeliveryStrategy, Wake};

struct ForeignChannel;

impl DeliveryStrategy for ForeignChannel {
    fn decide(_wake: Wake, context: &Context) -> Result<Vec<Decision>> {
        let tasks = context.pending_results().into_iter().map(|ended| ended.task_id).collect();
        Ok(vec![Decision::Deliver(DeliveryMessage {
            tasks,
            channel: Some("vault".into()),
            prompt: Some("psst".into()),
            interrupt: true,
        })])
    }
}

conclave_sdk::export!(delivery: ForeignChannel, asks: [channels?]);

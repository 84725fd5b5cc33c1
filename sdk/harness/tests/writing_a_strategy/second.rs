//! Delivers results when the channel is idle.
use conclave_sdk::Result;
use conclave_sdk::delivery::{
    Activity, Context, Decision, DeliveryStrategy, Wake, deliver, due, move_to_inbox, wait_for,
};

pub struct Polite;

impl DeliveryStrategy for Polite {
    fn decide(wake: Wake, context: &Context) -> Result<Vec<Decision>> {
        let waiting = context.pending_results();
        let Some(channel) = context.preferred_channel() else {
            return Ok(vec![move_to_inbox(waiting.into_iter().map(|ended| ended.task_id))]); // no channel: into the inbox
        };
        if channel.activity != Activity::Idle {
            return Ok(vec![wait_for(channel.id, 10_000)]); // asked again when it is idle, or in 10 s
        }
        let due = due(&wake, &waiting);
        let message = (!due.now.is_empty()).then(|| deliver(due.now));
        Ok(message.into_iter().chain(due.rest).collect())
    }
}

conclave_sdk::export!(delivery: Polite, asks: [channels]);

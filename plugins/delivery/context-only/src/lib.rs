//! Context-only: delivers without speaking. Each result is left in the inbox, where the agent finds
//! it in its next turn. It needs no grant, and is the host's fallback if another strategy fails.
//!
//! ```toml
//! [plugins.context-only]
//! source = "stock:context-only"
//!
//! [tasks.digest]
//! agent = "digest"
//! delivery_strategy = "context-only"
//! ```

use conclave_sdk::Result;
use conclave_sdk::delivery::{Context, Decision, DeliveryStrategy, EndedTask, Wake, move_to_inbox};

struct ContextOnly;

impl DeliveryStrategy for ContextOnly {
    fn decide(_wake: Wake, context: &Context) -> Result<Vec<Decision>> {
        Ok(next(&context.pending_results()))
    }
}

fn next(waiting: &[EndedTask]) -> Vec<Decision> {
    vec![move_to_inbox(waiting.iter().map(|ended| &ended.task_id))]
}

conclave_sdk::export!(delivery: ContextOnly);

#[cfg(test)]
mod tests {
    use conclave_harness::Harness;
    use conclave_sdk::delivery::{Activity, DeliveryStrategy, TaskStatus};
    use conclave_sdk::testing::ended;

    use super::{ContextOnly, move_to_inbox, next};

    #[test]
    fn pending_results_are_moved_to_the_inbox() {
        assert_eq!(next(&[ended("a"), ended("b")]), [move_to_inbox(["a", "b"])]);
    }

    #[test]
    fn it_says_nothing_whatever_happens() {
        let report = Harness::new(ContextOnly::decide)
            .voice("phone", 2_000)
            .completes("a", "48 m")
            .at(10)
            .activity("phone", Activity::UserSpeaking)
            .ends("b", TaskStatus::TimedOut, "over")
            .at(20)
            .crashes(1_000)
            .burst("task", 1_000)
            .run();
        report.check().expect("it keeps its guarantees");
        assert_eq!((report.delivered.len(), report.inbox.len()), (0, 1_002));
    }
}

//! Immediate: the simplest delivery strategy. Waiting results are delivered at once, even while a
//! user speaks. A rejected message is retried after one, two and four seconds, and is then left for
//! the agent's next turn, so that no result is lost.
//!
//! ```toml
//! [plugins.immediate]
//! source = "stock:immediate"
//! grants.channels = ["terminal"]
//!
//! [tasks.digest]
//! agent = "digest"
//! delivery_strategy = "immediate"
//! ```

use conclave_sdk::delivery::{
    Context, Decision, DeliveryStrategy, EndedTask, Wake, deliver, due, move_to_inbox, worded,
};
use conclave_sdk::{Result, config, log};
use serde::Deserialize;

/// The `config` table of this plugin.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// Empty: the host's words.
    prompt: String,
}

struct Immediate;

impl DeliveryStrategy for Immediate {
    fn decide(wake: Wake, context: &Context) -> Result<Vec<Decision>> {
        if let Wake::SendFailed(reason) = &wake {
            log::warn!("a message was not accepted: {reason}");
        }
        let Settings { prompt } = config::get()?;
        Ok(worded(
            next(&wake, &context.pending_results(), context.preferred_channel().is_some()),
            &prompt,
        ))
    }
}

/// The decisions. Nothing is remembered, because the host counts the attempts of each result.
fn next(wake: &Wake, waiting: &[EndedTask], has_channel: bool) -> Vec<Decision> {
    if !has_channel {
        return vec![move_to_inbox(waiting.iter().map(|ended| &ended.task_id))];
    }
    let due = due(wake, waiting);
    let message = (!due.now.is_empty()).then(|| deliver(due.now));
    message.into_iter().chain(due.rest).collect()
}

conclave_sdk::export!(delivery: Immediate);

#[cfg(test)]
mod tests {
    use conclave_harness::{Guarantee, Harness};
    use conclave_sdk::delivery::{
        Activity, ChannelKind, DeliveryStrategy, EndedTask, TaskStatus, Wake, wait,
    };
    use conclave_sdk::testing::ended;

    use super::{Immediate, deliver, move_to_inbox, next};

    #[test]
    fn an_ended_task_is_delivered_at_once_with_all_that_waits() {
        assert_eq!(
            next(&Wake::Ended("b".into()), &[ended("a"), ended("b")], true),
            [deliver(["a", "b"])]
        );
    }

    #[test]
    fn a_refused_message_is_tried_later_and_then_moved_to_the_inbox() {
        let tried = |attempts| [EndedTask { attempts, ..ended("a") }];
        let refused = Wake::SendFailed("busy".into());
        assert_eq!(next(&refused, &tried(1), true), [wait(1_000)]);
        assert_eq!(next(&Wake::Timer, &tried(1), true), [deliver(["a"])]);
        assert_eq!(next(&refused, &tried(3), true), [wait(4_000)]);
        assert_eq!(next(&refused, &tried(4), true), [move_to_inbox(["a"])]);
    }

    #[test]
    fn results_are_delivered_when_they_come_and_failures_when_the_channel_takes_them() {
        let report = Harness::new(Immediate::decide)
            .channel("terminal", ChannelKind::Text)
            .at(0)
            .completes("a", "48 m")
            .at(10)
            .refuses("terminal", 2)
            .ends("b", TaskStatus::Failed, "no disk")
            .at(20)
            .completes("c", "1844")
            .run();
        report.check().expect("it keeps its guarantees");
        assert_eq!(report.delivered_at("a"), Some(0));
        assert_eq!(
            (report.delivered_at("b"), report.delivered_at("c")),
            (Some(1_020), Some(1_020)),
            "c failed at 20, and its wait tells both"
        );
    }

    #[test]
    fn a_channel_that_takes_nothing_leaves_results_in_the_inbox() {
        let report = Harness::new(Immediate::decide)
            .channel("terminal", ChannelKind::Text)
            .refuses("terminal", 99)
            .burst("task", 3)
            .run();
        report.check().expect("it keeps its guarantees");
        assert_eq!((report.delivered.len(), report.inbox.len()), (0, 3));
    }

    #[test]
    fn a_thousand_results_and_a_crash() {
        let report = Harness::new(Immediate::decide)
            .channel("terminal", ChannelKind::Text)
            .at(5)
            .crashes(9_000)
            .burst("task", 1_000)
            .run();
        report.check().expect("it keeps its guarantees");
        assert_eq!(
            report.delivered.iter().map(|message| message.tasks.len()).sum::<usize>(),
            1_000
        );
    }

    #[test]
    fn without_a_channel_and_with_one_that_closes_results_go_into_the_inbox() {
        let report = Harness::new(Immediate::decide).completes("a", "48 m").run();
        report.check().expect("it keeps its guarantees");
        assert!(report.inbox.contains_key("a"));
        let report = Harness::new(Immediate::decide)
            .channel("web", ChannelKind::Web)
            .refuses("web", 1)
            .completes("a", "48 m")
            .at(500)
            .leaves("web")
            .run();
        report.check().expect("it keeps its guarantees");
        assert!(report.inbox.contains_key("a"));
    }

    /// It interrupts by design; `wait-for-idle` is the alternative.
    #[test]
    fn it_speaks_over_a_user_and_breaks_nothing_else() {
        let report = Harness::new(Immediate::decide)
            .voice("phone", 2_000)
            .activity("phone", Activity::UserSpeaking)
            .completes("a", "48 m")
            .run();
        assert!(report.check().is_err_and(|broken| broken.is(Guarantee::NeverOverAUser)));
        report.check_but(&[Guarantee::NeverOverAUser]).expect("it keeps the others");
    }
}

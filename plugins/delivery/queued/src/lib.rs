//! Queued: all waiting results are delivered in one turn. While the channel is busy, they queue up.
//! When it is free, one message covers all of them, with empty lines between, so that ten results
//! are one turn of the agent (R-110 done right). A rejected message is retried with the newer
//! results.
//!
//! ```toml
//! [plugins.queued]
//! source = "stock:queued"
//! grants.channels = ["terminal"]
//! config = { max_wait = "1 min" }
//! ```

use conclave_sdk::config::{self, Span};
use conclave_sdk::delivery::{
    Activity, Channel, Context, Decision, DeliveryStrategy, Due, EndedTask, MOST_ATTEMPTS, Waited,
    Wake, deliver_on, due, move_to_inbox, wait_for,
};
use conclave_sdk::{Result, scratch};
use serde::Deserialize;

/// The interval between two checks while a user speaks. The end of it also wakes the
/// strategy.
const LOOK_AGAIN_MS: u64 = 15_000;
/// The time from which a user who still speaks counts as gone: the program has not reported it.
const LONGEST_MS: u64 = 10 * 60 * 1_000;

/// The `config` table of this plugin.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    max_wait: Span,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_wait: Span::from_secs(60) }
    }
}

struct Queued;

impl DeliveryStrategy for Queued {
    fn decide(wake: Wake, context: &Context) -> Result<Vec<Decision>> {
        let settings: Settings = config::get()?;
        let mut waited: Waited = scratch::get()?.unwrap_or_default();
        let waiting = context.pending_results();
        let waited_ms = waited.ms(&waiting, context.now_ms());
        scratch::set(&waited)?;
        Ok(next(&settings, &wake, &waiting, context.preferred_channel(), waited_ms))
    }
}

/// The decisions, given the waiting time of the oldest result.
fn next(
    settings: &Settings,
    wake: &Wake,
    waiting: &[EndedTask],
    channel: Option<Channel>,
    waited: u64,
) -> Vec<Decision> {
    let all = || move_to_inbox(waiting.iter().map(|ended| &ended.task_id));
    let Some(Channel { id, activity, .. }) = channel else { return vec![all()] };
    let Due { now, rest } = due(wake, waiting);
    // Results that came after a failed message are delivered with its retry.
    let is_tried = |ended: &EndedTask| (1..MOST_ATTEMPTS).contains(&ended.attempts);
    let is_time = matches!(wake, Wake::Timer | Wake::ChannelIdle(_));
    if now.is_empty() || (!is_time && waiting.iter().any(is_tried)) {
        return rest;
    }
    let left = settings.max_wait.ms().saturating_sub(waited);
    let first = match activity {
        Activity::UserSpeaking if waited >= LONGEST_MS => return vec![all()],
        Activity::UserSpeaking => wait_for(id, LOOK_AGAIN_MS),
        Activity::Speaking | Activity::Generating if left > 0 => wait_for(id, left),
        _ => deliver_on(id, now),
    };
    std::iter::once(first).chain(rest).collect()
}

conclave_sdk::export!(delivery: Queued);

#[cfg(test)]
mod tests {
    use conclave_harness::{Harness, Report};
    use conclave_sdk::Result;
    use conclave_sdk::delivery::{
        Activity, ChannelKind, Context, Decision, DeliveryStrategy, TaskStatus, Wake,
    };
    use serde_json::json;

    use super::Queued;

    fn strategy() -> Harness<impl Fn(Wake, &Context<'_>) -> Result<Vec<Decision>>> {
        Harness::new(Queued::decide)
    }

    #[track_caller]
    fn times(report: &Report) -> Vec<(u64, String)> {
        report.check().expect("it keeps its guarantees");
        report.delivered.iter().map(|message| (message.at, message.tasks.join("+"))).collect()
    }

    fn at(ms: u64, tasks: &str) -> (u64, String) {
        (ms, tasks.to_owned())
    }

    #[test]
    fn what_comes_while_the_channel_is_busy_is_one_turn() {
        let report = strategy()
            .channel("terminal", ChannelKind::Text)
            .activity("terminal", Activity::Generating)
            .completes("a", "48 m")
            .at(200)
            .ends("b", TaskStatus::Failed, "no disk")
            .at(900)
            .completes("c", "1844")
            .at(1_000)
            .activity("terminal", Activity::Idle)
            .at(1_100)
            .completes("d", "Stevenson")
            .run();
        assert_eq!(times(&report), [at(1_000, "a+b+c"), at(1_100, "d")]);
    }

    #[test]
    fn a_voice_tells_a_thousand_results_in_two_turns() {
        let report = strategy().voice("phone", 5_000).at(10).burst("task", 1_000).run();
        assert_eq!(times(&report).len(), 2);
        assert_eq!(report.delivered[1].tasks.len(), 999);
    }

    #[test]
    fn it_waits_for_a_while_and_for_a_user_always() {
        let busy = |activity| {
            strategy()
                .channel("phone", ChannelKind::Voice)
                .activity("phone", activity)
                .completes("a", "48 m")
        };
        assert_eq!(times(&busy(Activity::Speaking).run()), [at(60_000, "a")]);
        assert_eq!(
            times(&busy(Activity::Speaking).config(json!({ "max_wait": "2 s" })).run()),
            [at(2_000, "a")]
        );
        assert_eq!(
            times(&busy(Activity::UserSpeaking).at(90_000).activity("phone", Activity::Idle).run()),
            [at(90_000, "a")]
        );
        let report = busy(Activity::UserSpeaking).run();
        assert!(
            times(&report).is_empty() && report.inbox.contains_key("a"),
            "it is in the inbox: {report:?}"
        );
    }

    #[test]
    fn later_results_are_delivered_with_a_failed_one() {
        let report = strategy()
            .channel("terminal", ChannelKind::Text)
            .refuses("terminal", 1)
            .completes("a", "48 m")
            .at(300)
            .completes("b", "1844")
            .run();
        assert_eq!(times(&report), [at(1_000, "a+b")]);
        let report = strategy()
            .channel("terminal", ChannelKind::Text)
            .refuses("terminal", 99)
            .burst("task", 5)
            .run();
        assert!(times(&report).is_empty() && report.inbox.len() == 5);
    }

    #[test]
    fn crashes_and_channels_that_go() {
        let busy = || {
            strategy().voice("phone", 2_000).completes("a", "48 m").at(100).completes("b", "1844")
        };
        assert_eq!(times(&busy().at(200).crashes(60_000).completes("c", "x").run()).len(), 2);
        let report = busy().at(300).leaves("phone").run();
        assert_eq!((times(&report).len(), report.inbox.len()), (1, 1));
    }
}

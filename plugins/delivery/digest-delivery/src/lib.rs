//! Digest-delivery: at most one turn in an interval. A result waits a short time for others, and
//! for the end of the interval that the last turn began. One message then covers all waiting
//! results.
//!
//! ```toml
//! [plugins.digest-delivery]
//! source = "stock:digest-delivery"
//! grants.channels = ["terminal"]
//! config = { interval = "10 min", collect = "5 s" }
//! ```

use conclave_sdk::config::{self, Span};
use conclave_sdk::delivery::{
    Activity, Channel, Context, Decision, DeliveryStrategy, Due, EndedTask, MOST_ATTEMPTS, Waited,
    Wake, deliver_on, due, move_to_inbox, wait, wait_for,
};
use conclave_sdk::{Result, scratch};
use serde::{Deserialize, Serialize};

/// The interval between two checks while a user speaks. The end of it also wakes the
/// strategy.
const LOOK_AGAIN_MS: u64 = 15_000;
/// The time after a turn was due from which a user who still speaks counts as gone: the program has
/// not reported it.
const LONGEST_MS: u64 = 10 * 60 * 1_000;

/// The `config` table of this plugin.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    interval: Span,
    collect: Span,
}

impl Default for Settings {
    fn default() -> Self {
        Self { interval: Span::from_secs(600), collect: Span::from_secs(5) }
    }
}

/// The memory of a room, since each call is a fresh instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    waited: Waited,
    /// The start of the last turn.
    last: Option<u64>,
}

struct DigestDelivery;

impl DeliveryStrategy for DigestDelivery {
    fn decide(wake: Wake, context: &Context) -> Result<Vec<Decision>> {
        let settings: Settings = config::get()?;
        let memory: Memory = scratch::get()?.unwrap_or_default();
        let (decisions, memory) = next(
            &settings,
            &wake,
            &context.pending_results(),
            context.preferred_channel(),
            context.now_ms(),
            memory,
        );
        scratch::set(&memory)?;
        Ok(decisions)
    }
}

fn next(
    settings: &Settings,
    wake: &Wake,
    waiting: &[EndedTask],
    channel: Option<Channel>,
    now: u64,
    mut memory: Memory,
) -> (Vec<Decision>, Memory) {
    let all = || move_to_inbox(waiting.iter().map(|ended| &ended.task_id));
    let Some(channel) = channel else { return (vec![all()], memory) };
    let collected = now.saturating_sub(memory.waited.ms(waiting, now)) + settings.collect.ms();
    let turn = memory.last.map_or(0, |last| last + settings.interval.ms()).max(collected);
    let Due { now: results, rest } = due(wake, waiting);
    // The turn was begun and rejected. It is retried, together with newer results.
    let is_tried = waiting.iter().any(|ended| (1..MOST_ATTEMPTS).contains(&ended.attempts));
    let is_time = matches!(wake, Wake::Timer | Wake::ChannelIdle(_));
    if results.is_empty() || (is_tried && !is_time) {
        return (rest, memory);
    }
    let first = if turn > now && !is_tried {
        wait(turn - now)
    } else if channel.activity == Activity::UserSpeaking {
        if now.saturating_sub(turn) >= LONGEST_MS {
            return (vec![all()], memory);
        }
        wait_for(channel.id, LOOK_AGAIN_MS)
    } else {
        memory.last = Some(now);
        deliver_on(channel.id, results)
    };
    (std::iter::once(first).chain(rest).collect(), memory)
}

conclave_sdk::export!(delivery: DigestDelivery);

#[cfg(test)]
mod tests {
    use conclave_harness::{Harness, Report};
    use conclave_sdk::Result;
    use conclave_sdk::delivery::{
        Activity, ChannelKind, Context, Decision, DeliveryStrategy, TaskStatus, Wake,
    };
    use serde_json::json;

    use super::DigestDelivery;

    fn strategy() -> Harness<impl Fn(Wake, &Context<'_>) -> Result<Vec<Decision>>> {
        Harness::new(DigestDelivery::decide).channel("terminal", ChannelKind::Text)
    }

    #[track_caller]
    fn times(report: &Report) -> Vec<(u64, usize)> {
        report.check().expect("it keeps its guarantees");
        report.delivered.iter().map(|message| (message.at, message.tasks.len())).collect()
    }

    #[test]
    fn there_is_one_turn_in_an_interval() {
        let report = strategy()
            .completes("a", "48 m")
            .at(2_000)
            .ends("b", TaskStatus::Cancelled, "stopped")
            .at(100_000)
            .burst("task", 1_000)
            .at(700_000)
            .completes("c", "1844")
            .at(2_000_000)
            .completes("d", "x")
            .run();
        assert_eq!(times(&report), [(5_000, 2), (605_000, 1_000), (1_205_000, 1), (2_005_000, 1)]);
    }

    #[test]
    fn without_a_moment_the_first_is_delivered_at_once() {
        let report = strategy()
            .config(json!({ "collect": "0 s", "interval": "2 h" }))
            .completes("a", "48 m")
            .at(1)
            .completes("b", "x")
            .run();
        assert!(
            report.check().is_err(),
            "an hour after its end the script is over, and b has an hour to go"
        );
        assert_eq!(
            (report.delivered.len(), report.delivered_at("a"), report.pending.len()),
            (1, Some(0), 1)
        );
        let report = strategy()
            .config(json!({ "collect": "0 s", "interval": "30 min" }))
            .completes("a", "48 m")
            .at(1)
            .completes("b", "x")
            .run();
        assert_eq!(times(&report), [(0, 1), (1_800_000, 1)]);
    }

    #[test]
    fn a_turn_that_is_not_accepted_is_tried_again_within_its_interval() {
        let report = strategy()
            .refuses("terminal", 2)
            .completes("a", "48 m")
            .at(5_500)
            .completes("b", "1844")
            .run();
        assert_eq!(times(&report), [(7_000, 2)], "what came since is part of it");
        let report = strategy().refuses("terminal", 99).burst("task", 3).run();
        assert_eq!((times(&report).len(), report.inbox.len()), (0, 3));
    }

    #[test]
    fn a_user_who_speaks_is_waited_for() {
        let speaking = || {
            Harness::new(DigestDelivery::decide)
                .voice("phone", 1_000)
                .activity("phone", Activity::UserSpeaking)
        };
        assert_eq!(
            times(
                &speaking().completes("a", "x").at(30_000).activity("phone", Activity::Idle).run()
            ),
            [(30_000, 1)]
        );
        let report = speaking().completes("a", "x").run();
        assert!(times(&report).is_empty() && report.inbox.contains_key("a"));
    }

    #[test]
    fn crashes_and_channels_that_go() {
        assert_eq!(
            times(
                &strategy().completes("a", "x").at(5_000).crashes(60_000).completes("b", "x").run()
            )
            .len(),
            1
        );
        let report = strategy().completes("a", "x").at(1_000).leaves("terminal").run();
        assert!(times(&report).is_empty() && report.inbox.contains_key("a"));
    }
}

//! Immediate: the simplest delivery strategy. Whatever waits is told at once; a speech that was not accepted is tried again a few
//! times, a little later each time, and then left for the agent's next turn so that no result is lost.

use conclave_sdk::delivery::{Context, Decision, DeliveryStrategy, Wake, attach, speak, wait};
use conclave_sdk::{Result, log, scratch};

/// How often a speech is tried again: a channel that refuses this often is more likely closed than busy.
const RETRIES: u32 = 3;
/// Milliseconds before the first retry; doubled for each further one.
const FIRST_PAUSE_MS: u64 = 1_000;

struct Immediate;

impl DeliveryStrategy for Immediate {
    fn decide(wake: Wake, context: &Context) -> Result<Vec<Decision>> {
        let waiting: Vec<String> = context.waiting().into_iter().map(|ended| ended.task_id).collect();
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        // An instance lives for one call: the count of failures is kept in the scratch of the room.
        let failures: u32 = scratch::get()?.unwrap_or(0);
        let (decision, failures) = next(&wake, waiting, failures);
        if let Wake::SendFailed(reason) = &wake {
            log::warn!("a speech was not accepted: {reason}");
        }
        scratch::set(&failures)?;
        Ok(decision.into_iter().collect())
    }
}

/// What to do, and how many speeches have failed in a row by then.
fn next(wake: &Wake, waiting: Vec<String>, failures: u32) -> (Option<Decision>, u32) {
    match wake {
        Wake::Ended(_) => (Some(speak(waiting)), 0),
        Wake::Timer => (Some(speak(waiting)), failures),
        Wake::SendFailed(_) if failures < RETRIES => (Some(wait(FIRST_PAUSE_MS << failures)), failures + 1),
        Wake::SendFailed(_) => (Some(attach(waiting)), 0),
        // It never waits for a channel to be free, so a change of one is no reason to speak.
        Wake::ChannelChanged(_) => (None, failures),
    }
}

conclave_sdk::export!(delivery: Immediate);

#[cfg(test)]
mod tests {
    use conclave_sdk::delivery::{Decision, Wake};

    use super::{attach, next, speak, wait};

    fn refused() -> Wake {
        Wake::SendFailed("busy".into())
    }

    #[test]
    fn an_ended_task_is_told_at_once_with_all_that_waits() {
        let waiting = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(next(&Wake::Ended("b".into()), waiting.clone(), 2), (Some(speak(waiting)), 0));
    }

    #[test]
    fn a_refused_speech_is_tried_three_times_and_then_kept() {
        let waiting = || vec!["a".to_owned()];
        let mut failures = 0;
        let mut decided: Vec<Option<Decision>> = Vec::new();
        for _ in 0..4 {
            let (decision, after) = next(&refused(), waiting(), failures);
            decided.push(decision);
            failures = after;
        }
        assert_eq!(decided, [Some(wait(1_000)), Some(wait(2_000)), Some(wait(4_000)), Some(attach(waiting()))]);
        assert_eq!(next(&Wake::Timer, waiting(), 1), (Some(speak(waiting())), 1));
    }

    #[test]
    fn a_channel_that_changes_is_no_reason_to_speak() {
        assert_eq!(next(&Wake::ChannelChanged("terminal".into()), vec!["a".into()], 0).0, None);
    }
}

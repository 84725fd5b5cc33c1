//! Selects the waiting results that may be delivered now, after failed deliveries. All strategies
//! share this logic.

use super::{Decision, EndedTask, Wake, move_to_inbox, wait};

/// Attempts to speak about one result; the host makes no more.
pub const MOST_ATTEMPTS: u32 = 4;
const FIRST_PAUSE_MS: u64 = 1_000;
const LONGEST_PAUSE_MS: u64 = 60_000;

/// The milliseconds to wait after this many failed deliveries: 1 s, doubled each time, at most 60
/// s. `None` if there are no more attempts.
///
/// ```
/// use conclave_sdk::delivery::backoff;
///
/// assert_eq!([1, 2, 3, 4].map(backoff), [Some(1_000), Some(2_000), Some(4_000), None]);
/// ```
pub fn backoff(attempts: u32) -> Option<u64> {
    let doubled =
        FIRST_PAUSE_MS.checked_shl(attempts.saturating_sub(1)).unwrap_or(LONGEST_PAUSE_MS);
    (attempts < MOST_ATTEMPTS).then_some(doubled.min(LONGEST_PAUSE_MS))
}

/// The results that may be delivered now, and the decisions about the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// The ids of the results that may be delivered, oldest first.
    pub now: Vec<String>,
    /// For the others: move results to the inbox without further attempts, and after a failure wait
    /// for the next attempt.
    pub rest: Vec<Decision>,
}

/// Splits the waiting results by their attempts. New results may be delivered at once. Failed ones
/// are due at their time, or when the awaited channel is idle; after [`MOST_ATTEMPTS`] they are
/// moved to the inbox. On [`Wake::SendFailed`] the rest contains a wait of [`backoff`]. On
/// [`Wake::Ended`] it contains none: the wait of the earlier failure still holds, and another would
/// postpone it.
pub fn due(wake: &Wake, waiting: &[EndedTask]) -> Due {
    let is_over = |ended: &&EndedTask| ended.attempts >= MOST_ATTEMPTS;
    let over: Vec<_> = waiting.iter().filter(is_over).map(|ended| &ended.task_id).collect();
    let is_time = matches!(wake, Wake::Timer | Wake::ChannelIdle(_));
    let is_now =
        |ended: &EndedTask| ended.attempts == 0 || (is_time && ended.attempts < MOST_ATTEMPTS);
    let now: Vec<String> =
        waiting.iter().filter(|ended| is_now(ended)).map(|ended| ended.task_id.clone()).collect();
    let mut rest = Vec::new();
    if !over.is_empty() {
        rest.push(move_to_inbox(over));
    }
    if matches!(wake, Wake::SendFailed(_)) {
        rest.extend(
            waiting
                .iter()
                .filter(|ended| ended.attempts > 0)
                .filter_map(|ended| backoff(ended.attempts))
                .min()
                .map(wait),
        );
    }
    Due { now, rest }
}

#[cfg(test)]
mod tests {
    use super::{Wake, backoff, due, move_to_inbox, wait};
    use crate::delivery::EndedTask;
    use crate::testing::ended;

    fn tried(attempts: &[(&str, u32)]) -> Vec<EndedTask> {
        attempts
            .iter()
            .map(|(id, attempts)| EndedTask { attempts: *attempts, ..ended(id) })
            .collect()
    }

    #[test]
    fn pauses_double_and_end() {
        assert_eq!(
            [0, 1, 2, 3, 4, u32::MAX].map(backoff),
            [Some(1_000), Some(1_000), Some(2_000), Some(4_000), None, None]
        );
    }

    #[test]
    fn what_failed_waits_for_its_time_and_the_rest_does_not_wait_for_it() {
        let waiting = tried(&[("a", 2), ("b", 0), ("c", 4), ("d", 3)]);
        let failed = due(&Wake::SendFailed("busy".into()), &waiting);
        assert_eq!(
            (failed.now, failed.rest),
            (vec!["b".to_owned()], vec![move_to_inbox(["c"]), wait(2_000)])
        );
        let timer = due(&Wake::Timer, &waiting);
        assert_eq!(
            (timer.now, timer.rest),
            (["a", "b", "d"].map(str::to_owned).to_vec(), vec![move_to_inbox(["c"])])
        );
        assert_eq!(due(&Wake::ChannelIdle("phone".into()), &waiting).now, ["a", "b", "d"]);
        let ended = due(&Wake::Ended("b".into()), &waiting);
        assert_eq!(
            (ended.now, ended.rest),
            (vec!["b".to_owned()], vec![move_to_inbox(["c"])]),
            "the wait for a and d holds"
        );
    }
}

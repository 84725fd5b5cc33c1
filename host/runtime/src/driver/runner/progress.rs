//! The progress of a background task's plugins, for subscribers. It is not journalled, and progress
//! without a subscriber is discarded.

use std::sync::{Arc, OnceLock};

use tokio::sync::broadcast;

/// The number of reports that a subscriber may lag behind before it misses some.
const BEHIND: usize = 64;

/// The progress of a call of a background task, as the plugin reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskProgress {
    /// The amount of completed work, in units of the plugin's own.
    pub completed: u64,
    /// The total amount of work; `None` if the plugin does not know it.
    pub total: Option<u64>,
    /// A description of the current work, for display.
    pub message: String,
}

/// The progress reports of a background task from now on.
#[derive(Debug)]
pub struct ProgressStream(broadcast::Receiver<TaskProgress>);

impl ProgressStream {
    /// Returns the next report; `None` once the task has ended. A subscriber that lags far behind
    /// misses reports.
    pub async fn next(&mut self) -> Option<TaskProgress> {
        loop {
            match self.0.recv().await {
                Ok(progress) => return Some(progress),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

/// The sender of one task's progress reports. The channel is allocated with the first subscriber.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progressing(Arc<OnceLock<broadcast::Sender<TaskProgress>>>);

impl Progressing {
    pub(crate) fn tell(&self, progress: impl FnOnce() -> TaskProgress) {
        if let Some(followers) = self.0.get() {
            // All subscribers may be gone.
            let _ = followers.send(progress());
        }
    }

    /// Subscribes to the reports from now on.
    pub(crate) fn follow(&self) -> ProgressStream {
        ProgressStream(self.0.get_or_init(|| broadcast::Sender::new(BEHIND)).subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(count: u64) -> TaskProgress {
        TaskProgress { completed: count, total: None, message: String::new() }
    }

    #[tokio::test]
    async fn followers_get_what_is_told_from_then_on_and_its_end() {
        let progressing = Progressing::default();
        progressing.tell(|| panic!("nobody follows, so nothing is made up"));
        let mut first = progressing.follow();
        progressing.tell(|| at(1));
        let mut second = progressing.follow();
        progressing.tell(|| at(2));
        drop(progressing);
        assert_eq!(
            (first.next().await, first.next().await, first.next().await),
            (Some(at(1)), Some(at(2)), None)
        );
        assert_eq!((second.next().await, second.next().await), (Some(at(2)), None));
    }

    #[tokio::test]
    async fn whoever_is_far_behind_misses_words_and_is_not_stopped() {
        let progressing = Progressing::default();
        let mut slow = progressing.follow();
        (0..1_000).for_each(|count| progressing.tell(|| at(count)));
        assert!(slow.next().await.unwrap().completed > 900);
    }
}

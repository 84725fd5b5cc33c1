//! The progress of a batch: a bar in a terminal, an occasional line elsewhere, and nothing with
//! `--quiet`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::ui::screen::{Screen, columns};
use crate::ui::show::{FAINT, paint, time};

/// The interval between two redraws of the bar.
const OFTEN: Duration = Duration::from_millis(200);
/// The interval between two lines without a terminal.
const SELDOM: Duration = Duration::from_secs(10);
/// Columns of the bar.
const BAR: usize = 24;

/// Counts the runs that have ended.
pub(crate) struct BatchCounter {
    screen: Arc<Screen>,
    start: Instant,
    total: usize,
    ended_runs: AtomicUsize,
    failed: AtomicUsize,
}

impl BatchCounter {
    pub(crate) fn begin(screen: Arc<Screen>, total: usize) -> Self {
        Self {
            screen,
            start: Instant::now(),
            total,
            ended_runs: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
        }
    }

    pub(crate) fn set(&self, ended_runs: usize, failed: usize) {
        self.ended_runs.store(ended_runs, Ordering::SeqCst);
        self.failed.store(failed, Ordering::SeqCst);
    }

    pub(crate) fn failed(&self) -> usize {
        self.failed.load(Ordering::SeqCst)
    }

    pub(crate) fn took(&self) -> Duration {
        self.start.elapsed()
    }

    /// Redraws the progress periodically, until it is dropped.
    pub(crate) async fn keep_shown(&self) {
        let is_live = self.screen.has_status();
        loop {
            if is_live {
                self.screen.status(&self.line(true));
            }
            tokio::time::sleep(if is_live { OFTEN } else { SELDOM }).await;
            // After the pause, so that a short batch prints no line of progress.
            if !is_live {
                self.screen.line(paint(FAINT, self.line(false)));
            }
        }
    }

    fn line(&self, with_bar: bool) -> String {
        let (ended_runs, failed) =
            (self.ended_runs.load(Ordering::SeqCst), self.failed.load(Ordering::SeqCst));
        line(
            Amounts { ended_runs, failed, total: self.total },
            self.start.elapsed(),
            with_bar && columns() > 3 * BAR,
        )
    }
}

/// The counts of ended runs and of all runs.
#[derive(Clone, Copy, Debug)]
struct Amounts {
    ended_runs: usize,
    failed: usize,
    total: usize,
}

fn line(amounts: Amounts, took: Duration, with_bar: bool) -> String {
    let Amounts { ended_runs, failed, total } = amounts;
    let mut parts = vec![format!("{ended_runs} of {total}")];
    if with_bar {
        let full = (ended_runs * BAR).checked_div(total).unwrap_or(BAR);
        parts[0] =
            format!("{}{} {ended_runs} of {total}", "━".repeat(full), "·".repeat(BAR - full));
    }
    if failed > 0 {
        parts.push(format!("{failed} failed"));
    }
    if ended_runs > 0 && took > Duration::ZERO {
        #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
        let rate = ended_runs as f64 / took.as_secs_f64();
        parts.push(if rate >= 1.0 {
            format!("{rate:.1} a second")
        } else {
            format!("{:.1} a minute", rate * 60.0)
        });
        #[expect(clippy::cast_precision_loss, reason = "whole seconds are shown")]
        let remaining = Duration::try_from_secs_f64((total - ended_runs.min(total)) as f64 / rate)
            .unwrap_or(Duration::MAX);
        parts.push(format!("{} left", in_words(remaining)));
    }
    parts.join(" · ")
}

/// `40 s`, `3 min`, `5 h`.
fn in_words(duration: Duration) -> String {
    match duration.as_secs() {
        0..1 => time(Duration::from_millis(u64::from(duration.subsec_millis()) / 100 * 100)),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_line_shows_count_rate_and_time_left() {
        let amounts = |ended_runs, failed| Amounts { ended_runs, failed, total: 1_000 };
        assert_eq!(line(amounts(0, 0), Duration::from_secs(3), false), "0 of 1000");
        assert_eq!(
            line(amounts(250, 2), Duration::from_secs(50), false),
            "250 of 1000 · 2 failed · 5.0 a second · 150 s left".replace("150 s", "2 min")
        );
        assert_eq!(
            line(amounts(5, 0), Duration::from_secs(600), false),
            "5 of 1000 · 0.5 a minute · 33 h left"
        );
        assert!(
            line(amounts(500, 0), Duration::from_secs(5), true)
                .starts_with("━━━━━━━━━━━━············ 500 of 1000")
        );
        assert_eq!(
            line(Amounts { ended_runs: 0, failed: 0, total: 0 }, Duration::ZERO, true)
                .chars()
                .count(),
            BAR + 7
        );
    }
}

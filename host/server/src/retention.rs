//! Retention while a server runs: the ended runs of a config go when its `[server.keep]` keeps
//! them no longer. The store decides which have ended; it never removes one that is open.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use conclave_core::config::{RunRetention, ServerConfig};
use conclave_core::policy::daily_budget::Day;
use conclave_core::types::ids::{Millis, RoomId};
use conclave_runtime::store::{Collected, Retention, StoreError};
use tokio::time::{sleep, timeout};

use crate::http::{Server, now};

/// The interval between two looks.
const INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Runs that are removed at once: running rooms wait with their commits meanwhile.
const AT_ONCE: usize = 25;
/// The time for those commits between two removals.
const PAUSE: Duration = Duration::from_millis(100);
/// Milliseconds of a day.
const DAY: u64 = 24 * 60 * 60 * 1_000;

/// Removes the old runs of a config at the start, when it is read again, and each hour.
pub(crate) async fn retain(server: Server) -> Infallible {
    let mut changes = server.conversations().current().changes();
    let mut reported = BTreeSet::new();
    loop {
        changes.mark_unchanged();
        if let Err(error) = server.remove_old_runs(&mut reported).await {
            server.conversations().operator().runs_not_removed(&error);
        }
        // The sender lives as long as the server.
        let _ = timeout(INTERVAL, changes.changed()).await;
    }
}

impl Server {
    /// Removes all runs that are not kept. `reported` are the runs with changes in overlays that
    /// the operator knows.
    async fn remove_old_runs(&self, reported: &mut BTreeSet<RoomId>) -> Result<(), StoreError> {
        let conversations = self.conversations();
        let (mut removed, mut with_changes) = (Vec::new(), Vec::new());
        let result = loop {
            let server = conversations.current().server();
            let Some(keep) = server.keep.map(|keep| retention(keep, &server, now())) else {
                break Ok(());
            };
            let keep = Retention { config: Some(conversations.config().to_owned()), ..keep };
            let store = conversations.open_store().clone();
            let collecting = conclave_runtime::blocking::spawn(move || store.collect(&keep));
            let collected: Collected = match collecting.await {
                Ok(Ok(collected)) => collected,
                Ok(Err(error)) => break Err(error),
                // The process ends.
                Err(_) => break Ok(()),
            };
            conversations.forget(&collected.runs);
            let is_full = collected.runs.len() >= AT_ONCE;
            removed.extend(collected.runs);
            with_changes = collected.remaining_runs;
            if !is_full {
                break Ok(());
            }
            sleep(PAUSE).await;
        };
        with_changes.retain(|run| reported.insert(run.clone()));
        if !removed.is_empty() || !with_changes.is_empty() {
            Arc::clone(conversations.operator()).runs_removed(&removed, &with_changes);
        }
        result
    }
}

/// The runs that stay in the store.
fn retention(keep: RunRetention, server: &ServerConfig, now: Millis) -> Retention {
    let days = keep.days.map(|days| Millis(now.0.saturating_sub(days.saturating_mul(DAY))));
    // What was spent today is known from today's runs.
    let today = server.daily_budget.has_limits().then(|| Day::of(now).from);
    let before = [days, today].into_iter().flatten().min();
    let runs = keep.runs.map(|runs| usize::try_from(runs).unwrap_or(usize::MAX));
    Retention { before, runs, most: Some(AT_ONCE), ..Retention::default() }
}

#[cfg(test)]
mod tests {
    use conclave_core::policy::daily_budget::{DailyBudget, DailyBudgets};

    use super::*;

    #[test]
    fn days_and_runs_are_those_of_the_config_and_todays_runs_stay_where_budgets_count_them() {
        let now = Millis(100 * DAY + 7);
        let plain = ServerConfig::default();
        let of = |days, runs, server: &ServerConfig| {
            let keep = retention(RunRetention { days, runs }, server, now);
            (keep.before.map(|at| at.0), keep.runs)
        };
        assert_eq!(of(Some(30), None, &plain), (Some(70 * DAY + 7), None));
        assert_eq!(of(None, Some(5), &plain), (None, Some(5)));
        assert_eq!(of(Some(1_000), Some(5), &plain), (Some(0), Some(5)));
        let each = DailyBudget { tokens: Some(1), cost_micro_usd: None };
        let daily_budget = DailyBudgets { each, ..DailyBudgets::default() };
        let budgets = ServerConfig { daily_budget, ..ServerConfig::default() };
        assert_eq!(of(None, Some(5), &budgets), (Some(100 * DAY), Some(5)));
        assert_eq!(of(Some(30), None, &budgets), (Some(70 * DAY + 7), None));
    }
}

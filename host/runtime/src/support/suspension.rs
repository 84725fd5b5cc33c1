//! Decides when a waiting call releases its instance: by the length of the wait, and by demand for
//! its permits. The call's state decides whether a replay is possible.

use std::sync::Arc;
use std::time::Duration;

use super::admission::CallPermits;
use crate::support::clock::MonotonicClock;

/// Minimum wait that justifies a replay, even if another call wants the permit.
const GRACE: Duration = Duration::from_millis(1);

/// The suspension policy of an engine's calls.
#[derive(Clone, Debug)]
pub(crate) struct Suspension {
    pub(crate) after: Duration,
    pub(crate) slots: CallPermits,
    /// The permits of the plugin itself.
    pub(crate) at_once: Option<CallPermits>,
    pub(crate) clock: Arc<dyn MonotonicClock>,
}

impl Suspension {
    /// Completes when a waiting call should release its permits.
    pub(crate) async fn due(self) {
        let Self { after, slots, at_once, clock } = self;
        let demand = async {
            match at_once {
                Some(at_once) => {
                    tokio::select! {
                        () = slots.wait_for_demand() => {}
                        () = at_once.wait_for_demand() => {}
                    }
                }
                None => slots.wait_for_demand().await,
            }
            clock.sleep(GRACE).await;
        };
        tokio::select! {
            () = demand => {}
            () = clock.sleep(after) => {}
        }
    }
}

/// Ends the attempt of a waiting call; it is replayed when the answer is there.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the call waits, and has given its instance back")]
pub(crate) struct Parked;

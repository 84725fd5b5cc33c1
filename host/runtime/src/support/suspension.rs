//! When a call that waits gives its instance back: how long it may wait, and who wants its place.
//! Whether it may be run again is asked of its state.

use std::sync::Arc;
use std::time::Duration;

use super::admission::CallPermits;
use crate::support::clock::MonotonicClock;

/// A wait that ends within this is not worth another start, whoever waits for the place.
const GRACE: Duration = Duration::from_millis(1);

/// How the calls of an engine are parked.
#[derive(Clone, Debug)]
pub(crate) struct Suspension {
    pub(crate) after: Duration,
    pub(crate) slots: CallPermits,
    /// The plugin's own places.
    pub(crate) at_once: Option<CallPermits>,
    pub(crate) clock: Arc<dyn MonotonicClock>,
}

impl Suspension {
    /// Returns when a call that waits should give its place back.
    pub(crate) async fn due(self) {
        let Self { after, slots, at_once, clock } = self;
        let wanted = async {
            match at_once {
                Some(at_once) => {
                    tokio::select! {
                        () = slots.wanted() => {}
                        () = at_once.wanted() => {}
                    }
                }
                None => slots.wanted().await,
            }
            clock.sleep(GRACE).await;
        };
        tokio::select! {
            () = wanted => {}
            () = clock.sleep(after) => {}
        }
    }
}

/// Ends an attempt whose call waits; it is run again when the answer is there.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the call waits, and has given its instance back")]
pub(crate) struct Parked;

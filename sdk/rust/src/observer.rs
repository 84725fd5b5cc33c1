//! An observer: it receives the events of a run after they are durable, and decides nothing. The
//! operator's config names it and selects its events.
//!
//! Each event arrives at least once, and those of one room in order. An error makes the host call
//! again with the same events, so a receiver that acts on them recognises repetitions by
//! [`key`].

use crate::Result;
use crate::bindings::observer::exports::conclave::plugin::observer as contract;

pub use contract::ObservedEvent;

/// The trait of an observer; `export!(observer: X)` exports it.
///
/// ```
/// use conclave_sdk::observer::{ObservedEvent, Observer};
/// use conclave_sdk::{Result, log};
///
/// /// Logs the tasks that end.
/// struct Diary;
///
/// impl Observer for Diary {
///     fn observe(events: &[ObservedEvent]) -> Result<()> {
///         for event in events.iter().filter(|event| event.kind == "task-ended") {
///             log::info!("{} ended", event.task.as_deref().unwrap_or("a task"));
///         }
///         Ok(())
///     }
/// }
/// # conclave_sdk::export!(observer: Diary, asks: []);
/// # assert!(true);
/// ```
pub trait Observer {
    /// Takes events: at least one, and all of one room, in order. After [`Error::Unavailable`] the
    /// host calls again no sooner than the error asks for, after [`Error::Denied`] no more in this
    /// run, and after any other error after a pause of its own.
    ///
    /// [`Error::Unavailable`]: crate::Error::Unavailable
    /// [`Error::Denied`]: crate::Error::Denied
    fn observe(events: &[ObservedEvent]) -> Result<()>;
}

/// The idempotency key of an event, such as `3f2a91c0:17.0`: the same each time that the event
/// arrives, and another for every other event.
#[must_use]
pub fn key(event: &ObservedEvent) -> String {
    format!("{}:{}.{}", event.room, event.seq, event.index)
}

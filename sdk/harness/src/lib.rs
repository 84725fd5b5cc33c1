//! The test kit for delivery strategies. It plays a script of times, channels and failures to a
//! strategy, in a room of the host's core, and reports the guarantees that the strategy breaks. It
//! needs no waiting, since the clock is the script's. `conclave plugin test` plays the scripts of
//! cases to a component with [`play()`]; a test in Rust plays one to a function with [`Harness`].
//!
//! ```
//! use conclave_harness::{Guarantee, Harness};
//! use conclave_sdk::Result;
//! use conclave_sdk::delivery::{Activity, ChannelKind, Context, Decision, Wake, deliver};
//!
//! /// Says everything at once, and never thinks of who is speaking.
//! fn rude(_wake: Wake, context: &Context) -> Result<Vec<Decision>> {
//!     Ok(vec![deliver(context.pending_results().into_iter().map(|ended| ended.task_id))])
//! }
//!
//! let report = Harness::new(rude)
//!     .channel("phone", ChannelKind::Voice)
//!     .at(0).activity("phone", Activity::UserSpeaking)
//!     .at(500).completes("task-1", "48 metres")
//!     .run();
//! let broken = report.check().unwrap_err();
//! assert!(broken.is(Guarantee::NeverOverAUser), "{broken}");
//! ```
//!
//! The script is played four times. The first two plays are unchanged, and must have the same
//! result. In the third everything of one moment happens while the strategy decides, so that the
//! room joins the wakes. In the fourth the host stops once in each wake, and the strategy is asked
//! again a second later. All guarantees must hold in every play.

#[cfg(feature = "native")]
mod harness;
#[cfg(feature = "native")]
mod native;
mod play;
mod report;
mod room;
mod script;

#[cfg(feature = "native")]
pub use harness::Harness;
pub use play::{Answer, Decide, Question, play};
pub use report::{AcceptedMessage, Breach, Broken, Guarantee, InboxEntry, Report, WakeRecord};
pub use script::Script;

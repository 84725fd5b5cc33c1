//! Secrets that a plugin uses and never sees: placeholders, where one may stand in a request and
//! towards which host, how a value is written there, and how echoes of it are found in what comes
//! back. Pure: whoever performs reads the values and hands them in.

mod ask;
mod encode;
mod placeholder;
mod request;
mod scrub;
mod views;

pub(crate) use ask::complete;
pub use ask::{AskError, NamedAsk, named_asks};
pub use placeholder::{Placeholders, Seed};
pub use request::{RequestParts, SecretPlan, Use, check, is_same_origin};
pub use scrub::{Scrubber, SecretValue, ValueError, mask};

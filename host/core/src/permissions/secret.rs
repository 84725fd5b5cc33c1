//! Secrets that a plugin uses without reading them: placeholders, the parts of a request and the
//! hosts they are valid for, encodings, and the removal of values from responses. Pure: the host
//! reads the values and passes them in.

mod encode;
mod placeholder;
mod request;
mod scrub;
mod views;

pub use placeholder::{Placeholders, Seed};
pub use request::{RequestParts, SecretPlan, Use, check, is_same_origin};
pub use scrub::{Scrubber, SecretValue, ValueError, mask};

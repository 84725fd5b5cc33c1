//! The Messages API: the form of its requests and replies. Does no I/O.

mod request;
mod wire;

use reqwest::header::HeaderName;

pub(crate) use self::request::MessagesBody;
pub(crate) use self::wire::EventReader;

/// The header of the key.
pub(crate) const KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The header of the API's version.
pub(crate) const VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// The version whose requests and replies these are.
pub(crate) const VERSION_SENT: &str = "2023-06-01";

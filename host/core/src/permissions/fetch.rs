//! The parts of HTTP requests that a grant is about: URL patterns, headers, network addresses and
//! redirects. Pure: nothing here resolves a name or sends a request. Decisions are about a parsed
//! [`url::Url`], and exactly that URL is sent. Whether a plugin may send it, `grants/fetch.rs`
//! decides.

mod address;
mod pattern;
mod redirect;
mod request;
mod target;

pub use address::{AddressKind, check_address, is_inside};
pub(crate) use pattern::covers_canonical;
pub use pattern::{HostPattern, UrlPattern, UrlPatternError};
pub use redirect::{Hop, NoRedirect, next_hop};
pub use request::{UnexpectedBody, check_body, is_header_name, is_own_header, is_usual_header};
pub use target::{TargetError, target};

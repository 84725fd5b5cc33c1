//! Decisions about HTTP requests: URL patterns, headers, network addresses and redirects. Pure:
//! nothing here resolves a name or sends a request. Decisions are about a parsed [`url::Url`], and
//! exactly that URL is sent.

mod address;
mod decision;
mod pattern;
mod redirect;
mod request;
mod target;

pub use address::AddressKind;
pub use decision::is_inside;
pub use pattern::{HostPattern, UrlPattern, UrlPatternError};
pub use redirect::{Hop, NoRedirect, next_hop};
pub use request::{UnexpectedBody, check_body, is_header_name, is_own_header, is_usual_header};
pub use target::{TargetError, target};

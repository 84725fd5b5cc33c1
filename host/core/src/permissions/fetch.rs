//! Decisions about HTTP requests, pure: which addresses of the web a pattern covers, which headers
//! may go, which addresses of the network are refused, where a redirect may lead. Nothing here
//! looks up a name or sends anything. What is decided on is a parsed [`url::Url`], and that is what
//! is sent.

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

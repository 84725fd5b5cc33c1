//! Decisions about HTTP requests, pure: which addresses of the web a pattern covers, which addresses of the network are refused, where a
//! redirect may lead. Nothing here looks up a name or sends anything. What is decided on is a parsed [`url::Url`], and that is what is sent.

mod address;
mod decision;
mod pattern;
mod redirect;
mod target;

pub use address::AddressKind;
pub use decision::is_inside;
pub use pattern::{HostPattern, PatternError, UrlPattern};
pub use redirect::{Hop, NoRedirect, next_hop};
pub use target::{TargetError, target};

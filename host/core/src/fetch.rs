//! Decisions about HTTP requests, pure: which addresses of the web a pattern covers, which addresses of the network are refused, where a
//! redirect may lead. Nothing here looks up a name or sends anything.

mod pattern;

pub use pattern::{HostPattern, PatternError, UrlPattern};

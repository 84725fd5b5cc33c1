//! Name resolution. A name is resolved once per request; the addresses are checked, and only they
//! are connected to.

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;

use crate::support::clock::BoxFuture;

/// Resolves names.
pub(crate) trait Resolve: Debug + Send + Sync + 'static {
    /// Returns all current addresses of a name.
    fn resolve(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct System;

impl Resolve for System {
    fn resolve(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
        })
    }
}

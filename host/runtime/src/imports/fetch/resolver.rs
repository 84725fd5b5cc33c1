//! Names into addresses of the network. Asked once for each request; what it says is checked, and
//! nothing else is connected to.

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;

use crate::support::clock::BoxFuture;

/// Who looks names up.
pub(crate) trait Resolve: Debug + Send + Sync + 'static {
    /// All addresses that a name stands for now.
    fn resolve(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The machine's own way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct System;

impl Resolve for System {
    fn resolve(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
        })
    }
}

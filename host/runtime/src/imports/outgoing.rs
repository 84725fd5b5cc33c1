//! State shared by the requests of all calls of a plugin: the number in progress, and the resolver.

mod hold;
pub(crate) mod resolver;

use std::net::IpAddr;
use std::sync::Arc;

use conclave_core::permissions::grants::{Grants, Rights};
use conclave_core::types::denial::DenialRecord;
use tokio::sync::{Semaphore, SemaphorePermit};
use url::{Host, Url};

pub(crate) use hold::{Hold, Holding};
use resolver::{Resolve, System};

/// The outgoing requests of a plugin.
#[derive(Debug)]
pub(crate) struct FetchClient {
    at_once: Semaphore,
    pub(crate) resolver: Arc<dyn Resolve>,
}

impl FetchClient {
    pub(crate) fn new(grants: &Grants) -> Self {
        Self::resolving(grants, Arc::new(System))
    }

    /// Returns a client with its own resolver.
    pub(crate) fn resolving(grants: &Grants, resolver: Arc<dyn Resolve>) -> Self {
        let at_once = grants.fetch.as_ref().map_or(0, |grant| grant.at_once);
        let at_once =
            usize::try_from(at_once).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self { at_once: Semaphore::new(at_once), resolver }
    }

    /// Waits for a permit.
    pub(crate) async fn turn(&self) -> SemaphorePermit<'_> {
        self.at_once.acquire().await.expect("the semaphore is never closed")
    }
}

/// Why a request has no address to connect to.
pub(crate) enum Unreached {
    NoAddress,
    Refused(Box<DenialRecord>),
}

/// Resolves the host of a URL once, and returns its addresses if the grant allows all of them.
pub(crate) async fn checked_addresses(
    resolver: &dyn Resolve,
    rights: &Rights<'_>,
    url: &Url,
) -> Result<Vec<IpAddr>, Unreached> {
    let addresses = match url.host() {
        Some(Host::Ipv4(address)) => vec![address.into()],
        Some(Host::Ipv6(address)) => vec![address.into()],
        Some(Host::Domain(name)) => {
            resolver.resolve(name.to_owned()).await.map_err(|_| Unreached::NoAddress)?
        }
        None => Vec::new(),
    };
    if addresses.is_empty() {
        return Err(Unreached::NoAddress);
    }
    // One forbidden address rejects them all, because an attacker may mix it with allowed ones.
    let mut all = addresses.iter();
    all.try_for_each(|address| rights.may_connect(url, *address)).map_err(Unreached::Refused)?;
    Ok(addresses)
}

//! One request over one connection to addresses that were decided on. No proxy, no redirect, no cookie, no second attempt; the answer is
//! decompressed while it comes and cut off where it grows too long. Errors have no words of the library in them: those hold addresses.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use conclave_core::secret::Parts;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Request, Response};

use crate::models::openai::shared_tls;

/// Headers of one answer.
const HEADERS: usize = 100;

/// An answer as it came, decompressed.
pub(super) struct Raw {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) address: Option<SocketAddr>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Headers and body together are longer than they may be.
    TooLong,
    /// In words for people.
    NotSent(&'static str),
    NoAnswer(&'static str),
}

/// Sends a request to one of these addresses. `limit` is for the bytes of the answer's headers and its decompressed body together.
pub(super) async fn send(parts: Parts, addresses: &[IpAddr], limit: u64) -> Result<Raw, Trouble> {
    let client = client(&parts, addresses)?;
    let response = client.execute(request(parts)?).await.map_err(|error| trouble(&error))?;
    let address = response.remote_addr();
    // The library was told where to connect; should it ever know better, nobody reads what came of it.
    if !address.is_some_and(|address| addresses.contains(&address.ip())) {
        return Err(Trouble::NoAnswer("the connection went elsewhere than it should"));
    }
    read(response, address, limit).await
}

/// Made for one request: it keeps no connection that another request could use under other rules.
fn client(parts: &Parts, addresses: &[IpAddr]) -> Result<Client, Trouble> {
    let is_secure = parts.url.scheme() == "https";
    let tls = shared_tls(is_secure).map_err(|_| Trouble::NotSent("this machine has no certificates to check a secure connection with"))?;
    let addresses: Vec<SocketAddr> = addresses.iter().map(|address| SocketAddr::new(*address, 0)).collect();
    Client::builder()
        .user_agent(concat!("conclave/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .http1_only()
        .http1_max_headers(HEADERS)
        .pool_max_idle_per_host(0)
        .tls_backend_preconfigured(tls)
        .dns_resolver(Arc::new(Pinned(addresses)))
        .build()
        .map_err(|_| Trouble::NotSent("no client could be made"))
}

/// Knows no other addresses than those that were looked at, whatever it is asked for.
struct Pinned(Vec<SocketAddr>);

impl Resolve for Pinned {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

fn request(parts: Parts) -> Result<Request, Trouble> {
    let method = Method::from_bytes(parts.method.as_bytes()).map_err(|_| Trouble::NotSent("its method cannot be sent"))?;
    let mut request = Request::new(method, parts.url);
    let mut headers = HeaderMap::new();
    for (name, value) in parts.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Trouble::NotSent("a header cannot be sent"))?;
        let mut value = HeaderValue::from_str(&value).map_err(|_| Trouble::NotSent("a header cannot be sent"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    *request.headers_mut() = headers;
    *request.body_mut() = parts.body.map(Into::into);
    Ok(request)
}

async fn read(mut response: Response, address: Option<SocketAddr>, limit: u64) -> Result<Raw, Trouble> {
    let text = |value: &HeaderValue| value.as_bytes().iter().map(|byte| char::from(*byte)).collect::<String>();
    let headers: Vec<_> = response.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    let length: u64 = headers.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum();
    let mut left = limit.checked_sub(length).ok_or(Trouble::TooLong)?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| trouble(&error))? {
        left = left.checked_sub(chunk.len() as u64).ok_or(Trouble::TooLong)?;
        body.extend_from_slice(&chunk);
    }
    Ok(Raw { status: response.status().as_u16(), headers, body, address })
}

fn trouble(error: &reqwest::Error) -> Trouble {
    if error.is_builder() {
        Trouble::NotSent("it could not be put together")
    } else if error.is_connect() {
        Trouble::NoAnswer("no connection could be made, or none that is secure")
    } else if error.is_decode() {
        Trouble::NoAnswer("the answer cannot be decompressed")
    } else {
        Trouble::NoAnswer("the connection ended before the answer did")
    }
}

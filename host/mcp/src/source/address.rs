//! The transport to a running server over HTTP, at the operator's address. No redirects, proxies of
//! the environment or cookies are used.

use std::time::Duration;

use conclave_runtime::models::http::platform_tls;
use reqwest::redirect::Policy;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use super::backlog::Backlog;
use super::bounded_client::BoundedClient;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the transport. `key` is sent as a bearer token; a message may have `message_max` bytes.
pub(super) fn transport(
    url: &str,
    key: Option<&str>,
    message_max: usize,
    backlog: Backlog,
) -> Result<StreamableHttpClientTransport<BoundedClient>, String> {
    let tls = platform_tls().map_err(|error| error.to_string())?;
    let client = reqwest::Client::builder()
        .user_agent(concat!("conclave/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .tls_backend_preconfigured(tls)
        .build()
        .map_err(|error| error.without_url().to_string())?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_sse_event_size(message_max)
        .reinit_on_expired_session(false);
    if let Some(key) = key {
        config = config.auth_header(key);
    }
    Ok(StreamableHttpClientTransport::with_client(BoundedClient::new(client, backlog), config))
}

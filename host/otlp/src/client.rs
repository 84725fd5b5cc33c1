//! The HTTP client of an export: the workspace's own, whose requests are driven by the runtime of
//! the program, since the exporter's threads have none.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use conclave_models::http::platform_tls;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;

use crate::Report;

/// Bytes of an answer. A collector answers with a few.
const ANSWER: usize = 64 << 10;

/// Sends requests of one kind, and reports when they begin to fail.
pub(crate) struct Client {
    /// What it sends, for the report.
    what: &'static str,
    http: reqwest::Client,
    runtime: Handle,
    report: Report,
    has_failed: AtomicBool,
}

impl Client {
    /// A client for requests that take at most this long.
    pub(crate) fn new(
        what: &'static str,
        report: Report,
        within: Duration,
    ) -> Result<Self, String> {
        let tls = platform_tls().map_err(|error| error.to_string())?;
        let http = reqwest::Client::builder()
            .user_agent(concat!("conclave/", env!("CARGO_PKG_VERSION")))
            .timeout(within)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tls_backend_preconfigured(tls)
            .build()
            .map_err(|error| error.to_string())?;
        let (runtime, has_failed) = (Handle::current(), AtomicBool::new(false));
        Ok(Self { what, http, runtime, report, has_failed })
    }

    /// Reports the first of several failures in a row.
    fn note(&self, failure: Option<&str>) {
        let had_failed = self.has_failed.swap(failure.is_some(), Ordering::Relaxed);
        if let Some(why) = failure.filter(|_| !had_failed) {
            (self.report)(self.what, why);
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Client").finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sending = self.runtime.spawn(send(self.http.clone(), request));
        let sent = match sending.await {
            Ok(sent) => sent,
            Err(ended) => Err(ended.into()),
        };
        match &sent {
            Ok(response) if response.status().is_success() => self.note(None),
            Ok(response) => {
                self.note(Some(&format!("the collector answered {}", response.status())))
            }
            Err(error) => self.note(Some(&with_causes(&**error))),
        }
        sent
    }
}

async fn send(
    client: reqwest::Client,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let request = reqwest::Request::try_from(request)?;
    let mut answer = client.execute(request).await.map_err(reqwest::Error::without_url)?;
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
        if body.len() + chunk.len() > ANSWER {
            return Err(format!("the answer is longer than {ANSWER} bytes").into());
        }
        body.extend_from_slice(&chunk);
    }
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    Ok(response)
}

/// An error with its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

//! The `fetch` import: HTTP requests under a grant. Requests and responses are converted here;
//! `crate::imports::fetch` checks and sends them.

use wasmtime::component::Resource;

use crate::imports::bindings::plugin::fetch::{self, FetchError, Header};
use crate::imports::resources::Response;

/// The response to a request; the outer error traps.
type Sent = wasmtime::Result<Result<Resource<Response>, FetchError>>;

import_view! {
    /// The `fetch` import of a call.
    FetchImport {
        #[cfg(feature = "fetch")]
        holding: crate::imports::outgoing::Holding,
    }
}

#[cfg(feature = "fetch")]
mod sending {
    use std::time::Instant;

    use conclave_core::permissions::fetch::{TargetError, target};
    use conclave_core::permissions::secret::RequestParts;

    use super::{FetchImport, Response, Sent};
    use crate::imports::bindings::plugin::fetch::{self, FetchError};
    use crate::imports::fetch::{
        ExchangeFailure, FetchExchange, ScrubbedResponse, check_method, checked_headers,
    };

    impl FetchImport<'_> {
        /// Sends a guest's request and follows redirects.
        pub(super) async fn fetch(&mut self, request: fetch::Request) -> Sent {
            self.core.enter()?;
            let timeout = request.timeout_ms.map(u64::from);
            let parts = match read(request) {
                Ok(parts) => parts,
                Err(problem) => return Ok(Err(FetchError::InvalidRequest(problem))),
            };
            let began = Instant::now();
            let mut exchange = FetchExchange::new(self.core, self.holding);
            let outcome = exchange.run(parts, timeout, true).await;
            self.core.effects = exchange.next_ordinal();
            self.core.note_wait_since(began);
            Ok(match outcome {
                Ok(ScrubbedResponse { status, headers, url, body, hold }) => Ok(self
                    .core
                    .table
                    .push(Response { status, headers, url, body, _hold: Some(hold) })?),
                Err(failure) => Err(self.fetch_error(failure)),
            })
        }

        /// Records a refusal, and returns the guest's part of it.
        fn fetch_error(&mut self, failure: ExchangeFailure) -> FetchError {
            match failure {
                ExchangeFailure::Invalid(problem) => FetchError::InvalidRequest(problem),
                ExchangeFailure::Refused(record) => FetchError::Denied(self.core.refuse(*record)),
                ExchangeFailure::Denied(denial) => {
                    FetchError::Denied(crate::imports::convert::denial_out(&denial))
                }
                ExchangeFailure::Limit(record, limit) => {
                    self.core.refuse(*record);
                    FetchError::LimitExceeded(limit)
                }
                ExchangeFailure::TimedOut(record) => {
                    self.core.refuse(*record);
                    FetchError::TimedOut
                }
                ExchangeFailure::Unavailable(_) => FetchError::Unavailable(None),
                ExchangeFailure::Other(what) => FetchError::Other(what.into_owned()),
            }
        }
    }

    fn read(request: fetch::Request) -> Result<RequestParts, String> {
        check_method(&request.method)?;
        let url = target(&request.url).map_err(|error: TargetError| error.to_string())?;
        let headers =
            checked_headers(request.headers.into_iter().map(|header| (header.name, header.value)))?;
        Ok(RequestParts { method: request.method, url, headers, body: request.body })
    }
}

impl fetch::Host for FetchImport<'_> {
    #[cfg(feature = "fetch")]
    async fn send(&mut self, request: fetch::Request) -> Sent {
        self.fetch(request).await
    }

    #[cfg(not(feature = "fetch"))]
    async fn send(&mut self, request: fetch::Request) -> Sent {
        self.core.enter()?;
        let record = self.core.rights().refuse(
            conclave_core::types::capability::Capability::Fetch,
            &request.url,
            conclave_core::types::denial::Layer::Host,
            "this build of the host cannot do it",
            None,
        );
        Ok(Err(FetchError::Denied(self.core.refuse(*record))))
    }
}

impl FetchImport<'_> {
    /// Counts a host call, and returns a response that the guest holds.
    fn response(&mut self, response: &Resource<Response>) -> wasmtime::Result<&Response> {
        self.core.enter()?;
        Ok(self.core.table.get(response)?)
    }
}

impl fetch::HostResponse for FetchImport<'_> {
    fn status(&mut self, response: Resource<Response>) -> wasmtime::Result<u16> {
        Ok(self.response(&response)?.status)
    }

    fn headers(&mut self, response: Resource<Response>) -> wasmtime::Result<Vec<Header>> {
        let headers = &self.response(&response)?.headers;
        Ok(headers
            .iter()
            .map(|(name, value)| Header { name: name.clone(), value: value.clone() })
            .collect())
    }

    fn url(&mut self, response: Resource<Response>) -> wasmtime::Result<String> {
        Ok(self.response(&response)?.url.clone())
    }

    fn length(&mut self, response: Resource<Response>) -> wasmtime::Result<u64> {
        Ok(self.response(&response)?.body.len() as u64)
    }

    fn read(
        &mut self,
        response: Resource<Response>,
        offset: u64,
        length: u32,
    ) -> wasmtime::Result<Vec<u8>> {
        let body = &self.response(&response)?.body;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(body.len());
        let to = from.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(body.len());
        Ok(body[from..to].to_vec())
    }

    fn drop(&mut self, response: Resource<Response>) -> wasmtime::Result<()> {
        self.core.table.delete(response)?;
        Ok(())
    }
}

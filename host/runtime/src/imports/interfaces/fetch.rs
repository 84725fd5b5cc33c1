//! The `fetch` import: HTTP requests under a grant. Requests and responses are converted here;
//! `crate::imports::fetch` checks and sends them.

use wasmtime::component::Resource;

use crate::imports::bindings::conclave::plugin::fetch::{self, FetchError, Header};
use crate::imports::call::CallState;

/// A response that the guest holds.
#[expect(unreachable_pub, reason = "the bindings export it again")]
#[derive(Default)]
pub struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    url: String,
    body: Vec<u8>,
    #[cfg(feature = "fetch")]
    _hold: Option<crate::imports::fetch::Hold>,
}

#[cfg(feature = "fetch")]
mod sending {
    use std::time::Instant;

    use conclave_core::permissions::fetch::{TargetError, target};
    use conclave_core::permissions::secret::RequestParts;
    use wasmtime::component::Resource;

    use super::Response;
    use crate::imports::bindings::conclave::plugin::fetch::{self, FetchError};
    use crate::imports::call::CallState;
    use crate::imports::fetch::{
        ExchangeFailure, FetchExchange, ScrubbedResponse, check_method, checked_headers,
    };

    impl CallState {
        /// Sends a guest's request and follows redirects.
        pub(super) async fn fetch(
            &mut self,
            request: fetch::Request,
        ) -> wasmtime::Result<Result<Resource<Response>, FetchError>> {
            self.enter()?;
            let timeout = request.timeout_ms.map(u64::from);
            let parts = match read(request) {
                Ok(parts) => parts,
                Err(problem) => return Ok(Err(FetchError::InvalidRequest(problem))),
            };
            let began = Instant::now();
            let mut exchange = FetchExchange::new(self);
            let outcome = exchange.run(parts, timeout, true).await;
            self.effects = exchange.next_ordinal();
            self.note_wait_since(began);
            Ok(match outcome {
                Ok(ScrubbedResponse { status, headers, url, body, hold }) => Ok(self
                    .table
                    .push(Response { status, headers, url, body, _hold: Some(hold) })?),
                Err(failure) => Err(self.fetch_error(failure)),
            })
        }

        /// Records a refusal, and returns the guest's part of it.
        fn fetch_error(&mut self, failure: ExchangeFailure) -> FetchError {
            match failure {
                ExchangeFailure::Invalid(problem) => FetchError::InvalidRequest(problem),
                ExchangeFailure::Refused(record) => FetchError::Denied(self.refuse(*record)),
                ExchangeFailure::Denied(denial) => {
                    FetchError::Denied(crate::imports::convert::denial_out(&denial))
                }
                ExchangeFailure::Limit(record, limit) => {
                    self.refuse(*record);
                    FetchError::LimitExceeded(limit)
                }
                ExchangeFailure::TimedOut(record) => {
                    self.refuse(*record);
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

impl fetch::Host for CallState {
    #[cfg(feature = "fetch")]
    async fn send(
        &mut self,
        request: fetch::Request,
    ) -> wasmtime::Result<Result<Resource<Response>, FetchError>> {
        self.fetch(request).await
    }

    #[cfg(not(feature = "fetch"))]
    async fn send(
        &mut self,
        request: fetch::Request,
    ) -> wasmtime::Result<Result<Resource<Response>, FetchError>> {
        let denial =
            self.refuse_unbuilt(conclave_core::types::capability::Capability::Fetch, &request.url)?;
        Ok(Err(FetchError::Denied(denial)))
    }
}

impl fetch::HostResponse for CallState {
    fn status(&mut self, response: Resource<Response>) -> wasmtime::Result<u16> {
        self.enter()?;
        Ok(self.table.get(&response)?.status)
    }

    fn headers(&mut self, response: Resource<Response>) -> wasmtime::Result<Vec<Header>> {
        self.enter()?;
        let headers = &self.table.get(&response)?.headers;
        Ok(headers
            .iter()
            .map(|(name, value)| Header { name: name.clone(), value: value.clone() })
            .collect())
    }

    fn url(&mut self, response: Resource<Response>) -> wasmtime::Result<String> {
        self.enter()?;
        Ok(self.table.get(&response)?.url.clone())
    }

    fn length(&mut self, response: Resource<Response>) -> wasmtime::Result<u64> {
        self.enter()?;
        Ok(self.table.get(&response)?.body.len() as u64)
    }

    fn read(
        &mut self,
        response: Resource<Response>,
        offset: u64,
        length: u32,
    ) -> wasmtime::Result<Vec<u8>> {
        self.enter()?;
        let body = &self.table.get(&response)?.body;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(body.len());
        let to = from.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(body.len());
        Ok(body[from..to].to_vec())
    }

    fn drop(&mut self, response: Resource<Response>) -> wasmtime::Result<()> {
        self.table.delete(response)?;
        Ok(())
    }
}

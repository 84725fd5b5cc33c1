//! `fetch`: HTTP requests to what the operator granted.

use conclave_core::manifest::Capability;
use wasmtime::component::Resource;

use crate::bindings::conclave::plugin::fetch::{self, FetchError, Header};
use crate::sandbox::CallState;

/// An answer that the guest holds.
pub struct Response;

impl fetch::Host for CallState {
    async fn send(&mut self, request: fetch::Request) -> wasmtime::Result<Result<Resource<Response>, FetchError>> {
        let denial = self.not_yet(Capability::Fetch, &request.url)?;
        Ok(Err(FetchError::Denied(denial)))
    }
}

impl fetch::HostResponse for CallState {
    fn status(&mut self, _: Resource<Response>) -> wasmtime::Result<u16> {
        Ok(0)
    }

    fn headers(&mut self, _: Resource<Response>) -> wasmtime::Result<Vec<Header>> {
        Ok(Vec::new())
    }

    fn url(&mut self, _: Resource<Response>) -> wasmtime::Result<String> {
        Ok(String::new())
    }

    fn length(&mut self, _: Resource<Response>) -> wasmtime::Result<u64> {
        Ok(0)
    }

    fn read(&mut self, _: Resource<Response>, _: u64, _: u32) -> wasmtime::Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn drop(&mut self, response: Resource<Response>) -> wasmtime::Result<()> {
        self.table.delete(response)?;
        Ok(())
    }
}

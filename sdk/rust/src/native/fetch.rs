//! Answers of servers that a test has written.

use super::{FakeRequest, FakeResponse, denied, fake};
use crate::bindings::imports::conclave::plugin::fetch::{FetchError, Header, Request};

/// An answer, like that of the host.
#[derive(Debug)]
pub(crate) struct Response {
    url: String,
    answer: FakeResponse,
}

pub(crate) fn send(request: &Request) -> Result<Response, FetchError> {
    let sent = FakeRequest {
        method: request.method.clone(),
        url: request.url.clone(),
        headers: request.headers.clone(),
        body: request.body.clone(),
    };
    fake(|fake| match fake.responses.get(&request.url).cloned() {
        Some(answer) => {
            fake.requests.push(sent);
            Ok(Response { url: request.url.clone(), answer })
        }
        None => Err(FetchError::Denied(denied("fetch", &request.url))),
    })
}

impl Response {
    pub(crate) fn status(&self) -> u16 {
        self.answer.status
    }

    pub(crate) fn headers(&self) -> Vec<Header> {
        self.answer.headers.clone()
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn length(&self) -> u64 {
        self.answer.body.len() as u64
    }

    pub(crate) fn read(&self, offset: u64, length: u32) -> Vec<u8> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.answer.body.iter().skip(start);
        rest.take(length as usize).copied().collect()
    }
}

//! The HTTP client of a server at an address. It counts the server's requests whose answers the
//! server has not taken, as the pipes of a started program do, and ends the stream that brings too
//! many.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::backlog::{Backlog, MessageKind, MessageKinds};

type Error = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// A client with a limit of open requests of the server.
#[derive(Clone, Debug)]
pub(super) struct BoundedClient {
    inner: reqwest::Client,
    backlog: Backlog,
}

impl BoundedClient {
    pub(super) fn new(inner: reqwest::Client, backlog: Backlog) -> Self {
        Self { inner, backlog }
    }

    /// Returns an error if the server was cut off.
    fn check(&self) -> Result<(), Error> {
        match self.backlog.is_flooded() {
            true => Err(StreamableHttpError::TransportChannelClosed),
            false => Ok(()),
        }
    }

    /// Counts the requests among the events. The stream ends with the one that is too many.
    fn counted(&self, events: Events) -> Events {
        let backlog = self.backlog.clone();
        let fits = move |event: &Result<Sse, SseError>| {
            let data = event.as_ref().ok().and_then(|event| event.data.as_deref());
            let mut kinds = MessageKinds::default();
            let messages = data.unwrap_or_default().bytes().filter_map(|byte| kinds.add(byte));
            let requests = messages.filter(|kind| *kind == MessageKind::Request).count();
            (0..requests).all(|_| backlog.open())
        };
        events.take_while(move |event| std::future::ready(fits(event))).boxed()
    }
}

impl StreamableHttpClient for BoundedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let most = usize::MAX;
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            most,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<StreamableHttpPostResponse, Error> {
        self.check()?;
        let is_answer = matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
        let posted = self
            .inner
            .post_message_with_max_sse_event_size(
                uri,
                message,
                session_id,
                auth_header,
                custom_headers,
                max_sse_event_size,
            )
            .await?;
        if is_answer {
            self.backlog.close();
        }
        Ok(match posted {
            StreamableHttpPostResponse::Sse(events, session) => {
                StreamableHttpPostResponse::Sse(self.counted(events), session)
            }
            other => other,
        })
    }

    fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> impl Future<Output = Result<(), Error>> + Send + '_ {
        self.inner.delete_session(uri, session_id, auth_header, custom_headers)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Error> {
        let most = usize::MAX;
        self.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            most,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<Events, Error> {
        self.check()?;
        let events = self
            .inner
            .get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                auth_header,
                custom_headers,
                max_sse_event_size,
            )
            .await?;
        Ok(self.counted(events))
    }
}

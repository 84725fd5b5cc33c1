//! `wasi:http` as a second interface to `fetch`. The types are the engine's. The `outgoing-handler`
//! is implemented here and uses the same exchange and the same grant. Redirects are left to the
//! guest, each as a new request; trailers are not sent. Refusals of requests beside the guest are
//! recorded when the queue of late refusals is read next (`call::refusals`).

use std::time::Duration;

use conclave_core::permissions::fetch::target;
use conclave_core::permissions::secret::RequestParts;
use conclave_core::types::denial::DenialRecord;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::runtime::{AbortOnDropJoinHandle, spawn};
use wasmtime_wasi_http::p2::bindings::LinkOptions;
use wasmtime_wasi_http::p2::bindings::http::types;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Method, Scheme};
use wasmtime_wasi_http::p2::body::{HyperIncomingBody, HyperOutgoingBody};
use wasmtime_wasi_http::p2::types::{HostFutureIncomingResponse, HostOutgoingRequest};
use wasmtime_wasi_http::{
    Error, RequestOptions, WasiBody, WasiHttp, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks,
};

use crate::imports::call::LateRefusals;
use crate::imports::fetch::{
    ExchangeFailure, FetchExchange, ScrubbedResponse, check_method, checked_headers,
};
use crate::imports::outgoing::Holding;

/// Maximum bytes of the headers in one resource, with their memory overhead.
const FIELDS: usize = 32 << 10;
/// Bytes of an open body that the host buffers.
const CHUNK: usize = 16 << 10;
/// Headers that guest libraries set and the host replaces.
const SET_ANEW: [&str; 2] = ["content-length", "accept-encoding"];

/// The latest 0.2 version; the linker accepts every compatible one.
const HANDLER: &str = "wasi:http/outgoing-handler@0.2.12";

/// Whether the interface is served. Other interfaces of `wasi:http` stay inert.
pub(crate) fn is_served(import: &str) -> bool {
    ["wasi:http/types@0.2.", "wasi:http/outgoing-handler@0.2."]
        .iter()
        .any(|served| import.starts_with(served))
}

import_view! {
    /// The `wasi:http` import of a call.
    HttpImport { holding: Holding, engine: EngineHttp }
}

/// Links the served interfaces. `view` and `engine_view` give the call's state to the handler and
/// to the engine's types.
pub(crate) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> HttpImport<'_>,
    engine_view: fn(&mut T) -> WasiHttpCtxView<'_>,
) -> wasmtime::Result<()> {
    types::add_to_linker::<T, WasiHttp>(linker, &LinkOptions::default().into(), engine_view)?;
    let handle = move |mut store: StoreContextMut<'_, T>,
                       (request, options): (
        Resource<HostOutgoingRequest>,
        Option<Resource<RequestOptions>>,
    )| { Ok((view(store.data_mut()).handle(request, options)?,)) };
    linker.instance(HANDLER)?.func_wrap("handle", handle)
}

/// The state that the engine's types need for a call.
pub(crate) struct EngineHttp {
    context: WasiHttpCtx,
    hooks: Hooks,
}

impl Default for EngineHttp {
    fn default() -> Self {
        let mut context = WasiHttpCtx::new();
        context.set_field_size_limit(FIELDS);
        Self { context, hooks: Hooks }
    }
}

struct Hooks;

impl WasiHttpHooks for Hooks {
    /// Never called, because the handler is not the engine's. If it were, it would send nothing.
    fn send_request(
        &mut self,
        _: http::Request<WasiBody>,
        _: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<
        dyn Future<
                Output = Result<
                    (http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>),
                    Error,
                >,
            > + Send,
    > {
        Box::new(std::future::ready(Err(Error::HttpRequestDenied)))
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        CHUNK
    }
}

impl<'a> HttpImport<'a> {
    /// The state for the engine's types.
    pub(crate) fn engine_view(self) -> WasiHttpCtxView<'a> {
        // As for `wasi`, this cannot fail, so the next tick stops a guest that is over its limit.
        let _ = self.core.meter.count_host_call();
        self.core.refuse_late();
        let EngineHttp { context, hooks } = self.engine;
        WasiHttpCtxView { hooks, table: &mut self.core.table, ctx: context }
    }

    /// Sends a request beside the guest. An `Err` traps; mistakes of the guest are returned to it.
    fn handle(
        &mut self,
        request: Resource<HostOutgoingRequest>,
        options: Option<Resource<RequestOptions>>,
    ) -> wasmtime::Result<Result<Resource<HostFutureIncomingResponse>, ErrorCode>> {
        self.core.enter()?;
        let options = options.map(|options| self.core.table.delete(options)).transpose()?;
        let mut request = self.core.table.delete(request)?;
        let body = request.body.take();
        let parts = match read(request) {
            Ok(parts) => parts,
            Err(code) => return Ok(Err(code)),
        };
        let exchange = FetchExchange::new(self.core, self.holding);
        // Refuses at once if it can. The rest runs beside the guest, which may still be writing the
        // body.
        if let Err(failure) = exchange.decide(&parts) {
            return Ok(Err(self.http_error(failure)));
        }
        self.core.effects = self.core.effects.saturating_add(1);
        let late = self.core.refusals.late.clone();
        // The request ends with the instance, so the call must not be suspended meanwhile.
        let busy = self.core.replay.busy();
        let sending = spawn(async move {
            let _busy = busy;
            finish(&late, send(exchange, parts, body, options).await)
        });
        Ok(Ok(self.core.table.push(HostFutureIncomingResponse::Pending(sending))?))
    }

    fn http_error(&mut self, failure: ExchangeFailure) -> ErrorCode {
        let code = error_code(&failure);
        if let Some(record) = record(failure) {
            self.core.refuse(record);
        }
        code
    }
}

type Sent =
    wasmtime_wasi_http::Result<(http::Response<HyperIncomingBody>, AbortOnDropJoinHandle<()>)>;

/// Waits for the whole body from the guest, and sends the request.
async fn send(
    mut exchange: FetchExchange,
    mut parts: RequestParts,
    body: Option<HyperOutgoingBody>,
    options: Option<RequestOptions>,
) -> Result<ScrubbedResponse, ExchangeFailure> {
    let timeout = options.and_then(|options| {
        [options.first_byte_timeout, options.between_bytes_timeout].into_iter().flatten().max()
    });
    let timeout =
        timeout.map(|timeout: Duration| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    if let Some(body) = body {
        let limit = exchange.request_bytes();
        let bytes = Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX)).collect();
        let bytes = tokio::time::timeout(exchange.time(timeout), bytes)
            .await
            .map_err(|_| exchange.timed_out(&parts.url))?;
        let bytes = bytes.map_err(|error| match error.is::<LengthLimitError>() {
            true => exchange.too_long(&parts.url),
            false => ExchangeFailure::Other("the body was not written to its end".into()),
        })?;
        parts.body = Some(bytes.to_bytes().into()).filter(|bytes: &Vec<u8>| !bytes.is_empty());
    }
    exchange.run(parts, timeout, false).await
}

fn finish(late: &LateRefusals, outcome: Result<ScrubbedResponse, ExchangeFailure>) -> Sent {
    let answer = outcome.map_err(|failure| {
        let code = error(&failure);
        late.extend(record(failure));
        code
    })?;
    let mut response = http::Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        // A scrubbed value may not be a valid header value.
        if let Ok(value) = http::HeaderValue::from_bytes(
            &value.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect::<Vec<u8>>(),
        ) {
            response = response.header(name, value);
        }
    }
    let hold = answer.hold;
    let body = Full::new(bytes::Bytes::from(answer.body)).map_err(move |never| {
        // Keeps the bytes counted against the memory limit as long as the body exists.
        let _ = &hold;
        match never {}
    });
    let response = response.body(UnsyncBoxBody::new(body)).map_err(|_| Error::HttpProtocolError)?;
    Ok((response, spawn(std::future::ready(()))))
}

fn read(request: HostOutgoingRequest) -> Result<RequestParts, ErrorCode> {
    let method = match request.method {
        Method::Get => "GET".to_owned(),
        Method::Head => "HEAD".to_owned(),
        Method::Post => "POST".to_owned(),
        Method::Put => "PUT".to_owned(),
        Method::Delete => "DELETE".to_owned(),
        Method::Connect => "CONNECT".to_owned(),
        Method::Options => "OPTIONS".to_owned(),
        Method::Trace => "TRACE".to_owned(),
        Method::Patch => "PATCH".to_owned(),
        Method::Other(method) => method,
    };
    check_method(&method).map_err(|_| ErrorCode::HttpRequestMethodInvalid)?;
    let scheme = match request.scheme {
        Some(Scheme::Http) => "http".to_owned(),
        Some(Scheme::Https) | None => "https".to_owned(),
        Some(Scheme::Other(scheme)) => scheme,
    };
    let authority = request.authority.unwrap_or_default();
    let path = request.path_with_query.unwrap_or_default();
    // The joined URL must not be parsed into other parts than these.
    if authority.contains(['/', '\\', '?', '#', '@'])
        || !(path.is_empty() || path.starts_with(['/', '?']))
    {
        return Err(ErrorCode::HttpRequestUriInvalid);
    }
    let url = target(&format!("{scheme}://{authority}{path}"))
        .map_err(|_| ErrorCode::HttpRequestUriInvalid)?;
    let headers = http::HeaderMap::from(request.headers);
    let invalid = |name: &http::HeaderName| {
        ErrorCode::HttpRequestHeaderSize(Some(types::FieldSizePayload {
            field_name: Some(name.to_string()),
            field_size: None,
        }))
    };
    let headers: Vec<(String, String)> = headers
        .iter()
        .filter(|(name, _)| !SET_ANEW.contains(&name.as_str()))
        .map(|(name, value)| {
            value
                .to_str()
                .map(|value| (name.to_string(), value.to_owned()))
                .map_err(|_| invalid(name))
        })
        .collect::<Result<_, _>>()?;
    let headers =
        checked_headers(headers).map_err(|problem| ErrorCode::InternalError(Some(problem)))?;
    Ok(RequestParts { method, url, headers, body: None })
}

fn record(failure: ExchangeFailure) -> Option<DenialRecord> {
    match failure {
        ExchangeFailure::Refused(record)
        | ExchangeFailure::Limit(record, _)
        | ExchangeFailure::TimedOut(record) => Some(*record),
        ExchangeFailure::Denied(_)
        | ExchangeFailure::Invalid(_)
        | ExchangeFailure::Unavailable(_)
        | ExchangeFailure::Other(_) => None,
    }
}

/// The error code of a failure that is known at once.
fn error_code(failure: &ExchangeFailure) -> ErrorCode {
    match failure {
        ExchangeFailure::Refused(_) | ExchangeFailure::Denied(_) => ErrorCode::HttpRequestDenied,
        ExchangeFailure::Limit(_, limit) => ErrorCode::InternalError(Some(limit.clone())),
        ExchangeFailure::TimedOut(_) => ErrorCode::HttpResponseTimeout,
        ExchangeFailure::Unavailable(_) => ErrorCode::DestinationUnavailable,
        ExchangeFailure::Invalid(problem) => ErrorCode::InternalError(Some(problem.clone())),
        ExchangeFailure::Other(what) => ErrorCode::InternalError(Some(what.to_string())),
    }
}

/// The error of a failure that is known later.
fn error(failure: &ExchangeFailure) -> Error {
    match failure {
        ExchangeFailure::Refused(_) | ExchangeFailure::Denied(_) => Error::HttpRequestDenied,
        ExchangeFailure::Limit(_, limit) => Error::InternalError(Some(limit.clone())),
        ExchangeFailure::TimedOut(_) => Error::HttpResponseTimeout,
        ExchangeFailure::Unavailable(_) => Error::DestinationUnavailable,
        ExchangeFailure::Invalid(problem) => Error::InternalError(Some(problem.clone())),
        ExchangeFailure::Other(what) => Error::InternalError(Some(what.to_string())),
    }
}

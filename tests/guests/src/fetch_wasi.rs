//! Sends a request through `wasi:http`, as the libraries of many languages do. Requests the
//! capability `fetch`, which `wasi:http` uses.

use conclave_sdk::{Json, tool};
use serde_json::{Value, json};
use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{
    Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme,
};
use wasip2::io::streams::StreamError;

/// Sends a request with a body of so many bytes; says what came of it. `header` is one of the
/// guest's own.
#[tool]
fn run(
    method: String,
    scheme: String,
    authority: String,
    path: String,
    body: Option<usize>,
    header: Option<String>,
) -> Json<Value> {
    Json(
        send(&method, &scheme, &authority, &path, body, header)
            .unwrap_or_else(|error| json!({ "error": error })),
    )
}

fn send(
    method: &str,
    scheme: &str,
    authority: &str,
    path: &str,
    body: Option<usize>,
    header: Option<String>,
) -> Result<Value, String> {
    let fields = Fields::new();
    if let Some(header) = header {
        fields.append("x-own", header.as_bytes()).map_err(|error| format!("header: {error:?}"))?;
    }
    let request = OutgoingRequest::new(fields);
    let method = match method {
        "GET" => Method::Get,
        "POST" => Method::Post,
        "CONNECT" => Method::Connect,
        other => Method::Other(other.to_owned()),
    };
    let scheme = if scheme == "http" { Scheme::Http } else { Scheme::Https };
    request.set_method(&method).map_err(|()| "method")?;
    request.set_scheme(Some(&scheme)).map_err(|()| "scheme")?;
    request.set_authority(Some(authority)).map_err(|()| "authority")?;
    request.set_path_with_query(Some(path)).map_err(|()| "path")?;
    let outgoing = request.body().map_err(|()| "body")?;
    let future = handle(request, None).map_err(|error| format!("handle: {error:?}"))?;
    write(outgoing, body.unwrap_or_default())?;
    let pollable = future.subscribe();
    pollable.block();
    let response = future
        .get()
        .ok_or("not ready")?
        .map_err(|()| "taken")?
        .map_err(|error| format!("later: {error:?}"))?;
    read(&response)
}

fn write(body: OutgoingBody, count: usize) -> Result<(), String> {
    let stream = body.write().map_err(|()| "stream")?;
    for from in (0..count).step_by(4_096) {
        // A failure is ignored: the host may have closed the body, and its report on the request is
        // checked instead.
        if stream.blocking_write_and_flush(&vec![b'x'; (count - from).min(4_096)]).is_err() {
            break;
        }
    }
    drop(stream);
    let _ = OutgoingBody::finish(body, None);
    Ok(())
}

fn read(response: &IncomingResponse) -> Result<Value, String> {
    let headers: Vec<[String; 2]> = response
        .headers()
        .entries()
        .into_iter()
        .map(|(name, value)| [name, String::from_utf8_lossy(&value).into_owned()])
        .collect();
    let body: IncomingBody = response.consume().map_err(|()| "consume")?;
    let stream = body.stream().map_err(|()| "stream")?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(64 << 10) {
            Ok(piece) => bytes.extend(piece),
            Err(StreamError::Closed) => break,
            Err(error) => return Err(format!("read: {error:?}")),
        }
    }
    Ok(
        json!({ "status": response.status(), "headers": headers, "length": bytes.len(), "body": String::from_utf8_lossy(&bytes[..bytes.len().min(2_000)]) }),
    )
}

conclave_sdk::export!(tools: [run], asks: [fetch?]);

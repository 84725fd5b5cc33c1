//! Sends a request with the placeholder of a secret in place of `<SECRET>`, and reports the whole
//! response.

use conclave_sdk::bindings::imports::conclave::plugin::fetch::{Header, Request, send};
use conclave_sdk::{Error, Result, scratch, secrets, tool};
use serde_json::Value;

/// Sends `{"method", "url", "headers": {}, "body"}`.
#[tool]
fn run(request: String, secret: String) -> Result<String> {
    let placeholder = secrets::placeholder(&secret).map_err(Error::Denied)?;
    Ok(sent(&request.replace("<SECRET>", &placeholder)))
}

/// Keeps the placeholder of this call.
#[tool]
fn keep(secret: String) -> Result<String> {
    let placeholder = secrets::placeholder(&secret).map_err(Error::Denied)?;
    scratch::set(&placeholder)?;
    Ok(placeholder)
}

/// Sends the placeholder that another call kept, or one that it was given.
#[tool]
fn send_kept(request: String, placeholder: Option<String>) -> Result<String> {
    let kept = placeholder.or(scratch::get::<String>()?).unwrap_or_default();
    Ok(sent(&request.replace("<SECRET>", &kept)))
}

fn sent(request: &str) -> String {
    let request: Value = serde_json::from_str(request).unwrap_or_default();
    let text = |key: &str| request[key].as_str().map(str::to_owned);
    let headers = request["headers"].as_object().into_iter().flatten();
    let headers = headers.map(|(name, value)| Header {
        name: name.clone(),
        value: value.as_str().unwrap_or_default().to_owned(),
    });
    let request = Request {
        method: text("method").unwrap_or_else(|| "GET".to_owned()),
        url: text("url").unwrap_or_default(),
        headers: headers.collect(),
        body: text("body").map(String::into_bytes),
        timeout_ms: None,
        extra: Vec::new(),
    };
    match send(&request) {
        Ok(response) => {
            let length = u32::try_from(response.length()).unwrap_or(u32::MAX);
            let body = String::from_utf8_lossy(&response.read(0, length)).into_owned();
            format!("{} {} {:?} {body}", response.status(), response.url(), response.headers())
        }
        Err(error) => format!("{error:?}"),
    }
}

conclave_sdk::export!(tools: [run, keep, send_kept], asks: [secrets?, fetch?, scratch]);

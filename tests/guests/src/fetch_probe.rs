//! Sends requests through the `fetch` import, and reports the result of each.

use std::collections::BTreeMap;

use conclave_sdk::{Error, Json, fetch, tool};
use serde_json::{Value, json};

fn probe(request: fetch::Request) -> Value {
    match request.send() {
        Ok(response) => {
            let headers: Vec<[String; 2]> =
                response.headers().into_iter().map(|header| [header.name, header.value]).collect();
            let body = response.bytes();
            json!({
                "status": response.status(), "url": response.url(), "headers": headers, "length": response.length(),
                "body": String::from_utf8_lossy(&body[..body.len().min(2_000)]),
            })
        }
        Err(Error::Denied(denial)) => {
            json!({ "denied": denial.capability, "target": denial.target, "detail": denial.detail })
        }
        Err(error) => json!({ "error": format!("{error:?}") }),
    }
}

/// Sends one request.
#[tool]
fn run(
    method: String,
    url: String,
    headers: Option<BTreeMap<String, String>>,
    body: Option<String>,
    timeout_ms: Option<u32>,
) -> Json<Value> {
    let mut request = fetch::request(method, url);
    for (name, value) in headers.unwrap_or_default() {
        request = request.header(name, value);
    }
    if let Some(body) = body {
        request = request.body(body);
    }
    if let Some(timeout) = timeout_ms {
        request = request.timeout_ms(timeout);
    }
    Json(probe(request))
}

/// Gets each of these addresses.
#[tool]
fn each(urls: Vec<String>) -> Json<Vec<Value>> {
    Json(urls.into_iter().map(|url| probe(fetch::get(url))).collect())
}

/// Gets an address again and again and drops no answer; says how many it got and what stopped it.
#[tool]
fn hoard(url: String, count: u32) -> Json<Value> {
    let mut kept = Vec::new();
    for _ in 0..count {
        match fetch::get(&url).send() {
            Ok(response) => kept.push(response),
            Err(error) => {
                return Json(json!({ "kept": kept.len(), "error": format!("{error:?}") }));
            }
        }
    }
    Json(json!({ "kept": kept.len() }))
}

conclave_sdk::export!(tools: [run, each, hoard], asks: [fetch?]);

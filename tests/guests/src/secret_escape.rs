//! Tries to send a secret's value to forbidden destinations: other hosts, other parts of a request,
//! unusual spellings.

use conclave_sdk::bindings::imports::conclave::plugin::fetch::{Header, Request, send};
use conclave_sdk::{Error, Json, Result, secrets, tool};

/// Tries each request; each entry is what it tried and what came of it. `SENT` is a success.
#[tool]
fn run(bound: String, elsewhere: String, secret: String) -> Result<Json<Vec<(String, String)>>> {
    let it = secrets::placeholder(&secret).map_err(Error::Denied)?;
    let made_up = format!("conclave-secret-{}", "0".repeat(40));
    let hidden = format!("%63{}", &it[1..]);
    let header = |value: &str| vec![("x-key".to_owned(), value.to_owned())];
    let tries = [
        ("header to another host", elsewhere.clone(), header(&it), None),
        ("query to another host", format!("{elsewhere}?q={it}"), vec![], None),
        ("body to another host", elsewhere.clone(), vec![], Some(it.clone())),
        ("path", format!("{bound}/{it}"), vec![], None),
        ("path, encoded", format!("{bound}/{hidden}"), vec![], None),
        ("fragment", format!("{bound}#{it}"), vec![], None),
        ("user", bound.replace("://", &format!("://{it}@")), vec![], None),
        ("host", bound.replace("://", &format!("://{it}.")), vec![], None),
        ("name of a header", bound.clone(), vec![(it.clone(), "x".to_owned())], None),
        ("header `host`", bound.clone(), vec![("host".to_owned(), it.clone())], None),
        ("query", format!("{bound}?q={it}"), vec![], None),
        ("body", bound.clone(), vec![], Some(it.clone())),
        ("made up", bound.clone(), header(&made_up), None),
        ("made up, in the body", bound.clone(), vec![], Some(made_up)),
        (
            "beside a header of its own",
            bound.clone(),
            vec![("x-a".to_owned(), it.clone()), ("content-type".to_owned(), it.clone())],
            None,
        ),
    ];
    Ok(Json(
        tries
            .into_iter()
            .map(|(what, url, headers, body)| (what.to_owned(), attempt(url, headers, body)))
            .collect(),
    ))
}

/// Asks for these secrets; each entry is the name and what came of it.
#[tool]
fn ask(names: Vec<String>) -> Json<Vec<String>> {
    Json(names.iter().map(|name| format!("{:?}", secrets::placeholder(name))).collect())
}

fn attempt(url: String, headers: Vec<(String, String)>, body: Option<String>) -> String {
    let request = Request {
        method: if body.is_some() { "POST" } else { "GET" }.to_owned(),
        url,
        headers: headers.into_iter().map(|(name, value)| Header { name, value }).collect(),
        body: body.map(String::into_bytes),
        timeout_ms: None,
        extra: Vec::new(),
    };
    send(&request)
        .map_or_else(|error| format!("{error:?}"), |response| format!("SENT {}", response.status()))
}

conclave_sdk::export!(tools: [run, ask], asks: [secrets?, fetch?]);

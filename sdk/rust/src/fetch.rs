//! HTTP requests to the addresses that the operator granted. Nothing is sent before
//! [`Request::send`]. The host follows redirects and checks each one. A plugin names a secret but
//! never holds it: the host inserts the value when it sends the request.

use std::fmt::Write;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::imports::conclave::plugin::fetch as import;
#[cfg(not(target_family = "wasm"))]
use crate::native::fetch as host;
use crate::{Error, Result};
#[cfg(target_family = "wasm")]
use import as host;

pub use import::{FetchError, Header};

/// Bytes per call to the host.
const PAGE: u32 = 128 * 1024;
/// Bytes of an answer's body in an error.
const SHOWN: usize = 200;

/// Creates a GET request.
///
/// ```no_run
/// use conclave_sdk::fetch;
///
/// let report: serde_json::Value = fetch::get("https://api.met.no/weatherapi/locationforecast/2.0/compact")
///     .query([("lat", 56.3), ("lon", -7.1)])
///     .bearer_secret("met_token") // the host puts the value in; it never enters this sandbox
///     .send()? // a refusal is `Error::Denied`; `?` is the right thing to do with it
///     .json()?;
/// # Ok::<(), conclave_sdk::Error>(())
/// ```
pub fn get(url: impl Into<String>) -> Request {
    request("GET", url)
}

/// Creates a POST request.
///
/// ```no_run
/// use conclave_sdk::fetch;
/// use serde_json::json;
///
/// let answer = fetch::post("https://api.example.org/v1/notes").json(&json!({ "text": "lit in 1844" })).send()?;
/// assert_eq!(answer.status(), 201);
/// # Ok::<(), conclave_sdk::Error>(())
/// ```
pub fn post(url: impl Into<String>) -> Request {
    request("POST", url)
}

/// Creates a request with any method, in upper case.
pub fn request(method: impl Into<String>, url: impl Into<String>) -> Request {
    Request {
        method: method.into(),
        url: url.into(),
        query: Vec::new(),
        headers: Vec::new(),
        body: Ok(None),
        timeout_ms: None,
    }
}

/// A request that is not sent yet.
#[derive(Debug, Clone)]
#[must_use = "nothing is sent before `send`"]
pub struct Request {
    method: String,
    url: String,
    query: Vec<(String, Value)>,
    headers: Vec<(String, Value)>,
    /// The body, or the error of serializing it, which `send` returns.
    body: core::result::Result<Option<Vec<u8>>, String>,
    timeout_ms: Option<u32>,
}

#[derive(Debug, Clone)]
enum Value {
    Text(String),
    /// A secret with this name, and a text before it.
    Secret {
        before: &'static str,
        name: String,
    },
}

impl Value {
    fn text(&self) -> Result<String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Secret { before, name } => Ok(format!("{before}{}", secret(name)?)),
        }
    }
}

/// Returns a secret's placeholder, which the host replaces in headers, query and body, as the
/// operator granted it.
pub fn secret(name: &str) -> Result<String> {
    crate::secrets::placeholder(name).map_err(Error::Denied)
}

impl Request {
    /// Adds a parameter to the query, encoded.
    pub fn query<K: Into<String>, V: ToString>(
        mut self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.query.extend(
            pairs.into_iter().map(|(key, value)| (key.into(), Value::Text(value.to_string()))),
        );
        self
    }

    /// Adds a secret to the query.
    pub fn query_secret(mut self, key: impl Into<String>, name: impl Into<String>) -> Self {
        self.query.push((key.into(), Value::Secret { before: "", name: name.into() }));
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), Value::Text(value.into())));
        self
    }

    /// Adds a header whose value is a secret.
    pub fn header_secret(mut self, header: impl Into<String>, name: impl Into<String>) -> Self {
        self.headers.push((header.into(), Value::Secret { before: "", name: name.into() }));
        self
    }

    /// Adds `authorization: Bearer` with a secret.
    pub fn bearer_secret(mut self, name: impl Into<String>) -> Self {
        self.headers.push((
            "authorization".to_owned(),
            Value::Secret { before: "Bearer ", name: name.into() },
        ));
        self
    }

    /// Sets the body to these bytes.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Ok(Some(body.into()));
        self
    }

    /// Sets the body to a value as JSON.
    pub fn json(mut self, value: &impl Serialize) -> Self {
        self.body = serde_json::to_vec(value).map(Some).map_err(|error| error.to_string());
        self.header("content-type", "application/json")
    }

    /// Sets the time limit for redirects and the whole answer together. The grant's own limit still
    /// applies.
    pub fn timeout_ms(mut self, timeout: u32) -> Self {
        self.timeout_ms = Some(timeout);
        self
    }

    /// Sends the request and waits for the whole answer. A status such as 404 is an answer; see
    /// [`Response::json`].
    pub fn send(self) -> Result<Response> {
        let url = self.address()?;
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| Ok(Header { name: name.clone(), value: value.text()? }));
        let headers = headers.collect::<Result<_>>()?;
        let body = self.body.map_err(Error::Other)?;
        let request = import::Request {
            method: self.method,
            url,
            headers,
            body,
            timeout_ms: self.timeout_ms,
            extra: Vec::new(),
        };
        Ok(Response(host::send(&request)?))
    }

    fn address(&self) -> Result<String> {
        let mut url = self.url.clone();
        for (key, value) in &self.query {
            url.push(if url.contains('?') { '&' } else { '?' });
            encode(&mut url, key);
            url.push('=');
            encode(&mut url, &value.text()?);
        }
        Ok(url)
    }
}

/// A complete answer, whose body the host holds.
#[derive(Debug)]
pub struct Response(host::Response);

impl Response {
    /// The status, such as 200.
    pub fn status(&self) -> u16 {
        self.0.status()
    }

    /// Whether the status is between 200 and 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status())
    }

    /// All headers, with names in lower case.
    pub fn headers(&self) -> Vec<Header> {
        self.0.headers()
    }

    /// The first header with this name.
    pub fn header(&self, name: &str) -> Option<String> {
        self.0
            .headers()
            .into_iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    }

    /// The address that answered, after redirects.
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// The length of the body in bytes.
    pub fn length(&self) -> u64 {
        self.0.length()
    }

    /// The whole body, whatever the status.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let page = self.0.read(bytes.len() as u64, PAGE);
            if page.is_empty() {
                return bytes;
            }
            bytes.extend(page);
        }
    }

    /// Returns the body as text. Fails if the status is not a success, or the body is not UTF-8.
    pub fn text(&self) -> Result<String> {
        String::from_utf8(self.success()?).map_err(|_| {
            Error::Other(format!("{} answered with bytes that are no text", self.url()))
        })
    }

    /// Returns the body as JSON. Fails if the status is not a success, or the body does not have
    /// that shape. 429 and 503 become [`Error::Unavailable`].
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.success()?).map_err(|error| {
            Error::Other(format!("{} answered with other JSON: {error}", self.url()))
        })
    }

    fn success(&self) -> Result<Vec<u8>> {
        let status = self.status();
        if self.is_success() {
            return Ok(self.bytes());
        }
        if matches!(status, 429 | 503) {
            let seconds =
                self.header("retry-after").and_then(|value| value.trim().parse::<u64>().ok());
            return Err(Error::Unavailable {
                retry_after_ms: seconds.map(|seconds| seconds.saturating_mul(1_000)),
            });
        }
        let body =
            String::from_utf8_lossy(&self.0.read(0, PAGE)).chars().take(SHOWN).collect::<String>();
        Err(Error::Other(format!("{} answered with {status}: {body}", self.url())))
    }
}

/// Encodes everything but the characters that never have a meaning in a query.
fn encode(url: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(url, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_encoded() {
        let request = get("https://a.example/x?y=1").query([("a b", "c&d=é")]).query([("n", 1.5)]);
        assert_eq!(
            request.address().unwrap(),
            "https://a.example/x?y=1&a%20b=c%26d%3D%C3%A9&n=1.5"
        );
        assert_eq!(
            get("https://a.example").query([("q", "")]).address().unwrap(),
            "https://a.example?q="
        );
    }
}

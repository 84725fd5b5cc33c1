//! Vectors of texts, from a server with the Embeddings API of Chat Completions. The server is
//! reached by `fetch`, so the operator grants its address, and its key as a secret.

use std::fmt;

use conclave_sdk::{Error, fetch};
use serde::Deserialize;
use serde_json::{Value, json};

/// Bytes of a text that are sent; models cut longer ones, or refuse them.
const MOST_BYTES: usize = 8_000;

/// `embeddings` of this plugin's `config`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Embeddings {
    /// The address to post to, such as `https://api.example.org/v1/embeddings`.
    url: String,
    pub(crate) model: String,
    /// The name of a secret, sent as `Authorization: Bearer`.
    secret: Option<String>,
}

/// A reason for which there are no vectors.
#[derive(Debug, PartialEq)]
pub(crate) enum EmbeddingError {
    /// The server does not take one of these texts.
    Refused(u16),
    /// The request cannot succeed now, whatever the texts are.
    Failed(String),
}

impl fmt::Display for EmbeddingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "the server refused a text with status {status}"),
            Self::Failed(text) => f.write_str(text),
        }
    }
}

impl From<Error> for EmbeddingError {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Embedded>,
}

#[derive(Deserialize)]
struct Embedded {
    index: usize,
    embedding: Vec<f32>,
}

impl Embeddings {
    /// Returns one vector for each text.
    pub(crate) fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbeddingError> {
        let input: Vec<&str> =
            texts.iter().map(|text| &text[..text.floor_char_boundary(MOST_BYTES)]).collect();
        let body = json!({ "model": self.model, "input": input, "encoding_format": "float" });
        let request = fetch::post(&self.url).json(&body);
        let request = match &self.secret {
            Some(name) => request.bearer_secret(name),
            None => request,
        };
        let response = request.send()?;
        match response.status() {
            200 => in_order(response.json()?, texts.len()),
            status @ (400 | 413 | 422) => Err(EmbeddingError::Refused(status)),
            status => Err(EmbeddingError::Failed(format!("the server answered {status}"))),
        }
    }
}

/// Returns the vectors in the order of their texts.
fn in_order(answer: Value, texts: usize) -> Result<Vec<Vec<f32>>, EmbeddingError> {
    let broken = |what: &str| EmbeddingError::Failed(format!("the server's answer {what}"));
    let mut data = serde_json::from_value::<Answer>(answer)
        .map_err(|error| broken(&format!("has another form: {error}")))?
        .data;
    data.sort_by_key(|embedded| embedded.index);
    if !data.iter().map(|embedded| embedded.index).eq(0..texts) {
        return Err(broken(&format!("does not have a vector for each of {texts} texts")));
    }
    let is_usable = |vector: &[f32]| {
        !vector.is_empty()
            && vector.iter().all(|value| value.is_finite())
            && vector.iter().any(|value| *value != 0.0)
    };
    if !data.iter().all(|embedded| is_usable(&embedded.embedding)) {
        return Err(broken("has a vector without a direction"));
    }
    Ok(data.into_iter().map(|embedded| embedded.embedding).collect())
}

#[cfg(test)]
mod tests {
    use conclave_sdk::testing::FakeHost;
    use serde_json::json;

    use super::{EmbeddingError, Embeddings};

    const URL: &str = "https://models.example.org/v1/embeddings";

    fn server() -> Embeddings {
        serde_json::from_value(json!({ "url": URL, "model": "small", "secret": "key" })).unwrap()
    }

    fn failure(status: u16, body: &str) -> EmbeddingError {
        let mut host = FakeHost::new().secret("key").response(URL, status, body);
        host.run(|| server().embed(&["a", "b"])).unwrap_err()
    }

    #[test]
    fn vectors_come_in_the_order_of_their_texts() {
        let body = json!({ "data": [
            { "index": 1, "embedding": [0.0, 1.0] }, { "index": 0, "embedding": [1.0, 0.0] }
        ]});
        let mut host = FakeHost::new().secret("key").response(URL, 200, body.to_string());
        let long = "é".repeat(10_000);
        let vectors = host.run(|| server().embed(&["a", &long])).unwrap();
        assert_eq!(vectors, [[1.0, 0.0], [0.0, 1.0]]);
        let request = &host.requests()[0];
        let sent: serde_json::Value =
            serde_json::from_slice(request.body.as_deref().unwrap()).unwrap();
        assert_eq!(sent["input"][0], "a");
        assert_eq!(sent["input"][1].as_str().unwrap().len(), 8_000);
        let bearer = request.headers.iter().find(|header| header.name == "authorization");
        assert_eq!(bearer.unwrap().value, "Bearer <secret key>");
    }

    #[test]
    fn an_answer_that_is_none_says_why() {
        assert_eq!(failure(413, ""), EmbeddingError::Refused(413));
        for (status, body, says) in [
            (503, "", "answered 503"),
            (200, "{}", "another form"),
            (200, r#"{"data":[{"index":0,"embedding":[1]}]}"#, "each of 2 texts"),
            (
                200,
                r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[0]}]}"#,
                "direction",
            ),
        ] {
            let failure = failure(status, body).to_string();
            assert!(failure.contains(says), "{failure}");
        }
        let denied = FakeHost::new().run(|| server().embed(&["a"])).unwrap_err();
        assert!(matches!(denied, EmbeddingError::Failed(_)), "{denied}");
    }
}

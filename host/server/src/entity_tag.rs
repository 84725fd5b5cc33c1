//! The tag of an answer: a reader that has the same one already gets no second copy. A view that is
//! long to make has a tag of what it depends on, and is not made for such a reader; every other answer
//! has the tag of its bytes.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, ETAG, HeaderMap, IF_NONE_MATCH};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The tag of an answer, which is another one as soon as the answer would be another.
pub(crate) struct EntityTag(String);

impl EntityTag {
    /// The tag of an answer that depends on nothing but these values.
    pub(crate) fn of(values: &Value) -> Self {
        Self::of_bytes(values.to_string().as_bytes())
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let digest = Sha256::digest(bytes);
        let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self(format!("\"{hex}\""))
    }

    /// Whether the reader names this tag as that of its copy.
    pub(crate) fn is_known(&self, headers: &HeaderMap) -> bool {
        let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        // A proxy that compresses answers marks their tags as weak.
        let mut tags = values.flat_map(|value| value.split(','));
        tags.any(|tag| tag.trim().trim_start_matches("W/") == self.0)
    }

    /// The answer to a reader that has a copy.
    pub(crate) fn unchanged(self) -> Response {
        self.with(StatusCode::NOT_MODIFIED)
    }

    /// An answer with its tag.
    pub(crate) fn with(self, answer: impl IntoResponse) -> Response {
        ([(ETAG, self.0)], answer).into_response()
    }
}

/// The content types of answers that are made whole, before their first byte is sent.
const WHOLE: [&str; 2] = ["application/json", "text/html"];

/// Answers a request to read, and tags the answer.
pub(crate) async fn tag_answer(request: Request, next: Next) -> Response {
    let is_read = request.method() == Method::GET;
    let known = request.headers().clone();
    let answer = next.run(request).await;
    if !is_read || answer.status() != StatusCode::OK || answer.headers().contains_key(ETAG) {
        return answer;
    }
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| WHOLE.iter().any(|prefix| kind.starts_with(prefix))) {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let tag = EntityTag::of_bytes(&bytes);
    if tag.is_known(&known) {
        return tag.unchanged();
    }
    if let Ok(value) = HeaderValue::try_from(tag.0) {
        head.headers.insert(ETAG, value);
    }
    Response::from_parts(head, Body::from(bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tag_is_known_in_a_list_and_as_a_weak_one_and_no_other_is() {
        let tag = EntityTag::of(&json!([1, "a"]));
        let asks = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, value.parse().unwrap());
            headers
        };
        assert!(tag.is_known(&asks(&format!("\"x\", W/{}", tag.0))));
        assert!(!tag.is_known(&asks("\"x\"")) && !tag.is_known(&HeaderMap::new()));
        assert_ne!(tag.0, EntityTag::of(&json!([1, "b"])).0);
    }
}

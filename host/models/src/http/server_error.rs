//! Error bodies of servers. Each server has its own format; all of them yield the kind of refusal
//! and a message.

use serde_json::Value;

use super::quote::Quoter;

/// Maximum bytes of an error body that are read.
pub(crate) const ERROR_MAX: usize = 64 << 10;

/// An error as the server wrote it. Untrusted: it must be shown through a
/// [`Quoter`](super::quote::Quoter) only.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerError {
    pub message: String,
    /// The fields `code` and `type`, in lower case.
    marks: Vec<String>,
    /// The status inside the body, which some servers send with another HTTP status.
    pub status: Option<u16>,
    /// The context length, if the server gives it in a field.
    fits: Option<u64>,
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerRefusal {
    Key,
    UnknownModel,
    /// The context length in tokens; 0 if the server does not give it.
    TooLong {
        fits: u64,
    },
    /// The account has no quota left; a retry does not help.
    Quota,
    /// The server is busy; a later retry helps.
    Busy,
    Other,
}

impl ServerError {
    /// As [`parse`](Self::parse). If the body is too large, its beginning is the message. The body
    /// is complete, or a [`window`](Quoter::window) of the whole.
    pub(crate) fn read(body: &[u8], quoter: &Quoter) -> Self {
        if body.len() <= ERROR_MAX {
            return Self::parse(body);
        }
        let window = &body[..body.len().min(quoter.window(ERROR_MAX))];
        Self { message: quoter.beginning(window, ERROR_MAX), ..Self::default() }
    }

    /// Parses a body in any known format. An unknown one becomes the message.
    pub(crate) fn parse(body: &[u8]) -> Self {
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            return Self { message: String::from_utf8_lossy(body).into_owned(), ..Self::default() };
        };
        // Some servers send a list with one error.
        let outer = value.get(0).unwrap_or(&value);
        let error = ["error", "detail"].iter().find_map(|name| outer.get(*name)).unwrap_or(outer);
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let message = error.get("message").or_else(|| outer.get("message")).unwrap_or(error);
        let status =
            error.get("code").or_else(|| error.get("status")).and_then(|code| match code {
                Value::String(text) => text.parse().ok(),
                other => other.as_u64().and_then(|code| u16::try_from(code).ok()),
            });
        Self {
            message: text(message),
            marks: ["code", "type"]
                .iter()
                .filter_map(|name| error.get(*name)?.as_str())
                .map(str::to_lowercase)
                .collect(),
            status: status.filter(|status| (400..600).contains(status)),
            fits: error.get("n_ctx").and_then(Value::as_u64),
        }
    }

    /// Returns the kind of refusal, given the HTTP status.
    pub(crate) fn refusal(&self, status: u16) -> ServerRefusal {
        let message = self.message.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
        let is_marked =
            |marks: &[&str]| self.marks.iter().any(|mark| marks.contains(&mark.as_str()));
        let is_quota = is_marked(&[
            "insufficient_quota",
            "billing_hard_limit_reached",
            "insufficient_balance",
        ]) || says(&["credit balance is too low"]);
        if is_marked(&["context_length_exceeded", "exceed_context_size_error"])
            || (matches!(status, 400 | 413 | 422 | 500) && says(&TOO_LONG))
        {
            return ServerRefusal::TooLong {
                fits: self.fits.or_else(|| fits(&message)).unwrap_or_default(),
            };
        }
        let is_unknown = says(&["model"])
            && says(&[
                "not found",
                "does not exist",
                "unknown model",
                "invalid model",
                "not a valid model",
            ]);
        match status {
            401 | 403 => ServerRefusal::Key,
            402 => ServerRefusal::Quota,
            400 | 404 if is_marked(&["model_not_found"]) || is_unknown => {
                ServerRefusal::UnknownModel
            }
            // The Messages API says no more than the name.
            404 if is_marked(&["not_found_error"]) && message.starts_with("model:") => {
                ServerRefusal::UnknownModel
            }
            400 | 429 if is_quota => ServerRefusal::Quota,
            408 | 429 | 500.. => ServerRefusal::Busy,
            _ => ServerRefusal::Other,
        }
    }

    /// Returns the effective status of an error inside a successful response.
    pub(crate) fn inner_status(&self) -> u16 {
        let is_marked = |words: &[&str]| {
            self.marks.iter().any(|mark| words.iter().any(|word| mark.contains(word)))
        };
        match self.status {
            Some(status) => status,
            None if is_marked(&["rate_limit"]) => 429,
            None if is_marked(&[
                "server_error",
                "overloaded",
                "internal",
                "unavailable",
                "timeout",
                "api_error",
            ]) =>
            {
                503
            }
            None => 400,
        }
    }
}

/// Phrases for a prompt that is too long, of OpenAI, vLLM, llama.cpp, Ollama, Anthropic and
/// gateways. The number after each of the first four is the limit.
const TOO_LONG: [&str; 9] = [
    "maximum context length",
    "max context length",
    "maximum model length",
    "available context size",
    "exceeds the context length",
    "exceeds the model's context",
    "contextwindowexceeded",
    "prompt is too long",
    "exceed context limit",
];

/// Returns the number after the phrase that names the limit, or that the prompt exceeds: in
/// `208310 tokens > 200000 maximum` the second.
fn fits(message: &str) -> Option<u64> {
    let named = TOO_LONG.iter().take(4).find_map(|words| message.split_once(words));
    let exceeded = || {
        let (_, after) = TOO_LONG.iter().skip(7).find_map(|words| message.split_once(words))?;
        after.split_once('>')
    };
    let (_, after) = named.or_else(exceeded)?;
    let start = after.find(|c: char| c.is_ascii_digit()).filter(|start| *start <= 16)?;
    let digits: String =
        after[start..].chars().filter(|c| *c != ',').take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ServerError, ServerRefusal};

    fn refusal(status: u16, body: &Value) -> ServerRefusal {
        ServerError::parse(body.to_string().as_bytes()).refusal(status)
    }

    #[test]
    fn the_words_are_found_in_every_form() {
        for body in [
            json!({"error": {"message": "no", "code": 7}}),
            json!({"error": "no"}),
            json!({"message": "no", "object": "error"}),
            json!({"detail": "no"}),
            json!([{"error": {"message": "no"}}]),
            json!("no"),
        ] {
            assert_eq!(ServerError::parse(body.to_string().as_bytes()).message, "no", "{body}");
        }
        assert_eq!(ServerError::parse(b"<html>no\xff").message, "<html>no\u{fffd}");
        assert_eq!(ServerError::parse(b"{\"a\":1}").message, "{\"a\":1}");
    }

    #[test]
    fn a_prompt_that_is_too_long_is_known_from_every_server() {
        let openai = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.";
        let llama = json!({"code": 400, "message": "the request exceeds the available context size", "type": "exceed_context_size_error",
            "n_prompt_tokens": 9000, "n_ctx": 4096});
        let said = |message: &str| json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
        for (status, body, fits) in [
            (400, json!({"error": {"message": openai, "code": "context_length_exceeded"}}), 8192),
            (400, json!({"message": "... longer than the maximum model length of 32,768"}), 32768),
            (400, json!({"error": llama}), 4096),
            (400, json!({"error": "the input length exceeds the context length"}), 0),
            (400, said("prompt is too long: 208310 tokens > 200000 maximum"), 200_000),
            (
                400,
                said(
                    "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease",
                ),
                200_000,
            ),
            (400, said("prompt is too long"), 0),
            (400, json!({"error": {"message": "litellm.ContextWindowExceededError: ..."}}), 0),
        ] {
            assert_eq!(refusal(status, &body), ServerRefusal::TooLong { fits }, "{body}");
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        let said = |message: &str| json!({"error": {"message": message}});
        assert_eq!(refusal(401, &said("no")), ServerRefusal::Key);
        assert_eq!(
            refusal(404, &said("model \"x\" not found, try pulling it first")),
            ServerRefusal::UnknownModel
        );
        assert_eq!(
            refusal(404, &said("The model `x` does not exist.")),
            ServerRefusal::UnknownModel
        );
        assert_eq!(
            refusal(400, &said("Invalid model name passed in model=x")),
            ServerRefusal::UnknownModel
        );
        assert_eq!(refusal(404, &said("404 page not found")), ServerRefusal::Other);
        assert_eq!(
            refusal(429, &json!({"error": {"message": "pay", "type": "insufficient_quota"}})),
            ServerRefusal::Quota
        );
        assert_eq!(refusal(429, &said("slow down")), ServerRefusal::Busy);
        let marked = |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}});
        for (status, kind, message, expected) in [
            (529, "overloaded_error", "Overloaded", ServerRefusal::Busy),
            (429, "rate_limit_error", "slow down", ServerRefusal::Busy),
            (404, "not_found_error", "model: claude-none", ServerRefusal::UnknownModel),
            (404, "not_found_error", "Not Found", ServerRefusal::Other),
            (401, "authentication_error", "invalid x-api-key", ServerRefusal::Key),
            (
                400,
                "invalid_request_error",
                "Your credit balance is too low to access the API.",
                ServerRefusal::Quota,
            ),
        ] {
            assert_eq!(refusal(status, &marked(kind, message)), expected, "{message}");
        }
        assert_eq!(
            (refusal(408, &said("")), refusal(503, &said(""))),
            (ServerRefusal::Busy, ServerRefusal::Busy)
        );
        assert_eq!(refusal(400, &said("bad schema")), ServerRefusal::Other);
    }

    #[test]
    fn an_error_inside_a_good_answer_has_a_status() {
        let inner = |error: Value| {
            ServerError::parse(json!({"error": error}).to_string().as_bytes()).inner_status()
        };
        assert_eq!(inner(json!({"code": 502, "message": "x"})), 502);
        assert_eq!(inner(json!({"code": "429", "message": "x"})), 429);
        assert_eq!(inner(json!({"type": "overloaded_error"})), 503);
        assert_eq!(inner(json!({"type": "api_error"})), 503);
        assert_eq!(inner(json!({"type": "rate_limit_error"})), 429);
        assert_eq!(inner(json!({"code": "rate_limit_exceeded"})), 429);
        assert_eq!(inner(json!({"message": "x"})), 400);
    }
}

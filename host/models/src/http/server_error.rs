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
    /// The server loads its model, and takes requests when it is done.
    Loading,
    /// The request needs something that the model or its server lacks; the remedy is the operator's.
    Unsupported {
        remedy: &'static str,
    },
    /// The server cannot read what its model wrote. Another attempt may help, because a model
    /// rarely writes the same twice.
    Unreadable {
        remedy: &'static str,
    },
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
        // The event of a failed response has the error within the response.
        let response = outer.get("response").filter(|response| response.get("error").is_some());
        let outer = response.unwrap_or(outer);
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

    /// The kind of refusal, given the HTTP status.
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
            || status == 413
            || (matches!(status, 400 | 422 | 500) && (says(&LIMITS) || says(&TOO_LONG)))
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
        if status >= 500 && says(&UNREADABLE) {
            return ServerRefusal::Unreadable { remedy: IN_TEXT };
        }
        let remedy = REMEDIES.iter().find(|(words, _)| says(words)).map(|(_, remedy)| *remedy);
        match (status, remedy) {
            (401 | 403 | 429, _) | (_, None) => {}
            (_, Some(remedy)) => return ServerRefusal::Unsupported { remedy },
        }
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
            425 | 500.. if says(&LOADING) => ServerRefusal::Loading,
            408 | 429 | 500.. => ServerRefusal::Busy,
            _ => ServerRefusal::Other,
        }
    }

    /// The effective status of an error inside a successful response.
    pub(crate) fn inner_status(&self) -> u16 {
        let message = self.message.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
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
            None if says(&LOADING) || says(&OVERLOADED) => 503,
            None => 400,
        }
    }
}

/// Phrases that name the limit of a prompt, of OpenAI, vLLM, llama.cpp, LM Studio, TGI and Gemini.
/// The number after each is the limit.
const LIMITS: [&str; 8] = [
    "maximum context length",
    "max context length",
    "maximum model length",
    "available context size",
    "context length of only",
    "`max_new_tokens` must be <=",
    "`inputs` must have less than",
    "number of tokens allowed",
];

/// Further phrases for a prompt that is too long, of Ollama, Anthropic, LM Studio and gateways. The
/// first two name what is exceeded: `208310 tokens > 200000 maximum`.
const TOO_LONG: [&str; 8] = [
    "prompt is too long",
    "exceed context limit",
    "exceeds the context length",
    "exceeds the model's context",
    "contextwindowexceeded",
    "prompt too long",
    "context the overflows",
    "reduce the length of the messages",
];

/// Phrases of servers that load their model: llama.cpp, TGI, LM Studio and inference services.
const LOADING: [&str; 5] =
    ["loading model", "loading the model", "is loading", "currently loading", "warming up"];

/// Phrases of servers that are too busy, without a status that says so.
const OVERLOADED: [&str; 5] =
    ["overloaded", "try again later", "too many requests", "at capacity", "no capacity"];

/// Phrases of llama.cpp about an answer that is not of the form in which its chat template writes
/// calls.
const UNREADABLE: [&str; 4] = [
    "model produced output that does not match",
    "failed to parse input at pos",
    "failed to parse tool call",
    "unexpected empty grammar stack",
];

/// The remedy for a model that does not write calls in the form of its server.
const IN_TEXT: &str = "Write `tool_format = \"json\"` or `\"xml\"` in the task, so that the model calls tools in its text, or start the server with another chat template";

/// Phrases of servers that lack what a request needs, in lower case, and the operator's remedy.
const REMEDIES: [(&[&str], &str); 6] = [
    // Ollama, LM Studio, TGI, gateways.
    (
        &[
            "does not support tools",
            "does not support tool",
            "does not support function",
            "tools are not supported",
            "tool use is not supported",
            "tool calling is not supported",
            "function calling is not supported",
            "no endpoints found that support tool use",
        ],
        "Write `tool_format = \"json\"` or `\"xml\"` in the task, so that the model calls tools in its text",
    ),
    // llama.cpp.
    (
        &["--jinja", "tools param requires", "tool_choice param requires"],
        "Start the server with `--jinja`, or write `tool_format = \"json\"` in the task, so that the model calls tools in its text",
    ),
    // vLLM.
    (
        &["--enable-auto-tool-choice", "--tool-call-parser"],
        "Start the server with `--enable-auto-tool-choice` and `--tool-call-parser`, or write `tool_format = \"json\"` in the task, so that the model calls tools in its text",
    ),
    // Chat templates of Mistral, Llama and Gemma.
    (
        &["roles must alternate", "roles should alternate", "alternating user/assistant"],
        "The chat template takes only `user` and `assistant` in turn: write `tool_format = \"json\"` in the task, so that results of tools are not messages of their own",
    ),
    (
        &["system role not supported", "system role is not supported", "system message must be"],
        "The chat template has no such system message: start the server with another template, such as `--chat-template chatml`",
    ),
    (
        &[
            "does not support image",
            "image input is not supported",
            "images are not supported",
            "is not a multimodal model",
            "mmproj",
        ],
        "The model reads no images: take one that does, or leave the attachments out",
    ),
];

/// The number after the phrase that names the limit, or that the prompt exceeds: in
/// `208310 tokens > 200000 maximum` the second.
fn fits(message: &str) -> Option<u64> {
    let limit = LIMITS.iter().find_map(|words| message.split_once(words));
    let exceeded = || {
        let (_, after) = TOO_LONG.iter().take(2).find_map(|words| message.split_once(words))?;
        after.split_once('>')
    };
    let (_, after) = limit.or_else(exceeded)?;
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
        let error = |message: &str| json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
        for (status, body, fits) in [
            (400, json!({"error": {"message": openai, "code": "context_length_exceeded"}}), 8192),
            (400, json!({"message": "... longer than the maximum model length of 32,768"}), 32768),
            (400, json!({"error": llama}), 4096),
            (400, json!({"error": "the input length exceeds the context length"}), 0),
            (400, error("prompt is too long: 208310 tokens > 200000 maximum"), 200_000),
            (
                400,
                error(
                    "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease",
                ),
                200_000,
            ),
            (400, error("prompt is too long"), 0),
            (
                400,
                json!({"error": "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."}),
                4096,
            ),
            (
                422,
                json!({"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 100 `max_new_tokens`", "error_type": "validation"}),
                4096,
            ),
            (
                422,
                json!({"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1234"}),
                1024,
            ),
            (413, json!({"error": {"message": "Request too large for model"}}), 0),
            (413, json!("Payload Too Large"), 0),
            (400, json!({"error": {"message": "litellm.ContextWindowExceededError: ..."}}), 0),
        ] {
            assert_eq!(refusal(status, &body), ServerRefusal::TooLong { fits }, "{body}");
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        let error = |message: &str| json!({"error": {"message": message}});
        assert_eq!(refusal(401, &error("no")), ServerRefusal::Key);
        assert_eq!(
            refusal(404, &error("model \"x\" not found, try pulling it first")),
            ServerRefusal::UnknownModel
        );
        assert_eq!(
            refusal(404, &error("The model `x` does not exist.")),
            ServerRefusal::UnknownModel
        );
        assert_eq!(
            refusal(400, &error("Invalid model name passed in model=x")),
            ServerRefusal::UnknownModel
        );
        assert_eq!(refusal(404, &error("404 page not found")), ServerRefusal::Other);
        assert_eq!(
            refusal(429, &json!({"error": {"message": "pay", "type": "insufficient_quota"}})),
            ServerRefusal::Quota
        );
        assert_eq!(refusal(429, &error("slow down")), ServerRefusal::Busy);
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
            (refusal(408, &error("")), refusal(503, &error(""))),
            (ServerRefusal::Busy, ServerRefusal::Busy)
        );
        assert_eq!(refusal(400, &error("bad schema")), ServerRefusal::Other);
    }

    #[test]
    fn known_refusals_have_a_remedy_and_are_not_repeated() {
        for (status, message, expected) in [
            (400, "registry.ollama.ai/library/gemma:2b does not support tools", "tool_format"),
            (500, "tools param requires --jinja flag", "`--jinja`"),
            (
                400,
                "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
                "`--enable-auto-tool-choice`",
            ),
            (404, "No endpoints found that support tool use.", "tool_format"),
            (
                500,
                "Conversation roles must alternate user/assistant/user/assistant/...",
                "tool_format",
            ),
            (400, "System role not supported", "template"),
            (
                500,
                "image input is not supported - hint: you may need to provide the mmproj",
                "images",
            ),
        ] {
            let refusal = refusal(status, &json!({"error": {"message": message}}));
            let ServerRefusal::Unsupported { remedy } = refusal else {
                panic!("{message}: {refusal:?}")
            };
            assert!(remedy.contains(expected), "{message}: {remedy}");
        }
    }

    #[test]
    fn an_answer_that_the_server_cannot_read_may_be_another_one_next_time() {
        let message =
            "The model produced output that does not match the expected peg-native format";
        let body = json!({"error": {"code": 500, "message": message, "type": "server_error"}});
        let refusal = refusal(500, &body);
        let ServerRefusal::Unreadable { remedy } = refusal else { panic!("{refusal:?}") };
        assert!(remedy.contains("tool_format"), "{remedy}");
    }

    #[test]
    fn a_server_that_loads_its_model_is_told_from_a_busy_one() {
        let llama = json!({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}});
        let hosted = json!({"error": "Model x is currently loading", "estimated_time": 20.0});
        for body in [llama, hosted] {
            assert_eq!(refusal(503, &body), ServerRefusal::Loading, "{body}");
        }
        assert_eq!(refusal(503, &json!({"error": "no slot available"})), ServerRefusal::Busy);
        assert_eq!(refusal(429, &json!({"error": "loading model"})), ServerRefusal::Busy);
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
        assert_eq!(inner(json!("The server is overloaded, try again later")), 503);
        assert_eq!(inner(json!({"message": "x"})), 400);
    }
}

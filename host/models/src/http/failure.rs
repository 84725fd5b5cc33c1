//! Failures in two forms: for the plugin, only the kind that it can handle; for the operator, the
//! server, its message and the remedy.

use std::time::Duration;

use conclave_core::config::least_context;
use conclave_core::types::completion::{
    ModelApi, ModelDiagnostic, ModelDiagnosticKind, ModelError,
};
use conclave_core::types::text::show_size;
use reqwest::{StatusCode, Url};

use super::quote::Quoter;
use super::reply::ReplyError;
use super::server_error::{ServerError, ServerRefusal};
use super::transport::{NoConnection, chain, innermost};
use crate::ModelFailure;

/// A failed attempt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failed {
    pub error: ModelError,
    pub trouble: ModelDiagnostic,
    pub advice: RetryAdvice,
}

impl Failed {
    /// The delay that the server asks for.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self.error {
            ModelError::Unavailable { retry_after_ms } => retry_after_ms.map(Duration::from_millis),
            _ => None,
        }
    }
}

impl From<Failed> for ModelFailure {
    fn from(failed: Failed) -> Self {
        Self { error: failed.error, trouble: Some(failed.trouble) }
    }
}

/// Whether a retry makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryAdvice {
    Never,
    /// With a renewed key.
    WithNewKey,
    /// After this time, if the server gave one.
    Later(Option<Duration>),
    /// Until the server has loaded its model, each after the time in the error.
    WhenLoaded,
}

/// Builds the failures of one request.
#[derive(Clone, Debug)]
pub(crate) struct FailureReport<'a> {
    pub api: ModelApi,
    /// The address of the server, without secrets.
    pub server: &'a str,
    pub model: &'a str,
    pub quoter: Quoter,
    pub has_key: bool,
}

impl FailureReport<'_> {
    /// The failure of a missing key, with the source's reason.
    pub(crate) fn no_key(&self, reason: &str) -> Failed {
        let text = format!("There is no key for {}: {}", self.server, self.quoter.quote(reason));
        failed(
            other("the model's key is missing"),
            ModelDiagnosticKind::Key,
            text,
            RetryAdvice::Never,
        )
    }

    /// The failure of a key that is not a valid header value.
    pub(crate) fn unusable_key(&self) -> Failed {
        let text = format!(
            "The key for {} has characters that cannot be sent. Look for line breaks and quotes in the place that it comes from.",
            self.server
        );
        failed(
            other("the model's key is not usable"),
            ModelDiagnosticKind::Key,
            text,
            RetryAdvice::Never,
        )
    }

    /// The failure of an error response.
    pub(crate) fn refused(
        &self,
        status: u16,
        error: &ServerError,
        retry_after: Option<Duration>,
    ) -> Failed {
        self.refused_with(status, error, retry_after, self.status_text(status, error))
    }

    /// The failure of an error in place of an answer, or within one.
    fn refused_within(&self, error: &ServerError, retry_after: Option<Duration>) -> Failed {
        let code = error.status.map(|code| format!(" {code}")).unwrap_or_default();
        let message = self.quoter.quote(&error.message);
        let text = format!(
            "{} reported the error{code} in its answer: {}",
            self.server,
            message.trim_end_matches('.')
        );
        self.refused_with(error.inner_status(), error, retry_after, text)
    }

    /// The failure for an error with this effective status; `text` tells what happened.
    fn refused_with(
        &self,
        status: u16,
        error: &ServerError,
        retry_after: Option<Duration>,
        text: String,
    ) -> Failed {
        let (server, model) = (self.server, self.model);
        let refused =
            |error, text, advice| failed(error, ModelDiagnosticKind::Refused, text, advice);
        match error.refusal(status) {
            ServerRefusal::Key => {
                let advice = if self.has_key {
                    "Check that the model's key is still valid, and that it is one of this server."
                } else {
                    "The server wants a key: set the model's key."
                };
                let gist = "the model's server did not accept the operator's key";
                failed(
                    other(gist),
                    ModelDiagnosticKind::Key,
                    format!("{text}. {advice}"),
                    RetryAdvice::WithNewKey,
                )
            }
            ServerRefusal::UnknownModel => {
                let error = ModelError::UnknownModel { name: model.to_owned() };
                failed(
                    error,
                    ModelDiagnosticKind::NotFound,
                    format!("{text}. It does not know the model {model:?}."),
                    RetryAdvice::Never,
                )
            }
            ServerRefusal::TooLong { fits } => {
                let size = if fits == 0 { "TOKENS".to_owned() } else { fits.to_string() };
                let text = if fits != 0 && fits < least_context(None) {
                    format!("{text}. That is no room for an agent: start the server with more")
                } else {
                    format!(
                        "{text}. Write `context = {size}` in the model's table, so that older messages are shortened or condensed in time"
                    )
                };
                refused(ModelError::ContextTooLong { tokens: fits }, text, RetryAdvice::Never)
            }
            ServerRefusal::Quota => {
                let text = format!(
                    "{text}. The account behind the key is used up: waiting does not help."
                );
                later(text, None, RetryAdvice::Never)
            }
            ServerRefusal::Busy => {
                let wait = retry_after
                    .map(|retry_after| format!(". It asks to wait for {retry_after:?}"))
                    .unwrap_or_default();
                later(format!("{text}{wait}"), retry_after, RetryAdvice::Later(retry_after))
            }
            ServerRefusal::Loading => later(text, retry_after, RetryAdvice::WhenLoaded),
            ServerRefusal::Unsupported { remedy } => {
                refused(gist_of(status), format!("{text}. {remedy}"), RetryAdvice::Never)
            }
            ServerRefusal::Unreadable { remedy } => failed(
                other("the model's server could not read what the model wrote"),
                ModelDiagnosticKind::Malformed,
                format!("{text}. {remedy}"),
                RetryAdvice::Later(retry_after),
            ),
            ServerRefusal::Other if status == 404 => {
                let text = format!(
                    "{text}. Does {server} end where the API begins, mostly with /v1, and has it {}?",
                    self.api
                );
                failed(gist_of(status), ModelDiagnosticKind::NotFound, text, RetryAdvice::Never)
            }
            ServerRefusal::Other => refused(gist_of(status), text, RetryAdvice::Never),
        }
    }

    /// The failure of a redirect. It is not followed, because the key is meant for the configured
    /// server.
    pub(crate) fn redirected(&self, status: u16, location: Option<&str>) -> Failed {
        let base = Url::parse(self.server).ok();
        let target = location.and_then(|location| base?.join(location).ok());
        let target = target.map(|target| target.origin().ascii_serialization());
        let text = format!(
            "{} answered {status} and points to {}. It was not followed, for the key is meant for the first: correct the url if the second is right.",
            self.server,
            target
                .as_deref()
                .map_or_else(|| "nowhere".to_owned(), |target| self.quoter.quote(target))
        );
        failed(gist_of(status), ModelDiagnosticKind::Refused, text, RetryAdvice::Never)
    }

    /// The failure of a request without a response.
    pub(crate) fn unreachable(&self, error: reqwest::Error) -> Failed {
        let kind = NoConnection::of(&error);
        let error = error.without_url();
        let (words, innermost) =
            (self.quoter.quote(&chain(&error)), self.quoter.quote(&innermost(&error)));
        let (reason, advice) = match kind {
            NoConnection::Refused => {
                ("connection refused: is the server running?".to_owned(), RetryAdvice::Later(None))
            }
            NoConnection::UnknownHost => {
                (format!("its name cannot be resolved: {innermost}"), RetryAdvice::Later(None))
            }
            NoConnection::NotSecure => {
                (format!("the connection cannot be secured: {innermost}"), RetryAdvice::Never)
            }
            NoConnection::TimedOut => {
                ("no connection in time".to_owned(), RetryAdvice::Later(None))
            }
            NoConnection::Closed => {
                let text = format!(
                    "{} took the request and closed the connection without an answer: {words}",
                    self.server
                );
                return failed(
                    unavailable(None),
                    ModelDiagnosticKind::Unreachable,
                    text,
                    RetryAdvice::Later(None),
                );
            }
            NoConnection::Other => (words, RetryAdvice::Later(None)),
        };
        let text = format!("{} cannot be reached: {reason}", self.server);
        failed(unavailable(None), ModelDiagnosticKind::Unreachable, text, advice)
    }

    /// The failure of a broken response or connection.
    pub(crate) fn broken_off(&self, error: Option<reqwest::Error>) -> Failed {
        let words =
            error.map(|error| format!(": {}", self.quoter.quote(&chain(&error.without_url()))));
        let text = format!(
            "{} broke off in the middle of its answer{}",
            self.server,
            words.unwrap_or_default()
        );
        failed(unavailable(None), ModelDiagnosticKind::Unreachable, text, RetryAdvice::Later(None))
    }

    /// The failure of a timeout after `limit`; `what` names the missing event.
    pub(crate) fn timed_out(&self, what: &str, limit: Duration, advice: RetryAdvice) -> Failed {
        let text = format!("{} {what} within {limit:?}", self.server);
        failed(unavailable(None), ModelDiagnosticKind::Unreachable, text, advice)
    }

    /// The failure of an invalid body.
    pub(crate) fn reply(
        &self,
        error: ReplyError,
        limit: u64,
        retry_after: Option<Duration>,
    ) -> Failed {
        match error {
            ReplyError::TooLong => {
                let text = format!(
                    "The answer of {} is larger than the {} that an answer may have",
                    self.server,
                    show_size(limit)
                );
                failed(
                    other("the model's answer is too long"),
                    ModelDiagnosticKind::Limit,
                    text,
                    RetryAdvice::Never,
                )
            }
            ReplyError::NotUnderstood { beginning } => {
                let begins = match self.quoter.quote(&beginning) {
                    empty if empty.is_empty() => "is empty".to_owned(),
                    beginning => format!("begins with: {beginning}"),
                };
                let text = format!(
                    "{} answered with something that is not {}. Are its url and its kind right? The answer {begins}",
                    self.server, self.api
                );
                let gist = "the answer of the model's server cannot be read";
                failed(other(gist), ModelDiagnosticKind::Malformed, text, RetryAdvice::Never)
            }
            ReplyError::Server(error) => self.refused_within(&error, retry_after),
            ReplyError::BrokenOff => self.broken_off(None),
        }
    }

    fn status_text(&self, status: u16, error: &ServerError) -> String {
        let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        match self.quoter.quote(&error.message) {
            message if message.is_empty() => format!("{} answered {status}{reason}", self.server),
            message => format!(
                "{} answered {status}{reason}: {}",
                self.server,
                message.trim_end_matches('.')
            ),
        }
    }
}

fn failed(
    error: ModelError,
    kind: ModelDiagnosticKind,
    text: String,
    advice: RetryAdvice,
) -> Failed {
    Failed { error, trouble: ModelDiagnostic { kind, text }, advice }
}

/// The failure of a server that may answer later.
fn later(text: String, after: Option<Duration>, advice: RetryAdvice) -> Failed {
    failed(unavailable(after), ModelDiagnosticKind::Unavailable, text, advice)
}

fn other(message: &str) -> ModelError {
    ModelError::Other { message: message.to_owned() }
}

fn gist_of(status: u16) -> ModelError {
    ModelError::Other {
        message: format!("the model's server refused the request with status {status}"),
    }
}

fn unavailable(after: Option<Duration>) -> ModelError {
    ModelError::Unavailable {
        retry_after_ms: after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
    }
}

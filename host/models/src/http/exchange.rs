//! One request and its answer: attempts, delays and timeouts. Decisions about an answer are made
//! elsewhere, from its bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conclave_core::types::completion::{Completion, ModelError, Prompt};
use reqwest::header::LOCATION;
use reqwest::{Request, Response};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::chat_completions::ModelNames;
use super::failure::{Failed, FailureReport, RetryAdvice};
use super::names::ToolNames;
use super::quote::Quoter;
use super::reply::{ReplyError, ReplyReader};
use super::retry::{self, Patience};
use super::server_error::{ERROR_MAX, ServerError};
use super::{ClientState, options, request};
use crate::{ApiKey, ModelFailure, TextSink};

/// Maximum bytes of a model list; gateways have thousands of models.
const LIST_MAX: usize = 4 << 20;

/// Timeout of the model list, short because a user waits for the diagnosis.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for the usage and the end of the stream after the model has finished. Not every server
/// ends the stream.
const TAIL_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for the end of the body after the stream has ended.
const END_TIMEOUT: Duration = Duration::from_millis(20);

/// Maximum number of known models in an error message.
const NAMES_TOLD: usize = 5;

/// Bytes shown of a response that is no list.
const BEGINNING: usize = 1000;

/// An effectively infinite timeout; larger ones overflow the clock.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Forwards text and records that it did: text that was shown rules out another attempt.
struct TrackedSink {
    sink: Arc<dyn TextSink>,
    is_streamed: bool,
    is_shown: bool,
    any: AtomicBool,
}

impl TextSink for TrackedSink {
    fn text(&self, piece: &str) {
        if self.is_streamed && self.is_shown {
            self.any.store(true, Ordering::Relaxed);
            self.sink.text(piece);
        }
    }
}

/// State shared by all attempts of one request.
struct RequestExchange<'a> {
    shared: &'a ClientState,
    names: ToolNames<'a>,
    request: Request,
    tracked: TrackedSink,
    deadline: Instant,
    /// The length of the answer in tokens that the request asks for.
    max_output: Option<u64>,
}

impl ClientState {
    pub(super) async fn complete(
        &self,
        prompt: Arc<Prompt>,
        sink: Arc<dyn TextSink>,
    ) -> Result<Completion, ModelFailure> {
        let body = request::body_beside(&prompt, &self.settings).await?;
        let merged = options::merged(self.settings.api, &self.settings.options, &prompt.options)?;
        let max_output = options::max_output(&merged);
        let names = ToolNames::of(&prompt);
        let deadline = Instant::now() + self.settings.timeout.min(FOREVER);
        let is_shown = sink.is_shown();
        let any = AtomicBool::new(false);
        let tracked = TrackedSink { sink, is_streamed: prompt.stream, is_shown, any };
        let request = self.server.request(self.settings.api.path(), Some(body));
        let exchange =
            RequestExchange { shared: self, names, request, tracked, deadline, max_output };
        // One deadline for all attempts and delays, besides the timeout of each attempt.
        let outcome = timeout_at(deadline, exchange.attempts()).await;
        let failed = match outcome {
            Ok(Ok(completion)) => return Ok(completion),
            Ok(Err(failed)) => failed,
            Err(_) => self.report(None).timed_out(
                "did not answer",
                self.settings.timeout,
                RetryAdvice::Never,
            ),
        };
        Err(self.with_known_models(failed).await.into())
    }

    /// Returns the names of the server's models, without a retry.
    pub(super) async fn probe(&self) -> Result<Vec<String>, Failed> {
        let models = timeout(PROBE_TIMEOUT, self.models()).await;
        models.unwrap_or_else(|_| {
            Err(self.report(None).timed_out(
                "did not list its models",
                PROBE_TIMEOUT,
                RetryAdvice::Never,
            ))
        })
    }

    fn report(&self, key: Option<&ApiKey>) -> FailureReport<'_> {
        let quoter = self.quoter.with(key);
        FailureReport {
            api: self.settings.api,
            server: &self.server.display,
            model: &self.settings.model,
            quoter,
            has_key: key.is_some(),
        }
    }

    async fn key(&self) -> Result<Option<ApiKey>, Failed> {
        self.keys.current().await.map_err(|reason| self.report(None).no_key(&reason))
    }

    async fn models(&self) -> Result<Vec<String>, Failed> {
        let key = self.key().await?;
        let report = self.report(key.as_ref());
        let response = self.send(self.server.models_request(), key.as_ref(), &report).await?;
        let (bytes, error) = read_at_most(response, LIST_MAX).await;
        let names = serde_json::from_slice::<ModelList>(&bytes)
            .ok()
            .and_then(|list| list.names(&report.quoter));
        names.ok_or_else(|| match error {
            Some(error) => report.broken_off(Some(error)),
            None => {
                let window = &bytes[..bytes.len().min(report.quoter.window(BEGINNING))];
                let beginning = report.quoter.beginning(window, BEGINNING);
                report.reply(ReplyError::NotUnderstood { beginning }, 0, None)
            }
        })
    }

    /// Sends a request and returns the beginning of a successful response.
    async fn send(
        &self,
        mut request: Request,
        key: Option<&ApiKey>,
        report: &FailureReport<'_>,
    ) -> Result<Response, Failed> {
        if let Some(key) = key {
            self.server.set_key(&mut request, key).ok_or_else(|| report.unusable_key())?;
        }
        let response =
            self.server.send(request).await.map_err(|error| report.unreachable(error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status.is_redirection() {
            let location =
                response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
            return Err(report.redirected(status.as_u16(), location));
        }
        let retry_after = retry::retry_after(response.headers());
        let (bytes, _) = read_at_most(response, report.quoter.window(ERROR_MAX)).await;
        Err(report.refused(
            status.as_u16(),
            &ServerError::read(&bytes, &report.quoter),
            retry_after,
        ))
    }

    /// Adds some known models to an unknown-model error.
    async fn with_known_models(&self, mut failed: Failed) -> Failed {
        if matches!(failed.error, ModelError::UnknownModel { .. })
            && let Ok(mut models) = self.probe().await
            && !models.is_empty()
        {
            let key = self.keys.current().await.ok().flatten();
            let count = models.len();
            models.truncate(NAMES_TOLD);
            let more = if count > NAMES_TOLD {
                format!(", and {} more", count - NAMES_TOLD)
            } else {
                String::new()
            };
            failed.trouble.text += &format!(
                " It has {}{more}.",
                self.quoter.with(key.as_ref()).quote(&models.join(", "))
            );
        }
        failed
    }
}

impl RequestExchange<'_> {
    async fn attempts(&self) -> Result<Completion, Failed> {
        let settings = &self.shared.settings;
        let mut patience = Patience::new(settings.retries, settings.backoff, self.deadline);
        let mut key = self.shared.key().await?;
        let mut is_key_new = false;
        let mut tried = 0;
        loop {
            tried += 1;
            let mut failed = match self.attempt(key.as_ref()).await {
                Ok(completion) => return Ok(completion),
                Err(failed) => failed,
            };
            // A retry would send the same text to the sink twice.
            if self.tracked.any.load(Ordering::Relaxed) {
                return Err(failed);
            }
            let wait = match failed.advice {
                RetryAdvice::Never => return Err(failed),
                RetryAdvice::WithNewKey => {
                    // A second refusal means that the renewed key is wrong too.
                    let Some(refused) = key.filter(|_| !is_key_new) else { return Err(failed) };
                    let Ok(Some(renewed)) = self.shared.keys.renewed(&refused).await else {
                        return Err(failed);
                    };
                    (key, is_key_new) = (Some(renewed), true);
                    continue;
                }
                RetryAdvice::WhenLoaded => {
                    let most = settings.attempt_timeout.min(FOREVER);
                    patience.wait_for_loading(failed.retry_after(), most)
                }
                RetryAdvice::Later(retry_after) => patience.wait(retry_after),
            };
            let Some(wait) = wait else {
                if tried > 1 {
                    failed.trouble.text += &format!(" (tried {tried} times)");
                }
                return Err(failed);
            };
            let why = &failed.trouble.text;
            let end = if why.ends_with(['.', '?', '!']) { "" } else { "." };
            let wait_words = match wait.as_millis() {
                millis @ ..1000 => format!("{millis} ms"),
                _ => format!("{:.1} s", wait.as_secs_f64()),
            };
            self.tracked.sink.waits(&format!("{why}{end} The next attempt is in {wait_words}"));
            sleep(wait).await;
        }
    }

    async fn attempt(&self, key: Option<&ApiKey>) -> Result<Completion, Failed> {
        let report = self.shared.report(key);
        let limit = self.shared.settings.attempt_timeout;
        let request = self.request.try_clone().expect("a body that is in memory can be sent twice");
        let exchange =
            async { self.read(self.shared.send(request, key, &report).await?, &report).await };
        timeout(limit, exchange).await.unwrap_or_else(|_| {
            Err(report.timed_out("did not answer", limit, RetryAdvice::Later(None)))
        })
    }

    async fn read(
        &self,
        mut response: Response,
        report: &FailureReport<'_>,
    ) -> Result<Completion, Failed> {
        let settings = &self.shared.settings;
        let retry_after = retry::retry_after(response.headers());
        let failure = |error| report.reply(error, settings.reply_max, retry_after);
        let thinking = self.shared.thinking.clone();
        let mut reply =
            ReplyReader::new(settings.api, settings.reply_max, report.quoter.clone(), thinking)
                .with_max_output(self.max_output);
        while !reply.is_done() {
            let silence = match (self.tracked.is_streamed, reply.is_finished()) {
                (true, true) => settings.idle_timeout.min(TAIL_TIMEOUT),
                (true, false) => settings.idle_timeout,
                // Without streaming nothing has to arrive before the end; the attempt has its own
                // timeout.
                (false, _) => FOREVER,
            };
            match timeout(silence, response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    reply.handle_bytes(&bytes, &self.tracked).map_err(failure)?
                }
                Ok(Ok(None)) => break,
                // The answer is complete and only lacks a proper end.
                _ if reply.is_finished() => break,
                Ok(Err(error)) => return Err(report.broken_off(Some(error))),
                Err(_) => {
                    return Err(report.timed_out(
                        "fell silent: nothing more came",
                        silence,
                        RetryAdvice::Later(None),
                    ));
                }
            }
        }
        if reply.is_done() {
            // A connection is reused only if its body was read to the end, which is usually already
            // on its way.
            drop(timeout(END_TIMEOUT, response.chunk()).await);
        }
        reply.finish(&self.names, &settings.model, &self.tracked).map_err(failure)
    }
}

/// Reads the body up to a size; also returns the error if it broke off.
async fn read_at_most(mut response: Response, limit: usize) -> (Vec<u8>, Option<reqwest::Error>) {
    let mut bytes = Vec::new();
    while bytes.len() < limit {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                bytes.extend_from_slice(&chunk[..chunk.len().min(limit - bytes.len())])
            }
            Ok(None) => break,
            Err(error) => return (bytes, Some(error)),
        }
    }
    (bytes, None)
}

/// The standard field, and one that some servers send besides or instead.
#[derive(Deserialize)]
struct ModelList {
    #[serde(default)]
    data: Option<ModelNames>,
    #[serde(default)]
    models: Option<ModelNames>,
}

impl ModelList {
    /// The names, or `None` if this is no model list.
    fn names(self, quoter: &Quoter) -> Option<Vec<String>> {
        Some(self.data.or(self.models)?.0.iter().map(|name| quoter.name(name)).collect())
    }
}

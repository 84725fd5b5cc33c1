//! Replay of fetch requests: the recorded response is returned, and nothing is sent.

use std::borrow::Cow;

use conclave_core::types::denial::Layer;
use conclave_core::types::side_effect::{FailureCause, SideEffectAnswer};
use conclave_core::types::text::show_size;
use url::Url;

use super::ScrubbedResponse;
use super::exchange::{ExchangeFailure, FetchExchange, location};

impl ExchangeFailure {
    /// The failure for a call that deviated from its replay and ends.
    pub(super) fn deviated() -> Self {
        Self::Other(Cow::Borrowed("the call ends"))
    }

    /// The journal's form of the failure; [`FetchExchange::response_of`] reads it again.
    pub(super) fn answer(&self) -> SideEffectAnswer {
        let (cause, message) = match self {
            Self::Refused(record) => {
                return SideEffectAnswer::Denied { denial: record.denial.clone() };
            }
            Self::Denied(denial) => return SideEffectAnswer::Denied { denial: denial.clone() },
            Self::Limit(_, limit) => {
                (FailureCause::Limit { limit: limit.clone() }, format!("past the limit {limit}"))
            }
            Self::TimedOut(_) => (FailureCause::TimedOut, "it was not whole in time".to_owned()),
            Self::Unavailable(what) => (FailureCause::Unavailable, format!("no answer: {what}")),
            Self::Invalid(what) => (FailureCause::Other, what.clone()),
            Self::Other(what) => (FailureCause::Other, what.to_string()),
        };
        SideEffectAnswer::Failed { cause, message }
    }
}

impl FetchExchange {
    /// Returns the recorded response of a request, and the target of its redirect.
    pub(super) fn response_of(
        &self,
        ordinal: u32,
        url: &Url,
        answer: SideEffectAnswer,
    ) -> Result<(ScrubbedResponse, Option<String>), ExchangeFailure> {
        match answer {
            SideEffectAnswer::Fetched { status, headers, body, url: from, .. } => {
                let what = format!("the answer from {from}");
                let Some(bytes) = self.replay().blob(&body.sha256, Some(body.length), &what) else {
                    return Err(ExchangeFailure::deviated());
                };
                let limit = self.response_bytes();
                let hold = self
                    .hold(bytes.len() as u64)
                    .ok_or_else(|| self.limit(url, "response_size", &show_size(limit)))?;
                let location = location(&headers);
                Ok((ScrubbedResponse { status, headers, url: from, body: bytes, hold }, location))
            }
            SideEffectAnswer::Denied { denial } => {
                Err(ExchangeFailure::Refused(self.replay().record(ordinal, denial)))
            }
            SideEffectAnswer::Failed { cause, message } => Err(self.failure(url, cause, message)),
            SideEffectAnswer::Done { .. } | SideEffectAnswer::Ran { .. } => {
                self.replay().lose("a request was answered as if it were none");
                Err(ExchangeFailure::deviated())
            }
        }
    }

    /// The failure with the recorded cause.
    fn failure(&self, url: &Url, cause: FailureCause, message: String) -> ExchangeFailure {
        match cause {
            FailureCause::TimedOut => self.timed_out(url),
            FailureCause::Limit { limit } => {
                let reason = self.past_the_limit(&limit);
                ExchangeFailure::Limit(self.refuse(url.as_str(), Layer::Runtime, &reason), limit)
            }
            // The guest learns no more than the first time.
            FailureCause::Unavailable => ExchangeFailure::Unavailable("as before"),
            FailureCause::NotFound
            | FailureCause::NotAFile
            | FailureCause::NotADirectory
            | FailureCause::Quota { .. }
            | FailureCause::Interrupted
            | FailureCause::Other => ExchangeFailure::Other(Cow::Owned(message)),
        }
    }
}

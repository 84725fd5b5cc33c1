//! What came of a request before the call was run again: the same answer from the journal, and nothing is sent.

use std::borrow::Cow;

use conclave_core::grant::Layer;
use conclave_core::side_effect::SideEffectAnswer;
use conclave_core::text::show_size;
use url::Url;

use super::Answer;
use super::exchange::{Exchange, Failure, location};

const PAST: &str = "past the limit ";
const LATE: &str = "it was not whole in time";
const NO_ANSWER: &str = "no answer: ";

impl Failure {
    /// For a call that ends: nothing comes of it.
    pub(super) fn lost() -> Self {
        Self::Other(Cow::Borrowed("the call ends"))
    }

    /// What the journal has of it; read again by [`Exchange::told`].
    pub(super) fn words(&self) -> String {
        match self {
            Self::Limit(_, limit) => format!("{PAST}{limit}"),
            Self::TimedOut(_) => LATE.to_owned(),
            Self::Unavailable(what) => format!("{NO_ANSWER}{what}"),
            Self::Other(what) => what.to_string(),
            Self::Refused(record) => record.denial.detail.clone(),
            Self::Denied(denial) => denial.detail.clone(),
        }
    }
}

impl Exchange {
    /// The answer that a request got before, and where it leads.
    pub(super) fn told(&self, ordinal: u32, url: &Url, answer: SideEffectAnswer) -> Result<(Answer, Option<String>), Failure> {
        match answer {
            SideEffectAnswer::Fetched { status, headers, body, url: from, .. } => {
                let Some(bytes) = self.past().blob(&body.sha256, Some(body.length)) else {
                    self.past().lose(&format!("the answer from {from} is not kept any more"));
                    return Err(Failure::lost());
                };
                let limit = self.response_bytes();
                let hold = self.hold(bytes.len() as u64).ok_or_else(|| self.limit(url, "response_size", &show_size(limit)))?;
                let location = location(&headers);
                Ok((Answer { status, headers, url: from, body: bytes, hold }, location))
            }
            SideEffectAnswer::Denied { denial } => Err(Failure::Refused(self.past().record(ordinal, denial))),
            SideEffectAnswer::Failed { message } => Err(self.failure(url, &message)),
            SideEffectAnswer::Done { .. } => {
                self.past().lose("a request was answered as if it were none");
                Err(Failure::lost())
            }
        }
    }

    /// What the words of the journal mean.
    fn failure(&self, url: &Url, words: &str) -> Failure {
        if words == LATE {
            return self.timed_out(url);
        }
        if let Some(limit) = words.strip_prefix(PAST) {
            let reason = self.past_the_limit(limit);
            return Failure::Limit(self.refuse(url.as_str(), Layer::Runtime, &reason), limit.to_owned());
        }
        if words.starts_with(NO_ANSWER) {
            // The guest is not told more.
            return Failure::Unavailable("as before");
        }
        Failure::Other(Cow::Owned(words.to_owned()))
    }
}

//! One request of a guest, from the first check to the response, with all redirects. Its steps are:
//! check, journal, resolve, check the addresses, insert secrets, send, scrub, journal. Each
//! redirect is checked, counted and journalled like a request.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use conclave_core::permissions::fetch::{check_body, next_hop};
use conclave_core::permissions::grants::{FetchGrant, Rights};
use conclave_core::permissions::secret::{RequestParts, SecretPlan};
use conclave_core::types::capability::Capability;
use conclave_core::types::denial::{Denial, DenialRecord, Layer};
use conclave_core::types::side_effect::{Digest, FailureCause, SideEffect, SideEffectAnswer};
use conclave_core::types::text::{show_duration, show_size};
use tokio::time::Instant;
use url::Url;

use super::ScrubbedResponse;
use super::client::{ConnectionError, Raw, send};
use crate::imports::call::{CallCore, CallReplay, CallSecrets, EffectDecision, PluginContext};
use crate::imports::outgoing::{Hold, Holding, Unreached, checked_addresses};
use crate::support::blobs::describe;

/// Bytes up to which a body is stored for the journal; of a larger one only the digest is
/// journalled.
const KEPT: usize = 256 << 10;

/// The state for sending, independent of the call, so that a request can run beside the guest.
pub(crate) struct FetchExchange {
    replay: Arc<CallReplay>,
    secrets: CallSecrets,
    holding: Holding,
    /// The ordinal of the next request among the call's side effects.
    ordinal: u32,
}

/// Why there is no response. Its record still has to be recorded.
#[derive(Debug)]
pub(crate) enum ExchangeFailure {
    /// An invalid request, with the reason for the guest.
    Invalid(String),
    Refused(Box<DenialRecord>),
    /// Refused by the room, which has recorded it.
    Denied(Denial),
    /// An exceeded limit of the grant, for the guest.
    Limit(Box<DenialRecord>, String),
    TimedOut(Box<DenialRecord>),
    Unavailable(&'static str),
    Other(Cow<'static, str>),
}

/// A response, with details for the next hop and the journal only.
struct Arrived {
    answer: ScrubbedResponse,
    /// Unscrubbed: a secret in it becomes a placeholder when the redirect is followed.
    location: Option<String>,
    address: Option<SocketAddr>,
}

impl FetchExchange {
    pub(crate) fn new(core: &CallCore, holding: &Holding) -> Self {
        Self {
            replay: Arc::clone(&core.replay),
            secrets: core.secrets(),
            holding: holding.clone(),
            ordinal: core.effects,
        }
    }

    fn rights(&self) -> Rights<'_> {
        self.secrets.rights()
    }

    fn plugin(&self) -> &PluginContext {
        self.secrets.plugin()
    }

    /// The ordinal of the call's next side effect.
    pub(crate) fn next_ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Checks whether a request may be sent, without sending or resolving anything.
    ///
    /// # Errors
    /// `Invalid` if its method has no body, `Refused`, or `Limit` if it is too long.
    pub(crate) fn decide(&self, parts: &RequestParts) -> Result<SecretPlan, ExchangeFailure> {
        let body = parts.body.as_deref().unwrap_or_default();
        check_body(&parts.method, body)
            .map_err(|error| ExchangeFailure::Invalid(error.to_string()))?;
        let headers = parts.headers.iter().map(|(name, _)| name.as_str());
        self.rights()
            .may_fetch(&parts.method, &parts.url, headers)
            .map_err(ExchangeFailure::Refused)?;
        let plan = self.secrets.check(parts).map_err(ExchangeFailure::Refused)?;
        self.check_length(parts)?;
        Ok(plan)
    }

    /// Sends a request and waits for the whole response. `follow` enables redirects.
    pub(crate) async fn run(
        &mut self,
        mut parts: RequestParts,
        timeout_ms: Option<u64>,
        follow: bool,
    ) -> Result<ScrubbedResponse, ExchangeFailure> {
        let mut plan = self.decide(&parts)?;
        let redirects = self.grant().redirects;
        let deadline = Instant::now() + self.time(timeout_ms);
        let mut remaining = if follow { redirects } else { 0 };
        loop {
            let (answer, location) = self.hop(&parts, &plan, deadline).await?;
            if !follow || redirects == 0 {
                return Ok(answer);
            }
            let hop = next_hop(&parts.method, &parts.url, answer.status, location.as_deref())
                .map_err(|reason| {
                    let from = parts.url.as_str();
                    ExchangeFailure::Refused(self.refuse(
                        from,
                        Layer::Runtime,
                        &format!("the answer is a redirect that nobody follows: {reason}"),
                    ))
                })?;
            let Some(hop) = hop else { return Ok(answer) };
            if remaining == 0 {
                return Err(self.limit(&parts.url, "redirects", &redirects.to_string()));
            }
            remaining -= 1;
            // `check_hop` drops headers with placeholders itself, below.
            parts.headers.retain(|(name, _)| hop.keeps_header(name, false));
            parts.body = parts.body.filter(|_| hop.keeps_body);
            parts.method = hop.method;
            drop(self.secrets.check_hop(&mut parts, hop.url).map_err(ExchangeFailure::Refused)?);
            // The target needs its own permission: a redirect grants nothing.
            plan = self.decide(&parts)?;
        }
    }

    /// Sends one request, journalled before it is sent and before its response is used.
    async fn hop(
        &mut self,
        parts: &RequestParts,
        plan: &SecretPlan,
        deadline: Instant,
    ) -> Result<(ScrubbedResponse, Option<String>), ExchangeFailure> {
        let ordinal = self.ordinal;
        self.ordinal = self.ordinal.saturating_add(1);
        let _busy = match self.replay.ask_effect(ordinal, side_effect(parts, plan)).await {
            EffectDecision::Go(busy) => busy,
            EffectDecision::Told(answer) => return self.response_of(ordinal, &parts.url, answer),
            EffectDecision::Refused(denial) => return Err(ExchangeFailure::Denied(denial)),
            EffectDecision::Lost => return Err(ExchangeFailure::deviated()),
        };
        let outcome = match tokio::time::timeout_at(deadline, self.perform(parts, plan)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.timed_out(&parts.url)),
        };
        // Kept before the end of the effect is journalled: a replay needs the whole record.
        if let Err(ExchangeFailure::Refused(record)) = &outcome {
            self.replay.keep_record(ordinal, record);
        }
        self.replay.effect_ended(ordinal, self.ended(&outcome)).await;
        outcome.map(|arrived| (arrived.answer, arrived.location))
    }

    async fn perform(
        &self,
        parts: &RequestParts,
        plan: &SecretPlan,
    ) -> Result<Arrived, ExchangeFailure> {
        // Within the deadline of the request, so that a full queue cannot extend it.
        let _turn = self.plugin().outgoing.turn().await;
        let addresses = self.addresses(&parts.url).await?;
        let leaving = self.secrets.put_in(parts, plan).await.map_err(ExchangeFailure::Refused)?;
        let before_query = |url: &Url| url[..url::Position::AfterPath].to_owned();
        // The addresses and the grant were checked for the URL without values.
        if before_query(&leaving.url) != before_query(&parts.url) {
            return Err(ExchangeFailure::Other(
                "a secret would change where the request goes".into(),
            ));
        }
        let limit = self.grant().response_bytes;
        let raw = send(leaving, &addresses, limit).await.map_err(|trouble| match trouble {
            ConnectionError::TooLong => self.limit(&parts.url, "response_size", &show_size(limit)),
            ConnectionError::NotSent(what) => ExchangeFailure::Other(what.into()),
            ConnectionError::NoAnswer(what) => ExchangeFailure::Unavailable(what),
        })?;
        let address = raw.address;
        let location = location(&raw.headers);
        if location.as_deref().is_some_and(|location| self.secrets.scrub_text(location) != location)
        {
            // The journalled location is scrubbed, so a replay would follow another one.
            self.replay.forget();
        }
        Ok(Arrived { answer: self.scrubbed(&parts.url, raw).await?, location, address })
    }

    /// Returns the addresses of the URL's host.
    async fn addresses(&self, url: &Url) -> Result<Vec<IpAddr>, ExchangeFailure> {
        let resolver = &*self.plugin().outgoing.resolver;
        let found = checked_addresses(resolver, &self.rights(), url).await;
        found.map_err(|unreached| match unreached {
            Unreached::NoAddress => ExchangeFailure::Unavailable("its name stands for no address"),
            Unreached::Refused(record) => ExchangeFailure::Refused(record),
        })
    }

    /// Returns the response without secrets, for the guest and the journal.
    async fn scrubbed(&self, url: &Url, raw: Raw) -> Result<ScrubbedResponse, ExchangeFailure> {
        let Raw { status, headers, body, .. } = raw;
        let text = |text: &str| self.secrets.scrub_text(text).into_owned();
        let headers = headers.iter().map(|(name, value)| (text(name), text(value))).collect();
        // Scrubbed before it is counted, since scrubbing changes the length.
        let body = self.secrets.scrub_bytes(body).await;
        let limit = self.grant().response_bytes;
        let Some(hold) = self.holding.hold(body.len() as u64, limit) else {
            return Err(self.limit(
                url,
                "response_size, answers that are kept together",
                &format!("4 x {}", show_size(limit)),
            ));
        };
        Ok(ScrubbedResponse { status, headers, url: url.to_string(), body, hold })
    }

    fn check_length(&self, parts: &RequestParts) -> Result<(), ExchangeFailure> {
        let headers: usize =
            parts.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let length = parts.url.as_str().len() + headers + parts.body.as_ref().map_or(0, Vec::len);
        if length as u64 > self.request_bytes() { Err(self.too_long(&parts.url)) } else { Ok(()) }
    }

    /// The grant.
    fn grant(&self) -> &FetchGrant {
        static NOTHING: std::sync::LazyLock<FetchGrant> =
            std::sync::LazyLock::new(|| FetchGrant::new(Vec::new()));
        // A request without one was refused earlier, so the default is never used.
        self.plugin().setup.grants.fetch.as_ref().unwrap_or(&NOTHING)
    }

    pub(super) fn refuse(&self, target: &str, layer: Layer, reason: &str) -> Box<DenialRecord> {
        self.rights().refuse(Capability::Fetch, target, layer, reason, None)
    }

    /// The journal's form of an outcome.
    fn ended(&self, outcome: &Result<Arrived, ExchangeFailure>) -> SideEffectAnswer {
        let Arrived { answer, address, .. } = match outcome {
            Ok(arrived) => arrived,
            Err(failure) => return failure.answer(),
        };
        let media_type = answer
            .headers
            .iter()
            .find(|(name, _)| name == "content-type")
            .map(|(_, value)| value.as_str());
        let media_type =
            media_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        // Only a small body is stored, so that a plugin that reads much does not evict attachments.
        let keep = |media_type: &str| match answer.body.len() {
            // The body must be stored for a replay to return it.
            ..=KEPT => self.plugin().services.blobs.keep(&answer.body, media_type, None),
            _ => {
                self.replay.forget();
                describe(&answer.body, media_type, None)
            }
        };
        let bytes = "application/octet-stream";
        match keep(media_type)
            .or_else(|_| keep(bytes))
            .or_else(|_| describe(&answer.body, bytes, None))
        {
            Ok(body) => SideEffectAnswer::Fetched {
                status: answer.status,
                headers: answer.headers.clone(),
                body,
                url: answer.url.clone(),
                address: address.map(|address| address.to_string()),
            },
            Err(error) => {
                SideEffectAnswer::Failed { cause: FailureCause::Other, message: error.to_string() }
            }
        }
    }

    /// The maximum bytes of a request.
    pub(crate) fn request_bytes(&self) -> u64 {
        self.grant().request_bytes
    }

    /// The time limit of a request: the guest's, up to that of the grant.
    pub(crate) fn time(&self, wanted_ms: Option<u64>) -> Duration {
        Duration::from_millis(wanted_ms.unwrap_or(u64::MAX).min(self.grant().time_ms))
    }

    pub(crate) fn timed_out(&self, url: &Url) -> ExchangeFailure {
        let time = show_duration(self.grant().time_ms);
        let reason = format!(
            "it took longer than the plugin wanted to wait, or than plugins.{}.grants.fetch.timeout = {time}",
            self.plugin().name
        );
        ExchangeFailure::TimedOut(self.refuse(url.as_str(), Layer::Runtime, &reason))
    }

    pub(crate) fn too_long(&self, url: &Url) -> ExchangeFailure {
        self.limit(url, "request_size", &show_size(self.request_bytes()))
    }

    /// The failure for a reached limit of the grant.
    pub(super) fn limit(&self, url: &Url, key: &str, value: &str) -> ExchangeFailure {
        let limit = format!("{key} = {value}");
        ExchangeFailure::Limit(
            self.refuse(url.as_str(), Layer::Runtime, &self.past_the_limit(&limit)),
            limit,
        )
    }

    /// The operator's explanation of an exceeded limit.
    pub(super) fn past_the_limit(&self, limit: &str) -> String {
        format!("the request is past plugins.{}.grants.fetch.{limit}", self.plugin().name)
    }

    pub(super) fn replay(&self) -> &CallReplay {
        &self.replay
    }

    /// The maximum bytes of a response.
    pub(super) fn response_bytes(&self) -> u64 {
        self.grant().response_bytes
    }

    /// Counts bytes of a response that the guest holds.
    pub(super) fn hold(&self, bytes: u64) -> Option<Hold> {
        self.holding.hold(bytes, self.response_bytes())
    }
}

/// The target of a redirect.
pub(super) fn location(headers: &[(String, String)]) -> Option<String> {
    headers.iter().find(|(name, _)| name == "location").map(|(_, value)| value.clone())
}

fn side_effect(parts: &RequestParts, plan: &SecretPlan) -> SideEffect {
    let RequestParts { method, url, headers, body } = plan.redact(parts);
    let digest = |body: Vec<u8>| Digest {
        sha256: crate::support::digest::sha256(&body),
        length: body.len() as u64,
    };
    SideEffect::Fetch {
        method,
        url: url.into(),
        headers,
        body: body.map(digest),
        secrets: plan.names(),
    }
}

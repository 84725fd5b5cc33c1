//! Webhook: posts each event as JSON to a URL. A receiver recognises a repetition by the header
//! `Idempotency-Key`. An overloaded receiver gets the events later; any other refusal is an error,
//! and the host repeats the call a few times before it stops the observer.

use conclave_sdk::fetch::{self, Response};
use conclave_sdk::observer::{ObservedEvent, Observer, key};
use conclave_sdk::{Error, Result, config};
use serde::Deserialize;
use serde_json::{Value, json};

/// The header in which a secret is a bearer token.
const AUTHORIZATION: &str = "Authorization";

/// The `config` table of this plugin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    #[serde(default)]
    token: String,
    #[serde(default = "authorization")]
    secret_header: String,
}

fn authorization() -> String {
    AUTHORIZATION.to_owned()
}

struct Webhook;

impl Observer for Webhook {
    fn observe(events: &[ObservedEvent]) -> Result<()> {
        let settings: Settings = config::get()?;
        events.iter().try_for_each(|event| post(event, &settings))
    }
}

fn post(event: &ObservedEvent, settings: &Settings) -> Result<()> {
    let request =
        fetch::post(&settings.url).header("Idempotency-Key", key(event)).json(&body(event));
    let request = match settings.token.as_str() {
        "" => request,
        token if settings.secret_header.eq_ignore_ascii_case(AUTHORIZATION) => {
            request.bearer_secret(token)
        }
        token => request.header_secret(&settings.secret_header, token),
    };
    checked(&request.send()?)
}

fn body(event: &ObservedEvent) -> Value {
    // The host writes `details` itself, so it is JSON.
    let details: Value = serde_json::from_str(&event.details).unwrap_or_default();
    json!({
        "room": event.room, "seq": event.seq, "index": event.index, "time": event.time,
        "kind": event.kind, "task": event.task, "details": details,
    })
}

/// Whether the receiver took the event. Its overload is temporary.
fn checked(response: &Response) -> Result<()> {
    match response.status() {
        200..=299 => Ok(()),
        429 | 500..=599 => Err(Error::Unavailable { retry_after_ms: retry_after(response) }),
        status => Err(Error::other(format!("the receiver refused the event with status {status}"))),
    }
}

/// The pause of `Retry-After` in milliseconds; `None` without one, or for a date: the host then
/// chooses.
fn retry_after(response: &Response) -> Option<u64> {
    let seconds: u64 = response.header("retry-after")?.trim().parse().ok()?;
    Some(seconds.saturating_mul(1_000))
}

conclave_sdk::export!(observer: Webhook);

#[cfg(test)]
mod tests {
    use super::*;
    use conclave_sdk::testing::FakeHost;

    const URL: &str = "https://hooks.example.org/in";

    fn event(seq: u64) -> ObservedEvent {
        ObservedEvent {
            room: "3f2a91c0".to_owned(),
            seq,
            index: 1,
            time: 7,
            kind: "task-ended".to_owned(),
            task: Some("desk".to_owned()),
            details: json!({ "notice": "task-ended", "task": "desk" }).to_string(),
        }
    }

    fn host() -> FakeHost {
        FakeHost::new().config(json!({ "url": URL }))
    }

    #[test]
    fn each_event_is_posted_with_its_key() {
        let mut host = host().response(URL, 204, "").response(URL, 204, "");
        host.run(|| Webhook::observe(&[event(17), event(18)])).unwrap();
        let [first, second] = host.requests() else { panic!("{:?}", host.requests()) };
        let key = |request: &conclave_sdk::testing::FakeRequest| {
            let key = request.headers.iter().find(|header| header.name == "Idempotency-Key");
            key.map(|header| header.value.clone())
        };
        assert_eq!(key(first).as_deref(), Some("3f2a91c0:17.1"));
        assert_eq!(key(second).as_deref(), Some("3f2a91c0:18.1"));
        let body: Value = serde_json::from_slice(first.body.as_deref().unwrap()).unwrap();
        assert_eq!(body["details"]["notice"], "task-ended");
        assert_eq!(body["task"], "desk");
    }

    #[test]
    fn an_overloaded_receiver_is_asked_later_and_a_refusal_is_an_error() {
        for status in [429, 500, 503] {
            let mut host = host().response(URL, status, "");
            let answer = host.run(|| Webhook::observe(&[event(1)]));
            assert_eq!(answer, Err(Error::Unavailable { retry_after_ms: None }));
        }
        let mut host = host().response_with(URL, 503, &[("Retry-After", "7")], "");
        let answer = host.run(|| Webhook::observe(&[event(1)]));
        assert_eq!(answer, Err(Error::Unavailable { retry_after_ms: Some(7_000) }));
        let mut host = self::host().response(URL, 404, "");
        assert!(matches!(host.run(|| Webhook::observe(&[event(1)])), Err(Error::Other(_))));
    }

    #[test]
    fn an_event_that_was_not_taken_ends_the_batch() {
        let mut host = host().response(URL, 500, "");
        host.run(|| Webhook::observe(&[event(1), event(2)])).unwrap_err();
        assert_eq!(host.requests().len(), 1, "no later event overtakes it");
    }

    #[test]
    fn without_a_grant_the_refusal_reaches_the_host() {
        let mut host = host();
        let refused = host.run(|| Webhook::observe(&[event(1)]));
        assert!(matches!(refused, Err(Error::Denied(denial)) if denial.capability == "fetch"));
    }
}

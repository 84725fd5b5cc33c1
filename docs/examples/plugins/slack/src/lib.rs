//! Slack: posts messages to channels and threads, and reads the events that Slack signs. A
//! conversation is a channel of Slack, `C024BE91L`, or a thread, `C024BE91L:1482960137.003543`.

mod events;

use conclave_sdk::channel::{
    Channel, Delivery, Message, Reception, Request, RetryHint, header, verify_hmac,
};
use conclave_sdk::fetch::{self, Response};
use conclave_sdk::{Result, config};
use serde::Deserialize;
use serde_json::{Value, json};

/// The seconds by which the time of a request may differ, as Slack recommends: an older one may be
/// a repetition.
const TOLERANCE: u64 = 300;

/// The `config` table of this plugin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    api: String,
    token: String,
    channel: String,
}

struct Slack;

impl Channel for Slack {
    fn send(message: &Message) -> Result<Delivery> {
        let settings: Settings = config::get()?;
        let address = message.conversation.as_deref().unwrap_or(&settings.channel);
        if address.is_empty() {
            let reason = "`config.channel` names no channel for what belongs to no conversation";
            return Ok(Delivery::Refused(reason.to_owned()));
        }
        let request = fetch::post(format!("{}/chat.postMessage", settings.api))
            .bearer_secret(&settings.token)
            .header("Idempotency-Key", message.id.clone());
        // An error leaves the outcome unknown, if the request was sent.
        let response = request.json(&posted(address, &message.text)).send()?;
        Ok(delivery(&response))
    }

    fn received(request: &Request) -> Result<Reception> {
        match is_signed(request) {
            true => events::read(&request.body),
            false => Ok(Reception::Refused("it is not signed by Slack".to_owned())),
        }
    }
}

/// The body of `chat.postMessage`.
fn posted(address: &str, text: &str) -> Value {
    let text = escaped(text);
    match address.split_once(':') {
        Some((channel, thread)) => json!({ "channel": channel, "thread_ts": thread, "text": text }),
        None => json!({ "channel": address, "text": text }),
    }
}

/// The text without Slack's own forms: `<!channel>` would call everyone.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// What is known of a message. Slack answers most errors with the status 200.
fn delivery(response: &Response) -> Delivery {
    let status = response.status();
    if status == 429 || status == 503 {
        let reason = format!("Slack answered {status}");
        return Delivery::Retry(RetryHint { after_ms: retry_after_ms(response), reason });
    }
    let Ok(answer) = response.json::<Value>() else {
        return match status {
            400..=499 => Delivery::Refused(format!("Slack answered {status}")),
            _ => Delivery::Unknown(format!("Slack answered {status}, and not in its form")),
        };
    };
    match (answer["ok"].as_bool(), answer["error"].as_str()) {
        (Some(true), _) => Delivery::Delivered(answer["ts"].as_str().map(str::to_owned)),
        (_, Some("ratelimited" | "rate_limited" | "service_unavailable")) => {
            let reason = "Slack is busy".to_owned();
            Delivery::Retry(RetryHint { after_ms: retry_after_ms(response), reason })
        }
        // By Slack's words the message may have been posted all the same.
        (_, Some(error @ ("fatal_error" | "internal_error" | "request_timeout"))) => {
            Delivery::Unknown(format!("Slack answered {error}"))
        }
        (Some(false), Some(error)) => Delivery::Refused(format!("Slack answered {error}")),
        _ => Delivery::Unknown(format!("Slack answered {status}, and not in its form")),
    }
}

fn retry_after_ms(response: &Response) -> Option<u64> {
    let seconds: u64 = response.header("retry-after")?.trim().parse().ok()?;
    Some(seconds.saturating_mul(1_000))
}

/// Whether Slack has signed the request a short time ago. The host has the signing secret.
fn is_signed(request: &Request) -> bool {
    let time = header(request, "x-slack-request-timestamp").unwrap_or_default();
    let is_recent = time
        .parse::<u64>()
        .is_ok_and(|seconds| seconds.abs_diff(request.time / 1_000) <= TOLERANCE);
    let signature = header(request, "x-slack-signature")
        .and_then(|signature| from_hex(signature.strip_prefix("v0=")?))
        .unwrap_or_default();
    let data = [b"v0:", time.as_bytes(), b":", request.body.as_slice()].concat();
    is_recent && verify_hmac(&data, &signature)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let is_whole = text.is_ascii() && text.len().is_multiple_of(2);
    let pair = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    is_whole.then(|| (0..text.len()).step_by(2).map(pair).collect())?
}

conclave_sdk::export!(channel: Slack);

#[cfg(test)]
mod tests {
    use conclave_sdk::channel::{Proof, ReceivedMessage, SignedData};
    use conclave_sdk::testing::FakeHost;

    use super::*;

    const URL: &str = "https://slack.com/api/chat.postMessage";

    fn settings(channel: &str) -> Value {
        json!({ "api": "https://slack.com/api", "token": "slack", "channel": channel })
    }

    fn message(conversation: Option<&str>) -> Message {
        Message {
            id: "msg_1".to_owned(),
            attempt: 1,
            conversation: conversation.map(str::to_owned),
            room: "3f2a91c0".to_owned(),
            text: "a < b & <!channel>".to_owned(),
        }
    }

    #[test]
    fn a_message_goes_to_its_thread_and_calls_nobody() {
        let answer = json!({ "ok": true, "ts": "1482960137.003543" }).to_string();
        let mut host =
            FakeHost::new().config(settings("")).secret("slack").response(URL, 200, answer);
        let sent = host.run(|| Slack::send(&message(Some("C1:17.2")))).unwrap();
        assert_eq!(sent, Delivery::Delivered(Some("1482960137.003543".to_owned())));
        let [request] = host.requests() else { panic!("{:?}", host.requests()) };
        let body: Value = serde_json::from_slice(request.body.as_deref().unwrap()).unwrap();
        let text = "a &lt; b &amp; &lt;!channel&gt;";
        assert_eq!(body, json!({ "channel": "C1", "thread_ts": "17.2", "text": text }));
    }

    #[test]
    fn what_is_known_of_a_message_follows_from_the_answer() {
        let sent = |status, answer: Value| {
            let host = FakeHost::new().config(settings("C2")).secret("slack");
            let mut host = host.response(URL, status, answer.to_string());
            host.run(|| Slack::send(&message(None))).unwrap()
        };
        let error = |error: &str| json!({ "ok": false, "error": error });
        assert!(matches!(sent(429, json!(null)), Delivery::Retry(_)));
        assert!(matches!(sent(200, error("ratelimited")), Delivery::Retry(_)));
        assert!(matches!(sent(200, error("channel_not_found")), Delivery::Refused(_)));
        assert!(matches!(sent(200, error("fatal_error")), Delivery::Unknown(_)));
        assert!(matches!(sent(500, json!("oops")), Delivery::Unknown(_)));
        let mut host = FakeHost::new().config(settings(""));
        let sent = host.run(|| Slack::send(&message(None))).unwrap();
        assert!(matches!(sent, Delivery::Refused(_)), "it has no address");
    }

    #[test]
    fn only_what_slack_has_signed_now_is_read() {
        let body = json!({
            "type": "event_callback", "event_id": "Ev1",
            "event": { "type": "message", "user": "U1", "channel": "C1", "text": "hello" },
        });
        let body = body.to_string().into_bytes();
        let data = [b"v0:1700000000:".as_slice(), &body].concat();
        let valid = Proof::HmacSha256(SignedData { data, signature: vec![0xab, 0xcd] });
        let received = |time: &str, signature: &str| {
            let headers = [("x-slack-request-timestamp", time), ("x-slack-signature", signature)];
            let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let time = 1_700_000_000_000;
            let request = Request { headers, query: String::new(), body: body.clone(), time };
            FakeHost::new().proof(valid.clone()).run(|| Slack::received(&request)).unwrap()
        };
        let message = ReceivedMessage {
            id: "Ev1".to_owned(),
            sender: "U1".to_owned(),
            conversation: "C1".to_owned(),
            text: "hello".to_owned(),
        };
        assert_eq!(received("1700000000", "v0=abcd"), Reception::Messages(vec![message]));
        for (time, signature) in
            [("1700000000", "v0=abce"), ("1700000000", "abcd"), ("1600000000", "v0=abcd"), ("", "")]
        {
            assert!(matches!(received(time, signature), Reception::Refused(_)));
        }
    }
}

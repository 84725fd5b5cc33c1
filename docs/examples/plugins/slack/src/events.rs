//! The requests of Slack's Events API.

use conclave_sdk::channel::{AnswerType, HttpAnswer, ReceivedMessage, Reception};
use conclave_sdk::{Error, Result};
use serde::Deserialize;

/// A request of Slack. Other kinds are left out.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Callback {
    /// The proof, at set-up, that the address is ours.
    UrlVerification { challenge: String },
    #[serde(rename = "event_callback")]
    Happened { event_id: String, event: Event },
    #[serde(other)]
    Other,
}

/// An event. Slack repeats it under its id until it is accepted.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    /// Such as `message_changed`; a message that a person wrote has none.
    subtype: Option<String>,
    /// Only the messages of programs have one, also those of this plugin.
    bot_id: Option<String>,
    user: Option<String>,
    channel: Option<String>,
    thread_ts: Option<String>,
    #[serde(default)]
    text: String,
}

/// Reads the body of a request that is signed.
pub(crate) fn read(body: &[u8]) -> Result<Reception> {
    let callback = serde_json::from_slice(body)
        .map_err(|error| Error::other(format!("the body is none of Slack's: {error}")))?;
    Ok(match callback {
        Callback::UrlVerification { challenge } => {
            Reception::Answer(HttpAnswer { body_type: AnswerType::Text, body: challenge })
        }
        Callback::Happened { event_id, event } => {
            Reception::Messages(message(event_id, event).into_iter().collect())
        }
        Callback::Other => Reception::Messages(Vec::new()),
    })
}

/// The message of an event; `None` for one that no person wrote.
fn message(id: String, event: Event) -> Option<ReceivedMessage> {
    let is_said = matches!(event.kind.as_str(), "message" | "app_mention");
    if !is_said || event.subtype.is_some() || event.bot_id.is_some() {
        return None;
    }
    let (sender, channel) = (event.user?, event.channel?);
    let conversation = match event.thread_ts {
        Some(thread) => format!("{channel}:{thread}"),
        None => channel,
    };
    let text = event.text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(ReceivedMessage { id, sender, conversation, text })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn received(event: &Value) -> Vec<ReceivedMessage> {
        let body = json!({ "type": "event_callback", "event_id": "Ev1", "event": event });
        match read(body.to_string().as_bytes()) {
            Ok(Reception::Messages(messages)) => messages,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_people_write_is_a_message() {
        let said = json!({ "type": "message", "user": "U1", "channel": "C1", "text": "a &lt; b" });
        assert_eq!(received(&said)[0].text, "a < b");
        for (key, value) in [
            ("subtype", json!("message_changed")),
            ("bot_id", json!("B1")),
            ("type", json!("reaction_added")),
            ("user", Value::Null),
        ] {
            let mut other = said.clone();
            other[key] = value;
            assert_eq!(received(&other), []);
        }
        let mut reply = said;
        reply["thread_ts"] = json!("17.2");
        assert_eq!(received(&reply)[0].conversation, "C1:17.2");
    }

    #[test]
    fn the_challenge_is_echoed_and_other_bodies_are_no_messages() {
        let challenge = json!({ "type": "url_verification", "challenge": "3eZbrw1a" }).to_string();
        let answer = HttpAnswer { body_type: AnswerType::Text, body: "3eZbrw1a".to_owned() };
        assert_eq!(read(challenge.as_bytes()), Ok(Reception::Answer(answer)));
        assert_eq!(read(br#"{"type":"app_rate_limited"}"#), Ok(Reception::Messages(Vec::new())));
        assert!(read(b"payload=x").is_err());
    }
}

//! A channel that behaves as its setting specifies, correctly or not.

use conclave_sdk::channel::{
    AnswerType, Channel, Delivery, HttpAnswer, Message, ReceivedMessage, Reception, Request,
    RetryHint, verify_token,
};
use conclave_sdk::{Error, Result, config, fetch, kv};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(default)]
struct Settings {
    /// What it does with messages: `log`, `fetch`, `later`, `fail`, `spin` or `trap`.
    send: String,
    /// What it does with requests: `read`, `forge`, `fetch`, `keep`, `long`, `many`, `name`, `answer`,
    /// `spin` or `trap`.
    receive: String,
    url: String,
}

impl Default for Settings {
    fn default() -> Self {
        let url = "https://a.example/x".to_owned();
        Self { send: "log".to_owned(), receive: "read".to_owned(), url }
    }
}

struct Hostile;

impl Channel for Hostile {
    fn send(message: &Message) -> Result<Delivery> {
        let Settings { send, url, .. } = config::get()?;
        match send.as_str() {
            "log" => Ok(Delivery::Delivered(None)),
            "fetch" => {
                fetch::post(url).body(message.text.clone()).send()?;
                Ok(Delivery::Delivered(None))
            }
            // Sends the message, and says that it did not.
            "later" if message.attempt == 1 => {
                let reason = "it is not the time".to_owned();
                Ok(Delivery::Retry(RetryHint { after_ms: Some(1), reason }))
            }
            "later" => Ok(Delivery::Delivered(Some(message.attempt.to_string()))),
            "fail" => Err(Error::other("the channel fails")),
            "spin" => loop {
                std::hint::black_box(0);
            },
            "trap" => panic!("the channel panics"),
            other => Err(Error::other(format!("unknown mode {other}"))),
        }
    }

    fn received(request: &Request) -> Result<Reception> {
        let Settings { receive, url, .. } = config::get()?;
        let token = request.headers.iter().find(|(name, _)| name == "x-token");
        let is_valid = token.is_some_and(|(_, token)| verify_token(token));
        let text = String::from_utf8_lossy(&request.body).into_owned();
        let message = |sender: &str, text: String| ReceivedMessage {
            id: request.query.clone(),
            sender: sender.to_owned(),
            conversation: "C1".to_owned(),
            text,
        };
        let said = |message| Ok(Reception::Messages(vec![message]));
        match receive.as_str() {
            "read" if !is_valid => Ok(Reception::Refused("wrong token".to_owned())),
            "read" => {
                // The sender stands before the text.
                let (sender, text) = text.split_once(' ').unwrap_or(("U1", &text));
                said(message(sender, text.to_owned()))
            }
            // It does not care whether the token was valid.
            "forge" => said(message("U1", text)),
            "fetch" => {
                fetch::post(url).body(text.clone()).send()?;
                said(message("U1", text))
            }
            "keep" => {
                kv::set("seen", text.as_bytes())?;
                said(message("U1", text))
            }
            "long" => said(message("U1", "x".repeat(1 << 20))),
            "many" => {
                let all = (0..1_000).map(|_| message("U1", text.clone()));
                Ok(Reception::Messages(all.collect()))
            }
            "name" => said(message("operator\nuser", text)),
            "answer" => {
                let body = "<script>alert(1)</script>".to_owned();
                Ok(Reception::Answer(HttpAnswer { body_type: AnswerType::Text, body }))
            }
            "spin" => loop {
                std::hint::black_box(0);
            },
            "trap" => panic!("the channel panics"),
            other => Err(Error::other(format!("unknown mode {other}"))),
        }
    }
}

conclave_sdk::export!(channel: Hostile, manifest: "manifests/hostile_channel.toml");

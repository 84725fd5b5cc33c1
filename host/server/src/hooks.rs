//! Requests to channels: `POST /hooks/CHANNEL`, a webhook that is signed with the secret of the
//! channel, or a request that its plugin reads. The signature takes the place of a session. From there
//! on it is a message of the channel like any other: its access, rate, keys and gates apply.

use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderName, PROXY_AUTHORIZATION};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use axum::{Json, http::HeaderMap};
use conclave_core::setup::plugin_query::{ChannelReception, ChannelRequest, ReceivedMessage};
use conclave_core::types::ids::{CHANNEL_PREFIX, ChannelId, Millis, TaskName};
use conclave_core::types::request::Inbound;
use conclave_runtime::endpoints::{HookRefusal, HookRequest};
use conclave_runtime::webhook::{ID, SIGNATURE, SignedHeaders, TIMESTAMP};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::api::{Problem, bad_arguments};
use crate::conversations::FAILED;
use crate::http::{Failure, Server, form_body, now, whole_body};

/// The beginning of the paths of webhooks, which need no session.
pub(crate) const HOOKS: &str = "/hooks/";

/// The beginning of the keys of their messages.
pub(crate) const HOOK_KEY: &str = "webhook:";

/// The headers that no plugin reads: they can name a person to this server.
const WITHHELD: [HeaderName; 3] = [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE];

/// The routes of webhooks.
pub(crate) fn routes() -> Vec<(&'static str, MethodRouter<Server>)> {
    vec![("/hooks/{channel}", post(receive))]
}

/// What a sender says; other fields are left to it.
#[derive(Deserialize)]
struct HookBody {
    data: HookData,
}

#[derive(Deserialize)]
struct HookData {
    text: String,
    /// The conversation; without one, the channel's own.
    room: Option<String>,
    /// The task that should answer.
    task: Option<TaskName>,
    /// Only what this host sends has it: with the same secret it could be sent back.
    channel: Option<IgnoredAny>,
}

async fn receive(
    State(server): State<Server>,
    Path(channel): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let channel = ChannelId::from(channel);
    if server.conversations().prepared().endpoints().plugin(&channel).is_some() {
        let request = ChannelRequest {
            headers: readable(&headers),
            query: query.unwrap_or_default(),
            body: whole_body(request).await?.to_vec(),
            time: now().0,
        };
        return Ok(receive_by_plugin(&server, &channel, request).await?);
    }
    let body = form_body(request).await?;
    let text =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (id, time) = (text(ID), text(TIMESTAMP));
    let at = now();
    let unverified = server.hook_permit()?;
    let sender = server
        .conversations()
        .verify_hook(HookRequest {
            channel: &channel,
            headers: SignedHeaders { id, time, signatures: text(SIGNATURE) },
            body: body.as_bytes(),
            now: at.0 / 1000,
        })
        .await?;
    drop(unverified);
    // Only then: a stranger takes none of the places of those who may act.
    let _permit = server.acting_permit()?;
    let HookBody { data } = serde_json::from_str(&body).map_err(|error| {
        bad_arguments(&format!("the body must be {{\"data\": {{\"text\": …}}}}: {error}"))
    })?;
    if data.channel.is_some() {
        return Err(bad_arguments("the message is one that a host has sent").into());
    }
    let signed = Millis(time.parse::<u64>().unwrap_or_default().saturating_mul(1000));
    let conversation =
        server.conversations().of_hook(&channel, data.room.as_deref(), signed).await?;
    let handle = conversation.handle().ok_or_else(Failure::over)?;
    let accepted = handle
        .inbound(Inbound {
            sender,
            // Beside the keys of the page, whose clients choose them.
            key: Some(format!("{HOOK_KEY}{channel}/{id}")),
            to: data.task,
            ..Inbound::new(channel.clone(), data.text)
        })
        .await?;
    let answer = json!({
        "room": conversation.room(), "index": accepted.index, "duplicate": accepted.duplicate,
    });
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

/// The headers of a request for a plugin. One that is no text cannot be one of a signature.
fn readable(headers: &HeaderMap) -> Vec<(String, String)> {
    let readable = headers.iter().filter(|(name, _)| !WITHHELD.contains(name));
    let texts = readable.filter_map(|(name, value)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    });
    texts.collect()
}

/// Has the plugin of a channel read a request, and says its messages in their conversations.
async fn receive_by_plugin(
    server: &Server,
    channel: &ChannelId,
    request: ChannelRequest,
) -> Result<Response, Failure> {
    let unverified = server.hook_permit()?;
    let at = Millis(request.time);
    let reception = server.conversations().read_hook(channel, request).await?;
    drop(unverified);
    let messages = match reception {
        ChannelReception::Messages { messages } => messages,
        ChannelReception::Answer { is_json, body } => {
            let kind = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
            return Ok(([(CONTENT_TYPE, kind)], body).into_response());
        }
        // The runtime returns it as an error.
        ChannelReception::Refused { .. } => return Err(HookRefusal::Unsigned.into()),
    };
    let _permit = server.acting_permit()?;
    let mut rows = Vec::new();
    for message in messages {
        let row = say(server, channel, at, message).await;
        rows.push(match row {
            Ok(row) => row,
            // The service sends all of them again, and those before are known by their ids.
            Err(failure) if failure.is_temporary() => return Err(failure),
            Err(failure) => json!({ "refused": failure.into_parts().1["error"] }),
        });
    }
    Ok(Json(json!({ "messages": rows })).into_response())
}

/// Says a message in the conversation of its address.
async fn say(
    server: &Server,
    channel: &ChannelId,
    at: Millis,
    message: ReceivedMessage,
) -> Result<Value, Failure> {
    let ReceivedMessage { id, sender, conversation, text } = message;
    let conversation = server.conversations().of_address(channel, &conversation, at).await?;
    let handle = conversation.handle().ok_or_else(Failure::over)?;
    let accepted = handle
        .inbound(Inbound {
            sender: format!("{CHANNEL_PREFIX}{channel}/{sender}"),
            key: Some(format!("{HOOK_KEY}{channel}/{id}")),
            ..Inbound::new(channel.clone(), text)
        })
        .await?;
    let room = conversation.room();
    Ok(json!({ "room": room, "index": accepted.index, "duplicate": accepted.duplicate }))
}

impl From<HookRefusal> for Failure {
    fn from(refusal: HookRefusal) -> Self {
        let (status, code) = match refusal {
            HookRefusal::Unsigned => (StatusCode::UNAUTHORIZED, "wrong_signature"),
            HookRefusal::Time => (StatusCode::UNAUTHORIZED, "wrong_time"),
            // The same as of a channel that does not exist.
            HookRefusal::Refused(_) => return HookRefusal::Unsigned.into(),
            // The operator sees the reason.
            HookRefusal::Failed(_) => {
                return Self::new(StatusCode::SERVICE_UNAVAILABLE, "failed", FAILED);
            }
            HookRefusal::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        };
        Self::new(status, code, refusal.to_string())
    }
}

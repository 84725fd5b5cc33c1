//! Requests that the plugin of a channel reads. Each message is said in the conversation of its
//! address, as one of the channel.

use axum::Json;
use axum::extract::Request;
use axum::http::header::{
    AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, PROXY_AUTHORIZATION,
};
use axum::response::{IntoResponse, Response};
use conclave_core::setup::plugin_query::{ChannelReception, ChannelRequest, ReceivedMessage};
use conclave_core::types::ids::{CHANNEL_PREFIX, ChannelId, Millis, Principal};
use conclave_core::types::request::Inbound;
use conclave_runtime::endpoints::HookRefusal;
use serde_json::{Value, json};

use super::HOOK_KEY;
use crate::gateway::Gateway;
use crate::http::{Failure, Server, now, whole_body};

/// The headers that no plugin reads: they can name a person to this server.
const WITHHELD: [HeaderName; 3] = [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE];

/// The server of the config that has the channel with a plugin; `None` if none has, or several have
/// and `config` names none of them.
pub(super) fn server_of<'g>(
    gateway: &'g Gateway,
    (channel, config): (&ChannelId, Option<&str>),
) -> Option<&'g Server> {
    let has_channel = |server: &&Server| {
        let is_named = config.is_none_or(|config| config == server.name());
        is_named && server.conversations().prepared().endpoints().plugin(channel).is_some()
    };
    let mut servers = gateway.servers().filter(has_channel);
    servers.next().filter(|_| servers.next().is_none())
}

/// Has the plugin read a request, and says its messages.
pub(super) async fn receive(
    server: &Server,
    channel: &ChannelId,
    request: Request,
) -> Result<Response, Failure> {
    let headers = readable(request.headers());
    let query = request.uri().query().unwrap_or_default().to_owned();
    // Read before it takes a place: a stranger who sends slowly must not hold one.
    let body = whole_body(request).await?.to_vec();
    let unverified = server.hook_permit()?;
    let request = ChannelRequest { headers, query, body, time: now().0 };
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
    server.conversations().check_access(channel)?;
    let _permit = server.acting_permit()?;
    let mut rows = Vec::new();
    for message in messages {
        rows.push(match say(server, channel, at, message).await {
            Ok(row) => row,
            // The service sends all of them again, and those before are known by their ids.
            Err(failure) if failure.is_temporary() => return Err(failure),
            Err(failure) => json!({ "refused": failure.error_code() }),
        });
    }
    Ok(Json(json!({ "messages": rows })).into_response())
}

/// The headers for a plugin. One that is no text cannot be one of a signature.
fn readable(headers: &HeaderMap) -> Vec<(String, String)> {
    let readable = headers.iter().filter(|(name, _)| !WITHHELD.contains(name));
    let texts = readable.filter_map(|(name, value)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    });
    texts.collect()
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
    let message = Inbound {
        sender: format!("{CHANNEL_PREFIX}{channel}/{sender}"),
        key: Some(format!("{HOOK_KEY}{channel}/{id}")),
        ..Inbound::new(channel.clone(), text)
    };
    let by = Principal(format!("{CHANNEL_PREFIX}{channel}").into());
    let accepted = server.inbound(&conversation, &by, message).await?;
    let room = conversation.room();
    Ok(json!({ "room": room, "index": accepted.index, "duplicate": accepted.duplicate }))
}

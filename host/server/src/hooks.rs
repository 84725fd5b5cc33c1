//! Webhooks that come in: `POST /hooks/CHANNEL`, signed with the secret of the channel, and requests
//! that the plugin of a channel reads (`by_plugin`). The signature
//! takes the place of a session, and says of several configs which one is meant: nothing that is not
//! signed does. From there on it is a message of the channel like any other: its access, rate, keys
//! and gates apply. Each request is counted, and the operator reads of those that were refused.

mod by_plugin;
mod counts;

use axum::Extension;
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::http::header::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use axum::{Json, http::Uri};
use conclave_core::types::ids::{ChannelId, Millis, Principal, TaskName, WEBHOOK_PREFIX};
use conclave_core::types::request::Inbound;
use conclave_runtime::endpoints::{HookRefusal, HookRequest};
use conclave_runtime::webhook::{ID, SIGNATURE, SignedHeaders, TIMESTAMP};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::api::{Problem, bad_arguments};
use crate::conversations::FAILED;
use crate::gateway::{Gateway, config_of};
use crate::http::{Failure, Server, now, text_body};

pub(crate) use counts::{HookCounts, HookReports};

/// The beginning of the paths of webhooks, which need no session.
pub(crate) const HOOKS: &str = "/hooks/";

/// The beginning of the keys of their messages.
pub(crate) const HOOK_KEY: &str = "webhook:";

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

/// A request that a secret has signed.
struct SignedHook<'g> {
    /// The server of the config with the secret.
    server: &'g Server,
    sender: String,
    body: String,
    id: String,
    time: String,
}

async fn receive(
    Extension(gateway): Extension<Gateway>,
    Path(channel): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let channel = ChannelId::from(channel);
    let config = config_of(&uri);
    let of = (&channel, config.as_deref());
    let (server, accepted) = match by_plugin::server_of(&gateway, of) {
        Some(server) => (Some(server), by_plugin::receive(server, &channel, request).await),
        None => match signed_hook(&gateway, of, &headers, request).await {
            Ok(signed) => (Some(signed.server), accept(&channel, signed).await),
            Err(failure) => (None, Err(failure)),
        },
    };
    count(&gateway, (&channel, server), accepted.as_ref().err());
    Ok(accepted?)
}

/// Finds the config whose secret has signed a request.
///
/// # Errors
/// `wrong_signature`, also if `config` is another one; `ambiguous_webhook` if several have the
/// secret: then what was sent to one could be sent to the other.
async fn signed_hook<'g>(
    gateway: &'g Gateway,
    (channel, config): (&ChannelId, Option<&str>),
    headers: &HeaderMap,
    request: Request,
) -> Result<SignedHook<'g>, Failure> {
    let body = text_body(request).await?;
    let text =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (id, time) = (text(ID), text(TIMESTAMP));
    let (mut signed, mut refusal) = (Vec::new(), HookRefusal::Unsigned);
    for server in gateway.servers() {
        let _unverified = server.hook_permit()?;
        let verified = server.conversations().verify_hook(HookRequest {
            channel,
            headers: SignedHeaders { id, time, signatures: text(SIGNATURE) },
            body: body.as_bytes(),
            now: now().0 / 1000,
        });
        match verified.await {
            Ok(sender) => signed.push((server, sender)),
            Err(HookRefusal::Unsigned) => {}
            Err(other) => refusal = other,
        }
    }
    let (id, time) = (id.to_owned(), time.to_owned());
    match <[_; 1]>::try_from(signed) {
        Ok([(server, _)]) if config.is_some_and(|config| config != server.name()) => {
            Err(HookRefusal::Unsigned.into())
        }
        Ok([(server, sender)]) => Ok(SignedHook { server, sender, body, id, time }),
        Err(none) if none.is_empty() => Err(refusal.into()),
        Err(_) => {
            let what = "several configs have this webhook with the same secret; give each a secret of its own";
            Err(Failure::new(StatusCode::CONFLICT, "ambiguous_webhook", what))
        }
    }
}

async fn accept(channel: &ChannelId, signed: SignedHook<'_>) -> Result<Response, Failure> {
    let SignedHook { server, sender, body, id, time } = signed;
    // Only now: a stranger takes none of the places of those who may act.
    let _permit = server.acting_permit()?;
    let HookBody { data } = serde_json::from_str(&body).map_err(|error| {
        bad_arguments(&format!("the body must be {{\"data\": {{\"text\": …}}}}: {error}"))
    })?;
    if data.channel.is_some() {
        return Err(bad_arguments("the message is one that a host has sent"));
    }
    server.conversations().check_access(channel)?;
    let signed = Millis(time.parse::<u64>().unwrap_or_default().saturating_mul(1000));
    let conversation =
        server.conversations().of_hook(channel, data.room.as_deref(), signed).await?;
    let by = Principal(format!("{WEBHOOK_PREFIX}{channel}").into());
    let message = Inbound {
        sender,
        // Beside the keys of the page, whose clients choose them.
        key: Some(format!("{HOOK_KEY}{channel}/{id}")),
        to: data.task,
        ..Inbound::new(channel.clone(), data.text)
    };
    let accepted = server.inbound(&conversation, &by, message).await?;
    let answer = json!({
        "room": conversation.room(), "index": accepted.index, "duplicate": accepted.duplicate,
    });
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

/// Counts a request at the config that it is of. One that nothing has signed is of those that have
/// the channel, or of none in particular.
fn count(
    gateway: &Gateway,
    (channel, signed): (&ChannelId, Option<&Server>),
    refused: Option<&Failure>,
) {
    let code = refused.map_or("accepted", Failure::error_code);
    let has_channel = |server: &&Server| server.conversations().takes_hooks(channel);
    let with_channel: Vec<&Server> = gateway.servers().filter(has_channel).collect();
    let is_known = !with_channel.is_empty();
    let of: Vec<&Server> = match signed {
        Some(server) => vec![server],
        None if is_known => with_channel,
        None => gateway.servers().collect(),
    };
    of.into_iter().for_each(|server| server.hook_counts().add(code));
    if refused.is_some() {
        // The name of a channel that is none is a stranger's text.
        gateway.report_hook(is_known.then_some(channel), code);
    }
}

impl From<HookRefusal> for Failure {
    fn from(refusal: HookRefusal) -> Self {
        let (status, code) = match refusal {
            HookRefusal::Unsigned => (StatusCode::UNAUTHORIZED, "wrong_signature"),
            HookRefusal::Time => (StatusCode::UNAUTHORIZED, "wrong_time"),
            // As for a channel that does not exist.
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
